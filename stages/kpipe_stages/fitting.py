"""The training itself: `Model.fit` on data whose order can be entered anywhere, with checkpoints on the way.

A training that was interrupted inside an epoch goes on with a fit over the rest of that epoch and another over the epochs after it; what the end
of the first does to the weights (averages that are put in their place) is undone before the second, so the two are one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kpipe_stages.checkpointing.state import State, capture, restore
from kpipe_stages.protocol import Epoch

if TYPE_CHECKING:
    from kpipe_stages.checkpointing.keeper import Keeper
    from kpipe_stages.recipe import Recipe
    from kpipe_stages.worker import Worker


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
    """None where the data's order can't be known: no checkpoints."""
    state: State | None = None
    """Where to begin; None for the model as it is."""
    epoch: int = 0
    batch: int = 0

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


def _watcher(fit: Fit, data: Any = None) -> Any:
    """A Keras callback that puts the state in place, keeps the clock, reports progress and has checkpoints written."""
    import keras

    clock, keeper = fit.clock, fit.keeper

    class Watcher(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002  # Keras names it
            if fit.epoch == fit.epochs:  # every epoch is done: only the end of the training is left
                self._restore()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  # as above
            self._restore()  # after Keras has reset the metrics, before it takes the variables
            clock.epoch_started += time.perf_counter()
            if data is not None and not fit.batch:
                data.enter(epoch, 0)

        def _restore(self) -> None:
            if fit.state is not None:
                restore(self.model, fit.state)
                fit.state = None
                if not fit.batch:  # at an epoch's end its metrics were still there; the next one begins without
                    self.model.reset_metrics()
            self.base = fit.batch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002  # as above
            clock.compile_s = clock.compile_s or time.perf_counter() - clock.started
            fit.batch = self.base + batch + 1
            total = data.all if data is not None else self.params.get("steps") or 0
            fit.worker.progress(f"epoch {fit.epoch + 1}/{fit.epochs}", fit.batch, total)
            if keeper is not None and keeper.due(fit.epoch, fit.batch):
                keeper.keep(self.model, fit.epoch, fit.batch, clock.epochs, time.perf_counter() - clock.epoch_started)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            metrics = {name: float(value) for name, value in (logs or {}).items()}
            clock.epochs.append(Epoch(epoch + 1, metrics, time.perf_counter() - clock.epoch_started))
            clock.epoch_started = 0.0
            within = self.base > 0
            fit.epoch, fit.batch, self.base = epoch + 1, 0, 0
            if within:
                fit.state = capture(self.model)
            if keeper is not None and keeper.due(fit.epoch, 0):
                keeper.keep(self.model, fit.epoch, 0, clock.epochs, 0.0)

    return Watcher()
