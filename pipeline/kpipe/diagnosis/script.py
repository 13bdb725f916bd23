"""The text of ``reproduce.py``: keras, numpy and the runtime, nothing of kpipe's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe.judging.floor import K
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from kpipe.diagnosis.subject import Subject
    from kpipe.judging.layers import LayerDrift
    from kpipe_stages.cutting.orders import IsolateResult

HEAD = '''\
"""{title}

Needs keras on {backend}, numpy and {needs}. Prints both answers to the same tensor; ends with 3 where they differ by more than ALLOWED, with 0
where they don't. Written by kpipe diagnose.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
BACKEND = {backend!r}
SETTINGS = {settings!r}
ALLOWED = {allowed!r}  # in output units: {floors} times the noise floor of this output; 0 where values have to be equal
INPUTS = {inputs!r}  # in order


def feeds():
    if (HERE / "input.npy").exists():
        return {{INPUTS[0]: np.load(HERE / "input.npy")}}
    with np.load(HERE / "input.npz") as file:
        return {{name: file[name] for name in INPUTS}}


def load():
    import importlib.util

    import keras

    known = {{}}
    for path in sorted(HERE.glob("custom_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        known.update({{name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == path.stem}})
{modules}    return keras.saving.load_model(HERE / "model.keras", custom_objects=known, compile=False, safe_mode={safe!r})


def keras_answer(model):
    import keras

    given = [keras.ops.convert_to_tensor(value) for value in feeds().values()]
    return keras.ops.convert_to_numpy(keras.ops.cast(model(given, training=False)[{output!r}], {wide!r}))


def ask_keras(backend, how):
    """Keras has one backend a process, so each answer comes from a process of its own."""
    path = HERE / f"answer_{{how}}.npy"
    subprocess.run([sys.executable, __file__, how, str(path)], env={{**os.environ, "KERAS_BACKEND": backend}}, check=True)
    return np.load(path)
'''

TAIL = """

def main():
    if len(sys.argv) == 3:
        np.save(sys.argv[2], {{"reference": lambda: keras_answer(load()), "target": target_keras}}[sys.argv[1]]())
        return 0
    ours = ask_keras(BACKEND, "reference")
    theirs = {ask}
    print("keras on", BACKEND, ours.shape, ours.ravel()[:8])
    print({runtime!r}, theirs.shape, theirs.ravel()[:8])
    if ours.shape != theirs.shape:
        print("another shape:", theirs.shape, "instead of", ours.shape)
        return 3
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    difference = np.where(same, 0.0, np.abs(ours.astype("float64") - theirs.astype("float64")))
    difference = np.where(np.isnan(difference), np.inf, difference)
    worst = float(difference.max(initial=0.0))
    print("largest difference", worst, "where", ALLOWED, "is noise:", "it differs" if worst > ALLOWED else "it agrees")
    return 3 if worst > ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
"""

NO_KERAS = """

target_keras = None
"""

TARGETS = {
    "litert": """

def target():
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.AUTO if SETTINGS.get("xnnpack", True) else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(HERE / FILE), num_threads=SETTINGS.get("num_threads", THREADS or None), experimental_op_resolver_type=resolver)
    runner = interpreter.get_signature_runner(list(interpreter.get_signature_list())[0])
    return runner(**{IN[name]: value for name, value in feeds().items()})[OUT]
""",
    "onnxruntime": """

def target():
    import onnxruntime

    levels = {"disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
    options = onnxruntime.SessionOptions()
    if THREADS:
        options.intra_op_num_threads = THREADS
    for name, value in SETTINGS.items():
        if name == "graph_optimization_level":
            options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, levels[value])
        elif name == "execution_mode":
            options.execution_mode = getattr(onnxruntime.ExecutionMode, {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"}[value])
        elif name != "providers":
            setattr(options, name, value)
    session = onnxruntime.InferenceSession(HERE / FILE, options, providers=SETTINGS.get("providers", ["CPUExecutionProvider"]))
    return session.run([OUT], {IN[name]: value for name, value in feeds().items()})[0]
""",
    "openvino": """

def target():
    import openvino

    core = openvino.Core()
    config = {**({"INFERENCE_NUM_THREADS": THREADS} if THREADS else {}), **SETTINGS}
    compiled = core.compile_model(core.read_model(HERE / FILE), "CPU", config)
    return np.array(compiled({IN[name]: value for name, value in feeds().items()})[OUT])
""",
    "saved_model": """

def target():
    import tensorflow as tf

    loaded = tf.saved_model.load(str(HERE / FILE))
    return loaded.signatures["serving_default"](**{IN[name]: tf.constant(value) for name, value in feeds().items()})[OUT].numpy()
""",
    "tensorflow": """

def target_keras():
    import tensorflow as tf

    model = load()
    if SETTINGS.get("run_eagerly"):
        return keras_answer(model)
    call = tf.function(lambda given: model(given, training=False), autograph=False, jit_compile=SETTINGS.get("jit_compile") or None)
    return tf.cast(call([tf.constant(value) for value in feeds().values()])[OUTPUT], WIDE).numpy()
""",
    "jax": """

def target_keras():
    return keras_answer(load())
""",
    "keras_openvino": """

def target_keras():
    import openvino

    compile_model = openvino.compile_model  # Keras' predict hands it no settings
    openvino.compile_model = lambda model, device="CPU", config=None: compile_model(model, device, {**(config or {}), **SETTINGS})
    return np.asarray(load().predict_on_batch(list(feeds().values()))[OUTPUT])
""",
}
TARGETS["openvino_ir"] = TARGETS["openvino"]


def script(subject: Subject, row: LayerDrift, alone: IsolateResult, artifact: dict[str, Any]) -> str:
    """The whole script.

    Args:
        subject: the run and its target.
        row: the layer.
        alone: the model of the layer alone.
        artifact: ``file``, ``inputs`` and ``outputs`` of what was exported of it; empty where the runtime takes the ``.keras`` itself.
    """
    assert row.drift is not None
    runtime, plan, trust = RUNTIMES[subject.plan.runtime], subject.plan, subject.reference.trust
    backend = RUNTIMES[subject.evidence.reference.runtime].keras_backend or "tensorflow"
    modules = "".join(f"    __import__({name!r})\n" for name in trust.allow_modules)
    title = f"Layer {row.layer!r} ({row.class_name}) alone: Keras on {backend} against {runtime.title}."
    exact, wide = "float" not in row.dtype, "float32" if row.dtype == "bfloat16" else row.dtype
    head = HEAD.format(
        title=title.replace("\\", "/").replace('"', "'"), backend=backend, needs=runtime.distributions[0], settings={**plan.chosen, **plan.settings},
        allowed=0.0 if exact else K * row.drift.floor, floors=f"{K:g}", inputs=list(alone.feeds), modules=modules, safe=not trust.allow_lambda,
        output=alone.output, wide=wide,
    )  # fmt: skip
    names = f"THREADS = {plan.threads!r}\nOUTPUT = {alone.output!r}\nWIDE = {wide!r}\n"
    if artifact:
        names += f"FILE, IN, OUT = {artifact['file']!r}, {artifact['inputs']!r}, {artifact['outputs'][alone.output]!r}\n"
    own = TARGETS[plan.runtime]
    if runtime.artifact == "keras":
        ask = f'ask_keras({runtime.keras_backend!r}, "target")'
    else:
        own, ask = own + NO_KERAS, "target()"
    return f"{head}\n\n{names}{own}{TAIL.format(ask=ask, runtime=runtime.title)}"
