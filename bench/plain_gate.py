"""The gate as a careful user writes it today: a process a step, one after the other, the same work as ``kpipe validate`` on the digits.

``plain_gate.py MODEL GOLDEN_FOLDER OUT``: reference on JAX, four ``model.export`` calls, every runtime on every golden input alone and in
batches, warm calls timed, decisions compared. No repeat probe, no archive inspection, no report: it does less than the gate, never more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

CALLS, END_TO_END, WARMUP, BATCHES = 200, 100, 50, (3, 8)
STEPS = ("jax", "export", "tensorflow", "saved_model", "litert", "onnxruntime", "openvino", "openvino_ir", "keras_openvino", "openvino_default")
BACKEND = {"jax": "jax", "keras_openvino": "openvino"}


def preprocess(path):
    import numpy as np
    from PIL import Image, ImageOps

    with Image.open(path) as raw:
        image = ImageOps.exif_transpose(raw)
        if image.mode.startswith("I"):
            image = Image.fromarray((np.asarray(image, dtype=np.float32) * (255 / 65535)).astype(np.float32), mode="F")
        elif image.mode in {"RGBA", "LA", "PA", "P"}:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
        gray = image if image.mode == "F" else image.convert("L").convert("F")
        small = gray.resize((16, 16), Image.Resampling.BILINEAR)
    return ((255.0 - np.asarray(small, dtype=np.float32)) / 255.0)[..., None]


def predictor(step, model, out):
    """Return a function from a batch to its scores, for one runtime."""
    if step in {"jax", "tensorflow", "keras_openvino"}:
        import keras

        loaded = keras.models.load_model(model, compile=False)
        return loaded.predict_on_batch if step != "keras_openvino" else lambda x: loaded.predict(x, verbose=0)
    if step == "saved_model":
        import tensorflow as tf

        served = tf.saved_model.load(str(out / "saved_model"))
        return lambda x: served.serve(x).numpy()
    if step == "litert":
        from ai_edge_litert.interpreter import Interpreter

        runner = Interpreter(str(out / "model.tflite")).get_signature_runner()
        name = next(iter(runner.get_input_details()))
        return lambda x: next(iter(runner(**{name: x}).values()))
    if step == "onnxruntime":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(out / "fixed.onnx"), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda x: session.run(None, {name: x})[0]
    import openvino

    source = out / "model.xml" if step == "openvino_ir" else out / "saved_model"
    settings = {} if step == "openvino_default" else {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(source), "CPU", settings)
    return lambda x: compiled(x)[0]


def export(model, out):
    import keras
    import numpy as np
    import onnx

    loaded = keras.models.load_model(model, compile=False)
    loaded(np.zeros((1, *loaded.input_shape[1:]), "float32"))
    loaded.export(str(out / "saved_model"), format="tf_saved_model", verbose=False)
    loaded.export(str(out / "model.tflite"), format="litert", verbose=False)
    loaded.export(str(out / "model.onnx"), format="onnx", verbose=False)
    loaded.export(str(out / "model.xml"), format="openvino", verbose=False)
    graph = onnx.load(str(out / "model.onnx"))  # ONNX has no Erfc, which plain gelu exports to: write it as 1 - Erf
    nodes = []
    for node in graph.graph.node:
        if node.op_type != "Erfc":
            nodes.append(node)
            continue
        one = onnx.helper.make_node("Constant", [], [f"{node.name}/one"], value_float=1.0)
        erf = onnx.helper.make_node("Erf", list(node.input), [f"{node.name}/erf"])
        nodes += [one, erf, onnx.helper.make_node("Sub", [one.output[0], erf.output[0]], list(node.output))]
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    onnx.save(graph, str(out / "fixed.onnx"))


def run(step, model, golden, out):
    import numpy as np

    sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "digits"))
    if step in {"jax", "tensorflow", "keras_openvino", "export"}:
        import layers  # noqa: F401 - registers the custom layer
    if step == "export":
        export(model, out)
        return
    files = [golden / row["file"] for row in tomllib.loads((golden / "manifest.toml").read_text(encoding="utf-8"))["golden"]]
    predict = predictor(step, model, out)
    tensors = np.stack([preprocess(file) for file in files])
    alone = np.concatenate([predict(tensors[i : i + 1]) for i in range(len(tensors))])
    if step == "jax":
        again = np.concatenate([predict(tensors[i : i + 1]) for i in range(len(tensors))])
        assert np.array_equal(alone, again)
    answers = {"alone": alone}
    for size in BATCHES:
        padded = np.concatenate([tensors, tensors[: -len(tensors) % size]])
        answers[f"batch_{size}"] = np.concatenate([predict(padded[i : i + size]) for i in range(0, len(padded), size)])[: len(tensors)]
    np.savez(out / f"{step}.npz", **answers)
    if step == "jax":
        return
    for i in range(WARMUP):
        predict(tensors[i % len(tensors)][None])
    times = []
    for i in range(CALLS):
        start = time.perf_counter()
        predict(tensors[i % len(tensors)][None])
        times.append(time.perf_counter() - start)
    for i in range(END_TO_END):
        int(np.argmax(predict(preprocess(files[i % len(files)])[None])))
    print(f"{step}: p50 {sorted(times)[len(times) // 2] * 1e3:.3f} ms")


def compare(out):
    import numpy as np

    reference = np.load(out / "jax.npz")["alone"]
    for step in STEPS[2:]:
        for mode, scores in np.load(out / f"{step}.npz").items():
            flips = int((scores.argmax(1) != reference.argmax(1)).sum())
            print(f"{step} {mode}: max {np.abs(scores - reference).max():.2e}, flips {flips}")


def main():
    model, golden, out = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 4:
        run(sys.argv[4], model, golden, out)
        return
    for step in STEPS:
        environment = {**os.environ, "KERAS_BACKEND": BACKEND.get(step, "tensorflow"), "TF_CPP_MIN_LOG_LEVEL": "2"}
        subprocess.run([sys.executable, __file__, str(model), str(golden), str(out), step], env=environment, check=True)
    compare(out)


if __name__ == "__main__":
    main()
