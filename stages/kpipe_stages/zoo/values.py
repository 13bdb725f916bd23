"""Seeded inputs and weights for the models of the zoo. Numpy only."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kpipe_stages.protocol import Signature
    from kpipe_stages.zoo.case import Case, Given

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]

ROWS = 3
SIZES = (12, 10)
"""Lengths of a free axis: the first for all ways of running but the last, which is the other length."""
WORDS = ("red", "green", "blue", "unseen", "Red", "two words")


def feeds(case: Case, signature: Signature) -> dict[str, dict[str, Array]]:
    """The inputs by way of running and name.

    ``alone`` is one row, ``batch`` three rows, the first of them that one; ``size``, where there are free axes, is one row with every free axis of another length.

    The inputs of a case are the model's in order: a case of one model is functional.
    """
    names = [spec.name for spec in signature.inputs]
    batch = _drawn(case, names, SIZES[0])
    ways = {"alone": {name: array[:1] for name, array in batch.items()}, "batch": batch}
    if any(n is None for given in case.given for n in given.shape):
        ways["size"] = {name: array[:1] for name, array in _drawn(case, names, SIZES[1]).items()}
    return ways


def _drawn(case: Case, names: list[str], size: int) -> dict[str, Array]:
    random = np.random.default_rng(zlib.crc32(case.name.encode()))
    return {name: draw(given, random, size) for name, given in zip(names, case.given, strict=True)}


def draw(given: Given, random: np.random.Generator, size: int) -> Array:
    """``(ROWS, ...)`` values of one input."""
    shape = (ROWS, *(size if n is None else n for n in given.shape))
    kind, _, argument = given.draw.partition(":")
    values = DRAWS[kind](random, shape, argument)
    if given.dtype == "string":
        return values
    if given.dtype == "bfloat16":
        import ml_dtypes

        return values.astype(ml_dtypes.bfloat16)
    return np.ascontiguousarray(values.astype(given.dtype))


def _definite(random: np.random.Generator, shape: Shape, _: str) -> Array:
    """Symmetric matrices with eigenvalues of at least 1."""
    root = random.standard_normal(shape) / 2
    return np.asarray(root @ np.swapaxes(root, -1, -2) + np.eye(shape[-1]))


def _words(random: np.random.Generator, shape: Shape, _: str) -> Array:
    return random.choice(np.array(WORDS[:4]), shape)


def _sentences(random: np.random.Generator, shape: Shape, _: str) -> Array:
    flat = [" ".join(random.choice(np.array(WORDS), 3)) for _ in range(int(np.prod(shape)))]
    return np.array(flat).reshape(shape)


def _special(random: np.random.Generator, shape: Shape, _: str) -> Array:
    """Every third number is NaN, an infinity or a zero of either sign."""
    values = random.standard_normal(shape)
    values.flat[::3] = np.resize([np.nan, np.inf, -np.inf, 0.0, -0.0], values.flat[::3].shape)
    return values


def _gaps(random: np.random.Generator, shape: Shape, _: str) -> Array:
    """Every third number is NaN."""
    values = random.standard_normal(shape)
    values[..., ::3] = np.nan
    return values


DRAWS: Mapping[str, Callable[[np.random.Generator, Shape, str], Array]] = {
    "normal": lambda random, shape, _: random.standard_normal(shape),
    "wide": lambda random, shape, _: random.uniform(-8, 8, shape),
    "positive": lambda random, shape, _: random.uniform(0.1, 3, shape),
    "above_one": lambda random, shape, _: random.uniform(1.1, 3, shape),
    "unit": lambda random, shape, _: random.uniform(-0.95, 0.95, shape),
    "share": lambda random, shape, _: random.uniform(0.02, 0.98, shape),
    "pixels": lambda random, shape, _: random.uniform(0, 255, shape),
    "whole": lambda random, shape, _: random.integers(-9, 10, shape),
    "natural": lambda random, shape, _: random.integers(1, 10, shape),
    "ids": lambda random, shape, top: random.integers(0, int(top), shape),
    "apart": lambda random, shape, _: np.stack([random.permutation(int(np.prod(shape[1:]))).reshape(shape[1:]) for _ in range(shape[0])]) / 2,
    "sorted": lambda random, shape, _: np.sort(random.standard_normal(shape), axis=-1),
    "bool": lambda random, shape, _: random.integers(0, 2, shape),
    "definite": _definite,
    "special": _special,
    "gaps": _gaps,
    "corners": lambda random, shape, _: np.array([[0.0, 0.0], [0.0, 7.0], [7.0, 0.0], [7.0, 7.0]]) + random.uniform(0, 1, shape),
    "turn": lambda random, shape, _: (
        np.array([1.0, 0.1, 0.2, 0.0, 0.9, 0.3, 0.0, 0.0]) + 0.05 * random.uniform(0, 1, shape) * [1, 1, 1, 1, 1, 1, 0, 0]
    ),
    "words": _words,
    "sentences": _sentences,
}
"""Name to ``draw(generator, shape, argument)``; ``apart`` gives distinct numbers, so that an order is never a matter of rounding."""
