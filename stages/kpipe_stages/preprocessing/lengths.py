"""Steps along the first axis: one length for all, and frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.checks import natural, number, one_of, shape_of_frames
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.kinds import Kind

if TYPE_CHECKING:
    from kpipe_stages.preprocessing.kinds import Options

Array = np.ndarray[Any, np.dtype[Any]]

SIDES = ("start", "end")
MAX_VALUES = 2**27
"""Values of all frames, or of one spectrogram: 1 GiB in float64."""


def pad_first_axis(array: Array, length: int, value: float, at: str) -> Array:
    """Fill the first axis up to ``length`` with ``value``, in front (``start``) or behind (``end``).

    Raises:
        PreprocessError: the array has no axis, is longer, or can't hold the value.
    """
    if array.ndim == 0 or array.dtype.kind not in "biuf" or len(array) > length:
        raise PreprocessError(
            "length", f"{array.dtype.name} of shape {array.shape}", f"numbers, at most {length} on the first axis", "Mend the steps."
        )
    filler = np.asarray(value).astype(array.dtype)
    if filler.dtype.kind in "iu" and int(filler) != value:
        raise PreprocessError("length", f"value = {value} among {array.dtype.name}", "a value that they can hold", "Mend value.", "KP104")
    spare = length - len(array)
    widths = [(spare, 0) if at == "start" else (0, spare)] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, widths, constant_values=filler)


def _length(array: Array, value: Any, options: Options) -> Array:
    if array.ndim == 0:
        raise PreprocessError("length", f"a single {array.dtype.name}", "values on an axis", "Tokenize or reshape before.", "KP104")
    if len(array) > value:
        if options["truncation"] == "refuse":
            raise PreprocessError(
                "length",
                f"{len(array)} on the first axis",
                f"at most {value}",
                'Replace the file, or say truncation = "start" or "end" as training did.',
            )
        return array[-value:] if options["truncation"] == "start" else array[:value]
    if len(array) < value and options["padding"] == "refuse":
        raise PreprocessError(
            "length", f"{len(array)} on the first axis", f"exactly {value}", 'Replace the file, or say padding = "start" or "end" as training did.'
        )
    return pad_first_axis(array, value, options["value"], options["padding"])


def frames(array: Array, length: int, hop: int) -> Array:
    """Overlapping frames of a signal, ``(n,)`` to ``(1 + (n - length) // hop, length)``: `librosa.util.frame`, time first. A rest is dropped."""
    view = np.lib.stride_tricks.sliding_window_view(array, length)
    return np.ascontiguousarray(view[::hop])


def _frame(array: Array, value: Any, _: Options) -> Array:
    length, hop = value
    if array.ndim != 1 or len(array) < length:
        raise PreprocessError(
            "frame", f"values of shape {array.shape}", f"one channel of at least {length} samples", "Make it mono, or pad with length before."
        )
    count = 1 + (len(array) - length) // hop
    if count * length > MAX_VALUES:
        raise PreprocessError("frame", f"{count:,} frames of {length:,}", f"at most {MAX_VALUES:,} values", "Cut with length before, or hop further.")
    return frames(array, length, hop)


LENGTH_KINDS: dict[str, Kind] = {
    "length": Kind(
        natural, _length, {"truncation": (one_of(*SIDES, "refuse"), None), "padding": (one_of(*SIDES, "refuse"), None), "value": (number, 0)}
    ),
    "frame": Kind(shape_of_frames, _frame),
}
