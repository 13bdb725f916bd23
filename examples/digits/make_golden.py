"""Choose and write the golden inputs of the digit reader: ``python examples/digits/make_golden.py`` (minutes: it trains many models).

Every held-out digit is rendered once, in a way drawn by a seed. `RUNS` models are trained with seeds of their own and more or fewer
epochs; together they stand in for trainings on other machines. A decision is *approved* where all of them, and the approving model
beside this file, take it, and where it stands `STEADY` standard deviations clear of the next class.

- ``sampled``: `SAMPLED` digits drawn at random from all held-out ones, whatever the models make of them.
- ``mined``: of the others, the `MINED` with an approved decision and the smallest margin of the approving model, and the `OPEN` without
  one and the smallest margin: these have no ``expected``, so that only agreement between runtimes is asked of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from layers import RMSNorm
from recipe import BATCH_SIZE, EPOCHS, build_model, is_held_out, load_data
from render import KINDS, SIZES, Rendering, render
from sklearn.datasets import load_digits

from kpipe_stages.recipe import contract_inputs

Array = np.ndarray[Any, np.dtype[Any]]

HERE = Path(__file__).parent
OUT = HERE.parent.parent / "golden_inputs" / "digits"
SEED = 20_260_802
RUNS = 24
FIRST_SEED = 1000
EPOCH_JITTER = (0, 0, -3, 3)
SAMPLED = 56
MINED = 16
OPEN = 6
STEADY = 3.0


@dataclass(frozen=True)
class Candidate:
    """A held-out digit as a file."""

    index: int
    """Position in scikit-learn's set."""
    label: int
    how: Rendering
    file: bytes
    tensor: Array
    """float32 ``(16, 16, 1)``."""

    @property
    def id(self) -> str:
        """Name in the manifest."""
        return f"d{self.index:04d}-{self.how.kind}-{self.how.size}"


@dataclass(frozen=True)
class Chosen:
    """A golden input."""

    candidate: Candidate
    chosen: str
    """``sampled`` or ``mined``."""
    expected: int | None
    """None where no decision is approved."""
    margin: float
    """Of the approving model: the best score less the second best."""


def candidates() -> list[Candidate]:
    """Every held-out digit, rendered in a way drawn by the seed."""
    preprocess = contract_inputs(HERE / "kpipe.toml")["image"]
    digits, rng, found = load_digits(), np.random.default_rng(SEED), []
    for index in filter(is_held_out, range(len(digits.target))):
        how = Rendering(str(rng.choice(KINDS)), int(rng.choice(SIZES)))
        file = render(digits.images[index], how)
        found.append(Candidate(index, int(digits.target[index]), how, file, preprocess.from_bytes(file)))
    return found


def trained(tensors: Array) -> Array:
    """Scores of `RUNS` trainings: float ``(runs, n, 10)``."""
    (x, y), _ = load_data(contract_inputs(HERE / "kpipe.toml"))
    scores = []
    for run in range(RUNS):
        keras.utils.set_random_seed(FIRST_SEED + run)
        model = build_model()
        model.fit(x, y, batch_size=BATCH_SIZE, epochs=EPOCHS + EPOCH_JITTER[run % len(EPOCH_JITTER)], verbose=0)
        scores.append(np.asarray(model(tensors, training=False), dtype=np.float64))
        print(f"run {run + 1} of {RUNS}", flush=True)
    return np.stack(scores)


def approved(own: Array, scores: Array) -> Array:
    """Which decisions hold in every run and stand clear of the next class; bool ``(n,)``.

    The distance is the log-odds ``log p(decision) - log p(best other)``: its mean over the runs is at least `STEADY` times its standard
    deviation.
    """
    decision = own.argmax(axis=1)
    logs = np.log(np.maximum(scores, 1e-30))
    mine = np.take_along_axis(logs, decision[np.newaxis, :, np.newaxis], axis=2)[:, :, 0]
    others = np.where(np.arange(logs.shape[2]) == decision[:, np.newaxis], -np.inf, logs).max(axis=2)
    odds = mine - others
    return (odds > 0).all(axis=0) & (odds.mean(axis=0) >= STEADY * odds.std(axis=0, ddof=1))


def choose(found: list[Candidate], own: Array, sure: Array) -> list[Chosen]:
    """The golden set, by id."""
    best = np.sort(own, axis=1)
    margin = best[:, -1] - best[:, -2]
    drawn = np.random.default_rng(SEED + 1).choice(len(found), SAMPLED, replace=False)
    rest = np.setdiff1d(np.argsort(margin), drawn, assume_unique=True)  # keeps the order of margins
    mined = [*rest[sure[rest]][:MINED], *rest[~sure[rest]][:OPEN]]
    picks = [(i, "sampled") for i in drawn] + [(i, "mined") for i in mined]
    rows = [Chosen(found[i], kind, int(own[i].argmax()) if sure[i] else None, float(margin[i])) for i, kind in picks]
    return sorted(rows, key=lambda row: row.candidate.id)


def write(rows: list[Chosen], counts: str) -> None:
    """Write the files and the manifest anew."""
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "files").mkdir(parents=True)
    how = (
        f"Held-out digits (every fifth of the set, never trained on), rendered by examples/digits/make_golden.py. sampled: {SAMPLED} drawn at "
        f"random from all of them. mined: of the others, the {MINED} smallest margins with an approved decision and the {OPEN} smallest without "
        f"one. No expected: trainings differ on it, so nothing is approved. {counts}"
    )
    lines = ["version = 1", "", "[set]", 'name = "digits"']
    lines.append('source = "Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, UCI), as sklearn.datasets.load_digits gives it"')
    lines += ['licence = "CC BY 4.0"', f"how = {json.dumps(how)}"]
    for row in rows:
        item = row.candidate
        name = f"files/{item.id}{item.how.suffix}"
        (OUT / name).write_bytes(item.file)
        lines += ["", "[[golden]]", f'id = "{item.id}"', f'file = "{name}"', f'sha256 = "{hashlib.sha256(item.file).hexdigest()}"']
        lines.append(f'label = "{item.label}"')
        lines += [f'expected = "{row.expected}"'] if row.expected is not None else []
        lines += [f'slice = "{item.how.kind}"', f'chosen = "{row.chosen}"']
        lines += [f'origin = "load_digits index {item.index}, {item.how.kind}, {item.how.size} x {item.how.size}"', f"margin = {row.margin:.6f}"]
    (OUT / "manifest.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Train, choose, write, and print what the README quotes."""
    found = candidates()
    tensors = np.stack([item.tensor for item in found])
    model = keras.saving.load_model(HERE / "model.keras", custom_objects={"RMSNorm": RMSNorm}, compile=False)
    own = np.asarray(model(tensors, training=False), dtype=np.float64)
    scores = trained(tensors)
    sure = approved(own, scores)
    labels = np.array([item.label for item in found])
    counts = f"Approved: {int(sure.sum())} of {len(found)} held-out decisions, in all of {RUNS} trainings."
    rows = choose(found, own, sure)
    write(rows, counts)
    accuracy = (scores.argmax(axis=2) == labels).mean(axis=1)
    print(counts)
    print(f"accuracy of the runs: {accuracy.min():.4f} to {accuracy.max():.4f}, of the approving model {(own.argmax(axis=1) == labels).mean():.4f}")
    print(f"decided alike by all runs: {int((scores.argmax(axis=2) == own.argmax(axis=1)).all(axis=0).sum())}")
    print(f"without an approved decision: {[row.candidate.id for row in rows if row.expected is None]}")
    print(f"approved against the label: {[row.candidate.id for row in rows if row.expected not in (None, row.candidate.label)]}")
    print(f"mined: {sorted((round(row.margin, 4), row.candidate.id, row.expected) for row in rows if row.chosen == 'mined')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
