"""Answers that are right and in the wrong place: outputs under each other's names, or the elements of one output in another order. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.judging.answers import ALONE
from kpipe.judging.compare import kind_of

if TYPE_CHECKING:
    from kpipe.judging.answers import Answers

Array = np.ndarray[Any, np.dtype[Any]]

MOST_ROWS = 64
CLOSE = 1e-3
"""Relative to the output's scale: coarse enough for any precision, far finer than another output's numbers."""


def exchanged(target: Answers | None, reference: Answers) -> str:
    """A sentence that names the exchange that would make the target agree; empty where there is none."""
    if target is None:
        return ""
    columns = {name: _column(reference, name) for name in reference.outputs}
    got = {name: _column(target, name) for name in target.outputs}
    wrong = [name for name, rows in columns.items() if rows is not None and (own := got.get(name)) is not None and not _alike(own, rows)]
    pairs = [(a, b) for a in wrong for b in wrong if a != b and _both(got[a], columns[b])]
    if pairs and {a for a, _ in pairs} == set(wrong):
        return "Outputs carry each other's numbers: " + ", ".join(f"'{a}' gives what the model calls '{b}'" for a, b in pairs[:4]) + "."
    for name in wrong:
        if order := _order(got[name], columns[name]):
            return f"The elements of output '{name}' come in another order: {order}."
    return ""


def _column(answers: Answers, output: str) -> Array | None:
    """The first rows of an output as ``(rows, values)``; None where they differ in shape or aren't floating point."""
    rows = answers.rows(ALONE, output)
    count = min(len(rows), MOST_ROWS)
    if kind_of(rows.dtype) != "float" or rows.absent or len({rows.shape(i) for i in range(count)}) != 1:
        return None
    return np.stack([rows[i].astype(np.float64).ravel() for i in range(count)])


def _both(left: Array | None, right: Array | None) -> bool:
    return left is not None and right is not None and _alike(left, right)


def _alike(left: Array, right: Array) -> bool:
    if left.shape != right.shape or not (np.isfinite(left).all() and np.isfinite(right).all()):
        return False
    return bool((np.abs(left - right) <= CLOSE * max(float(np.abs(right).max(initial=0.0)), 1e-300)).all())


def _order(got: Array | None, wanted: Array | None) -> str:
    """The permutation of the last axis' elements that makes them alike, where each has only one partner."""
    if got is None or wanted is None or got.shape != wanted.shape or not 1 < got.shape[1] <= MOST_ROWS or len(got) < 2:  # noqa: PLR2004 - one row proves no order
        return ""
    if not (np.isfinite(got).all() and np.isfinite(wanted).all()):
        return ""
    scale = CLOSE * max(float(np.abs(wanted).max(initial=0.0)), 1e-300)
    partners = [[j for j in range(got.shape[1]) if bool((np.abs(got[:, i] - wanted[:, j]) <= scale).all())] for i in range(got.shape[1])]
    chosen = [found[0] for found in partners if len(found) == 1]
    if len(chosen) != got.shape[1] or sorted(chosen) != list(range(got.shape[1])) or chosen == list(range(got.shape[1])):
        return ""
    return "position " + ", ".join(f"{i} holds element {j}" for i, j in enumerate(chosen) if i != j)
