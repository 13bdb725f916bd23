"""A plain loop over many PNGs: ``plain_many.py RUNTIME GOLDEN ARTIFACT OUT``. Decode, run alone and in batches of 3 and 8, save.

Decoding and resizing are those of ``plain_gate.py``. Prints the seconds of it, imports and load left out.
"""

import sys
import time
import tomllib
from pathlib import Path

import numpy as np
from plain_gate import preprocess

BATCHES = (3, 8)


def predictor(runtime, artifact):
    if runtime == "litert":
        from ai_edge_litert.interpreter import Interpreter

        runner = Interpreter(artifact).get_signature_runner()
        name = next(iter(runner.get_input_details()))
        return lambda x: next(iter(runner(**{name: x}).values()))
    import onnxruntime

    session = onnxruntime.InferenceSession(artifact, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def main():
    runtime, golden, artifact, out = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    files = [golden / row["file"] for row in tomllib.loads((golden / "manifest.toml").read_text(encoding="utf-8"))["golden"]]
    predict = predictor(runtime, artifact)
    start = time.perf_counter()
    tensors = np.stack([preprocess(file) for file in files])
    decoded = time.perf_counter()
    answers = {"alone": np.concatenate([predict(tensors[i : i + 1]) for i in range(len(tensors))])}
    for size in BATCHES:
        padded = np.concatenate([tensors, tensors[: -len(tensors) % size]])
        answers[f"batch_{size}"] = np.concatenate([predict(padded[i : i + size]) for i in range(0, len(padded), size)])[: len(tensors)]
    np.savez(out, **answers)
    print(f"decode {decoded - start:.3f}")
    print(f"seconds {time.perf_counter() - start:.3f}")


main()
