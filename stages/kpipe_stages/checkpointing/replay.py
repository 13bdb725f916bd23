"""Does a state hold all that decides? The first steps are taken twice from one state and compared bit for bit: seen, not assumed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from kpipe_stages.checkpointing.record import Witness
from kpipe_stages.checkpointing.state import State, capture, difference, restore_random, variables

STEPS = 2


@dataclass(frozen=True)
class Replay:
    """What was seen."""

    start: State
    """Before any step: the training begins from here."""
    witness: Witness
    grew: str
    """Why ``start`` can't be put back any more: the model made variables while it trained; empty where it can."""
    compile_s: float
    """To the end of the first step."""


def replay(model: Any, data: Any) -> Replay:
    """Take the first steps twice. The model is left somewhere behind them: put ``start`` back.

    Args:
        model: compiled.
        data: an `kpipe_stages.checkpointing.ordered.ordered` of the training data.
    """
    import keras

    class Pass(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
        after: State
        loss = math.nan
        first_s = 0.0

        def __init__(self, beginning: Beginning) -> None:
            super().__init__()
            self.beginning, self.begun = beginning, time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002  # Keras names it
            self.first_s = self.first_s or time.perf_counter() - self.begun

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  # as above
            self.beginning.enter(self.model)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  # as above
            self.after = capture(self.model)
            self.loss = float((logs or {}).get("loss", math.nan))

    steps = min(STEPS, data.all)
    beginning = Beginning()
    passes = [Pass(beginning), Pass(beginning)]
    for one in passes:
        data.enter(0, 0, steps)
        model.fit(data, epochs=1, callbacks=[one], shuffle=False, verbose=0)
    first, second = passes
    start = beginning.state
    if start is None:  # what called no callback was no fit
        raise RuntimeError("Model.fit ran no epoch")
    differs = beginning.grew or difference(first.after, second.after)
    witness = Witness(steps, start.sha256(), first.after.sha256(), first.loss, differs)
    return Replay(start, witness, beginning.grew, first.first_s)


@dataclass
class Beginning:
    """The state before any step; what the first pass adds to it (metrics, on some backends) begins at zero."""

    state: State | None = None
    grew: str = ""
    _known: tuple[Any, ...] = ()

    def enter(self, model: Any) -> None:
        """Note the state, or put it back."""
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        if self.state is None:
            self._known = tuple(variable for _, variable in variables(model))
            self.state = capture(model)
            return
        held = {id(variable) for variable in self._known}
        new = [f"{variable.path} ({group})" for group, variable in variables(model) if id(variable) not in held and group != "metrics"]
        for variable, array in zip(self._known, self.state.arrays, strict=True):
            variable.assign(array)
        if new:
            self.grew = ", ".join(new[:3])
            return
        model.reset_metrics()
        restore_random(self.state.random)
        self.state = capture(model)


def against(before: Witness, now: Witness) -> list[str]:
    """Why a fresh process isn't bit for bit the one that began the training; empty where the first steps are the same bits in both."""
    if before.before_sha256 != now.before_sha256:
        return ["before any step the recipe made another model or other random generators here than it did then"]
    if before.after_sha256 != now.after_sha256:
        return [
            f"the first {now.steps} steps gave other bits here than then: loss {now.loss:.9g}, then {before.loss:.9g}; what comes of it differs from an uninterrupted run"
        ]
    return []
