"""Raw files decoded and preprocessed by the ``prepare`` stage, so many at a time, to learn which of them can be golden inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kpipe.errors import GoldenError
from kpipe.evidence import Ending
from kpipe.findings import Severity
from kpipe.golden import GoldenInput, GoldenSet
from kpipe.judging.stages import stage_findings
from kpipe.preparation import prepared
from kpipe.running.checks import nonfinite
from kpipe.running.jobs import prepare_job
from kpipe.running.single import run_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kpipe.evidence import StageEvidence
    from kpipe.findings import Finding
    from kpipe_stages.protocol import InputSpec, PrepareResult

    OnEvent = Callable[[str, dict[str, Any]], None]

CHUNK = 2048
"""Raw files that a worker gets at a time: bounds the tensors on disk and the time of one stage, whatever the number of files."""


@dataclass
class Decoded:
    """What became of the files."""

    bad: dict[str, str] = field(default_factory=dict)
    """Id to why it has no tensor."""
    notes: list[str] = field(default_factory=list)
    """Casts that changed values, NaN and infinities."""
    kinds: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    """Input name to the dtypes and ranks of its tensors."""

    @property
    def mixed(self) -> str:
        """Say which input's tensors are of more than one kind; empty where all are alike."""
        for name, kinds in self.kinds.items():
            if len(kinds) > 1:
                listed = " and ".join(f"{dtype} of rank {rank}" for dtype, rank in sorted(kinds))
                return f"the files become {listed} for input '{name}'; expected one dtype and one rank. Add channels, cast or dtype to its steps."
        return ""


def as_set(inputs: Sequence[GoldenInput]) -> GoldenSet:
    """Raw files as the stages take them."""
    return GoldenSet(kind="raw", path="", shown="", manifest_sha256="", inputs=tuple(inputs))


def chunks(inputs: Sequence[GoldenInput]) -> Iterator[Sequence[GoldenInput]]:
    """`CHUNK` of them at a time, in order."""
    return (inputs[start : start + CHUNK] for start in range(0, len(inputs), CHUNK))


def decode_files(inputs: Sequence[GoldenInput], specs: tuple[InputSpec, ...], time_limit_s: float, on_event: OnEvent) -> Decoded:
    """Decode and preprocess every file once. Ids must be unique.

    Raises:
        GoldenError: a step is wrong, or the worker ended without an answer: nothing is known of any file then.
    """
    found = Decoded()
    for chunk in chunks(inputs):
        stage = run_stage("prepare", prepare_job(as_set(chunk), specs), backend=None, time_limit_s=time_limit_s, on_event=on_event)
        result, bad = read_prepared(stage, [item.id for item in chunk])
        found.bad |= bad
        found.notes += [f"{f.code}: {f.cause}" for f in stage_findings(stage) if f.severity is not Severity.ERROR]
        if result is not None:
            found.notes += [f"{o.code}: {o.cause}" for o in nonfinite(result, [item.id for item in chunk])]
            for name, shapes in result.shapes.items():
                found.kinds.setdefault(name, set()).update((result.dtypes[name], len(shape)) for shape in shapes)
    return found


def read_prepared(stage: StageEvidence, ids: Sequence[str]) -> tuple[PrepareResult | None, dict[str, str]]:
    """What a prepare stage made of these files, and why of each that it could make nothing of.

    The stage fails as a whole where not one file decodes; that says something of each file only if it has named each.

    Raises:
        GoldenError: it gave no answer about the files, or names a fault that isn't about one of them.
    """
    findings = stage_findings(stage, failed_as="KP103")
    reasons: dict[str, str] = {}
    known = set(ids)
    for found in findings:
        if found.severity is Severity.ERROR and found.place in known:
            reasons.setdefault(found.place, _reason(found))
    result = prepared(stage) if stage.ending is Ending.OK else None
    whole = told(found for found in findings if found.place not in known)
    if whole or (result is None and not known <= set(reasons)):
        raise GoldenError(f"the raw files could not be decoded, so nothing is known of them: {whole or stage.detail}")
    if result is None:
        return None, reasons
    if result.rows != len(ids):
        raise GoldenError(f"{len(ids)} raw files were to be decoded, and the worker answers for {result.rows}. Run the command again.")
    bad = {ids[row] for row in result.bad_rows}
    return result, {identity: reasons.get(identity, "it has no tensor, and the stage names no reason") for identity in ids if identity in bad}


def told(findings: Iterable[Finding]) -> str:
    """Errors in one line: code, cause, remedy."""
    return "; ".join(f"{f.code}: {f.cause} {f.remedy}" for f in findings if f.severity is Severity.ERROR)


def _reason(found: Finding) -> str:
    cause = found.cause.removeprefix(f"golden input {found.place!r}: ")
    return f"{found.code}: {cause}. {found.remedy}"
