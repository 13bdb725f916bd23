"""Recurrent layers, their cells and wrappers, and spectrograms."""

from __future__ import annotations

from typing import Any

from kpipe_stages.zoo.case import FREE_STEPS, STEPS, Case, Given, Unit, config, layer

FIXED = Given((6, 4))
SOUND = Given((256,), draw="unit")
CHANNEL = Given((256, 1), draw="unit")
FRAMES = {1: Given((3, 6, 2)), 2: Given((3, 5, 5, 2)), 3: Given((2, 4, 4, 4, 1))}


def _recurrent(name: str, **more: dict[str, Any]) -> Unit:
    variants: dict[str, dict[str, Any]] = {
        "last": {},
        "sequence": {"return_sequences": True},
        "backwards": {"go_backwards": True},
        "unrolled": {"unroll": True},
        "no bias, linear": {"use_bias": False, "activation": "linear"},
        **more,
    }
    lines = [config(title, lambda k, x, a=arguments: getattr(k.layers, name)(3, **a)(x), FIXED) for title, arguments in variants.items()]
    return layer(
        name,
        *lines,
        config("state", lambda k, x: list(getattr(k.layers, name)(3, return_state=True)(x)), FIXED),
        config("free length", lambda k, x: getattr(k.layers, name)(3)(x), FREE_STEPS),
        config("masked", lambda k, x: getattr(k.layers, name)(3)(k.layers.Masking(0.0)(x)), FIXED),
    )


def _cell(name: str) -> Unit:
    return layer(name, config("in RNN", lambda k, x: k.layers.RNN(getattr(k.layers, name)(3))(x), FIXED))


def _conv_lstm(rank: int) -> Unit:
    name = f"ConvLSTM{rank}D"
    return layer(
        name,
        config("last", lambda k, x: getattr(k.layers, name)(2, 3, padding="same")(x), FRAMES[rank]),
        config("sequence", lambda k, x: getattr(k.layers, name)(2, 3, padding="same", return_sequences=True)(x), FRAMES[rank]),
    )


def _both_ways(keras: Any, x: Any, **arguments: Any) -> Any:
    return keras.layers.Bidirectional(keras.layers.LSTM(3, **arguments))(x)


UNITS: tuple[Unit, ...] = (
    _recurrent("SimpleRNN"),
    _recurrent("LSTM"),
    _recurrent("GRU", **{"reset before": {"reset_after": False}}),
    _cell("SimpleRNNCell"),
    _cell("LSTMCell"),
    _cell("GRUCell"),
    layer(
        "StackedRNNCells",
        config("in RNN", lambda k, x: k.layers.RNN(k.layers.StackedRNNCells([k.layers.LSTMCell(3), k.layers.GRUCell(2)]))(x), FIXED),
    ),
    layer(
        "RNN",
        config("LSTM cell", lambda k, x: k.layers.RNN(k.layers.LSTMCell(3), return_sequences=True)(x), FIXED),
        config("unrolled", lambda k, x: k.layers.RNN(k.layers.LSTMCell(3), unroll=True)(x), FIXED),
    ),
    layer(
        "Bidirectional",
        config("LSTM", _both_ways, FIXED),
        config("LSTM, sequence", lambda k, x: _both_ways(k, x, return_sequences=True), FIXED),
        config("GRU, summed", lambda k, x: k.layers.Bidirectional(k.layers.GRU(3), merge_mode="sum")(x), FIXED),
        config("LSTM, unrolled", lambda k, x: _both_ways(k, x, unroll=True), FIXED),
        config("LSTM, free length", _both_ways, FREE_STEPS),
        config("two LSTM, one after the other", lambda k, x: _both_ways(k, _both_ways(k, x, return_sequences=True)), FIXED),
    ),
    layer(
        "TimeDistributed",
        config("Dense", lambda k, x: k.layers.TimeDistributed(k.layers.Dense(3))(x), STEPS),
        config("Conv2D", lambda k, x: k.layers.TimeDistributed(k.layers.Conv2D(2, 3))(x), Given((4, 6, 6, 2))),
        config("Dense, free length", lambda k, x: k.layers.TimeDistributed(k.layers.Dense(3))(x), FREE_STEPS),
    ),
    *(_conv_lstm(rank) for rank in (1, 2, 3)),
    layer(
        "MelSpectrogram",
        config(
            "plain",
            lambda k, x: k.layers.MelSpectrogram(fft_length=64, sequence_stride=32, num_mel_bins=8, sampling_rate=8000, max_freq=4000)(x),
            SOUND,
        ),
    ),
    layer(
        "STFTSpectrogram",
        config("log", lambda k, x: k.layers.STFTSpectrogram(mode="log", frame_length=32, frame_step=16, fft_length=32)(x), CHANNEL),
        config("stft", lambda k, x: k.layers.STFTSpectrogram(mode="stft", frame_length=32, frame_step=16, fft_length=32)(x), CHANNEL),
    ),
)
UNITS = tuple(
    Unit(u.name, u.group, u.names, (*u.cases, Case("LSTM", "float64", (FIXED.of("float64"),), lambda k, x: k.layers.LSTM(3)(x), policy="float64")))
    if u.name == "LSTM"
    else u
    for u in UNITS
)
