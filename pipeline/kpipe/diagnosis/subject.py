"""What is diagnosed: a finished run, one of its targets, the job that it was given, and the golden inputs to look at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kpipe.contract import LoadedContract, parse_contract
from kpipe.errors import RunFolderError, UsageError, nearest
from kpipe.evidence import Evidence, TargetPlan
from kpipe.judging.answers import ALONE, Answers, open_answers
from kpipe.judging.floor import K
from kpipe.judging.layers import relative_rows
from kpipe.judging.tolerance import DEFAULTS
from kpipe.store import load_evidence
from kpipe_stages.codec import CodecError, decode, read_json
from kpipe_stages.protocol import Job, RunJob
from kpipe_stages.rows import Rows, write_rows

WORST = 4
"""Golden inputs with the largest difference that are looked at."""
BESIDE = 4
"""Others, spread over the set: a floor is a median over inputs."""

MOST_BYTES = 2 * 2**30
"""Of saved outputs inside the model, in float64."""


@dataclass(frozen=True)
class Subject:
    """One target of one run."""

    run: Path
    evidence: Evidence
    loaded: LoadedContract
    """The contract that the run was made with."""
    plan: TargetPlan
    job: RunJob
    """What the target was told."""
    reference: RunJob
    """What the reference was told."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Golden ids by row."""
        return tuple(item.id for item in self.evidence.golden.inputs)


@dataclass(frozen=True)
class Choice:
    """Which golden inputs, and in which way of running."""

    rows: tuple[int, ...]
    mode: str
    """``alone``, or the ``batch_<k>`` in which alone the target differs."""
    note: str = ""

    @property
    def batches(self) -> tuple[int, ...]:
        """What a `RunJob` has to be told for it."""
        return () if self.mode == ALONE else (int(self.mode.removeprefix("batch_")),)


def open_subject(run: Path, target: str) -> Subject:
    """Read a run and find the target in it.

    Raises:
        RunFolderError: it holds no finished run, or its jobs can't be read.
        UsageError: the target isn't the run's, or wasn't run.
    """
    path = run.resolve()
    evidence = load_evidence(path)
    names = [one.plan.name for one in evidence.targets]
    found = next((one for one in evidence.targets if one.plan.name == target), None)
    if found is None:
        raise UsageError(f"--target {target}: the run has no such target{nearest(target, names)}; it has {', '.join(names) or 'none'}.")
    if found.plan.absent is not None:
        raise UsageError(f"--target {target}: the run did not run it: {found.plan.absent.cause} Validate again with it, then diagnose that run.")
    if found.plan.quantize:
        raise UsageError(
            f"--target {target} runs the precision variant {found.plan.quantize}, which is made of the whole model and can't be made of its layers alone. "
            "Diagnose the target that runs the float artifact; what the variant costs stands in the report's table."
        )
    try:
        text = (path / "contract.toml").read_text(encoding="utf-8")
    except OSError as error:
        raise RunFolderError(f"{path} has lost its contract.toml ({error.strerror}), so what it was asked to do is not known.") from error
    loaded = LoadedContract(parse_contract(text, evidence.contract_source), evidence.contract_source, text, Path(evidence.contract_folder))
    if loaded.sha256 != evidence.contract_sha256:
        raise RunFolderError(
            f"{path / 'contract.toml'} is not the contract that the run was made with: SHA-256 {loaded.sha256}, where the run says "
            f"{evidence.contract_sha256}. Restore it, or validate again."
        )
    job, reference = _job(path, evidence, f"run.{target}", found.plan.name), _job(path, evidence, "reference", "reference")
    return Subject(path, evidence, loaded, found.plan, job, reference)


def _job(run: Path, evidence: Evidence, stage: str, who: str) -> RunJob:
    """What a stage was told, with the paths of a run folder that was moved since."""
    file = run / evidence.folders.get(stage, f"stages/{stage}") / "job.json"
    try:
        job = decode(RunJob, read_json(Job, file).params)
    except FileNotFoundError:
        why = next((t.problems[0].cause for t in evidence.targets if t.plan.name == who and t.problems), "what it needs failed first")
        raise UsageError(f"The run never started {who}: {why}. Mend what its report names, and validate again.") from None
    except (OSError, CodecError) as error:
        raise RunFolderError(f"{file} can't be read by this kpipe: {error}. Diagnose with the kpipe that made the run.") from error
    return replace(
        job,
        artifact=_moved(job.artifact, evidence.folder, run),
        tensors=_moved(job.tensors, evidence.folder, run),
        companions=tuple(_moved(one, evidence.folder, run) for one in job.companions),
    )


def _moved(path: str, old: str, run: Path) -> str:
    return str(run / Path(path).relative_to(old)) if old and Path(path).is_relative_to(old) else path


def choose(subject: Subject, wanted: str | None) -> Choice:
    """The inputs with the largest difference and some others; in a batch, those of the batch that holds the worst one.

    Args:
        subject: the run and the target.
        wanted: ``--input``, a golden id; it is looked at first.

    Raises:
        UsageError: no golden input has that id, or it has no tensors.
    """
    rows = _present(subject)
    if wanted is not None and wanted not in subject.ids:
        raise UsageError(f"--input {wanted}: no such golden input{nearest(wanted, list(subject.ids))}; the run has {len(subject.ids)}.")
    first = subject.ids.index(wanted) if wanted is not None else None
    if first is not None and first not in rows:
        raise UsageError(f"--input {wanted}: that golden input could not be decoded, so it has no tensors.")
    drifts, mode, note = _where(subject)
    order = sorted(rows, key=lambda row: -drifts.get(row, 0.0))
    worst = [first] if first is not None else order[:WORST]
    if mode != ALONE:
        size, at = int(mode.removeprefix("batch_")), rows.index(worst[0])
        start = at - at % size
        return Choice(tuple(dict.fromkeys(rows[(start + i) % len(rows)] for i in range(size))), mode, note)
    step = max(1, len(rows) // BESIDE)
    return Choice(tuple(dict.fromkeys([*worst, *rows[::step][:BESIDE]])), mode, note)


def _present(subject: Subject) -> list[int]:
    """Rows that have tensors.

    Raises:
        RunFolderError: the prepared tensors are gone.
    """
    try:
        absent = frozenset().union(*(Rows(f"{subject.reference.tensors}/{i}").absent for i in range(len(subject.reference.names))))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"The prepared tensors of {subject.run} can't be read: {error}. Validate again, then diagnose that run.") from error
    return [row for row in range(subject.reference.rows) if row not in absent]


def _where(subject: Subject) -> tuple[dict[int, float], str, str]:
    """Row to its relative difference, the mode that has it, and a note where the run can't tell."""
    reference, target = _answers(subject, "reference"), _answers(subject, f"run.{subject.plan.name}")
    if reference is None or target is None:
        return {}, ALONE, "The run holds no answers of it, so the first golden inputs were taken."
    limit = sum(DEFAULTS["float32"]) / K
    try:
        alone = dict(enumerate(relative_rows(reference, target, ALONE)))
        if max(alone.values(), default=0.0) > limit:
            return alone, ALONE, ""
        for mode in target.result.modes:
            if mode.startswith("batch_") and max(batch := relative_rows(reference, target, mode), default=0.0) > sum(DEFAULTS["float32"]):
                return dict(enumerate(batch)), mode, f"Alone it agrees; it differs in mode '{mode}', and that is what was looked at."
    except (OSError, ValueError, LookupError) as error:
        return {}, ALONE, f"The run's answers can't be compared ({error}), so the first golden inputs were taken."
    return alone, ALONE, ""


def _answers(subject: Subject, name: str) -> Answers | None:
    stage = next((stage for stage in subject.evidence.stages if stage.name == name), None)
    return open_answers(stage, subject.run / subject.evidence.folders.get(name, f"stages/{name}"))


def fitting(choice: Choice, row_bytes: int) -> Choice:
    """Fewer inputs where the outputs of all of them would take more than `MOST_BYTES`; a batch is never cut short.

    Args:
        choice: as chosen.
        row_bytes: what all the outputs inside the model take for one input, in float64.
    """
    most = max(1, MOST_BYTES // max(1, row_bytes))
    if choice.mode != ALONE or len(choice.rows) <= most:
        return choice
    note = f"The outputs of one input take {row_bytes / 2**20:,.0f} MiB in float64, so {most} of {len(choice.rows)} inputs were looked at."
    return Choice(choice.rows[:most], choice.mode, f"{choice.note} {note}".strip())


def write_tensors(subject: Subject, choice: Choice, folder: Path) -> None:
    """The reference's tensors of the chosen rows, as a prepare stage leaves them; what was there is replaced.

    Raises:
        RunFolderError: they can't be read or written.
    """
    try:
        for position in range(len(subject.reference.names)):
            rows = Rows(f"{subject.reference.tensors}/{position}")
            write_rows(folder / str(position), [as_stored(rows, row) for row in choice.rows])
            (folder / f"{position}.dtype").write_text(rows.dtype, encoding="utf-8")
    except (OSError, ValueError, LookupError) as error:
        raise RunFolderError(f"The prepared tensors of {subject.run} can't be copied: {error}.") from error


def as_stored(rows: Rows, row: int) -> object:
    """One row as it lies on disk: bfloat16 as its bits."""
    import numpy as np

    array = rows[row]
    return (array.view(np.uint32) >> np.uint32(16)).astype(np.uint16) if rows.dtype == "bfloat16" else array
