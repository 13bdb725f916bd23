"""Write the columns' statistics and the golden inputs: ``python examples/breast_cancer/make_golden.py`` (a minute: it trains several models).

``columns.json`` holds mean and standard deviation of the training rows. Held-out rows go into one CSV file whose columns stand in another
order, so that a reader by position would be wrong. A decision is *approved* where `RUNS` trainings with seeds of their own and the model beside
this file take it, and where it stands `STEADY` standard deviations clear of the threshold.

- ``sampled``: `SAMPLED` rows drawn at random from the held-out ones, whatever the models make of them.
- ``mined``: of the others, the `MINED` whose score is nearest to the threshold.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
import tomlkit
from recipe import BATCH_SIZE, EPOCHS, MALIGNANT, build_model, is_held_out, load_data, rows
from sklearn.datasets import load_breast_cancer

from kpipe_stages.recipe import contract_inputs

Array = np.ndarray[Any, np.dtype[Any]]

HERE = Path(__file__).parent
OUT = HERE.parent.parent / "golden_inputs" / "breast_cancer"
THRESHOLD = 0.35
SEED = 20_261_130
RUNS = 8
FIRST_SEED = 1000
SAMPLED = 48
MINED = 16
STEADY = 3.0
LABELS = ("benign", "malignant")


def write_columns() -> None:
    """Mean and standard deviation of the training rows, as scikit-learn's StandardScaler takes them."""
    training = [row for index, row in enumerate(rows()) if not is_held_out(index)]
    columns = []
    for name in training[0]:
        values = np.array([row[name] for row in training])
        columns.append({"name": name, "mean": float(values.mean()), "std": float(values.std())})
    text = ",\n".join(f"  {json.dumps(column)}" for column in columns)
    (HERE / "columns.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


def logits(tensors: Array) -> Array:
    """Log-odds of `RUNS` trainings: float ``(runs, n)``."""
    (x, y), _ = load_data(contract_inputs(HERE / "kpipe.toml"))
    found = []
    for run in range(RUNS):
        keras.utils.set_random_seed(FIRST_SEED + run)
        model = build_model()
        model.fit(x, y, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=0)
        found.append(log_odds(model, tensors))
        print(f"run {run + 1} of {RUNS}", flush=True)
    return np.stack(found)


def log_odds(model: keras.Model, tensors: Array) -> Array:
    """Of the score, ``(n,)``."""
    score = np.clip(np.asarray(model(tensors, training=False), dtype=np.float64)[:, 0], 1e-12, 1 - 1e-12)
    return np.log(score / (1 - score))


def main() -> None:
    """Choose and write."""
    write_columns()
    preprocess = contract_inputs(HERE / "kpipe.toml")["features"]
    held_out = [index for index in range(len(rows())) if is_held_out(index)]
    tensors = np.stack([preprocess.from_row(rows()[index]) for index in held_out])
    border = np.log(THRESHOLD / (1 - THRESHOLD))
    own = log_odds(keras.models.load_model(HERE / "model.keras"), tensors)
    runs = logits(tensors) - border
    yes = own >= border
    sure = ((runs >= 0) == yes).all(axis=0) & (np.abs(runs.mean(axis=0)) >= STEADY * runs.std(axis=0, ddof=1))
    score = 1 / (1 + np.exp(-own))
    sampled = set(np.random.default_rng(SEED).choice(len(held_out), SAMPLED, replace=False).tolist())
    near = sorted((at for at in range(len(held_out)) if at not in sampled), key=lambda at: abs(score[at] - THRESHOLD))
    chosen = sorted([*sampled, *near[:MINED]])
    digest = write_rows([held_out[at] for at in chosen])
    write_manifest([entry(number, at, held_out[at], sampled, yes, sure, score, digest) for number, at in enumerate(chosen)])
    print(f"{len(chosen)} golden inputs, {int(sure[chosen].sum())} approved; {int(sure.sum())} of {len(held_out)} held-out decisions are")


def write_rows(indices: list[int]) -> str:
    """One file for all rows, its columns in another order than the model's; its SHA-256."""
    names = np.random.default_rng(SEED).permutation(sorted(rows()[0])).tolist()
    path = OUT / "files" / "patients.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["patient", *names])
        writer.writerows([f"p{index:03d}", *(repr(rows()[index][name]) for name in names)] for index in indices)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entry(number: int, at: int, index: int, sampled: set[int], yes: Array, sure: Array, score: Array, digest: str) -> dict[str, Any]:
    """One entry of the manifest."""
    label = LABELS[int(load_breast_cancer().target[index] == MALIGNANT)]
    values = {"id": f"p{index:03d}", "file": "files/patients.csv", "row": number, "sha256": digest, "label": label}
    values |= {"expected": LABELS[int(yes[at])]} if sure[at] else {}
    values |= {"chosen": "sampled" if at in sampled else "mined", "origin": f"load_breast_cancer row {index}"}
    return values | {"margin": float(f"{abs(score[at] - THRESHOLD):.6g}")}


def write_manifest(entries: list[dict[str, Any]]) -> None:
    """``manifest.toml``."""
    document = tomlkit.document()
    document["version"] = 1
    document["set"] = {
        "name": "breast_cancer",
        "source": "Breast Cancer Wisconsin (Diagnostic) (W. Wolberg, O. Mangasarian, N. Street, W. Street, UCI), as sklearn.datasets.load_breast_cancer gives it",
        "licence": "CC BY 4.0",
        "how": f"Held-out rows (every fourth of the set, never trained on), written by examples/breast_cancer/make_golden.py. sampled: {SAMPLED} drawn at "
        f"random from all of them. mined: of the others, the {MINED} scores nearest to the threshold {THRESHOLD}. No expected: trainings differ on it.",
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
