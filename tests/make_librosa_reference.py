"""What librosa makes of a seeded signal: ``python tests/make_librosa_reference.py`` in an environment that has librosa writes ``librosa_reference.npz``.

librosa isn't among the development tools: it brings numba and llvmlite. The file says which version wrote it.
"""

from __future__ import annotations

import io
from importlib.metadata import version
from pathlib import Path

import librosa
import numpy as np
import soundfile


def signal() -> np.ndarray:
    time = np.arange(1600) / 8000
    noise = np.random.default_rng(7).standard_normal(len(time))
    return (0.5 * np.sin(2 * np.pi * 440 * time) + 0.2 * np.sin(2 * np.pi * 1900 * time) + 0.05 * noise).astype(np.float32)


def main() -> None:
    y = signal()
    stereo = io.BytesIO()
    soundfile.write(stereo, np.stack([y, -0.5 * y[::-1]], axis=1), 8000, format="WAV", subtype="PCM_24")
    found = {"version": np.array(version("librosa")), "signal": y, "stereo": np.frombuffer(stereo.getvalue(), np.uint8)}
    found["mel"] = librosa.feature.melspectrogram(y=y, sr=8000).T
    found["stft"] = np.abs(librosa.stft(y)).T
    options = {"n_fft": 256, "hop_length": 80, "win_length": 200, "window": "hamming", "center": False, "power": 1.0}
    found["mel_htk"] = librosa.feature.melspectrogram(y=y, sr=8000, **options, n_mels=20, fmin=60, fmax=3000, htk=True, norm=None).T
    found["stft_reflect"] = np.abs(librosa.stft(y, n_fft=128, hop_length=48, pad_mode="reflect")).T
    found["decibels"] = librosa.power_to_db(found["mel"])
    found["decibels_of_amplitudes"] = librosa.amplitude_to_db(found["stft_reflect"], ref=np.max, top_db=40.0)
    found["frames"] = librosa.util.frame(y, frame_length=400, hop_length=160).T
    for rate in (11025, 16000):
        stereo.seek(0)
        found[f"load_{rate}"] = librosa.load(stereo, sr=rate)[0]
    np.savez_compressed(Path(__file__).with_name("librosa_reference.npz"), **found)


if __name__ == "__main__":
    main()
