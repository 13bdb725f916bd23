"""Decisions by the user's own code: which answers the stage ``decide`` is given, once every worker has answered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe.evidence import Ending
from kpipe_stages.codec import decode
from kpipe_stages.decisions import runs_code
from kpipe_stages.protocol import DecideJob, RunResult, SavedAnswers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kpipe.evidence import StageEvidence
    from kpipe.golden import GoldenSet
    from kpipe_stages.protocol import DecisionSpec

ALONE = "alone"


def decide_job(
    specs: Iterable[DecisionSpec], code: Mapping[str, Mapping[str, str]], golden: GoldenSet, stages: Mapping[str, StageEvidence], folder: Path
) -> DecideJob | None:
    """The stage's job; None where no rule is code, or nobody has answered.

    Args:
        specs: the rules in force.
        code: rule name to its files, absolute path to SHA-256.
        golden: the golden set.
        stages: what was run.
        folder: the run's ``stages`` folder.
    """
    rules = tuple(replace(spec, files=dict(code[spec.name])) for spec in specs if runs_code(spec.rule))
    if not rules:
        return None
    wanted = {name for rule in rules for name in rule.reads}
    answers = tuple(saved for name, stage in stages.items() if (saved := _saved(name, stage, folder, wanted)) is not None)
    return DecideJob(rules, answers, tuple(g.id for g in golden.inputs)) if answers else None


def _saved(name: str, stage: StageEvidence, folder: Path, wanted: set[str]) -> SavedAnswers | None:
    """The answers of the reference or a target that hold every output, in the ways of running in which each input has its own."""
    if (
        not (name == "reference" or name.startswith(("reference.", "run.")))
        or stage.ending is not Ending.OK
        or not stage.result
        or not stage.result.data
    ):
        return None
    result = decode(RunResult, stage.result.data)
    outputs = tuple(spec.name for spec in result.signature.outputs)
    if not wanted <= set(outputs):
        return None
    modes = tuple(mode for mode in result.modes if mode == ALONE or not wanted & set(result.unbatched.get(mode, ())))
    return SavedAnswers(name, str(folder / name), outputs, modes, {mode: result.digests[mode] for mode in modes})
