"""Two subjects' targets timed in turns: during a validation with a baseline, or between two that are finished."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe import signals
from kpipe.comparing.opponents import opponents
from kpipe.evidence import race_stage
from kpipe.judging.raced import Own, judge_race
from kpipe.running.race import run_races
from kpipe.store import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.comparing.subject import Subject
    from kpipe.contract import Contract
    from kpipe.evidence import Evidence

RELATIVE = 1e-4
"""How far a timed output may be from the same session's first one, over its scale, where no contract's tolerance is at hand."""


def timed_against(
    before: Subject, contract: Contract, evidence: Evidence, folder: RunFolder, on_event: Callable[[str, dict[str, Any]], None], *, resume: bool
) -> Evidence:
    """The evidence with what timing every target in turns with the baseline's left behind.

    Args:
        before: the baseline.
        contract: the candidate's: its ``[baseline]`` says whether and how long.
        evidence: what the candidate's run left behind.
        folder: its folder.
        on_event: called with a stage's name and its event.
        resume: take the answers of an interrupted run.
    """
    found, orders = opponents(before, contract, evidence, folder.path, timed=contract.baseline.time)
    stages, incomplete = signals.run(run_races(orders, contract, folder, evidence, on_event, resume=resume))
    folders = {**evidence.folders, **{stage.name: f"stages/{stage.name}" for stage in stages}}
    wall = max([evidence.wall_s, *(stage.end_s for stage in stages)])
    return replace(
        evidence, opponents=found, stages=(*evidence.stages, *stages), folders=folders, wall_s=wall, incomplete=evidence.incomplete or incomplete
    )


def timed_subject(before: Subject, now: Subject, contract: Contract) -> Subject:
    """The later subject with its targets timed in turns with the earlier one's, here and now. Nothing of either folder is changed.

    A timed output may be as far from the same session's first one as the default float32 tolerance allows: the contract's own is judged in a run.
    """
    evidence = replace(now.evidence, wall_s=0.0)
    found, orders = opponents(before, contract, evidence, Path(now.side.path), timed=True)
    with tempfile.TemporaryDirectory(prefix="kpipe-") as scratch:
        folder = RunFolder(Path(scratch))
        folder.stages.mkdir(parents=True)
        raced_stages, _ = signals.run(run_races(orders, contract, folder, evidence, lambda *_: None))
        stages = {stage.name: stage for stage in raced_stages}
    targets, left = [], []
    for target in now.record.targets:
        opponent = found.get(target.name)
        own = Own(target.name, target.required, None, None, allowed=RELATIVE)
        raced = judge_race(own, {}, contract.baseline, opponent, stages.get(race_stage(target.name)))
        targets.append(replace(target, race=raced.record))
        left += [f"Times of '{target.name}': {f.cause}" for f in raced.findings if f.code != "KP520"]
    return replace(now, record=replace(now.record, targets=tuple(targets)), untimed=tuple(left))
