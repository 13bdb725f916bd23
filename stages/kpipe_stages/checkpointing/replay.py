"""Does a state hold all that decides? The first steps are taken twice from one state and compared bit for bit: seen, not assumed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from kpipe_stages.checkpointing.record import Witness
from kpipe_stages.checkpointing.state import State, StateError, capture, difference, restore

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
        def __init__(self, start: State | None) -> None:
            super().__init__()
            self.start, self.after, self.loss, self.grew = start, None, math.nan, ""
            self.begun, self.first_s = time.perf_counter(), 0.0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002  # Keras names it
            self.first_s = self.first_s or time.perf_counter() - self.begun

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  # as above
            if self.start is None:
                self.start = capture(self.model)
                return
            try:
                restore(self.model, self.start)
            except StateError as error:
                self.grew = str(error)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  # as above
            self.after = capture(self.model)
            self.loss = float((logs or {}).get("loss", math.nan))

    steps = min(STEPS, data.all)
    passes: list[Any] = []
    for start in (None, True):
        data.enter(0, 0, steps)
        passes.append(Pass(passes[0].start if start else None))
        model.fit(data, epochs=1, callbacks=[passes[-1]], shuffle=False, verbose=0)
    first, second = passes
    differs = second.grew or difference(first.after, second.after)
    return Replay(first.start, Witness(steps, first.start.sha256(), first.after.sha256(), first.loss, differs), second.grew, first.first_s)


def against(before: Witness, now: Witness) -> list[str]:
    """Why a fresh process isn't bit for bit the one that began the training; empty where the first steps are the same bits in both."""
    if before.before_sha256 != now.before_sha256:
        return ["before any step the recipe made another model or other random generators here than it did then"]
    if before.after_sha256 != now.after_sha256:
        return [
            f"the first {now.steps} steps gave other bits here than then: loss {now.loss:.9g}, then {before.loss:.9g}; what comes of it differs from an uninterrupted run"
        ]
    return []
