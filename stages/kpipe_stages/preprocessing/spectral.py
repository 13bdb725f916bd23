"""Spectra of sound: the formulas of librosa 0.11, time first, computed in float64 and rounded once to float32.

``spectrogram`` is ``abs(librosa.stft(y)) ** power`` and ``mel`` is ``librosa.feature.melspectrogram``, both transposed to
``(frames, bins)``; ``decibels`` is ``librosa.power_to_db`` or ``amplitude_to_db``. Their defaults are librosa's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.checks import is_number, natural, not_negative, one_of, positive, switch, true
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.kinds import Kind
from kpipe_stages.preprocessing.lengths import MAX_VALUES, frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.preprocessing.checks import Check
    from kpipe_stages.preprocessing.kinds import Context, Options

Array = np.ndarray[Any, np.dtype[Any]]

MAX_FFT = 2**18
MAX_BANDS = 4096
BLOCK = 2**22
"""Values of the frames that are transformed at a time."""


def window(name: str, length: int) -> Array:
    """A periodic window of ``length`` samples, float64: ``scipy.signal.get_window(name, length, fftbins=True)``."""
    angle = 2 * np.pi * np.arange(length) / length
    shapes: dict[str, Array] = {"hann": 0.5 - 0.5 * np.cos(angle), "hamming": 0.54 - 0.46 * np.cos(angle), "rectangular": np.ones(length)}
    return shapes[name]


def stft_magnitude(signal: Array, options: Options) -> Array:
    """The magnitudes of the short-time Fourier transform, ``(frames, 1 + n_fft / 2)``, float64.

    Raises:
        PreprocessError: no single channel, too short, or too large.
    """
    n_fft, hop = options["n_fft"], options["hop"] or (options["win_length"] or options["n_fft"]) // 4
    length = options["win_length"] or n_fft
    if signal.ndim != 1 or signal.dtype.kind not in "iuf" or not len(signal):
        raise PreprocessError(
            "spectrogram", f"{signal.dtype.name} of shape {signal.shape}", "the samples of one channel", 'Decode with mono = "mean".', "KP104"
        )
    padded = _centred(signal.astype(np.float64), n_fft, options["pad_mode"]) if options["center"] else signal.astype(np.float64)
    if len(padded) < n_fft:
        raise PreprocessError("spectrogram", f"{len(signal)} samples", f"at least n_fft = {n_fft}", "Pad with length before, or center.")
    count = 1 + (len(padded) - n_fft) // hop
    bins = n_fft // 2 + 1
    if count * bins > MAX_VALUES:
        raise PreprocessError("spectrogram", f"{count:,} frames of {bins:,} bins", f"at most {MAX_VALUES:,} values", "Cut with length before.")
    weights = np.zeros(n_fft)
    start = (n_fft - length) // 2
    weights[start : start + length] = window(options["window"], length)
    made = np.empty((count, bins))
    step = max(1, BLOCK // n_fft)
    for at in range(0, count, step):
        part = padded[at * hop : (min(at + step, count) - 1) * hop + n_fft]
        made[at : at + step] = np.abs(np.fft.rfft(frames(part, n_fft, hop) * weights, axis=1))
    return made


def _centred(signal: Array, n_fft: int, mode: str) -> Array:
    side = n_fft // 2
    if mode == "reflect" and len(signal) <= side:
        raise PreprocessError("spectrogram", f"{len(signal)} samples", f"more than {side} to reflect", 'Pad before, or pad_mode = "constant".')
    return np.pad(signal, side) if mode == "constant" else np.pad(signal, side, mode="reflect")


def mel_filters(rate: int, n_fft: int, bands: int, lowest: float, highest: float, scale: str, norm: str) -> Array:
    """Triangular mel filters, ``(bands, 1 + n_fft / 2)``, float64: ``librosa.filters.mel``.

    Slaney's scale is linear below 1 kHz (200/3 Hz a mel) and logarithmic above (factor 6.4 in 27 mels), as in his Auditory Toolbox (1998);
    HTK's is ``2595 log10(1 + f / 700)``. ``slaney`` divides each filter by half its width in Hz.
    """
    edges = _to_hertz(np.linspace(_to_mel(lowest, scale), _to_mel(highest, scale), bands + 2), scale)
    bins = np.arange(n_fft // 2 + 1) * (rate / n_fft)
    widths = np.diff(edges)
    slopes = edges[:, np.newaxis] - bins[np.newaxis, :]
    lower, upper = -slopes[:-2] / widths[:-1, np.newaxis], slopes[2:] / widths[1:, np.newaxis]
    filters = np.maximum(0.0, np.minimum(lower, upper))
    return np.asarray(filters * (2.0 / (edges[2:] - edges[:-2]))[:, np.newaxis] if norm == "slaney" else filters)


_LINEAR_HZ = 200.0 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ
_LOG_STEP = math.log(6.4) / 27.0


def _to_mel(hertz: float, scale: str) -> float:
    if scale == "htk":
        return 2595.0 * math.log10(1.0 + hertz / 700.0)
    return hertz / _LINEAR_HZ if hertz < _BREAK_HZ else _BREAK_MEL + math.log(hertz / _BREAK_HZ) / _LOG_STEP


def _to_hertz(mel: Array, scale: str) -> Array:
    if scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    return np.where(mel < _BREAK_MEL, mel * _LINEAR_HZ, _BREAK_HZ * np.exp(_LOG_STEP * (mel - _BREAK_MEL)))


def _prepare_spectrogram(_: Any, options: Options, __: Context) -> Callable[[Array], Array]:
    return lambda array: np.asarray(stft_magnitude(array, options) ** options["power"], dtype=np.float32)


def _prepare_mel(bands: Any, options: Options, context: Context) -> Callable[[Array], Array]:
    rate = options["rate"] or context.rate
    if not rate:
        raise PreprocessError("mel", "no sampling rate", "rate = samples a second beside mel", "Add rate.", "KP104")
    highest = options["fmax"] or rate / 2
    if not options["fmin"] < highest <= rate / 2:
        raise PreprocessError("mel", f"fmin = {options['fmin']}, fmax = {highest}", f"fmin below fmax, at most {rate / 2}", "Mend fmax.", "KP104")
    filters = mel_filters(rate, options["n_fft"], bands, options["fmin"], highest, options["mel_scale"], options["norm"])
    return lambda array: np.asarray((stft_magnitude(array, options) ** options["power"]) @ filters.T, dtype=np.float32)


def _decibels(array: Array, value: Any, options: Options) -> Array:
    """``10 log10(max(amin, s)) - 10 log10(max(amin, ref))``, no lower than the loudest less ``top_db``; amplitudes are squared first."""
    _check_numbers("decibels", array)
    values = array.astype(np.float64)
    square = value == "amplitude"
    power = values**2 if square else values
    amin = options["amin"] or (1e-10 if value == "power" else 1e-5)
    floor = amin**2 if square else amin
    reference = float(power.max(initial=0.0)) if options["ref"] == "max" else float(options["ref"]) ** (2 if square else 1)
    levels = 10.0 * np.log10(np.maximum(floor, power)) - 10.0 * math.log10(max(floor, reference))
    if options["top_db"] != "none":
        levels = np.maximum(levels, levels.max() - options["top_db"])
    return levels.astype(np.float32)


def _log(array: Array, _: Any, options: Options) -> Array:
    _check_numbers("log", array)
    values = array.astype(np.float64) + options["add"]
    if not (values > 0).all():
        raise PreprocessError("log", f"the value {values.min():g}", "values above 0", "Add a small number: { log = true, add = 1e-6 }.")
    return np.asarray(np.log(values), dtype=np.float32)


def _check_numbers(step: str, array: Array) -> None:
    if array.dtype.kind not in "biuf" or not array.size:
        raise PreprocessError(step, f"{array.dtype.name} of shape {array.shape}", "numbers", f"Leave {step!r} out.", "KP104")


def _or_0(check: Check) -> Check:
    """The check, and 0 for what is worked out."""
    return lambda value: "" if value == 0 and not isinstance(value, bool) else check(value)


def _up_to(most: int) -> Check:
    return lambda value: natural(value) or ("" if value <= most else f"at most {most:,}")


def _reference(value: Any) -> str:
    return "" if value == "max" or (is_number(value) and value > 0) else '"max", or a number above 0'


def _range(value: Any) -> str:
    return "" if value == "none" or (is_number(value) and value > 0) else '"none", or a number above 0'


def _window_fits(_: Any, options: Options) -> str:
    length, n_fft = options["win_length"], options["n_fft"]
    return f"win_length = {length} beside n_fft = {n_fft} (expected at most n_fft). Mend one." if length and length > n_fft else ""


_STFT: dict[str, tuple[Check, Any]] = {
    "n_fft": (_up_to(MAX_FFT), 2048),
    "hop": (_or_0(natural), 0),
    "win_length": (_or_0(natural), 0),
    "window": (one_of("hann", "hamming", "rectangular"), "hann"),
    "center": (switch, True),
    "pad_mode": (one_of("constant", "reflect"), "constant"),
}

SPECTRAL_KINDS: dict[str, Kind] = {
    "spectrogram": Kind(true, None, {**_STFT, "power": (positive, 1.0)}, prepare=_prepare_spectrogram, also=_window_fits, changes_scale=True),
    "mel": Kind(
        _up_to(MAX_BANDS),
        None,
        {
            **_STFT,
            "hop": (_or_0(natural), 512),
            "power": (positive, 2.0),
            "fmin": (not_negative, 0.0),
            "fmax": (_or_0(positive), 0),
            "mel_scale": (one_of("slaney", "htk"), "slaney"),
            "norm": (one_of("slaney", "none"), "slaney"),
            "rate": (_or_0(natural), 0),
        },
        prepare=_prepare_mel,
        also=_window_fits,
        needs_rate=True,
        changes_scale=True,
    ),
    "decibels": Kind(
        one_of("power", "amplitude"),
        _decibels,
        {"ref": (_reference, 1.0), "amin": (_or_0(positive), 0), "top_db": (_range, 80.0)},
        changes_scale=True,
    ),
    "log": Kind(true, _log, {"add": (not_negative, 0.0)}, changes_scale=True),
}
