"""What every decision rule uses: the decision itself, its words, and outputs as scores. Pure numpy."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe_stages.protocol import DecisionSpec

Array = np.ndarray[Any, np.dtype[Any]]

UNDECIDED = "undecided"
NOTHING = "(none)"
"""No class was chosen."""
SEPARATOR = ", "
RESERVED = (UNDECIDED, NOTHING, "")
"""What no label may be."""


class DecisionError(ValueError):
    """The rule can't be used on these scores."""


class NoDecisionError(DecisionError):
    """The user's own rule left no decisions: nothing is known, and the outputs needn't be wrong."""


@dataclass(frozen=True)
class Decision:
    """One decision on one input's scores. Whether two are the same one, `kpipe_stages.decisions.same` says."""

    value: str
    """What the product is told; `UNDECIDED` where a score is NaN."""
    index: int | tuple[int, ...]
    """Class index, or class indices (a set rises, an order has the best first); -1 where undecided or a map."""
    margin: float
    """Distance to another decision, in output units; NaN where undecided."""
    scores: tuple[float, ...]
    """The scores that decided: the two best, the score, or the k + 1 best. Empty for a map."""
    tied: bool
    """The scores alone don't decide: equal ones, or one exactly at the border."""
    basis: Any = field(default=None, compare=False, repr=False)
    """What `same` compares where the text doesn't say it all; None for the other rules."""


def undecided() -> Decision:
    """The decision on scores with a NaN in them."""
    return Decision(UNDECIDED, -1, math.nan, (), tied=False)


def value_of(names: Sequence[str]) -> str:
    """The ``value`` of a decision for these classes, in this order; also what a manifest's list of names stands for."""
    return SEPARATOR.join(names) or NOTHING


def label(spec: DecisionSpec, index: int) -> str:
    """The class's name; its number where the contract names none."""
    return spec.labels[index] if spec.labels else str(index)


def gap(high: float, low: float) -> float:
    """``high - low``, 0 for equal infinities."""
    return 0.0 if high == low else high - low


def smallest_gap(best: Array) -> float:
    """The smallest gap between neighbours along the last axis, which falls."""
    with np.errstate(invalid="ignore"):  # infinity less infinity: equal, so no gap
        return float(np.where(best[..., :-1] == best[..., 1:], 0.0, best[..., :-1] - best[..., 1:]).min())


def digest(chosen: Array, dtype: str) -> str:
    """16 hex digits for an array that is too long to write out."""
    return hashlib.sha256(repr(chosen.shape).encode() + np.ascontiguousarray(chosen).astype(dtype).tobytes()).hexdigest()[:16]


def decided_map(chosen: Array, margin: float) -> Decision:
    """The decision on an output of several axes: the whole map, named by a digest; ``margin`` is the smallest of any position."""
    return Decision(f"map {digest(chosen, '<i4')}", -1, margin, (), tied=margin == 0)


def numbers(output: str, row: Any) -> Array:
    """An output as an array of rank 1 or more, float64 (exact for float32 and float16).

    Raises:
        DecisionError: it doesn't hold numbers, or integers that float64 can't hold.
    """
    array = np.asarray(row)
    if array.dtype.kind not in "biuf":
        raise DecisionError(f"output {output!r} holds {array.dtype.name} values (expected numbers). Name another output for the decision.")
    if array.dtype.name in ("int64", "uint64") and np.any(array.astype(np.float64).astype(array.dtype) != array):
        raise DecisionError(f"output {output!r} holds integers beyond 2**53 (expected scores). Name another output for the decision.")
    scores = array.astype(np.float64, copy=False)
    return scores.reshape(1) if scores.ndim == 0 else scores


def some_numbers(output: str, row: Any) -> Array:
    """As `numbers`; an empty output is refused too."""
    scores = numbers(output, row)
    if scores.size == 0:
        raise DecisionError(f"output {output!r} has shape {scores.shape}, no scores (expected some). Name another output for the decision.")
    return scores


def check_labels(spec: DecisionSpec, wanted: int, scores: int) -> None:
    """Refuse another number of labels than ``wanted`` for ``scores`` scores."""
    if spec.labels and len(spec.labels) != wanted:
        raise DecisionError(f"{len(spec.labels)} labels for {scores} scores of output {spec.output!r} (expected {wanted}). Mend the labels.")
