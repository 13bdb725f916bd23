"""From a raw file to one input tensor, by the contract's own description. Training, the reference and every target use this code.

``decode = "image"`` reads a still image (`kpipe_stages.preprocessing.image`), ``"npy"`` an array file, ``"array"`` a row of an
``.npz`` named ``file.npz#member#row``, ``"module:function"`` calls the user's own code (`kpipe_stages.preprocessing.function`). The steps are those of `kpipe_stages.preprocessing.steps`. Pillow is imported when an image is
decoded or resized, not before.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.npz import NpzFile, NpzLimits, npy_array, npz_row, split_reference
from kpipe_stages.preprocessing.cast import CastNote, cast
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.files import read_bytes
from kpipe_stages.preprocessing.function import UserFunction, is_function
from kpipe_stages.preprocessing.image import decode_image
from kpipe_stages.preprocessing.resample import PLAIN_METHODS
from kpipe_stages.preprocessing.steps import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kpipe_stages.protocol import InputSpec

__all__ = ["DECODERS", "CastNote", "Limits", "PreprocessError", "Preprocessor", "check_steps", "tensor_from"]

Array = np.ndarray[Any, np.dtype[Any]]

DECODERS = ("image", "npy", "array")


@dataclass(frozen=True)
class Limits:
    """Bounds on one raw file."""

    max_pixels: int = 64_000_000
    """Width times height, by the image's header."""
    max_bytes: int = 512 * 2**20
    """File size; for an ``.npz`` also its inflated size."""


def check_steps(steps: Sequence[dict[str, Any]]) -> list[str]:
    """Say what is wrong with a list of steps; empty when nothing is. Pure: no file, no Pillow."""
    problems: list[str] = []
    levels, image = "", ""
    for position, step in enumerate(steps):
        where = f"steps[{position}]"
        name, found = _step_name(step)
        if not name:
            problems.append(f"{where}: {found}")
            continue
        kind = KINDS[name]
        problems += [f"{where}: {problem}" for problem in _check_values(name, kind, step)]
        if kind.needs_image and image:
            problems.append(f"{where}: {name!r} comes after {image!r} (expected an image of height x width x channels). Move it before.")
        if kind.needs_levels and levels:
            problems.append(f"{where}: {name!r} comes after {levels!r} (expected levels from 0 to 255). Move it before.")
        levels = name if kind.changes_scale else levels
        image = name if name == "flatten" or step[name] == "chw" else image
    return problems


def _step_name(step: Any) -> tuple[str, str]:
    """The step's name, or "" and the problem."""
    if not isinstance(step, dict) or not step:
        return "", f"{step!r} is no step (expected a table such as {{ scale = 0.5 }}). Mend it."
    names = [key for key in step if key in KINDS]
    if len(names) == 1:
        return names[0], ""
    if names:
        return "", f"{' and '.join(map(repr, names))} in one step (expected one). Write a step for each."
    first = next(iter(step))
    return "", f"unknown step {first!r} (expected one of {', '.join(KINDS)}).{_nearest(first, KINDS)}"


def _nearest(word: Any, known: Any) -> str:
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else " Mend the name."


def _check_values(name: str, kind: Kind, step: dict[str, Any]) -> list[str]:
    problems = []
    if expected := kind.check(step[name]):
        problems.append(f"{name} = {step[name]!r} (expected {expected}). Mend the value.")
    for key, value in step.items():
        if key == name:
            continue
        if key not in kind.options:
            known = ", ".join(kind.options) or "no option"
            problems.append(f"unknown option {key!r} of {name!r} (expected {known}).{_nearest(key, kind.options)}")
        elif expected := kind.options[key][0](value):
            problems.append(f"{key} = {value!r} of {name!r} (expected {expected}). Mend the value.")
    problems += [
        f"{name!r} lacks {key!r} (expected it beside). Add it." for key, (_, default) in kind.options.items() if default is None and key not in step
    ]
    if step.get("antialias") is False and step.get("method", "bilinear") not in PLAIN_METHODS:
        problems.append(f"antialias = false with method {step['method']!r} (expected {' or '.join(PLAIN_METHODS)}). Leave antialias on.")
    return problems


class Preprocessor:
    """One input's way from bytes to a tensor, checked once, run often."""

    def __init__(self, spec: InputSpec, limits: Limits = Limits()) -> None:
        """Bind the steps.

        Raises:
            PreprocessError: the spec has an unknown decoder, a step that is wrong, or a function that can't be loaded.
        """
        if spec.decode not in DECODERS and not is_function(spec.decode):
            known = f"one of {', '.join(DECODERS)} or module:function"
            raise PreprocessError("decode", f"decode = {spec.decode!r} of input {spec.name!r}", known, "Mend the contract.", "KP104")
        if problems := check_steps(spec.steps):
            raise PreprocessError("steps", f"input {spec.name!r}: {problems[0]}", "sound steps", "Mend the contract.", "KP104")
        self.spec = spec
        self.limits = limits
        self._function = UserFunction(spec) if is_function(spec.decode) else None
        self._steps = bind_steps(spec.steps)
        self._dtype = spec.dtype or ("float32" if spec.decode == "image" else None)

    def decode(self, data: bytes, where: str) -> Array:
        """Decode a file's bytes (``image``, ``npy`` or a function, which gets a temporary file); ``where`` names it in messages."""
        if self._function is not None:
            return self._function.of_bytes(data, where)
        if self.spec.decode == "image":
            return decode_image(data, self.limits.max_pixels)
        return npy_array(data, where)

    def read(self, path: str | Path) -> Array:
        """Read and decode one raw file, or one row of an ``.npz``; a function reads the file itself."""
        if self._function is not None:
            return self._function(str(path))
        if self.spec.decode != "array":
            return self.decode(read_bytes(path, self.limits.max_bytes), str(path))
        file_path, member, row = split_reference(str(path))
        limits = NpzLimits(max_bytes=self.limits.max_bytes)
        file = NpzFile(read_bytes(file_path, limits.max_bytes), file_path, limits)
        return npz_row(file, file.array(member), member, row)

    def apply(self, array: Array, notes: list[CastNote] | None = None) -> Array:
        """Run the steps on a decoded array and cast; casts that changed a value are added to ``notes``.

        Returns:
            The tensor without a batch axis, native-endian and C-contiguous.
        """
        for step in self._steps:
            array = step(array, notes)
        if self._dtype is not None:
            array = cast(array, self._dtype, notes)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def from_bytes(self, data: bytes, where: str = "raw input", notes: list[CastNote] | None = None) -> Array:
        """Decode a file's bytes, run the steps, cast."""
        return self.apply(self.decode(data, where), notes)

    def from_path(self, path: str | Path, notes: list[CastNote] | None = None) -> Array:
        """Read, decode, run the steps, cast."""
        return self.apply(self.read(path), notes)


def bind_steps(steps: Sequence[dict[str, Any]]) -> list[Callable[[Array, list[CastNote] | None], Array]]:
    """Steps that `check_steps` found sound, each as a function of an array and the notes of its casts."""
    bound: list[Callable[[Array, list[CastNote] | None], Array]] = []
    axis: int | None = -1
    for step in steps:
        bound.append(bind_step(step, axis))
        axis = channel_axis_after(step, axis)
    return bound


def bind_step(step: dict[str, Any], channel_axis: int | None) -> Callable[[Array, list[CastNote] | None], Array]:
    """One sound step; ``channel_axis`` is where the channels of what it gets lie, None where there are none."""
    name, _ = _step_name(step)
    kind = KINDS[name]
    if kind.apply is None:
        return partial(_cast_step, dtype=step[name])
    options = {key: step.get(key, default) for key, (_, default) in kind.options.items()}
    if name == "normalize":
        options["channel_axis"] = channel_axis
    return partial(_plain_step, apply=kind.apply, value=step[name], options=options)


def channel_axis_after(step: dict[str, Any], channel_axis: int | None) -> int | None:
    """Where a step leaves the channels."""
    name, _ = _step_name(step)
    return None if name == "flatten" else 0 if step[name] == "chw" else channel_axis


def _plain_step(array: Array, _: list[CastNote] | None, apply: Callable[..., Array], value: Any, options: dict[str, Any]) -> Array:
    return apply(array, value, options)


def _cast_step(array: Array, notes: list[CastNote] | None, dtype: str) -> Array:
    return cast(array, dtype, notes)


def tensor_from(spec: InputSpec, path: str | Path, limits: Limits = Limits(), notes: list[CastNote] | None = None) -> Array:
    """Read one raw file and make the tensor, without a batch axis.

    In a loop, make one `Preprocessor` and call ``from_path``: the same without checking the steps again.

    Args:
        spec: the input's description.
        path: the raw file.
        limits: bounds on it.
        notes: gets a `CastNote` for each cast that changed a value. The prepare stage reports them; who passes None relies on it.

    Raises:
        PreprocessError: the file is missing, over the limits, does not decode, or doesn't suit a step.
    """
    return Preprocessor(spec, limits).from_path(path, notes)
