"""The precision and the tolerances that one target is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.judging.floor import EPSILON, K
from kpipe.judging.tolerance import COARSER, derived_tolerance, own_tolerance, precision_class, tolerance_for
from kpipe.judging.variants import variant_of
from kpipe.record import Tolerance
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from kpipe.contract import TargetTable
    from kpipe.evidence import TargetPlan
    from kpipe.judging.answers import Answers
    from kpipe.judging.reference import Reference
    from kpipe.judging.scene import Bench


ASKED = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
"""Precision names of settings to dtype names."""


def asked_precision(plan: TargetPlan, table: TargetTable) -> str:
    """The dtype that the contract asks for: ``precision`` where it is written, else the settings'; empty where the runtime may choose."""
    if table.precision == "f32" and "precision" in table.model_fields_set:
        return "float32"
    settings = {**plan.chosen, **plan.settings}
    for key, _ in RUNTIMES[plan.runtime].float32_settings:
        if key in settings:
            return ASKED.get(str(settings[key]).lower(), str(settings[key]))
    return "" if plan.precision == "default" else "float32"


def class_of(bench: Bench, answers: Answers) -> str:
    """The precision class of a target: the coarsest of the model's, its variant's, what the contract asks for and what the runtime says of itself."""
    asked = asked_precision(bench.plan, bench.table)
    return precision_class(
        bench.scene.model_dtypes | variants_class(bench) | ({asked} if asked else set()),
        answers.result.effective_precision,
        "f32" if asked else "default",
    )


def tolerances(bench: Bench, precision: str, reference: Reference) -> dict[str, Tolerance]:
    """Output to what a target of that precision class is held to; derived from the noise floor where the contract states nothing."""
    model = models_class(bench)
    agreement, floors = bench.scene.contract.agreement, reference.floors
    return {o: tolerance_for(o, precision, agreement, bench.table, derived_tolerance(o, precision, model, floors)) for o in reference.answers.outputs}


def promised(bench: Bench, precision: str, reference: Reference) -> dict[str, Tolerance]:
    """What a target is held to against the reference; a variant that promises no numbers, to its own declared drift at most."""
    if not decides(bench):
        return tolerances(bench, precision, reference)
    return {o: own_tolerance(o, bench.plan.quantize, bench.table) for o in reference.answers.outputs}


def shape_tolerance(bench: Bench, output: str, precision: str) -> Tolerance:
    """What holds at shapes that golden inputs don't have: noise floors aren't known there."""
    if decides(bench):
        return own_tolerance(output, bench.plan.quantize, bench.table)
    coarse = COARSER.index(precision) > COARSER.index("float32")
    spacings = Tolerance(rtol=0.0, atol=K * EPSILON[precision], source=f"auto: {K:g} spacings of {precision}") if coarse else None
    return tolerance_for(output, precision, bench.scene.contract.agreement, bench.table, spacings)


def decides(bench: Bench) -> bool:
    """Whether the target is a precision variant that decisions judge."""
    variant = variant_of(bench.plan)
    return variant is not None and not variant.precision


def variants_class(bench: Bench) -> set[str]:
    """The precision class that a variant's own name states, if any."""
    variant = variant_of(bench.plan)
    return {variant.precision} if variant is not None and variant.precision else set()


def own_tolerances(bench: Bench, precision: str, reference: Reference) -> tuple[dict[str, Tolerance], bool]:
    """What a target is held to against itself: tolerances of the model's class, and whether its own class ``precision`` is coarser than that."""
    model = models_class(bench)
    return tolerances(bench, model, reference), COARSER.index(precision) > max(COARSER.index(model), COARSER.index("float32"))


def models_class(bench: Bench) -> str:
    """The precision class of the model's own layers."""
    return precision_class(bench.scene.model_dtypes, "", "f32")
