"""Ops that gather many numbers into fewer: reductions, running ones, statistics, order."""

from __future__ import annotations

from kpipe_stages.zoo.case import MATRIX, NATURAL, POSITIVE, STEPS, VECTOR, WHOLE, Config, Given, Unit, family, op

APART = Given((8,), draw="apart")
GRID = Given((4, 5), draw="apart")
TRUTHS = Given((4, 5), "bool", "bool")
SPECIAL = Given((4, 6), draw="special")
SORTED = Given((6,), draw="sorted")
WHOLES = Given((4, 5), "int32", "whole")


def _each(given: Given, *names: str, title: str = "", **arguments: object) -> list[Config]:
    return [op(name, given, title=title, **arguments) for name in names]


def _segment(name: str) -> Config:
    def call(keras: object, x: object) -> object:
        k = keras
        rows = k.ops.transpose(x, (1, 0, 2))  # type: ignore[attr-defined]
        return k.ops.transpose(getattr(k.ops, name)(rows, k.ops.convert_to_tensor([0, 0, 1, 2, 2, 2]), num_segments=3), (1, 0, 2))  # type: ignore[attr-defined]

    return name, call, (STEPS,)


UNITS: tuple[Unit, ...] = (
    family(
        "reductions",
        *_each(MATRIX, "sum", "mean", "max", "min", "amax", "amin", "prod", "std", "var", "logsumexp", "ptp", axis=-1),
        *_each(MATRIX, "sum", "mean", title="kept axis", axis=1, keepdims=True),
        *_each(WHOLES, "sum", "max", "mean", title="int32", axis=-1),
    ),
    family("reductions of truths", *_each(TRUTHS, "any", "all", axis=-1), op("count_nonzero", WHOLES, axis=-1), dtypes=()),
    family(
        "reductions past NaN",
        *_each(Given((4, 6), draw="gaps"), "nansum", "nanmean", "nanmax", "nanmin", "nanprod", "nanstd", "nanvar", "nanmedian", axis=-1),
        op("nanquantile", Given((4, 6), draw="gaps"), q=0.4, axis=-1),
        op("nanpercentile", Given((4, 6), draw="gaps"), q=40, axis=-1),
        *_each(Given((4, 6), draw="gaps"), "nanargmax", "nanargmin", "nancumsum", "nancumprod", axis=-1),
        dtypes=(),
    ),
    family(
        "running",
        *_each(MATRIX, "cumsum", "cumprod", "diff", axis=-1),
        op("trapezoid", MATRIX, axis=-1),
        op("cumsum", WHOLES, title="int32", axis=-1),
    ),
    family(
        "statistics",
        op("average", MATRIX, axis=-1),
        op("median", GRID, axis=-1),
        op("quantile", GRID, q=0.4, axis=-1),
        op("percentile", GRID, q=40, axis=-1),
        ("corrcoef", lambda k, x: k.ops.expand_dims(k.ops.corrcoef(x), 0), (VECTOR,)),
        (
            "correlate",
            lambda k, x: k.ops.expand_dims(k.ops.correlate(k.ops.reshape(x, (-1,)), k.ops.convert_to_tensor([1.0, 2.0, 1.0]), mode="same"), 0),
            (VECTOR,),
        ),
        dtypes=(),
    ),
    family(
        "order",
        op("sort", APART),
        op("argsort", APART),
        op("argmax", GRID, axis=-1),
        op("argmin", GRID, axis=-1),
        ("top_k", lambda k, x: list(k.ops.top_k(x, 3)), (APART,)),
        ("in_top_k", lambda k, t, x: k.ops.in_top_k(k.ops.reshape(t, (-1,)), x, k=2), (Given((1,), "int32", "ids:8"), APART)),
        op("argmax", GRID, title="kept axis", axis=-1, keepdims=True),
    ),
    family(
        "bins and sets",
        ("bincount", lambda k, x: k.ops.bincount(x, minlength=10), (NATURAL,)),
        ("digitize", lambda k, x: k.ops.digitize(x, k.ops.convert_to_tensor([-1.0, 0.0, 1.0])), (VECTOR,)),
        ("searchsorted", lambda k, x: k.ops.searchsorted(k.ops.convert_to_tensor([-1.0, 0.0, 1.0]), x), (VECTOR,)),
        ("isin", lambda k, x: k.ops.isin(x, [2, 4, 6]), (NATURAL,)),
        ("histogram", lambda k, x: k.ops.expand_dims(k.ops.histogram(x, bins=4, range=(-2.0, 2.0))[0], 0), (VECTOR,)),
        dtypes=(),
    ),
    family("segments", *map(_segment, ("segment_sum", "segment_max", "segment_min", "segment_prod")), dtypes=()),
    family("positive only", op("logsumexp", POSITIVE, title="positive", axis=-1), op("prod", WHOLE, title="int32", axis=-1), dtypes=()),
)
