"""Write the vocabulary and the golden inputs: ``python examples/messages/make_golden.py`` (minutes: it trains several models).

The vocabulary is every token of the training messages that stands there at least `OFTEN` times, in alphabetical order, after the empty token
(padding) and ``[UNK]``. A decision is *approved* where `RUNS` trainings with seeds of their own and the model beside this file take it, and where
its log-odds stand `STEADY` standard deviations clear of the next topic.

- ``sampled``: `SAMPLED` held-out messages drawn at random.
- ``mined``: of the others, the `MINED` with the smallest margin of the model beside this file, and the longest and the shortest one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
import tomlkit
from messages import TOPICS, messages
from recipe import BATCH_SIZE, EPOCHS, HELD_OUT, HELD_OUT_SEED, TRAINING, TRAINING_SEED, build_model, load_data

from kpipe_stages.recipe import contract_inputs

Array = np.ndarray[Any, np.dtype[Any]]

HERE = Path(__file__).parent
OUT = HERE.parent.parent / "golden_inputs" / "messages"
SEED = 20_261_130
RUNS = 8
FIRST_SEED = 1000
SAMPLED = 40
MINED = 14
STEADY = 3.0
OFTEN = 3


def write_vocabulary() -> None:
    """Tokens as the contract's steps make them: NFKC, lower case, punctuation gone, split at white space."""
    counts: Counter[str] = Counter()
    for text, _ in messages(TRAINING, TRAINING_SEED):
        counts.update(re.sub(r"""[!"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']""", "", unicodedata.normalize("NFKC", text).lower()).split())
    tokens = sorted(token for token, count in counts.items() if count >= OFTEN)
    (HERE / "vocabulary.txt").write_text("\n".join(["", "[UNK]", *tokens]) + "\n", encoding="utf-8")


def log_odds(scores: Array, decision: Array) -> Array:
    """Of the decided topic against the best other one, ``(n,)``."""
    logs = np.log(np.maximum(scores, 1e-30))
    mine = np.take_along_axis(logs, decision[:, np.newaxis], axis=1)[:, 0]
    return mine - np.where(np.arange(scores.shape[1]) == decision[:, np.newaxis], -np.inf, logs).max(axis=1)


def scores_of(model: keras.Model, tensors: Array) -> Array:
    """Scores, float64 ``(n, 3)``."""
    return np.asarray(model(tensors, training=False), dtype=np.float64)


def trained(tensors: Array) -> list[Array]:
    """Scores of `RUNS` trainings."""
    (x, y), _ = load_data(contract_inputs(HERE / "kpipe.toml"))
    found = []
    for run in range(RUNS):
        keras.utils.set_random_seed(FIRST_SEED + run)
        model = build_model()
        model.fit(x, y, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=0)
        found.append(scores_of(model, tensors))
        print(f"run {run + 1} of {RUNS}", flush=True)
    return found


def main() -> None:
    """Choose and write."""
    write_vocabulary()
    if "--vocabulary" in sys.argv:  # before the first training
        return
    preprocess = contract_inputs(HERE / "kpipe.toml")["tokens"]
    written = messages(HELD_OUT, HELD_OUT_SEED)
    tensors = np.stack([preprocess.from_bytes(text.encode()) for text, _ in written])
    own = scores_of(keras.models.load_model(HERE / "model.keras"), tensors)
    decision = own.argmax(axis=1)
    odds = np.stack([log_odds(scores, decision) for scores in trained(tensors)])
    sure = (odds > 0).all(axis=0) & (odds.mean(axis=0) >= STEADY * odds.std(axis=0, ddof=1))
    margin = np.sort(own, axis=1)[:, -1] - np.sort(own, axis=1)[:, -2]
    sampled = set(np.random.default_rng(SEED).choice(len(written), SAMPLED, replace=False).tolist())
    others = [at for at in range(len(written)) if at not in sampled]
    by_length = sorted(others, key=lambda at: len(written[at][0]))
    mined = dict.fromkeys([by_length[0], by_length[-1], *sorted(others, key=lambda at: margin[at])[:MINED]])
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "files").mkdir(parents=True)
    entries = []
    for at in sorted([*sampled, *mined]):
        text, topic = written[at]
        path = OUT / "files" / f"m{at:03d}.txt"
        path.write_bytes(text.encode())
        values = {"id": path.stem, "file": f"files/{path.name}", "sha256": hashlib.sha256(text.encode()).hexdigest(), "label": topic}
        values |= {"expected": TOPICS[decision[at]]} if sure[at] else {}
        values |= {"chosen": "sampled" if at in sampled else "mined", "origin": f"messages({HELD_OUT}, {HELD_OUT_SEED})[{at}]"}
        entries.append(values | {"margin": float(f"{margin[at]:.6g}")})
    write_manifest(entries)
    print(
        f"{len(entries)} golden inputs, {sum('expected' in e for e in entries)} approved; {int(sure.sum())} of {len(written)} held-out decisions are"
    )


def write_manifest(entries: list[dict[str, Any]]) -> None:
    """``manifest.toml``."""
    document = tomlkit.document()
    document["version"] = 1
    document["set"] = {
        "name": "messages",
        "source": "made by examples/messages/messages.py from a seed; no person wrote them",
        "licence": "Apache-2.0",
        "how": f"Held-out messages, written by examples/messages/make_golden.py. sampled: {SAMPLED} drawn at random from all of them. mined: of the others, "
        f"the {MINED} smallest margins, the longest and the shortest. No expected: trainings differ on it.",
    }
    golden = tomlkit.aot()
    for values in entries:
        table = tomlkit.table()
        table.update(values)
        golden.append(table)
    document["golden"] = golden
    (OUT / "manifest.toml").write_text(tomlkit.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
