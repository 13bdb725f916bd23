"""Which tolerance holds for which target and output: the contract's, else the default of its precision class.

The defaults are sensible for the field and nothing more: float32 kernels that sum in another order differ by a few hundred units in the
last place, hence 1e-4 relative and 1e-5 of the output's scale; float16 and bfloat16 have 2**-11 and 2**-8 of relative precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.judging.floor import Floor, K
from kpipe.record import Tolerance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.contract import AgreementTable, TargetTable, ToleranceTable

DEFAULTS = {"float64": (1e-4, 1e-5), "float32": (1e-4, 1e-5), "float16": (1e-3, 1e-3), "bfloat16": (1e-2, 1e-2)}
"""Precision class to (rtol, atol)."""

DECISIONS_ONLY = "decisions: {variant} promises no numbers"
"""Source of a tolerance that judges none."""

COARSER = ("float64", "float32", "float16", "bfloat16")


def precision_class(model_dtypes: set[str], effective: str, asked: str) -> str:
    """The coarsest precision that a target's numbers may rightly have.

    Args:
        model_dtypes: compute dtypes that the model's own layers declare.
        effective: what the runtime says it computes in.
        asked: ``f32`` or ``default``; only ``default`` lets the runtime be coarser than the model.
    """
    classes = {dtype for dtype in model_dtypes if dtype in DEFAULTS}
    if asked == "default":
        classes |= {name for name in COARSER if effective.startswith(name)}
    return max(classes, key=COARSER.index, default="float32")


def derived_tolerance(output: str, precision: str, model: str, floors: Mapping[str, Floor]) -> Tolerance | None:
    """What ``tolerance = "auto"`` allows one output of a target of class ``precision``, for a model of class ``model``; None without a floor."""
    if output not in floors:
        return None
    coarser = f", or the spacing of {precision}" if COARSER.index(precision) > max(COARSER.index(model), COARSER.index("float32")) else ""
    return Tolerance(rtol=0.0, atol=K, source=f"auto: {K:g} times the noise floor{coarser}", unit="floor")


def own_tolerance(output: str, variant: str, target: TargetTable) -> Tolerance:
    """The tolerance of one output of a variant that decisions judge: the drift that the target's own table declares, else none at all."""
    for where, table in _own_tables(output, target):
        if table is not None:
            return Tolerance(rtol=table.rtol, atol=table.atol, source=f"contract: {where}")
    return Tolerance(rtol=0.0, atol=1.0, source=DECISIONS_ONLY.format(variant=variant), numeric=False)


def _own_tables(output: str, target: TargetTable) -> list[tuple[str, ToleranceTable | None]]:
    return [(f"outputs.{output}", target.outputs.get(output)), ("tolerance", target.tolerance)]


def tolerance_for(output: str, precision: str, agreement: AgreementTable, target: TargetTable | None, derived: Tolerance | None = None) -> Tolerance:
    """The tolerance of one output of one target; the most specific one of the contract wins.

    Args:
        output: its name.
        precision: the target's class, a key of `DEFAULTS`.
        agreement: the contract's ``[agreement]``.
        target: the contract's table of the target.
        derived: what ``"auto"`` comes to for this output and class, None where the noise floor isn't known.
    """
    tables: list[tuple[str, ToleranceTable | None]] = []
    if target is not None:
        tables += _own_tables(output, target)
    tables.append((f"agreement.outputs.{output}", agreement.outputs.get(output)))
    if not isinstance(agreement.tolerance, str):
        tables.append(("agreement.tolerance", agreement.tolerance))
    for where, table in tables:
        if table is not None:
            return Tolerance(rtol=table.rtol, atol=table.atol, source=f"contract: {where}")
    if agreement.tolerance == "auto" and derived is not None:
        return derived
    rtol, atol = DEFAULTS[precision]
    return Tolerance(rtol=rtol, atol=atol, source=f"default for {precision}")
