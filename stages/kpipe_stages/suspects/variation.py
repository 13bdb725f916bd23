"""A way from a raw file to a tensor that may leave the contract's words: declared steps, with whatever a suspect changed in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kpipe_stages.preprocess import bind_step, channel_axis_after, check_steps
from kpipe_stages.preprocessing.cast import cast
from kpipe_stages.preprocessing.image import scaled_to_255
from kpipe_stages.preprocessing.steps import KINDS

Array = np.ndarray[Any, np.dtype[Any]]

CACHE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Special:
    """A step that no contract has."""

    name: str
    """Tells it from every other one: results are kept by it."""
    apply: Callable[[Array], Array]


Step = dict[str, Any] | Special


@dataclass(frozen=True)
class Variation:
    """Decoder options, steps, the last cast, and what is done to the finished tensor."""

    steps: tuple[Step, ...]
    dtype: str | None
    upright: bool = True
    sixteen: Special | None = None
    """What 16-bit levels become; None for the contract's own way."""
    after: tuple[Special, ...] = ()

    def written(self) -> str:
        """The steps as a contract writes them; empty where a contract can't."""
        plain = [step for step in self.steps if isinstance(step, dict)]
        if len(plain) < len(self.steps) or not self.upright or self.sixteen or self.after or check_steps(plain):
            return ""
        return f"steps = [{', '.join(toml(step) for step in plain)}]"


def name_of(step: Step) -> str:
    """The step's name in a contract; empty for a special one."""
    return "" if isinstance(step, Special) else next(key for key in step if key in KINDS)


def toml(value: Any) -> str:
    """A step, or a value of one, as TOML writes it inline."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(inner) for inner in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)


class Kitchen:
    """Runs variations on raw files; what several have in common at their beginning is done once, as long as it fits `CACHE_BYTES`."""

    def __init__(self, decode: Callable[[int, bool, Callable[[Array], Array]], Array]) -> None:
        """Take the decoder: case, whether upright, what 16-bit levels become; to the array that the first step gets."""
        self._decode = decode
        self._kept: dict[tuple[Any, ...], Array] = {}
        self._bytes = 0

    def tensor(self, variation: Variation, case: int) -> Array:
        """The tensor that a variation makes of a case.

        Raises:
            Exception: a step doesn't suit the values; any type, since variations leave what is checked.
        """
        array = self._after(variation, case, len(variation.steps))
        if variation.dtype is not None:
            with np.errstate(all="ignore"):
                array = cast(array, variation.dtype)
        for special in variation.after:
            array = special.apply(array)
        return np.ascontiguousarray(array)

    def _after(self, variation: Variation, case: int, count: int) -> Array:
        """The array after the first ``count`` steps."""
        sixteen = variation.sixteen
        words = tuple(step.name if isinstance(step, Special) else repr(step) for step in variation.steps[:count])
        key = (case, variation.upright, sixteen.name if sixteen else "", words)
        if key in self._kept:
            return self._kept[key]
        if count == 0:
            array = self._decode(case, variation.upright, sixteen.apply if sixteen else scaled_to_255)
        else:
            before, step = self._after(variation, case, count - 1), variation.steps[count - 1]
            array = step.apply(before) if isinstance(step, Special) else bind_step(step, _axis(variation.steps[: count - 1]))(before, None)
        self._keep(key, array)
        return array

    def _keep(self, key: tuple[Any, ...], array: Array) -> None:
        if self._bytes + array.nbytes > CACHE_BYTES:
            self._kept.clear()
            self._bytes = 0
        if array.nbytes <= CACHE_BYTES:
            self._kept[key] = array
            self._bytes += array.nbytes


def _axis(steps: tuple[Step, ...]) -> int | None:
    axis: int | None = -1
    for step in steps:
        axis = axis if isinstance(step, Special) else channel_axis_after(step, axis)
    return axis
