"""Whether a target computes in the precision that was asked for, and what this machine would do if nobody asked. Pure, over saved outputs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kpipe.judging.answers import ALONE, MACHINE_DEFAULT, Answers
from kpipe.judging.ties import breaks_tie
from kpipe.judging.tolerance import COARSER
from kpipe_stages.decisions import same

if TYPE_CHECKING:
    from kpipe.judging.reference import Reference
    from kpipe.judging.ruled import Ruled
    from kpipe.judging.scene import Bench


from kpipe.judging.promises import asked_precision, variants_class

WHOLE = re.compile(r"u?int\d+|bool|string|none")
"""Dtypes that no precision is about."""


def judge_precision(bench: Bench, answers: Answers) -> None:
    """Nothing may be coarser than what was asked for, unless the model's own layers are."""
    asked = asked_precision(bench.plan, bench.table)
    effective = answers.result.effective_precision
    if asked and not fine_enough(effective, bench.scene.model_dtypes | variants_class(bench) | {asked}):
        cause = f"The contract asks for {asked}; the runtime says that it computes in {effective or 'an unknown precision'}."
        bench.add("KP307", cause, asked=asked, effective=effective)
    elif "float64" in bench.scene.model_dtypes and "float64" not in effective:
        cause = f"'{bench.plan.name}' computes in {effective or 'an unknown precision'}; layers of the model compute in float64."
        bench.add("KP234", cause, place="float64", narrower=effective)


def fine_enough(effective: str, allowed: set[str]) -> bool:
    """Whether no dtype of ``effective`` (``float16, float32 (declared)``) is coarser than the coarsest allowed one."""
    dtypes = effective.removesuffix("(declared)").replace(",", " ").split()
    floats = [dtype for dtype in dtypes if dtype in COARSER]
    whole = [dtype for dtype in dtypes if WHOLE.fullmatch(dtype)]
    limit = max((COARSER.index(dtype) for dtype in allowed if dtype in COARSER), default=-1)
    return bool(dtypes) and len(floats) + len(whole) == len(dtypes) and all(COARSER.index(dtype) <= limit for dtype in floats)


def judge_machine_default(bench: Bench, answers: Answers) -> None:
    """What this machine would have done without the settings that kpipe chose."""
    plan, reference = bench.plan, bench.scene.reference
    if not plan.chosen:
        return
    chosen = ", ".join(f"{key} = {value}" for key, value in plan.chosen.items())
    bench.add(
        "KP308",
        f"The contract states no precision for '{plan.name}', so kpipe set {chosen}; production has to set it too.",
        place=plan.name,
        settings=dict(plan.chosen),
    )
    if reference is None or not reference.rules:
        return
    if not answers.has(MACHINE_DEFAULT):
        why = answers.result.failed.get(MACHINE_DEFAULT, "it was not run")
        bench.add("KP315", f"What this machine does without {chosen} is not known: {why}.", place=plan.name)
        return
    inputs = bench.scene.evidence.golden.inputs
    try:
        indices = sorted({i for ruled in reference.rules for i in _flipped_by_default(reference, answers, ruled)})
    except (OSError, ValueError, LookupError) as error:  # DecisionError among them
        bench.add("KP315", f"What this machine does without {chosen} is not known: {error}", place=plan.name)
        return
    if flipped := [inputs[i].id for i in indices]:
        cause = f"Without {chosen} this machine's default decides otherwise on {len(flipped)} of {len(inputs)} inputs ({', '.join(flipped[:5])})."
        bench.add("KP309", cause, place=plan.name, inputs=flipped[:50])


def _flipped_by_default(reference: Reference, answers: Answers, ruled: Ruled) -> list[int]:
    """The golden inputs that only the machine's default decides otherwise than the reference, and that aren't ties."""
    spec = ruled.spec
    own, default = answers.decisions(spec, ALONE), answers.decisions(spec, MACHINE_DEFAULT)
    scores = zip(reference.answers.decidable(spec, ALONE), answers.decidable(spec, MACHINE_DEFAULT), strict=True)
    ties = [breaks_tie(spec, ours, theirs, band=reference.band(spec, i)) for i, (ours, theirs) in enumerate(scores)]
    return [
        i
        for i, (ours, kept, found, tie) in enumerate(zip(ruled.decisions, own, default, ties, strict=True))
        if same(spec, ours, kept) and not same(spec, ours, found) and not tie
    ]
