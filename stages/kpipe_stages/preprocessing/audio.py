"""Decode a WAV or FLAC file to samples, as ``librosa.load(path, sr=rate)`` does: float32 from -1 to 1, mono by the mean, resampled by soxr."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.checks import natural, one_of
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.libraries import library

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.preprocessing.checks import Check

Array = np.ndarray[Any, np.dtype[Any]]

FORMATS = ("WAV", "WAVEX", "FLAC")
MAX_SAMPLES = 64_000_000
"""Samples times channels, before and after resampling."""
MAX_CHANNELS = 64
QUALITIES = {"soxr_vhq": "VHQ", "soxr_hq": "HQ", "soxr_mq": "MQ", "soxr_lq": "LQ", "soxr_qq": "QQ"}

OPTIONS: dict[str, tuple[Check, Any]] = {
    "rate": (natural, None),
    "mono": (one_of("mean", "first", "refuse", "keep"), "mean"),
    "resample": (one_of(*QUALITIES, "refuse"), "soxr_hq"),
}
_RIFF_HEAD = 12
_CHUNK_HEAD = 8


def check_libraries(options: Mapping[str, Any]) -> None:
    """Import what this needs.

    Raises:
        PreprocessError: KP113, it isn't installed.
    """
    library("soundfile", "audio", 'decode = "audio"')
    if options["resample"] != "refuse":
        library("soxr", "audio", f"resample = {options['resample']!r}")


def decode_audio(data: bytes, where: str, options: Mapping[str, Any]) -> Array:
    """Samples of a sound file.

    Args:
        data: the file's bytes.
        where: names it in messages.
        options: as `OPTIONS`, complete.

    Returns:
        float32 ``(samples,)``; ``(samples, channels)`` with ``mono = "keep"``. Integer samples of b bits are divided by ``2 ** (b - 1)``.

    Raises:
        PreprocessError: no WAV or FLAC, cut off, too large, not finite, several channels or another rate where those are refused.
    """
    samples, found = _read(data, where)
    samples = _mono(samples, options["mono"], where)
    rate = options["rate"]
    if found == rate:
        return samples
    if options["resample"] == "refuse":
        raise _refuse(where, f"{found} samples a second", f"{rate}", "Replace the file, or let resample name a way.")
    wanted = -(-len(samples) * rate // found)
    if wanted * (samples.shape[1] if samples.ndim > 1 else 1) > MAX_SAMPLES:
        raise _refuse(where, f"{len(samples):,} samples at {found} would become {wanted:,} at {rate}", f"at most {MAX_SAMPLES:,}", "Cut the file.")
    made = library("soxr", "audio", "resampling").resample(samples, found, rate, quality=QUALITIES[options["resample"]])
    short = max(0, wanted - len(made))
    widths = [(0, short)] + [(0, 0)] * (made.ndim - 1)
    return np.ascontiguousarray(np.pad(made[:wanted], widths), dtype=np.float32)


def _read(data: bytes, where: str) -> tuple[Array, int]:
    soundfile = library("soundfile", "audio", 'decode = "audio"')
    _check_riff(data, where)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            _check_header(file, where)
            samples = file.read(dtype="float32", always_2d=True)
            declared, rate = file.frames, file.samplerate
    except (RuntimeError, ValueError, TypeError) as error:  # LibsndfileError is a RuntimeError; PreprocessError goes on
        if isinstance(error, PreprocessError):
            raise
        raise _refuse(where, f"{len(data):,} bytes starting {data[:8]!r} do not decode: {error}", "a whole WAV or FLAC file") from error
    if len(samples) != declared or not len(samples):
        raise _refuse(where, f"{len(samples):,} samples of the {declared:,} that its header declares", "all of them, and at least one")
    if not np.isfinite(samples).all():
        raise _refuse(where, "samples that are NaN or infinite", "finite samples")
    return samples, int(rate)


def _check_header(file: Any, where: str) -> None:
    if file.format not in FORMATS:
        raise _refuse(where, f"a file of format {file.format}", "WAV or FLAC", "Convert the file, or mend decode.")
    if file.channels > MAX_CHANNELS or file.frames * file.channels > MAX_SAMPLES:
        raise _refuse(
            where, f"a header of {file.frames:,} samples and {file.channels} channels", f"at most {MAX_SAMPLES:,} values, {MAX_CHANNELS} channels"
        )
    if file.samplerate < 1:
        raise _refuse(where, f"{file.samplerate} samples a second", "1 or more")


def _check_riff(data: bytes, where: str) -> None:
    """A WAV's chunks lie within the file: libsndfile reads a file that was cut off as if it were shorter."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return
    at = _RIFF_HEAD
    while at + _CHUNK_HEAD <= len(data):
        name, size = data[at : at + 4], struct.unpack("<I", data[at + 4 : at + _CHUNK_HEAD])[0]
        if at + _CHUNK_HEAD + size > len(data):
            raise _refuse(where, f"chunk {name!r} of {size:,} bytes, of which {len(data) - at - _CHUNK_HEAD:,} are there", "a whole file")
        if name == b"data":
            return
        at += _CHUNK_HEAD + size + size % 2


def _mono(samples: Array, policy: str, where: str) -> Array:
    if policy == "keep":
        return samples
    if policy == "refuse" and samples.shape[1] != 1:
        raise _refuse(where, f"{samples.shape[1]} channels", "one", 'Replace the file, or say what training did with mono = "mean" or "first".')
    if policy == "mean" and samples.shape[1] > 1:
        return np.asarray(np.mean(samples.T, axis=0), dtype=np.float32)
    return np.ascontiguousarray(samples[:, 0])


def _refuse(where: str, what: str, expected: str, do: str = "Replace the file; it may be cut off or damaged.") -> PreprocessError:
    return PreprocessError("decode", f"{where}: {what}", expected, do)
