"""Run every golden input on one runtime, in every way that is asked for, and write down what it answers. Runtime-agnostic.

Ways of running ("modes"): ``alone`` (batches of one), ``batch_<k>`` (full batches of k), those of `kpipe_stages.arrangement` (at each position
of a batch, and beside others), ``machine_default`` (alone, without the settings that kpipe chose). A mode that the runtime refuses is listed as failed with its message; a failure alone ends the stage. Nothing is compared
here but a runtime with itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.cold import confine, drop_pages, more_inferences
from kpipe_stages.digest import digest
from kpipe_stages.disturbance import Waits, Watch
from kpipe_stages.feeds import Golden
from kpipe_stages.lean import without_extras
from kpipe_stages.modes import Modes, Record, alone_or_fault
from kpipe_stages.protocol import LoadTimes, RunJob, RunResult
from kpipe_stages.session import Engine, Session, check_artifact, fault

if TYPE_CHECKING:
    from kpipe_stages.preprocess import Preprocessor
    from kpipe_stages.protocol import Job
    from kpipe_stages.session import Array, Description
    from kpipe_stages.worker import Worker


PROGRESS_ITEMS = 20


@dataclass(frozen=True)
class Decoded:
    """What this process makes of the raw files."""

    here: bool | None
    """False where its interpreter can't decode them, None where there are none."""
    mismatches: tuple[str, ...] = ()
    """Ids of the golden inputs whose tensor isn't the prepared one."""
    usable: bool = False
    """Every raw file gives tensors of the prepared shapes and dtypes, so calls from it can be timed."""


@dataclass
class Kept:
    """What `run_target` leaves in the worker for the timed phase of the same process."""

    order: RunJob
    session: Session
    golden: Golden
    batch: int
    """Rows in a call: 1, or the artifact's fixed batch size."""
    unbatched: frozenset[str]
    """Outputs without a batch axis when run alone."""
    folder: Path
    """Where the alone answers lie, below ``outputs/alone``."""
    raw_usable: bool
    """Calls from the raw files can be timed (`Decoded.usable`)."""
    fixed: int | None
    """The only number of rows that a call may have."""
    engine: Engine

    def open_again(self) -> Session:
        """Another session of the same kind, where the runtime's refusal may have spoilt this one."""
        check_artifact(self.order.artifact, self.order.sha256, self.order.companions)
        self.session = self.engine.open(self.order, {**self.order.chosen, **self.order.settings})
        self.session.infer(self.golden.batch([self.golden.present[0]] * self.batch))
        return self.session


def run_target(job: Job, worker: Worker, engine: Engine) -> RunResult:
    """Open the artifact and run every golden input on it.

    Raises:
        StageError: KP210, KP211 (the artifact isn't there, or isn't the one that was checked), KP301 (the runtime can't be imported),
            KP303 (it can't load the artifact), KP101, KP104, KP110 (inputs), KP311 (it can't run one input alone), KP407 (outputs by name).
        MemoryError: a step of it had too little.
    """
    order = decode(RunJob, job.params)
    worker.distributions = list(engine.distributions)
    confine(order, worker)
    check_artifact(order.artifact, order.sha256, order.companions)
    dropped = order.drop_pages and drop_pages((order.artifact, *order.companions))
    watch, waits = Watch(), Waits()
    _, import_s = waits.during(lambda: worker.timed("import", lambda: _bring(engine, order)))
    lean = order.lean_import and "keras" in sys.modules
    session, load_s = waits.during(lambda: worker.timed("load", lambda: engine.open(order, {**order.chosen, **order.settings})))
    golden = Golden(order, session)
    _check_narrowing(worker, order, session, golden)
    fixed = fixed_size(order, session)
    batch = fixed or 1
    first = golden.present[0]
    feeds = golden.batch([first] * batch)
    _, first_s = waits.during(lambda: worker.timed("run", lambda: alone_or_fault(session, feeds, first)))
    window = watch.whole(1) if order.load_only else None  # elsewhere other workers of the run are at work
    described = session.describe()
    _observe_differing(worker, order, described)
    imported_s = import_s + sum(worker.inherited.imports.values())
    load = LoadTimes(
        import_s=imported_s, load_s=load_s, first_s=first_s, lean=lean, dropped=dropped, window=window, waited_s=waits.seconds, worked_s=waits.worked
    )
    record, decoded = Record(), Decoded(here=None)
    if order.load_only:
        load = more_inferences(load, session, golden, fixed)
    else:
        session = Modes(order, worker, engine, golden, fixed, record).run(session)
        decoded = check_tensors(order, golden, worker)
    worker.kept = Kept(order, session, golden, batch, frozenset(record.unbatched.get("alone", ())), worker.folder, decoded.usable, fixed, engine)
    return _result(worker.folder, session, record, decoded, described, load, fixed)


def fixed_size(order: RunJob, session: Session) -> int | None:
    """The only number of rows that a call may have: the artifact's, or the batch axis that the model itself fixes; None where it's free."""
    if order.fixed_batch is not None:
        return order.fixed_batch
    return next((spec.shape[0] for spec in session.signature.inputs if spec.shape and spec.shape[0] is not None), None)


def check_tensors(order: RunJob, golden: Golden, worker: Worker) -> Decoded:
    """Preprocess every golden input in this process, one after another, and compare with the prepared tensors bit for bit.

    Raises:
        ValueError: the job has raw files for another number of rows.
    """
    if not order.items:
        return Decoded(here=None)
    if len(order.items) != order.rows:
        raise ValueError(f"{len(order.items)} raw golden inputs for {order.rows} prepared rows")
    if not _can_decode(order):
        return Decoded(here=False)
    preprocessors = _preprocessors(order, worker)
    if preprocessors is None:
        return Decoded(here=True, mismatches=tuple(order.items[index].id for index in golden.present))
    differing, usable = [], True
    for index in golden.present:
        item, prepared = order.items[index], golden.row(index)
        if index % PROGRESS_ITEMS == 0:
            worker.progress(f"{order.runtime} preprocessing", index, order.rows)
        try:
            tensors = {name: preprocessor.from_path(item.files[name]) for name, preprocessor in preprocessors.items()}
        except ValueError:  # the file decoded when it was prepared: here it doesn't, so its tensor isn't the prepared one
            tensors = {}
        alike = {name: _kind(t) for name, t in tensors.items()} == {name: _kind(t) for name, t in prepared.items()}
        usable = usable and alike
        if not alike or any(_content(tensors[name]) != _content(prepared[name]) for name in prepared):
            differing.append(item.id)
    return Decoded(here=True, mismatches=tuple(differing), usable=usable)


def _kind(tensor: Array) -> tuple[tuple[int, ...], str]:
    """Shape and dtype; how wide NumPy stores texts, which is the longest one's width, says nothing."""
    return tensor.shape, "string" if tensor.dtype.kind == "U" else tensor.dtype.str


def _content(tensor: Array) -> bytes:
    """What two equal tensors share, bit for bit."""
    return repr(tensor.ravel().tolist()).encode("ascii", "backslashreplace") if tensor.dtype.kind == "U" else tensor.tobytes()


def _can_decode(order: RunJob) -> bool:
    """Whether this interpreter has what the inputs' raw files need: a library for their kind; what the user's own functions import."""
    from kpipe_stages.preprocess import PreprocessError, Preprocessor
    from kpipe_stages.preprocessing.libraries import MISSING

    try:
        for spec in order.inputs:
            Preprocessor(spec)
    except PreprocessError as error:
        return error.code != MISSING and not isinstance(error.__cause__, ImportError)
    return True


def _preprocessors(order: RunJob, worker: Worker) -> dict[str, Preprocessor] | None:
    """The inputs' preprocessors in this process; None, and an observation, where the user's function can't be loaded here."""
    from kpipe_stages.preprocess import PreprocessError, Preprocessor

    try:
        return {spec.name: Preprocessor(spec) for spec in order.inputs}
    except PreprocessError as error:
        worker.observe(error.code, f"In the process of {order.runtime}: {error.what} (expected {error.expected})", error.do, place=error.step)
        return None


def _bring(engine: Engine, order: RunJob) -> None:
    try:
        with without_extras(RUNTIMES[order.runtime].keras_backend, lean=order.lean_import):
            engine.bring(order)
    except ImportError as error:
        raise fault(
            "KP301",
            f"{order.runtime} can't be imported: {error}",
            f"Install {engine.distributions[0]} in this target's interpreter (pip install 'keras-kpipe[{order.runtime}]').",
            place=engine.distributions[0],
        ) from error


def _check_narrowing(worker: Worker, order: RunJob, session: Session, golden: Golden) -> None:
    """Whole numbers that the runtime can't hold: an error where it surely runs other inputs, an observation where it may compute wrongly."""
    for mapping, sure in ((session.narrows, True), (session.computes_as, False)):
        if (found := golden.narrowed(mapping)) is None:
            continue
        error = fault(
            "KP110" if sure else "KP108",
            f"Golden input {found.row} holds {found.value} for input '{found.name}' ({found.dtype}); {order.runtime} "
            f"{'takes' if sure else 'computes in'} {found.smaller}, where it is {found.becomes}.",
            f"Keep the values of '{found.name}' within {found.smaller}, or run the model on another runtime (a reference: another backend in [model]).",
            place=found.name,
            row=found.row,
            value=found.value,
            becomes=found.becomes,
        )
        if sure:
            raise error
        worker.observations.append(error.observation)


def _observe_differing(worker: Worker, order: RunJob, described: Description) -> None:
    for name, (asked, effective) in described.differing.items():
        worker.observe(
            "KP307",
            f"{order.runtime} was asked for {name} = {asked}; in effect is {effective}.",
            f"Ask for a value of '{name}' that this machine's runtime follows, or state the effective one in the target's settings.",
            place=name,
            asked=asked,
            effective=effective,
        )


def _result(
    folder: Path, session: Session, record: Record, decoded: Decoded, described: Description, load: LoadTimes, fixed: int | None
) -> RunResult:
    return RunResult(
        signature=session.signature,
        modes=tuple(record.modes),
        digests={mode: digest(folder / "outputs" / mode) for mode in record.modes},
        not_offered=tuple(record.not_offered),
        unbatched=record.unbatched,
        failed=record.failed,
        lonely_rows=record.lonely_rows,
        fixed_batch=fixed,
        repeats_equal=record.repeats_equal,
        repeat_difference=record.repeat_difference,
        training_unset_repeats=record.training_unset_repeats,
        load=load,
        effective_precision=described.precision,
        devices=described.devices,
        facts={**described.facts, **record.facts},
        decoded_here=decoded.here,
        tensor_mismatches=decoded.mismatches,
        repeats=record.repeats,
        repeat_differences=record.repeat_differences,
        padded_rows=record.padded_rows,
        probe=record.probe,
        takes=_narrower(session),
    )


def _narrower(session: Session) -> dict[str, str]:
    """The inputs that the runtime computes with in a smaller dtype than the model's own."""
    smaller = {**session.computes_as, **session.narrows}
    return {spec.name: smaller[spec.dtype] for spec in session.signature.inputs if spec.dtype in smaller}
