"""What is timed: one call of the model, or one way from a raw file to a decision; and the clock around it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kpipe_stages.answers import widened
from kpipe_stages.decisions import Decision, decide, outputs_of
from kpipe_stages.feeds import stack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kpipe_stages.measure import Kept
    from kpipe_stages.protocol import DecisionSpec
    from kpipe_stages.session import Answer, Array

    Decisions = tuple[Decision, ...]


def readable(rule: DecisionSpec, get: Callable[[str], Array]) -> Any:
    """What a rule reads of one input: its output's array, or arrays by output name where it reads several."""
    names = outputs_of(rule)
    return get(rule.output) if names == (rule.output,) else {name: get(name) for name in names}


STEPS = ("read", "decode", "preprocess", "infer", "decide")
"""A raw file to its decision. Where the user's function or an ``.npz`` is read, reading counts as decoding."""


class Model:
    """Prepared tensors in, outputs out."""

    name = "model only"
    steps: Mapping[str, int] = {}

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def before(self, row: int) -> Any:
        """Untimed: the batch."""
        return self.kept.golden.batch([row] * self.kept.batch)

    def call(self, feeds: Any) -> tuple[Answer, Decisions | None]:
        """Timed; nothing is decided."""
        return self.kept.session.infer(feeds), None


class EndToEnd:
    """A raw file in, a decision out."""

    name = "end to end"

    def __init__(self, kept: Kept) -> None:
        from kpipe_stages.preprocess import Preprocessor

        self._kept = kept
        self.steps: dict[str, int] = dict.fromkeys(STEPS, 0)
        """Nanoseconds of each step in all calls so far."""
        self._inputs = {spec.name: Preprocessor(spec) for spec in kept.order.inputs}

    def before(self, row: int) -> int:
        """Untimed: nothing is prepared."""
        return row

    def call(self, row: int) -> tuple[Answer, Decisions | None]:
        """Timed: read, decode, preprocess, infer, decide by every rule."""
        kept, tell = self._kept, time.perf_counter_ns
        files = kept.order.items[row].files
        start = tell()
        raw = {name: preprocessor.raw(files[name]) for name, preprocessor in self._inputs.items()}
        has_read = tell()
        arrays = {name: self._decoded(name, data, files[name]) for name, data in raw.items()}
        has_decoded = tell()
        feeds = stack([{name: preprocessor.apply(arrays[name]) for name, preprocessor in self._inputs.items()}] * kept.batch)
        has_prepared = tell()
        outputs = kept.session.infer(feeds)
        has_inferred = tell()
        decisions = tuple(decide(rule, readable(rule, lambda name: self._first(outputs, name))) for rule in kept.order.decisions)
        marks = (start, has_read, has_decoded, has_prepared, has_inferred, tell())
        for name, before, after in zip(STEPS, marks, marks[1:], strict=False):
            self.steps[name] += after - before
        return outputs, decisions

    def _decoded(self, name: str, data: bytes | None, path: str) -> Array:
        preprocessor = self._inputs[name]
        return preprocessor.read(path) if data is None else preprocessor.decode(data, path)

    def _first(self, outputs: Answer, name: str) -> Array:
        value = outputs[name] if name in self._kept.unbatched else outputs[name][0]
        return widened(value) if value.dtype.kind == "V" else value  # numpy takes bfloat16 for raw bytes


def once(work: Any, row: int) -> tuple[float, Answer, Decisions | None]:
    """One timed call: its seconds, what it gave, what was decided. ``work`` is a `Model`, an `EndToEnd`, or has the same two methods."""
    given = work.before(row)
    start = time.perf_counter_ns()
    outputs, decisions = work.call(given)
    return (time.perf_counter_ns() - start) * 1e-9, outputs, decisions
