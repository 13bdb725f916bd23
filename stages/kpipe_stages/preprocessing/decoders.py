"""What reads a raw file, by the contract's ``decode``, and what may be said of it in ``read``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.npz import NpzFile, NpzLimits, npy_array
from kpipe_stages.preprocessing import audio, image, table, text
from kpipe_stages.preprocessing.checks import Check
from kpipe_stages.preprocessing.checks import text as a_text
from kpipe_stages.preprocessing.columns import read_columns
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.libraries import library

if TYPE_CHECKING:
    from kpipe_stages.protocol import InputSpec

Array = np.ndarray[Any, np.dtype[Any]]
Decode = Callable[[bytes, str], Array]


@dataclass(frozen=True)
class Limits:
    """Bounds on one raw file."""

    max_pixels: int = 64_000_000
    """Width times height, by the image's header."""
    max_bytes: int = 512 * 2**20
    """File size; for an ``.npz`` also its inflated size."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Decoder:
    """One kind of raw file."""

    gives: str
    """``image``, ``sound``, ``text``, ``numbers``; what steps may follow depends on it."""
    bind: Callable[[Limits, Mapping[str, Any], Mapping[str, bytes]], Decode]
    """Limits, complete options and named files to a function of a file's bytes and its name."""
    options: dict[str, tuple[Check, Any]] = field(default_factory=dict)
    """What ``read`` may say: name to check and default; a default of None makes it required."""
    dtype: str | None = None
    """What the tensor is cast to where the contract says nothing."""
    takes_files: bool = False


def _bind_image(limits: Limits, options: Mapping[str, Any], _: Mapping[str, bytes]) -> Decode:
    library("PIL.Image", "", 'decode = "image"')
    return lambda data, __: image.decode_image(data, limits.max_pixels, options=options)


def _bind_audio(_: Limits, options: Mapping[str, Any], __: Mapping[str, bytes]) -> Decode:
    audio.check_libraries(options)
    return lambda data, where: audio.decode_audio(data, where, options)


def _bind_text(_: Limits, options: Mapping[str, Any], __: Mapping[str, bytes]) -> Decode:
    return lambda data, where: text.decode_text(data, where, options)


def _bind_table(_: Limits, options: Mapping[str, Any], files: Mapping[str, bytes]) -> Decode:
    columns = read_columns(options["columns"], files)
    if options["format"] == "parquet":
        library("pyarrow.parquet", "parquet", 'format = "parquet"')

    def decode(data: bytes, where: str) -> Array:
        path, row = table.split_row(where)
        return table.decode_table(data, path, row, columns, options)

    return decode


def _bind_npy(_: Limits, __: Mapping[str, Any], ___: Mapping[str, bytes]) -> Decode:
    return npy_array


def _bind_npz(limits: Limits, options: Mapping[str, Any], _: Mapping[str, bytes]) -> Decode:
    return lambda data, where: NpzFile(data, where, NpzLimits(max_bytes=limits.max_bytes)).array(options["array"])


DECODER_KINDS: dict[str, Decoder] = {
    "image": Decoder("image", _bind_image, image.OPTIONS, "float32"),
    "audio": Decoder("sound", _bind_audio, audio.OPTIONS),
    "text": Decoder("text", _bind_text, text.OPTIONS, takes_files=True),
    "table": Decoder("", _bind_table, table.OPTIONS, takes_files=True),
    "npy": Decoder("", _bind_npy, takes_files=True),
    "npz": Decoder("", _bind_npz, {"array": (a_text, None)}, takes_files=True),
}
"""What a contract may name, besides ``module:function``. An empty ``gives`` stands for numbers or text, as the file has it."""


def check_read(decode: str, read: Mapping[str, Any]) -> list[str]:
    """Say what is wrong with ``read``; empty when nothing is. Pure: no file, no library."""
    kind = DECODER_KINDS.get(decode)
    if kind is None or (read and not kind.options):
        return [f"read is {dict(read)!r}; decode = {decode!r} takes no options. Drop it."] if read else []
    problems = []
    for key, value in read.items():
        if key not in kind.options:
            close = difflib.get_close_matches(key, kind.options, n=1)
            problems.append(f"read.{key}: unknown (expected {', '.join(kind.options)}).{f' Did you mean {close[0]!r}?' if close else ''}")
        elif expected := kind.options[key][0](value):
            problems.append(f"read.{key}: {expected}" if key == "columns" else f"read.{key} = {value!r} (expected {expected}). Mend the value.")
    lacking = [key for key, (_, default) in kind.options.items() if default is None and key not in read]
    return problems + [f"read lacks {key!r}: decode = {decode!r} needs it. Add read = {{ {key} = ... }}." for key in lacking]


def named_files(decode: str, read: Mapping[str, Any], steps: Any) -> list[str]:
    """The files that ``read`` and the steps name."""
    columns = [read["columns"]] if decode == "table" and isinstance(read.get("columns"), str) else []
    return columns + [step["tokenize"] for step in steps if isinstance(step, dict) and isinstance(step.get("tokenize"), str)]


def distributions(spec: InputSpec) -> set[str]:
    """The distributions whose versions an input's tensors depend on, besides numpy."""
    found = {"image": {"pillow"}, "audio": {"soundfile"}}.get(spec.decode, set())
    found |= {"soxr"} if spec.decode == "audio" and spec.read.get("resample") != "refuse" else set()
    found |= {"pyarrow"} if spec.read.get("format") == "parquet" else set()
    named = (step.get("tokenize") for step in spec.steps if isinstance(step, dict))
    return found | ({"tokenizers"} if any(str(name).endswith(".json") for name in named) else set())


def bind_decoder(spec: InputSpec, limits: Limits, files: Mapping[str, bytes]) -> Decode:
    """A spec whose ``read`` `check_read` found sound, as a function of bytes and name.

    Raises:
        PreprocessError: KP113 without the library; KP104, a named file is wrong.
    """
    kind = DECODER_KINDS[spec.decode]
    return kind.bind(limits, {name: spec.read.get(name, default) for name, (_, default) in kind.options.items()}, files)


def default_dtype(spec: InputSpec) -> str | None:
    """What a tensor is cast to where the contract says nothing; the columns of a table say it themselves."""
    kind = DECODER_KINDS.get(spec.decode)
    return kind.dtype if kind else None


def misread(spec: InputSpec, problem: str) -> PreprocessError:
    """An error about ``read``."""
    return PreprocessError("decode", f"input {spec.name!r}: {problem}", "a sound read", "Mend the contract.", "KP104")
