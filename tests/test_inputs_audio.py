"""Sound from file to tensor: librosa's numbers by its defaults, and every file that can't be one is refused by name."""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from kpipe_stages.preprocess import PreprocessError, Preprocessor, check_steps
from kpipe_stages.preprocessing import audio
from kpipe_stages.preprocessing.decoders import check_read
from kpipe_stages.preprocessing.spectral import mel_filters, window
from kpipe_stages.protocol import InputSpec

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, np.dtype[Any]]
LIBROSA = Path(__file__).with_name("librosa_reference.npz")
"""Written by ``make_librosa_reference.py``."""


@pytest.fixture(scope="module")
def librosa() -> dict[str, Array]:
    with np.load(LIBROSA, allow_pickle=False) as file:
        return dict(file)


def tone(count: int = 800, rate: int = 8000, channels: int = 1) -> Array:
    time = np.arange(count) / rate
    return np.stack([0.5 * np.sin(2 * np.pi * (300 + 200 * channel) * time) for channel in range(channels)], axis=1)


def wav(samples: Array, rate: int = 8000, kind: str = "WAV", subtype: str = "PCM_16") -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format=kind, subtype=subtype)
    return stream.getvalue()


def sound(data: bytes, **read: Any) -> Array:
    return Preprocessor(InputSpec("sound", "audio", read={"rate": 8000, **read})).from_bytes(data, "a.wav")


def outcome(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or the `PreprocessError` it raises; any other exception is a fault."""
    try:
        return work()
    except PreprocessError as error:
        return error


def steps(signal: Array, *given_steps: dict[str, Any]) -> Array:
    return Preprocessor(InputSpec("sound", "npy", given_steps)).apply(signal)


# ---------------------------------------------------------------- the library's numbers


@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("mel", [{"mel": 128, "rate": 8000}]),
        ("stft", [{"spectrogram": True}]),
        (
            "mel_htk",
            [
                {
                    "mel": 20,
                    "rate": 8000,
                    "n_fft": 256,
                    "hop": 80,
                    "win_length": 200,
                    "window": "hamming",
                    "center": False,
                    "power": 1.0,
                    "fmin": 60,
                    "fmax": 3000,
                    "mel_scale": "htk",
                    "norm": "none",
                }
            ],
        ),
        ("stft_reflect", [{"spectrogram": True, "n_fft": 128, "hop": 48, "pad_mode": "reflect"}]),
        ("frames", [{"frame": [400, 160]}]),
    ],
)
def test_spectra_are_librosas_time_first(librosa: dict[str, Array], name: str, chain: list[dict[str, Any]]) -> None:
    mine, known = steps(librosa["signal"], *chain), librosa[name]
    assert mine.dtype == known.dtype == np.float32
    assert mine.shape == known.shape
    assert np.abs(mine - known).max() <= 1e-6 * np.abs(known).max()


def test_decibels_are_librosas(librosa: dict[str, Array]) -> None:
    mine = steps(librosa["mel"], {"decibels": "power"})
    assert np.abs(mine - librosa["decibels"]).max() < 1e-4
    mine = steps(librosa["stft_reflect"], {"decibels": "amplitude", "ref": "max", "top_db": 40.0})
    assert np.abs(mine - librosa["decibels_of_amplitudes"]).max() < 1e-4


@pytest.mark.parametrize("rate", [11025, 16000])
def test_a_stereo_file_is_loaded_and_resampled_as_librosa_does_bit_for_bit(librosa: dict[str, Array], rate: int) -> None:
    assert np.array_equal(sound(librosa["stereo"].tobytes(), rate=rate), librosa[f"load_{rate}"])


def test_log_mel_of_a_file_knows_the_decoders_rate(librosa: dict[str, Array]) -> None:
    spec = InputSpec("sound", "audio", ({"mel": 128}, {"decibels": "power"}), read={"rate": 8000, "mono": "first"})
    mine = Preprocessor(spec).from_bytes(wav(librosa["signal"], subtype="FLOAT"), "a.wav")
    assert np.abs(mine - librosa["decibels"]).max() < 1e-4


@pytest.mark.parametrize(("kind", "name"), [("hann", "hann"), ("hamming", "hamming"), ("rectangular", "boxcar")])
@pytest.mark.parametrize("length", [1, 8, 401])
def test_windows_are_scipys_periodic_ones(kind: str, name: str, length: int) -> None:
    from scipy.signal import get_window

    known = get_window(name, length, fftbins=True)
    assert np.allclose(window(kind, length), known if length > 1 else window(kind, 1), atol=1e-15)


def test_mel_filters_are_triangles_of_slaneys_area() -> None:
    filters = mel_filters(16000, 8192, 10, 0.0, 8000.0, "slaney", "slaney")
    assert filters.min() >= 0
    assert np.abs(filters.sum(axis=1) * 16000 / 8192 - 1).max() < 0.02


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 200))
def test_frames_are_slices_of_the_signal(length: int, hop: int, more: int) -> None:
    signal = np.arange(length + more, dtype=np.float32)
    made = steps(signal, {"frame": [length, hop]})
    assert len(made) == 1 + more // hop
    for at, row in enumerate(made):
        assert np.array_equal(row, signal[at * hop : at * hop + length])


# ---------------------------------------------------------------- decoding


@pytest.mark.parametrize(
    ("kind", "subtype", "bits"), [("WAV", "PCM_U8", 8), ("WAV", "PCM_16", 16), ("WAV", "PCM_24", 24), ("FLAC", "PCM_16", 16), ("WAVEX", "PCM_16", 16)]
)
def test_whole_numbers_are_divided_by_their_full_scale(kind: str, subtype: str, bits: int) -> None:
    samples = sound(wav(tone(), kind=kind, subtype=subtype))
    assert samples.shape == (800,)
    scaled = samples.astype(np.float64) * 2 ** (bits - 1)
    assert np.array_equal(scaled, np.rint(scaled))
    assert np.abs(samples - tone()[:, 0]).max() <= 1.5 / 2 ** (bits - 1)


def test_channels_are_averaged_or_chosen_or_kept_or_refused() -> None:
    data = wav(tone(channels=2), subtype="FLOAT")
    both = tone(channels=2).astype(np.float32)
    assert np.array_equal(sound(data), np.mean(both, axis=1, dtype=np.float32))
    assert np.array_equal(sound(data, mono="first"), both[:, 0])
    assert np.array_equal(sound(data, mono="keep"), both)
    assert sound(data, mono="keep", rate=16000).shape == (1600, 2)
    with pytest.raises(PreprocessError, match=r"a\.wav: 2 channels \(expected one\)"):
        sound(data, mono="refuse")


def test_another_rate_is_resampled_or_refused() -> None:
    data = wav(tone(1001, 16000), 16000)
    assert sound(data).shape == (501,)  # rounded up, as librosa does
    with pytest.raises(PreprocessError, match=r"16000 samples a second .expected 8000"):
        sound(data, resample="refuse")


def test_a_signal_is_cut_and_filled_where_the_contract_says() -> None:
    signal = np.arange(1, 6, dtype=np.float32)
    cut = lambda **options: steps(signal, {"length": 3, "padding": "end", **options}).tolist()  # noqa: E731
    fill = lambda **options: steps(signal, {"length": 7, "truncation": "end", **options}).tolist()  # noqa: E731
    assert cut(truncation="end") == [1, 2, 3]
    assert cut(truncation="start") == [3, 4, 5]
    assert fill(padding="end") == [1, 2, 3, 4, 5, 0, 0]
    assert fill(padding="start", value=-1) == [-1, -1, 1, 2, 3, 4, 5]
    with pytest.raises(PreprocessError, match=r"5 on the first axis .expected at most 3"):
        cut(truncation="refuse")
    with pytest.raises(PreprocessError, match=r"5 on the first axis .expected exactly 7"):
        fill(padding="refuse")


def declared(data: bytes, size: int) -> bytes:
    at = data.index(b"data") + 4
    return data[:at] + struct.pack("<I", size) + data[at + 4 :]


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "no sound": (lambda: b"not a sound at all", "do not decode"),
    "empty": (lambda: b"", "do not decode"),
    "cut off": (lambda: wav(tone())[:-10], r"chunk b'data' of 1,600 bytes, of which 1,590 are there"),
    "4 GiB declared": (lambda: declared(wav(tone()), 0xFFFFFFFF), r"chunk b'data' of 4,294,967,295 bytes"),
    "a header alone": (lambda: wav(tone()[:0]), "0 samples"),
    "FLAC cut off": (lambda: wav(tone(40_000), kind="FLAC")[:2000], "a whole WAV or FLAC file|samples of the 40,000"),
    "another format": (lambda: wav(tone(), kind="AIFF"), "a file of format AIFF"),
    "Ogg": (lambda: wav(tone(), kind="OGG", subtype="VORBIS"), "a file of format OGG"),
    "not finite": (lambda: wav(np.full((8, 1), np.nan), subtype="FLOAT"), "NaN or infinite"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_sound_is_refused_by_name(name: str) -> None:
    make, words = HOSTILE[name]
    with pytest.raises(PreprocessError, match=words) as caught:
        sound(make())
    assert "a.wav" in str(caught.value)
    assert caught.value.step == "decode"


def test_the_header_is_bounded_before_samples_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "MAX_SAMPLES", 1000)
    with pytest.raises(PreprocessError, match=r"a header of 800 samples and 2 channels"):
        sound(wav(tone(channels=2)))
    with pytest.raises(PreprocessError, match="800 samples at 8000 would become 1,600 at 16000"):
        sound(wav(tone()), rate=16000)


@given(st.binary(max_size=400), st.integers(0, 60))
def test_bytes_that_are_altered_raise_nothing_but_the_named_error(noise: bytes, at: int) -> None:
    whole = wav(tone(100))
    data = whole[:at] + noise + whole[at + len(noise) :]
    made = outcome(lambda: sound(data))
    assert made.code == "KP103" if isinstance(made, PreprocessError) else made.ndim == 1


# ---------------------------------------------------------------- what the contract says wrong


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ({}, "read lacks 'rate'"),
        ({"rate": 0}, "rate = 0 (expected a whole number from 1"),
        ({"rate": 8000, "mono": "left"}, "one of mean, first, refuse, keep"),
        ({"rate": 8000, "resample": "polyphase"}, "one of soxr_vhq"),
        ({"rate": 8000, "resampl": "soxr_hq"}, "Did you mean 'resample'?"),
    ],
)
def test_a_wrong_read_is_named(read: dict[str, Any], words: str) -> None:
    assert any(words in problem for problem in check_read("audio", read))


@pytest.mark.parametrize(
    ("decode", "step", "words"),
    [
        ("npy", {"mel": 40}, "'mel' lacks 'rate'"),
        ("audio", {"mel": 0}, "a whole number from 1"),
        ("audio", {"mel": 5000}, "at most 4,096"),
        ("audio", {"spectrogram": True, "n_fft": 2**19}, "at most 262,144"),
        ("audio", {"spectrogram": True, "n_fft": 256, "win_length": 512}, "win_length = 512 beside n_fft = 256"),
        ("audio", {"spectrogram": False}, "leave the step out"),
        ("audio", {"decibels": "loud"}, "one of power, amplitude"),
        ("audio", {"decibels": "power", "ref": 0}, '"max", or a number above 0'),
        ("audio", {"length": 5, "padding": "end"}, "'length' lacks 'truncation'"),
        ("audio", {"length": 5, "truncation": "end"}, "'length' lacks 'padding'"),
        ("audio", {"frame": [400]}, "[length, hop]"),
        ("audio", {"resize": [4, 4]}, "expected an image"),
        ("audio", {"lower": "ascii"}, "expected text"),
    ],
)
def test_a_wrong_step_is_named(decode: str, step: dict[str, Any], words: str) -> None:
    assert words in check_steps([step], decode, {"rate": 8000})[0]


@pytest.mark.parametrize(
    ("signal", "step", "words"),
    [
        (np.zeros((4, 2), np.float32), {"spectrogram": True}, "expected the samples of one channel"),
        (np.zeros(100, np.float32), {"spectrogram": True, "center": False}, "at least n_fft = 2048"),
        (np.zeros(100, np.float32), {"spectrogram": True, "pad_mode": "reflect"}, "more than 1024 to reflect"),
        (np.zeros(100, np.float32), {"mel": 8, "rate": 8000, "fmax": 5000}, "fmin below fmax, at most 4000"),
        (np.zeros(2**20, np.float32), {"spectrogram": True, "n_fft": 512, "hop": 1}, "1,048,577 frames of 257 bins"),
        (np.zeros(100, np.float32), {"log": True}, "expected values above 0"),
        (np.zeros(10**6, np.float32), {"frame": [1000, 1]}, "999,001 frames of 1,000"),
        (np.zeros(100, np.float32), {"frame": [400, 160]}, "one channel of at least 400 samples"),
        (np.float32(1.0), {"length": 3, "truncation": "end", "padding": "end"}, "values on an axis"),
        (np.zeros(1, np.int32), {"length": 3, "truncation": "end", "padding": "end", "value": 0.5}, "value = 0.5 among int32"),
    ],
)
def test_values_that_do_not_suit_a_step_are_refused(signal: Array, step: dict[str, Any], words: str) -> None:
    with pytest.raises(PreprocessError, match=words):
        steps(np.asarray(signal), step)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(PreprocessError, match=r"needs soundfile, which .* pip install 'keras-kpipe\[audio\]'") as caught:
        Preprocessor(InputSpec("sound", "audio", read={"rate": 8000}))
    assert caught.value.code == "KP113"
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(PreprocessError, match="needs soxr"):
        Preprocessor(InputSpec("sound", "audio", read={"rate": 8000}))
    assert Preprocessor(InputSpec("sound", "audio", read={"rate": 8000, "resample": "refuse"}))
