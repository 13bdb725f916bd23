"""The training itself: `Model.fit` on data whose order can be entered anywhere, with checkpoints on the way.

A training that was interrupted inside an epoch goes on with a fit over the rest of that epoch and another over the epochs after it; what the end
of the first does to the weights (averages that are put in their place) is undone before the second, so the two are one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kpipe_stages.checkpointing.keeper import Keeper
from kpipe_stages.checkpointing.state import State, capture, restore
from kpipe_stages.protocol import Epoch
from kpipe_stages.recipe import Recipe
from kpipe_stages.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass
class Clock:
    """What the training loop tells while it runs."""

    started: float = 0.0
    compile_s: float = 0.0
    epoch_started: float = 0.0
    epochs: list[Epoch] = field(default_factory=list)


@dataclass
class Fit:
    """One training: its parts, and where it stands."""

    recipe: Recipe
    model: Any
    epochs: int
    validation: tuple[Any, Any]
    clock: Clock
    worker: Worker
    keeper: Keeper | None = None
    """None where there are no checkpoints."""
    state: State | None = None
    """Where to begin; None for the model as it is."""
    epoch: int = 0
    batch: int = 0
    _first: int = 0
    """Batches of the epoch that were done before this fit."""

    def plain(self, x: Any, y: Any) -> None:
        """Train on data that only Keras can order."""
        self.clock.started = time.perf_counter()
        self.model.fit(x, y, batch_size=self.recipe.batch_size, epochs=self.epochs, callbacks=[_watcher(self)], **self._others())

    def ordered(self, data: Any) -> None:
        """Train on an `kpipe_stages.checkpointing.ordered.ordered`, from `epoch` and `batch` on."""
        self.clock.started = time.perf_counter()
        if self.batch:
            self._fit(data, self.epoch + 1)
        self._fit(data, self.epochs)

    def _fit(self, data: Any, until: int) -> None:
        data.enter(self.epoch, self.batch)  # fit asks for the number of batches once, at its start
        self.model.fit(data, initial_epoch=self.epoch, epochs=until, callbacks=[_watcher(self, data)], shuffle=False, **self._others())

    def _others(self) -> dict[str, Any]:
        return {"validation_data": self.validation, "validation_batch_size": self.recipe.batch_size, "verbose": 0}

    def restore(self, model: Any) -> None:
        """Put the state in place that was waiting to be."""
        self._first = self.batch
        if self.state is None:
            return
        restore(model, self.state)
        self.state = None
        if not self.batch:  # at an epoch's end its metrics were still there; the next one begins without
            model.reset_metrics()

    def stepped(self, batch: int, steps: int) -> None:
        """Note a batch: the ``batch``-th of this fit's epoch, from 0; ``steps`` an epoch, 0 for unknown."""
        self.clock.compile_s = self.clock.compile_s or time.perf_counter() - self.clock.started
        self.batch = self._first + batch + 1
        self.worker.progress(f"epoch {self.epoch + 1}/{self.epochs}", self.batch, steps)

    def ended(self, epoch: int, logs: Mapping[str, Any], model: Any) -> None:
        """Note the end of an epoch; what comes after one that was entered in the middle begins from here."""
        metrics = {name: float(value) for name, value in logs.items()}
        self.clock.epochs.append(Epoch(epoch + 1, metrics, time.perf_counter() - self.clock.epoch_started))
        self.clock.epoch_started = 0.0
        if self._first:
            self.state = capture(model)
        self.epoch, self.batch, self._first = epoch + 1, 0, 0

    def due(self) -> bool:
        """Whether a checkpoint is, here."""
        return self.keeper is not None and self.keeper.due(self.epoch, self.batch)

    def keep(self, model: Any) -> None:
        """Have one written."""
        assert self.keeper is not None, "asked for where there are checkpoints"  # noqa: S101 - narrows the type
        running = time.perf_counter() - self.clock.epoch_started if self.batch else 0.0
        self.keeper.keep(model, self.epoch, self.batch, self.clock.epochs, running)


def _watcher(fit: Fit, data: Any = None) -> Any:
    """A Keras callback that puts the state in place, keeps the clock, reports progress and has checkpoints written."""
    import keras

    class Watcher(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002  # Keras names it
            if fit.epoch == fit.epochs:  # every epoch is done: only the end of the training is left
                fit.restore(self.model)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  # as above
            fit.restore(self.model)  # after Keras has reset the metrics, before it takes the variables
            fit.clock.epoch_started += time.perf_counter()
            if data is not None and not fit.batch:
                data.enter(epoch, 0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002  # as above
            fit.stepped(batch, data.all if data is not None else self.params.get("steps") or 0)
            if fit.due():  # `self.model` brings the variables up to date, which costs: only where they are wanted
                fit.keep(self.model)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            fit.ended(epoch, logs or {}, self.model)
            if fit.due():
                fit.keep(self.model)

    return Watcher()
