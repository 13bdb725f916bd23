"""Which artifact of the baseline each target is timed against, or why none. Reads saved files, runs nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.comparing.pairing import pair
from kpipe.contract import TargetTable
from kpipe.errors import BundleError
from kpipe.evidence import Ending, Opponent
from kpipe.golden import sha256_of
from kpipe.running.race import race_job
from kpipe.signoff.bundle import open_bundle
from kpipe.signoff.manifest import MANIFEST
from kpipe.signoff.relocation import move_run
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import CodecError, decode, read_json
from kpipe_stages.protocol import Job, RunJob, RunResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpipe.comparing.subject import Subject
    from kpipe.contract import Contract
    from kpipe.evidence import Evidence, TargetEvidence, TargetPlan
    from kpipe.golden import GoldenSet
    from kpipe.record import TargetRecord
    from kpipe_stages.protocol import RaceJob

    Orders = dict[str, tuple[TargetPlan, RaceJob]]
    Rows = list[tuple[int, int]]


def opponents(before: Subject, contract: Contract, evidence: Evidence, now: Path, *, timed: bool) -> tuple[dict[str, Opponent], Orders]:
    """Every target's opponent, and the orders of those that can be timed in turns.

    Args:
        before: the baseline.
        contract: the candidate's.
        evidence: the candidate's.
        now: the candidate's run or bundle.
        timed: whether times are asked for at all.
    """
    old = {target.name: target for target in before.record.targets}
    rows = shared_rows(before.evidence.golden, evidence.golden)
    found, orders = dict[str, Opponent](), dict[str, Any]()
    for target in evidence.targets:
        name = target.plan.name
        if name not in old:
            found[name] = Opponent(problem=f"the baseline has no target '{name}'", shared=False)
            continue
        known = _known(old[name], before, target.plan.runtime)
        if not timed:
            found[name] = replace(known, problem="times were not asked for", shared=False)
            continue
        if not _ran(evidence, name):
            found[name] = replace(known, problem="the candidate's worker did not run it to the end", shared=False)
            continue
        try:
            theirs, ours, shared = _jobs(before, evidence, now, old[name], target, rows)
        except _Untimed as reason:
            found[name] = replace(known, problem=str(reason))
            continue
        limits = contract.targets.get(name, TargetTable()).limits
        found[name] = replace(known, sha256=theirs.sha256)
        orders[name] = (target.plan, race_job(theirs, ours, shared, contract.baseline, limits))
    return found, orders


def shared_rows(before: GoldenSet, now: GoldenSet) -> Rows:
    """Rows of the golden inputs that both have; made-up inputs are the same where their files are."""
    if before.kind == now.kind == "synthetic" and [g.sha256 for g in before.inputs] == [g.sha256 for g in now.inputs]:
        return [(row, row) for row in range(len(now.inputs))]
    return [(row.before, row.now) for row in pair(before, now).rows]


class _Untimed(Exception):  # noqa: N818 - no error: the reason why a target isn't timed
    """A target can't be timed in turns."""


def _known(old: TargetRecord, before: Subject, runtime: str) -> Opponent:
    """What the baseline's run recorded, where the candidate's says the same kind of thing: of another runtime neither size nor peak does."""
    sha256 = old.artifact.sha256 if old.artifact else before.side.candidate_sha256
    if old.runtime != runtime:
        return Opponent(sha256=sha256)
    plain = RUNTIMES[old.runtime].artifact == "keras" and not old.variant
    size = before.evidence.candidate_size if plain else old.artifact.size if old.artifact else None
    return Opponent(sha256=sha256, size=size, peak_bytes=old.peak_rss_bytes if _whole(before.evidence, old.name) else None)


def _whole(evidence: Evidence, name: str) -> bool:
    """Whether the peak of a target is all of it: its worker imported everything itself, nothing left out and nothing got by being forked."""
    result = next((s.result for s in evidence.stages if s.name == f"run.{name}"), None)
    return result is not None and result.identity is not None and not result.identity.inherited and not decode(RunResult, result.data).load.lean


def _jobs(before: Subject, evidence: Evidence, now: Path, old: TargetRecord, target: TargetEvidence, rows: Rows) -> tuple[RunJob, RunJob, Rows]:
    """What both workers were told, and the rows that both have. A bundle with hashes only has no tensors: it gets the candidate's.

    Raises:
        _Untimed: with the reason.
    """
    plan = target.plan
    if old.runtime != plan.runtime:
        raise _Untimed(f"the baseline ran it on {old.runtime}, the candidate on {plan.runtime}")
    if not rows:
        raise _Untimed("the two have no golden input in common")
    ours = _job(now, evidence, plan.name, "the candidate's")
    theirs = _job(Path(before.side.path), before.evidence, plan.name, "the baseline's")
    if not Path(theirs.artifact).exists():
        raise _Untimed(f"the baseline's artifact {theirs.artifact} is not there any more")
    if Path(theirs.tensors).is_dir():
        return theirs, ours, rows
    return replace(theirs, tensors=ours.tensors, names=ours.names, rows=ours.rows), ours, [(row, row) for _, row in rows]


def _ran(evidence: Evidence, name: str) -> bool:
    return any(s.name == f"run.{name}" and s.ending is Ending.OK for s in evidence.stages)


def _job(path: Path, evidence: Evidence, name: str, whose: str) -> RunJob:
    """What a worker was told, its paths where they lie now."""
    stage = f"run.{name}"
    if not _ran(evidence, name):
        raise _Untimed(f"{whose} worker did not run it to the end")
    try:
        if (path / MANIFEST).is_file():
            bundle = open_bundle(path)
            return move_run(bundle.target(name).job, lambda p: str(path / p))
        job = decode(RunJob, read_json(Job, path / evidence.folders.get(stage, f"stages/{stage}") / "job.json").params)
    except (OSError, CodecError, BundleError) as error:
        raise _Untimed(f"what {whose} worker was told can't be read: {error}") from error
    made_in = evidence.folder
    moved = move_run(job, lambda p: str(path) + p.removeprefix(made_in) if made_in and (p == made_in or p.startswith(f"{made_in}/")) else p)
    if RUNTIMES[job.runtime].artifact == "keras":  # no other artifact needs the code again
        same_code(job.trust.custom_objects, moved.trust.custom_objects, evidence.custom_objects, whose)
    return moved


def same_code(files: Sequence[str], lie: Sequence[str], known: Mapping[str, str], whose: str) -> None:
    """Custom objects lie in a working copy, which may hold another version by now.

    Args:
        files: what the worker was told, absolute.
        lie: where they lie now.
        known: file to its SHA-256 when the run was made.
        whose: ``the baseline's``.

    Raises:
        _Untimed: a file is not what it was, is gone, or nothing says what it was.
    """
    for file, place in zip(files, lie, strict=True):
        if file not in known:
            raise _Untimed(f"nothing says what {whose} custom objects {file} were when it was run; a bundle (kpipe approve) holds them")
        try:
            found = sha256_of(Path(place))
        except OSError as error:
            raise _Untimed(f"{whose} custom objects {place} can't be read: {error.strerror or error}") from error
        if found != known[file]:
            raise _Untimed(f"{whose} custom objects {place} were altered since it was run; a bundle (kpipe approve) holds them as they were")
