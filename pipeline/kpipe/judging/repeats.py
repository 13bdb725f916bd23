"""How far two answers of one process to the same input may be apart: threads may sum in another order, randomness moves more. Pure.

Under derived tolerances that is what the output may drift at most: `K` times its largest noise floor. A target that computes coarser than the
model, and any tolerance written in numbers, has a share of the output's largest magnitude.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kpipe.judging.answers import ALONE, Answers
from kpipe.judging.compare import kind_of
from kpipe.judging.floor import Floor, K
from kpipe.judging.tolerance import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.record import Tolerance
    from kpipe_stages.protocol import RunResult


def allowances(reference: Answers, tolerances: Mapping[str, Tolerance], floors: Mapping[str, Floor], *, coarser: bool = False) -> dict[str, float]:
    """Output to how far its repeats may be apart, output units; 0 for whole numbers and text.

    Args:
        reference: the candidate's answers.
        tolerances: output to the tolerance that holds for it.
        floors: output to its noise floor, where it is known.
        coarser: the answers are of a precision coarser than the model's.
    """
    return {output: _allowance(reference, output, tolerances.get(output), floors.get(output), coarser=coarser) for output in reference.outputs}


def relative_allowance(tolerances: Mapping[str, Tolerance], floors: Mapping[str, Floor], *, coarser: bool = False) -> float:
    """The same over the answer's own largest magnitude, for the output and the input where it is largest: what a timed answer may differ by."""
    shares = [0.0]
    for output, tolerance in tolerances.items():
        floor = floors.get(output)
        if coarser or floor is None or tolerance.unit != "floor":
            shares.append(_share(tolerance))
        elif (scaled := floor.scales > 0).any():
            shares.append(K * float(np.max(floor.widths[scaled] / floor.scales[scaled])))
    return max(shares)


def repeats_itself(result: RunResult, allowed: Mapping[str, float]) -> bool:
    """Whether every output's repeats are as near as ``allowed``; True where nothing was repeated, which is for others to say."""
    if result.repeats_equal is not False:
        return True
    differences = result.repeat_differences or dict.fromkeys(allowed, result.repeat_difference)
    strictest = min(allowed.values(), default=0.0)
    return all(difference <= allowed.get(output, strictest) for output, difference in differences.items())


def _allowance(reference: Answers, output: str, tolerance: Tolerance | None, floor: Floor | None, *, coarser: bool) -> float:
    rows = reference.rows(ALONE, output)
    if tolerance is None or kind_of(rows.dtype) != "float":
        return 0.0
    if tolerance.unit == "floor" and floor is not None and not coarser:
        return K * float(np.max(floor.widths, initial=0.0))
    return _share(tolerance) * max((float(np.abs(row[np.isfinite(row)]).max(initial=0.0)) for row in rows), default=0.0)


def _share(tolerance: Tolerance) -> float:
    return sum(DEFAULTS["float32"]) if tolerance.unit == "floor" else tolerance.atol + tolerance.rtol
