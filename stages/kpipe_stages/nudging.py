"""How far rounding can move an output, input by input: the float64 model with every weight and input off by a random share of two roundings.

One evaluation in float32 is one draw of rounding errors, and may be lucky. A backward stable computation is off by no more than the exact one
with slightly other weights and inputs is (Wilkinson, *Rounding Errors in Algebraic Processes*, 1963; Higham, *Accuracy and Stability of Numerical
Algorithms*, 2002, chapter 1), so moving these at random in float64 shows what any float32 evaluation may come to on that very input. It is a
small sample of Monte Carlo arithmetic (Parker, 1997) at the model's own weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.feeds import split_answer
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe_stages.measure import Kept
    from kpipe_stages.worker import Worker

Array = np.ndarray[Any, np.dtype[Any]]

DRAWS = 4
ROUNDOFF = 2.0**-23
"""Twice float32's unit roundoff: each product is rounded, and the sum that it goes into."""
TOGETHER = 16
"""Inputs in one call, where the model takes any number: in float64 company changes nothing that matters here."""
SEED = 24_01_1963


def sensitivities(kept: Kept, model: Any, worker: Worker) -> dict[str, list[float]]:
    """The largest move of each floating-point output over `DRAWS` draws, a number a golden input, output units.

    Args:
        kept: the float64 session with its golden inputs; their answers are saved already.
        model: the Keras model in it. Its weights are put back.
        worker: hears the progress.

    Raises:
        Exception: whatever the model raises; weights are put back then, too.
    """
    session, golden = kept.session, kept.golden
    truth = {spec.name: Rows(f"{kept.folder}/outputs/alone/{position}") for position, spec in enumerate(session.signature.outputs)}
    found = {name: np.zeros(golden.rows) for name, rows in truth.items() if "float" in rows.dtype}
    generator = np.random.default_rng(SEED)
    weights = [(variable, np.array(variable.value)) for variable in model.variables if "float" in str(variable.dtype)]
    try:
        for draw in range(DRAWS):
            worker.progress("rounding, drawn", draw, DRAWS)
            for variable, value in weights:
                variable.assign(_nudged(value, generator))
            for indices in _batches(kept):
                feeds = {name: _nudged(array, generator) if array.dtype.kind == "f" else array for name, array in golden.batch(indices).items()}
                rows, _ = split_answer(session.infer(feeds), len(indices), kept.unbatched)
                for name, moved in found.items():
                    for index, row in zip(indices, rows, strict=True):
                        moved[index] = max(moved[index], _gap(row[name], truth[name][index]))
    finally:
        for variable, value in weights:
            variable.assign(value)
    return {name: moved.tolist() for name, moved in found.items()}


def _batches(kept: Kept) -> Iterator[tuple[int, ...]]:
    """All golden inputs: several in a call where the batch axis is free, else each one as often as a call needs."""
    free = kept.batch == 1 and kept.order.fixed_batch is None and not kept.unbatched
    if free and all(spec.shape and spec.shape[0] is None for spec in kept.session.signature.inputs):
        yield from kept.golden.plan(min(TOGETHER, len(kept.golden.present)))
    else:
        yield from ((row,) * kept.batch for row in kept.golden.present)


def _nudged(values: Array, generator: np.random.Generator) -> Array:
    """Each value off by a share of `ROUNDOFF` between -1 and 1, in float64."""
    wide = values.astype(np.float64)
    moved: Array = wide * (1.0 + ROUNDOFF * generator.uniform(-1.0, 1.0, wide.shape))
    return moved


def _gap(left: Array, right: Array) -> float:
    """The largest difference where both are finite."""
    gap = np.abs(left.astype(np.float64) - right.astype(np.float64))
    return float(gap[np.isfinite(gap)].max(initial=0.0))
