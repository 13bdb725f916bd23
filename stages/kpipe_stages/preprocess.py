"""From a raw file to one input tensor, by the contract's own description. Training, the reference and every target use this code.

``decode`` names what reads the file (`kpipe_stages.preprocessing.decoders`): ``image``, ``audio``, ``text``, ``table``, ``npy``, ``npz``;
``"array"`` is a row of an ``.npz`` named ``file.npz#member#row``, and ``"module:function"`` calls the user's own code
(`kpipe_stages.preprocessing.function`). The steps are those of `kpipe_stages.preprocessing.steps`. A library is imported where an input
needs it, not before.
"""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.npz import NpzFile, NpzLimits, npy_array, npz_row, split_reference
from kpipe_stages.preprocessing.assets import load_files
from kpipe_stages.preprocessing.cast import CastNote, cast
from kpipe_stages.preprocessing.columns import MISSING_VALUES, encode_row, read_columns
from kpipe_stages.preprocessing.decoders import DECODER_KINDS, DEFAULT_LIMITS, Limits, bind_decoder, check_read, default_dtype, misread
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.files import read_bytes
from kpipe_stages.preprocessing.function import UserFunction, is_function
from kpipe_stages.preprocessing.kinds import NO_CONTEXT, Context
from kpipe_stages.preprocessing.resample import PLAIN_METHODS
from kpipe_stages.preprocessing.steps import KINDS, Kind
from kpipe_stages.preprocessing.table import split_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kpipe_stages.protocol import InputSpec

__all__ = ["DECODERS", "CastNote", "Limits", "PreprocessError", "Preprocessor", "check_steps", "tensor_from"]

Array = np.ndarray[Any, np.dtype[Any]]

DECODERS = (*DECODER_KINDS, "array")


def check_steps(steps: Sequence[dict[str, Any]], decode: str = "", read: Mapping[str, Any] | None = None) -> list[str]:
    """Say what is wrong with a list of steps; empty when nothing is. Pure: no file, no library.

    Args:
        steps: the steps.
        decode: what comes before them; empty where it isn't known.
        read: its options.
    """
    problems: list[str] = []
    gives = DECODER_KINDS[decode].gives if decode in DECODER_KINDS else ""
    levels = 'deep = "keep"' if (read or {}).get("deep") == "keep" else ""
    image = f'decode = "{decode}"' if decode in ("audio", "text", "table") else ""
    numbers = f'decode = "{decode}"' if gives in ("image", "sound") else ""
    text = gives == "text"
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
        elif (kind.needs_levels or step.get("light") == "linear") and levels:
            problems.append(f"{where}: {name!r} comes after {levels!r} (expected levels from 0 to 255). Move it before.")
        elif kind.needs_text and numbers:
            problems.append(f"{where}: {name!r} comes after {numbers!r} (expected text). Move it before.")
        elif text and not kind.needs_text and not kind.any_values:
            problems.append(f"{where}: {name!r} comes on text (expected numbers). Put tokenize before it.")
        if kind.needs_rate and decode != "audio" and not step.get("rate"):
            problems.append(f"{where}: {name!r} lacks 'rate' (expected it beside: only decode = 'audio' knows it). Add it.")
        levels = name if kind.changes_scale else levels
        image = name if name in ("flatten", "reshape") or step[name] == "chw" else image
        numbers = name if kind.ends_text else numbers
        text = text and not kind.ends_text
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
    if not problems and kind.also and (problem := kind.also(step[name], {key: step.get(key, default) for key, (_, default) in kind.options.items()})):
        problems.append(problem)
    if step.get("antialias") is False and step.get("method", "bilinear") not in PLAIN_METHODS:
        problems.append(f"antialias = false with method {step['method']!r} (expected {' or '.join(PLAIN_METHODS)}). Leave antialias on.")
    return problems


class Preprocessor:
    """One input's way from bytes to a tensor, checked once, run often."""

    def __init__(self, spec: InputSpec, limits: Limits = DEFAULT_LIMITS) -> None:
        """Bind the steps.

        Raises:
            PreprocessError: the spec has an unknown decoder, a step that is wrong, or a function that can't be loaded.
        """
        if spec.decode not in DECODERS and not is_function(spec.decode):
            known = f"one of {', '.join(DECODERS)} or module:function"
            raise PreprocessError("decode", f"decode = {spec.decode!r} of input {spec.name!r}", known, "Mend the contract.", "KP104")
        if problems := check_read(spec.decode, spec.read):
            raise misread(spec, problems[0])
        if problems := check_steps(spec.steps, spec.decode, spec.read):
            raise PreprocessError("steps", f"input {spec.name!r}: {problems[0]}", "sound steps", "Mend the contract.", "KP104")
        self.spec = spec
        self.limits = limits
        own = DECODER_KINDS.get(spec.decode)
        self._files = load_files(spec.files, spec.name) if own else {}
        self._decode = bind_decoder(spec, limits, self._files) if own else None
        self._columns = read_columns(spec.read["columns"], self._files) if spec.decode == "table" else ()
        self._function = UserFunction(spec) if is_function(spec.decode) else None
        rate = spec.read.get("rate", 0) if spec.decode == "audio" else 0
        self._steps = bind_steps(spec.steps, Context(rate, self._files))
        self._dtype = spec.dtype or ("float32" if self._columns and self._columns[0].kind != "text" else default_dtype(spec))

    def file_of(self, path: str | Path) -> str:
        """The file that a golden item's path means, without the row of a table."""
        return split_row(str(path))[0] if self.spec.decode == "table" else str(path)

    def decode(self, data: bytes, where: str) -> Array:
        """Decode a file's bytes (a function gets a temporary file); ``where`` names it in messages, and the row of a table."""
        if self._function is not None:
            return self._function.of_bytes(data, where)
        return self._decode(data, where) if self._decode else npy_array(data, where)

    def raw(self, path: str | Path) -> bytes | None:
        """A raw file's bytes, for `decode`; None where reading and decoding are one: a function of the user's, a row of an ``.npz``."""
        if self._function is not None or self.spec.decode == "array":
            return None
        return read_bytes(self.file_of(path), self.limits.max_bytes)

    def read(self, path: str | Path) -> Array:
        """Read and decode one raw file, or one row of an ``.npz``; a function reads the file itself."""
        if self._function is not None:
            return self._function(str(path))
        if (data := self.raw(path)) is not None:
            return self.decode(data, str(path))
        file_path, member, row = split_reference(str(path))
        limits = NpzLimits(max_bytes=self.limits.max_bytes)
        file = NpzFile(read_bytes(file_path, limits.max_bytes), file_path, limits)
        return npz_row(file, file.array(member), member, row)

    def from_row(self, row: Mapping[str, Any], notes: list[CastNote] | None = None) -> Array:
        """The tensor of one row of a table by its columns' names: text as a CSV file has it, or numbers, truth values and None.

        Raises:
            PreprocessError: the input isn't a table, a column is missing, or a value can't be encoded.
        """
        columns = self._columns
        if not columns or (lacking := [column.name for column in columns if column.name not in row]):
            what = f"no column {lacking[0]!r}" if columns else f"decode = {self.spec.decode!r}"
            raise PreprocessError("columns", f"input {self.spec.name!r}: {what}", "a row of a table with every column", "Mend the row.")
        missing = frozenset(self.spec.read.get("missing_values", MISSING_VALUES))
        return self.apply(encode_row(columns, row, missing, self.spec.read.get("decimal", ".")), notes)

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


def bind_steps(steps: Sequence[dict[str, Any]], context: Context = NO_CONTEXT) -> list[Callable[[Array, list[CastNote] | None], Array]]:
    """Steps that `check_steps` found sound, each as a function of an array and the notes of its casts."""
    bound: list[Callable[[Array, list[CastNote] | None], Array]] = []
    axis: int | None = -1
    for step in steps:
        bound.append(bind_step(step, axis, context))
        axis = channel_axis_after(step, axis)
    return bound


def bind_step(step: dict[str, Any], channel_axis: int | None, context: Context = NO_CONTEXT) -> Callable[[Array, list[CastNote] | None], Array]:
    """One sound step; ``channel_axis`` is where the channels of what it gets lie, None where there are none.

    Raises:
        PreprocessError: a file that the step names can't be used, or a library isn't there.
    """
    name, _ = _step_name(step)
    kind = KINDS[name]
    options = {key: step.get(key, default) for key, (_, default) in kind.options.items()}
    if kind.prepare is not None:
        return partial(_prepared_step, apply=kind.prepare(step[name], options, context))
    if kind.apply is None:
        return partial(_cast_step, dtype=step[name])
    if name == "normalize":
        options["channel_axis"] = channel_axis
    return partial(_plain_step, apply=kind.apply, value=step[name], options=options)


def channel_axis_after(step: dict[str, Any], channel_axis: int | None) -> int | None:
    """Where a step leaves the channels."""
    name, _ = _step_name(step)
    return None if name == "flatten" else 0 if step[name] == "chw" else channel_axis


def _plain_step(array: Array, _: list[CastNote] | None, apply: Callable[..., Array], value: Any, options: dict[str, Any]) -> Array:
    return apply(array, value, options)


def _prepared_step(array: Array, _: list[CastNote] | None, apply: Callable[[Array], Array]) -> Array:
    return apply(array)


def _cast_step(array: Array, notes: list[CastNote] | None, dtype: str) -> Array:
    return cast(array, dtype, notes)


def tensor_from(spec: InputSpec, path: str | Path, limits: Limits = DEFAULT_LIMITS, notes: list[CastNote] | None = None) -> Array:
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
