"""Short messages of customers, made by a seed: a topic's own phrases among words that every topic uses, and now and then another topic's."""

from __future__ import annotations

import numpy as np

TOPICS = ("billing", "delivery", "praise")

OWN, STRANGE, SHOUTED, CAPITALISED = 0.7, 0.2, 0.1, 0.6
"""How often a phrase is surely the topic's own, a word is none that others use, and a message is in capitals, or has one (less those in capitals)."""

_PHRASES = {
    "billing": (
        "the invoice is wrong",
        "i was charged twice",
        "please refund my money",
        "my card was declined",
        "the discount is missing",
        "cancel my subscription",
        "the receipt shows another price",
    ),
    "delivery": (
        "my parcel never arrived",
        "the box was damaged",
        "where is my order",
        "the courier left it outside",
        "it was sent to the old address",
        "tracking has not moved for days",
        "the wrong item was delivered",
    ),
    "praise": (
        "thank you so much",
        "the support was great",
        "i love the new colour",
        "best purchase this year",
        "everything works perfectly",
        "friendly and quick as ever",
        "i will recommend you to friends",
    ),
}
_BETWEEN = ("and", "but", "also", "by the way", "well", "because", "so")
_OPENINGS = ("hello", "hi there", "good morning", "dear team", "hey", "to whom it may concern", "")
_STRANGE = ("Zürich", "№ 4711", "naïve", "🙂", "FWIW", "\uff26\uff55\uff4c\uff4c")
_ENDS = ("", ".", "!", " ...", "?!")


def message(rng: np.random.Generator, topic: str) -> str:
    """One message of one to four phrases, most of them the topic's: some can be told by nobody."""
    parts = [str(rng.choice(_OPENINGS))]
    for number in range(int(rng.integers(1, 5))):
        if number:
            parts.append(str(rng.choice(_BETWEEN)))
        whose = topic if rng.random() < OWN else str(rng.choice(TOPICS))
        parts.append(str(rng.choice(_PHRASES[whose])))
    if rng.random() < STRANGE:
        parts.insert(int(rng.integers(0, len(parts) + 1)), str(rng.choice(_STRANGE)))
    words = " ".join(part for part in parts if part) + str(rng.choice(_ENDS))
    how = rng.random()
    return words.upper() if how < SHOUTED else words.capitalize() if how < CAPITALISED else words


def messages(count: int, seed: int) -> list[tuple[str, str]]:
    """So many messages with their topics; the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    topics = [TOPICS[number % len(TOPICS)] for number in range(count)]
    return [(message(rng, topic), topic) for topic in topics]
