"""The ways of running one target's golden inputs, one after another, and what each of them found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kpipe_stages.answers import ModeWriter, difference, same_bits
from kpipe_stages.arrangement import arrangements, batches_of, lonely
from kpipe_stages.feeds import lonely_rows, split_answer, without_padding
from kpipe_stages.permuting import Prober
from kpipe_stages.protocol import ProbeResult, StageError
from kpipe_stages.rows import Rows
from kpipe_stages.session import TrainingUnset, check_artifact, fault, layer_in, raise_if_out_of_memory, telling_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe_stages.arrangement import Arrangement
    from kpipe_stages.feeds import Golden
    from kpipe_stages.protocol import RunJob
    from kpipe_stages.session import Answer, Engine, Feeds, Session
    from kpipe_stages.worker import Worker

    Batch = tuple[tuple[int, ...], tuple[int, ...]]

PROGRESS_ROWS = 20
DEFAULT_MODE = "machine_default"
REPEAT_MODE = "repeat"
UNSET_MODE = "training_unset"
PROBE_ROWS = 8


@dataclass
class Record:
    """What the modes found, filled as they run."""

    modes: list[str] = field(default_factory=list)
    not_offered: list[str] = field(default_factory=list)
    unbatched: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    lonely_rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    repeats_equal: bool | None = None
    repeats: int = 0
    repeat_difference: float = 0.0
    repeat_differences: dict[str, float] = field(default_factory=dict)
    training_unset_repeats: bool | None = None
    probe: ProbeResult | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    padded_rows: dict[str, tuple[int, ...]] = field(default_factory=dict)


def answer(session: Session, feeds: Feeds) -> Answer:
    """One inference; its outputs are exactly the model's.

    Raises:
        StageError: KP407, an output is missing or extra.
    """
    outputs = session.infer(feeds)
    wanted = [spec.name for spec in session.signature.outputs]
    if set(outputs) != set(wanted):
        raise fault(
            "KP407",
            f"The runtime gave the outputs {sorted(outputs)}; the model has {sorted(wanted)}.",
            "Export the artifact again from this very model.",
            given=sorted(outputs),
            wanted=sorted(wanted),
        )
    return outputs


def alone_or_fault(session: Session, feeds: Feeds, row: int) -> Answer:
    """`answer`, where a failure is the target's.

    Raises:
        StageError: KP311 (the runtime's own message), KP407.
        MemoryError: there wasn't the memory for it.
    """
    try:
        return answer(session, feeds)
    except StageError:
        raise
    except Exception as error:  # runtimes raise what they like; a target that can't answer one input alone has failed, by name
        raise_if_out_of_memory(error)
        shapes = {name: list(array.shape) for name, array in feeds.items()}
        layer = layer_in(error)
        raise fault(
            "KP311",
            f"Golden input {row} can't be run{f', in layer {layer}' if layer else ''}: {type(error).__name__}: {telling_line(error)} (shapes {shapes}).",
            f"Replace layer '{layer}' by one that this runtime can compute, or leave the target out of the contract."
            if layer
            else "Check that the artifact takes inputs of this shape, and that the runtime's version fits the exporter's.",
            place=layer or f"golden input {row}",
            row=row,
            shapes=shapes,
        ) from error


class Modes:
    """Runs the modes of one target, one after another."""

    def __init__(self, order: RunJob, worker: Worker, engine: Engine, golden: Golden, fixed: int | None, record: Record) -> None:
        self.order = order
        self.worker = worker
        self.engine = engine
        self.golden = golden
        self.fixed = fixed
        self.batch = fixed or 1
        self.record = record

    def run(self, session: Session) -> Session:
        """Run all of them; return the session to go on with (another one where a refused mode may have spoilt the first)."""
        self._alone("alone", session)
        sizes = dict.fromkeys(self.order.batches)
        if self.batch > 1:
            sizes[self.batch] = None  # different rows side by side, in the one size that the artifact takes
        for size in sizes:
            if self.fixed is not None and (size != self.fixed or size == 1):
                self.record.not_offered.append(f"batch_{size}")
            elif not self._try(f"batch_{size}", session, size):
                session = self._open_again()
        if self.order.arranged:
            session = self._arranged(session)
        if self.order.repeat > 0 and not self._repeat(session):
            session = self._open_again()
        if self.order.probe_binding:
            unbatched = frozenset(self.record.unbatched.get("alone", ()))
            self.record.probe, session = Prober(self.order, self.worker.folder, self.fixed, unbatched, self._open_again).run(session)
        if self.order.probe_training_unset:
            self._probe_training_unset(session)
        if self.order.probe_default:
            self._probe_default()
        return session

    def _arranged(self, session: Session) -> Session:
        """Every input at the positions of a batch and beside others; the session to go on with."""
        offered = arrangements(self.order.arranged, self.fixed)
        names = {arrangement.mode for arrangement in offered}
        self.record.not_offered += [a.mode for a in arrangements(self.order.arranged, None) if a.mode not in names]
        for arrangement in offered:
            if not self._try_arrangement(arrangement, session):
                session = self._open_again()
        return session

    def _open_again(self, **changes: Any) -> Session:
        order = replace(self.order, **changes)
        check_artifact(order.artifact, order.sha256, order.companions)
        session = self.engine.open(order, {**order.chosen, **order.settings})
        session.infer(self.golden.batch([self.golden.present[0]] * self.batch))
        return session

    def _write(self, mode: str, session: Session, batches: Sequence[Batch]) -> None:
        """Answer every row from ``batches`` (rows, and the positions of those that count), and write the answers down."""
        names = [spec.name for spec in session.signature.outputs]
        known = frozenset(self.record.unbatched.get("alone", ()))
        whole: frozenset[str] | None = None
        padded: dict[int, bool] = {}  # of the first batch that holds the row: its answer comes from there
        axes = {spec.name: spec.shape for spec in session.signature.outputs}
        writer = ModeWriter(self.worker.folder / "outputs" / mode, names, self.golden.rows, self.golden.present)
        with writer:
            for done, (indices, counted) in enumerate(batches):
                feeds = self.golden.batch(indices)
                outputs = alone_or_fault(session, feeds, indices[0]) if mode == "alone" else answer(session, feeds)
                rows, now = split_answer(outputs, len(indices), known)
                whole = now if whole is None else whole
                if now != whole:
                    raise ValueError(f"the batch axis of {sorted(now ^ whole)} comes and goes between calls")
                for at in counted:
                    spans = self.golden.spans(indices, at)
                    padded.setdefault(indices[at], bool(spans))
                    writer.add(indices[at], without_padding(rows[at], axes, spans, now))
                if done % max(1, PROGRESS_ROWS // len(counted)) == 0:
                    self.worker.progress(f"{self.order.runtime} {mode}", min(done * len(counted), self.golden.rows), self.golden.rows)
            writer.finish()
        if whole:
            self.record.unbatched[mode] = tuple(name for name in names if name in whole)
        self.record.modes.append(mode)
        if any(padded.values()):
            self.record.padded_rows[mode] = tuple(sorted(row for row, filled in padded.items() if filled))

    def _alone(self, mode: str, session: Session) -> None:
        batches: list[Batch] = [((row,) * self.batch, (0,)) for row in self.golden.present]
        try:
            self._write(mode, session, batches)
        except ValueError as error:
            if mode != "alone":
                raise
            raise fault(
                "KP311", f"The answers to single inputs don't fit together: {error}.", "Mend the artifact: each output needs one dtype and one rank."
            ) from error

    def _try(self, mode: str, session: Session, size: int) -> bool:
        batches = self.golden.plan(size)
        every = tuple(range(size))
        return self._attempt(mode, session, [(batch, every) for batch in batches], lonely_rows(batches, self.golden.contents))

    def _try_arrangement(self, arrangement: Arrangement, session: Session) -> bool:
        batches = batches_of(arrangement, self.golden.kinds)
        return self._attempt(arrangement.mode, session, batches, lonely(batches, self.golden.contents))

    def _attempt(self, mode: str, session: Session, batches: Sequence[Batch], lonely_ones: tuple[int, ...]) -> bool:
        """Run a mode that the runtime may refuse; False where it did."""
        try:
            self._write(mode, session, batches)
        except StageError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the runtime says against this mode is its answer; the cells of the mode fail with it
            raise_if_out_of_memory(error)
            self.record.failed[mode] = f"{type(error).__name__}: {telling_line(error)}"
            return False
        self.record.lonely_rows[mode] = lonely_ones
        return True

    def _repeat(self, session: Session) -> bool:
        """Run alone again, as often as asked, and compare bit for bit with the first time."""
        names = [spec.name for spec in session.signature.outputs]
        first = {name: Rows(self.worker.folder / "outputs" / "alone" / str(position)) for position, name in enumerate(names)}
        known = frozenset(self.record.unbatched.get("alone", ()))
        equal, moved = True, dict.fromkeys(names, 0.0)
        try:
            for time in range(self.order.repeat):
                for row in self.golden.present:
                    outputs = answer(session, self.golden.batch([row] * self.batch))
                    again = split_answer(outputs, self.batch, known)[0][0]
                    for name in names:
                        if not same_bits(again[name], first[name][row]):
                            equal, moved[name] = False, max(moved[name], difference(again[name], first[name][row]))
                    if row % PROGRESS_ROWS == 0:
                        self.worker.progress(
                            f"{self.order.runtime} {REPEAT_MODE}", time * self.golden.rows + row, self.order.repeat * self.golden.rows
                        )
                self.record.repeats = time + 1
        except StageError:
            raise
        except Exception as error:  # noqa: BLE001 - it answered every row before: not repeatable, and said so
            raise_if_out_of_memory(error)
            self.record.failed[REPEAT_MODE] = f"{type(error).__name__}: {telling_line(error)}"
            equal, moved = False, dict.fromkeys(names, math.inf)
        self.record.repeats_equal, self.record.repeat_differences = equal, moved
        self.record.repeat_difference = max(moved.values(), default=0.0)
        return REPEAT_MODE not in self.record.failed

    def _probe_training_unset(self, session: Session) -> None:
        if not isinstance(session, TrainingUnset):
            raise TypeError(f"probe_training_unset was asked of {self.order.runtime}, which isn't a Keras model")
        size = self.batch if self.batch > 1 else min(PROBE_ROWS, len(self.golden.present))
        feeds = self.golden.batch(self.golden.plan(size)[0])
        try:
            first, second = session.infer_training_unset(feeds), session.infer_training_unset(feeds)
        except Exception as error:  # noqa: BLE001 - a model that can't be called so is a fact about it: the probe stays unanswered, with the message
            raise_if_out_of_memory(error)
            self.record.failed[UNSET_MODE] = f"{type(error).__name__}: {telling_line(error)}"
            return
        self.record.training_unset_repeats = all(same_bits(first[name], second[name]) for name in first)

    def _probe_default(self) -> None:
        """Run alone on a session without the settings that kpipe chose."""
        try:
            session = self._open_again(chosen={})
            self._alone(DEFAULT_MODE, session)
        except Exception as error:  # noqa: BLE001 - the probe is a question about this machine; a refusal is its answer, and never a pass
            raise_if_out_of_memory(error)
            self.record.failed[DEFAULT_MODE] = f"{type(error).__name__}: {telling_line(error)}"
            return
        described = session.describe()
        self.record.facts[DEFAULT_MODE] = {"precision": described.precision, "devices": list(described.devices), **described.facts}
