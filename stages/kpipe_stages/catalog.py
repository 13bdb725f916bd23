"""Every stage and every runtime kpipe knows: names of modules, nothing imported.

Adding a runtime is a row in `RUNTIMES`, a file ``run_<name>.py`` and an extra in ``pyproject.toml``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Knob:
    """One setting of a runtime that may remove a difference."""

    title: str
    """``without XNNPACK``."""
    key: str
    value: str | int | bool


@dataclass(frozen=True)
class Runtime:
    """One way to run a model."""

    name: str
    module: str
    """Worker module under ``kpipe_stages``."""
    artifact: str
    """What it loads: ``keras`` or a format of `FORMATS`."""
    distributions: tuple[str, ...]
    """Distributions that must be installed; the first one's version is the runtime's."""
    extra: str
    """The extra of ``keras-kpipe`` that brings them."""
    title: str
    """For people."""
    keras_backend: str | None = None
    """``KERAS_BACKEND`` of its worker."""
    default_target: bool = True
    """A target where no contract names any."""
    required_by_default: bool = True
    float32_settings: tuple[tuple[str, str], ...] = ()
    """Settings that ask for float32 where the runtime would otherwise choose by CPU."""
    knobs: tuple[Knob, ...] = ()
    """Settings to try, one at a time, where its numbers differ: each takes a source of difference away."""
    batch: int | None = None
    """The only batch size that it can run where the artifact leaves that free; None for any."""
    compile_cache: str = ""
    """The setting that names a folder for its own compile cache; empty where it has none."""

    def only_batch(self, artifact: int | None) -> int | None:
        """The only batch size of an artifact here: the artifact's own, else the runtime's; None where it is free."""
        return artifact if artifact is not None else self.batch


OPENVINO_KNOBS = (
    Knob("in float32", "INFERENCE_PRECISION_HINT", "f32"),
    Knob("in accuracy mode", "EXECUTION_MODE_HINT", "ACCURACY"),
    Knob("on one thread", "INFERENCE_NUM_THREADS", 1),
)

FORMATS = ("saved_model", "litert", "onnx", "openvino_ir")


@dataclass(frozen=True)
class Variant:
    """One precision that an artifact can be made in from its float one (``quantize = "..."``)."""

    name: str
    title: str
    """For people, after the format's name."""
    extra: str
    """The extras of ``keras-kpipe`` that bring what makes it."""
    calibrates: bool = False
    """It is made with a calibration set."""
    precision: str = ""
    """The class whose numeric tolerance it is held to; empty where no number is promised, and decisions judge."""


VARIANT_SHARE = 0.95
"""A variant whose constants take more than this share of the float artifact's bytes holds the same numbers."""
LEAST_VARIANT_BYTES = 4096
"""Below it there may be nothing worth making smaller: LiteRT leaves tensors of less than 1024 numbers alone."""

VARIANTS: dict[str, dict[str, Variant]] = {
    "litert": {
        row.name: row
        for row in (
            Variant("float16", "float16 weights", "tensorflow", precision="float16"),
            Variant("dynamic_int8", "int8 weights, float activations", "tensorflow"),
            Variant("int8", "int8 weights and activations, float inputs and outputs", "tensorflow", calibrates=True),
            Variant("int16x8", "int8 weights, int16 activations", "tensorflow", calibrates=True),
        )
    },
    "onnx": {
        row.name: row
        for row in (
            Variant("float16", "float16 inside, inputs and outputs as they were", "onnx_export,onnxruntime", precision="float16"),
            Variant("dynamic_int8", "int8 weights, activations quantised as they come", "onnx_export,onnxruntime"),
            Variant("int8", "int8 weights and activations (QDQ)", "onnx_export,onnxruntime", calibrates=True),
        )
    },
    "openvino_ir": {
        row.name: row
        for row in (
            Variant("float16", "float16 weights", "openvino", precision="float16"),
            Variant("int8", "int8 weights and activations (NNCF)", "nncf", calibrates=True),
        )
    },
    "keras": {"int8": Variant("int8", "int8 weights (model.quantize)", "tensorflow")},
}
"""Format to its variants by name. A format that isn't here has none: a SavedModel's weights are the candidate's."""

RUNTIMES: dict[str, Runtime] = {
    row.name: row
    for row in (
        Runtime("jax", "run_keras", "keras", ("jax", "keras"), "jax", "Keras on JAX", keras_backend="jax", default_target=False),
        Runtime(
            "tensorflow",
            "run_keras",
            "keras",
            ("tensorflow", "keras"),
            "tensorflow",
            "Keras on TensorFlow",
            keras_backend="tensorflow",
            knobs=(Knob("operator by operator", "run_eagerly", value=True),),
        ),
        Runtime("saved_model", "run_saved_model", "saved_model", ("tensorflow",), "tensorflow", "SavedModel, as TF Serving loads it"),
        Runtime(
            "litert",
            "run_litert",
            "litert",
            ("ai-edge-litert",),
            "litert",
            "LiteRT",
            knobs=(Knob("without XNNPACK", "xnnpack", value=False), Knob("on one thread", "num_threads", 1)),
        ),
        Runtime(
            "litert_compiled",
            "run_litert_compiled",
            "litert",
            ("ai-edge-litert",),
            "litert",
            "LiteRT, compiled-model API",
            default_target=False,
            knobs=(Knob("without XNNPACK", "kernel_mode", "builtin"), Knob("on one thread", "num_threads", 1)),
            batch=1,
        ),
        Runtime(
            "onnxruntime",
            "run_onnxruntime",
            "onnx",
            ("onnxruntime",),
            "onnxruntime",
            "ONNX Runtime",
            knobs=(Knob("without graph optimisation", "graph_optimization_level", "disable"), Knob("on one thread", "intra_op_num_threads", 1)),
        ),
        Runtime(
            "openvino",
            "run_openvino",
            "saved_model",
            ("openvino",),
            "openvino",
            "OpenVINO on the SavedModel",
            float32_settings=(("INFERENCE_PRECISION_HINT", "f32"),),
            knobs=OPENVINO_KNOBS,
            compile_cache="CACHE_DIR",
        ),
        Runtime(
            "openvino_ir",
            "run_openvino",
            "openvino_ir",
            ("openvino",),
            "openvino",
            "OpenVINO on its IR",
            float32_settings=(("INFERENCE_PRECISION_HINT", "f32"),),
            knobs=OPENVINO_KNOBS,
            compile_cache="CACHE_DIR",
        ),
        Runtime(
            "keras_openvino",
            "run_keras",
            "keras",
            ("openvino", "keras"),
            "keras_openvino",
            "Keras on OpenVINO",
            keras_backend="openvino",
            required_by_default=False,
            float32_settings=(("INFERENCE_PRECISION_HINT", "f32"),),
            knobs=OPENVINO_KNOBS,
            compile_cache="CACHE_DIR",
        ),
    )
}

STAGES: dict[str, str] = {
    "inspect": "kpipe_stages.inspect_archive",
    "prepare": "kpipe_stages.prepare",
    "fingerprint": "kpipe_stages.fingerprint",
    "train": "kpipe_stages.train",
    "decide": "kpipe_stages.decide",
    "export": "kpipe_stages.export_tensorflow",
    "truth": "kpipe_stages.run_truth",
    "race": "kpipe_stages.race",
    "cut": "kpipe_stages.cut_model",
    "isolate": "kpipe_stages.isolate_layer",
    "build": "kpipe_stages.build_untrained",
    "list_ops": "kpipe_stages.list_ops",
    "zoo": "kpipe_stages.zoo.stage",
    "plant": "kpipe_stages.plant",
    "plant_read": "kpipe_stages.plant_read",
    "plant_subjects": "kpipe_stages.plant_subjects",
    "export_openvino": "kpipe_stages.export_openvino",
    **{f"quantize_{name}": "kpipe_stages.quantize" for name in VARIANTS},
    "open_saved_model": "kpipe_stages.open_artifact",
    "open_litert": "kpipe_stages.open_artifact",
    "open_onnx": "kpipe_stages.open_artifact",
    "open_openvino_ir": "kpipe_stages.open_artifact",
    **{f"run_{row.name}": f"kpipe_stages.{row.module}" for row in RUNTIMES.values()},
}

FORKED: frozenset[str] = frozenset({"cut", "export", "isolate", "quantize_keras", "quantize_litert", "truth", "run_tensorflow", "run_saved_model"})
"""Stages that begin with the import of `FORK_IMPORTS`, so that a fork of a process that has done just that can run them."""

FORK_IMPORTS = ("tensorflow",)
