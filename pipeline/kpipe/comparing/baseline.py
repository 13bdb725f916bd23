"""A run held against a baseline: ``baseline.json`` in its folder says which, and every judgement of it looks there again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.comparing.compare import compare
from kpipe.comparing.subject import Subject, open_first, open_subject, subject_of
from kpipe.errors import KpipeError, RunFolderError
from kpipe.judging.edges import run_edge
from kpipe.judging.grade import finding
from kpipe.judging.verdict import reach
from kpipe_stages.codec import CodecError, read_json, write_json

if TYPE_CHECKING:
    from kpipe.contract import LoadedContract
    from kpipe.evidence import Evidence
    from kpipe.record import RunRecord

BASELINE = "baseline.json"


@dataclass(frozen=True)
class BaselineRef:
    """Which run or bundle a run is held against."""

    path: str
    id: str
    candidate_sha256: str


def note_baseline(run: Path, baseline: Subject) -> None:
    """Write down which baseline a run is held against."""
    write_json(run / BASELINE, BaselineRef(baseline.side.path, baseline.side.id, baseline.side.candidate_sha256))


def held_to_baseline(run: Path, loaded: LoadedContract, evidence: Evidence, record: RunRecord) -> RunRecord:
    """The record with what its baseline makes of it; as it is where the run has none.

    Args:
        run: the run's folder.
        loaded: the contract that it is judged by: its ``[compare]`` is the policy.
        evidence: what the run left behind.
        record: as judged without the baseline.

    Raises:
        RunFolderError: ``baseline.json`` can't be read.
    """
    if not (run / BASELINE).exists():
        return record
    try:
        ref = read_json(BaselineRef, run / BASELINE)
    except (OSError, CodecError) as error:
        raise RunFolderError(
            f"the baseline of {run} isn't known, because {BASELINE} can't be read: {error}. Restore that file, or validate anew."
        ) from error
    found, comparison = [], None
    try:
        before = open_subject(Path(ref.path))
        if (before.side.id, before.side.candidate_sha256) != (ref.id, ref.candidate_sha256):
            raise KpipeError(f"{ref.path} is another run or bundle now: {before.side.id}, where it was {ref.id}.")
        now = subject_of(run, "run", "", run, judged=(evidence, record))
        comparison = compare(before, now, loaded.contract.compare, loaded.contract.agreement.confidence, open_first(Path(ref.path)))
        found = [*comparison.findings]
    except KpipeError as error:
        found = [finding("KP721", f"The run could not be held against its baseline: {error}", place=ref.path)]
    findings = (*record.findings, *found)
    synthetic = evidence.golden.kind in {"synthetic", "none"}
    verdict, headline = reach(findings, record.targets, synthetic=synthetic, incomplete=evidence.incomplete)
    kept = verdict is record.verdict
    return replace(
        record,
        baseline=comparison,
        findings=findings,
        verdict=verdict,
        headline=record.headline if kept else headline,
        edge=record.edge or run_edge(findings),
    )
