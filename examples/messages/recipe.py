"""What a message is about: an embedding and an LSTM over masked tokens, which the contract's own steps make of each text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from messages import TOPICS, messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.preprocess import Preprocessor

Array = np.ndarray[Any, np.dtype[Any]]

EPOCHS = 5
BATCH_SIZE = 32
LENGTH = 24
VOCABULARY = 128
"""Room for the vocabulary's tokens; a few rows are never used."""
TRAINING, HELD_OUT = 1200, 300
TRAINING_SEED, HELD_OUT_SEED = 20_261_101, 20_261_102


def build_model() -> keras.Model:
    """Token 0 is padding, and masked."""
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(VOCABULARY, 16, mask_zero=True, name="embedding")(tokens)
    x = keras.layers.LSTM(24, name="lstm")(x)
    model = keras.Model(tokens, keras.layers.Dense(len(TOPICS), activation="softmax", name="topic")(x), name="messages")
    model.compile(keras.optimizers.Adam(5e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def load_data(preprocess: Mapping[str, Preprocessor]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Training and held-out messages, each read as the file that a product would receive.

    Returns:
        ``((x, y), (x_val, y_val))``: x int32 ``(n, 24)``, y int64 ``(n,)``, the topic's number.
    """
    parts = []
    for count, seed in ((TRAINING, TRAINING_SEED), (HELD_OUT, HELD_OUT_SEED)):
        written = messages(count, seed)
        x = np.stack([preprocess["tokens"].from_bytes(text.encode()) for text, _ in written])
        parts.append((x, np.array([TOPICS.index(topic) for _, topic in written], dtype=np.int64)))
    return parts[0], parts[1]
