"""The ``.keras`` file itself on a Keras backend: JAX (the reference, as a rule), TensorFlow or OpenVINO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.measure import run_target
from kpipe_stages.session import Description, check_settings, check_value, fault, owned
from kpipe_stages.timing import time_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kpipe_stages.keras_calling import KerasCaller
    from kpipe_stages.keras_forward import Forward
    from kpipe_stages.protocol import Job, RunJob, RunResult, Signature, TimingResult
    from kpipe_stages.session import Answer, Feeds
    from kpipe_stages.worker import Worker

JAX_PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
JAX_TAKES = {"int64": "int32", "uint64": "uint32"}
"""Without JAX_ENABLE_X64."""
QUICK_BYTES = 32 * 2**20
"""A ``.keras`` file up to this size is loaded on JAX with XLA's optimisations off."""


def run(job: Job, worker: Worker) -> RunResult:
    """Run the golden inputs."""
    return run_target(job, worker, Keras(str(job.params.get("runtime"))))


def measure(job: Job, worker: Worker) -> TimingResult:
    """Time the session that `run` opened."""
    return time_target(job, worker)


def engine(runtime: str) -> Keras:
    """What opens the ``.keras`` file, on the backend of this catalog row."""
    return Keras(runtime)


class Keras:
    """The engine: Keras on the backend of one catalog row."""

    def __init__(self, runtime: str) -> None:
        self._row = RUNTIMES[runtime]
        self.distributions = (*self._row.distributions, *(("jaxlib",) if self._row.keras_backend == "jax" else ()), "numpy")

    def bring(self, order: RunJob) -> None:
        """Import Keras and see that its backend is the target's.

        Raises:
            StageError: KP310.
        """
        import keras

        if (backend := keras.backend.backend()) != self._row.keras_backend:
            raise fault(
                "KP310",
                f"Keras runs on {backend}; target {self._row.name} needs {self._row.keras_backend}.",
                f"Start the worker with KERAS_BACKEND={self._row.keras_backend} and no keras.json.",
                place=backend,
            )
        keras.config.disable_traceback_filtering()  # it rebuilds exceptions: JAX's come out as an AttributeError of its own making
        if backend == "jax":
            _set_jax_cache(order.cache)
        if backend == "tensorflow":
            import tensorflow as tf

            from kpipe_stages.run_saved_model import set_threads

            set_threads(tf, order.threads)

    def open(self, order: RunJob, settings: Mapping[str, Any]) -> KerasSession:
        """Load the model, and get its call ready."""
        from kpipe_stages.keras_loading import KerasCaller, load_model

        def load() -> KerasCaller:
            return KerasCaller(load_model(order.artifact, order.trust))

        makers: dict[str | None, Callable[[], Forward]] = {
            "jax": lambda: _jax(load if Path(order.artifact).stat().st_size > QUICK_BYTES else lambda: _with_quick_compiles(load), settings),
            "tensorflow": lambda: _tensorflow(load, settings),
            "openvino": lambda: _openvino(load, order, settings),
        }
        return KerasSession(makers[self._row.keras_backend]())


class KerasSession:
    """One loaded model."""

    def __init__(self, forward: Forward) -> None:
        import keras

        self._forward = forward
        self.signature = forward.caller.signature
        self.takes = {spec.name: spec.dtype for spec in self.signature.inputs}
        self._backend = keras.backend.backend()
        self._narrow = self._backend == "openvino" or (self._backend == "jax" and not _jax_x64())
        self.narrows: Mapping[str, str] = JAX_TAKES if self._narrow and self._backend == "jax" else {}
        self.computes_as: Mapping[str, str] = _openvino_computes() if self._backend == "openvino" else {}
        _refuse_strings(self._backend, self.signature)

    def infer(self, feeds: Feeds) -> Answer:
        """``model(x, training=False)``."""
        return self._forward(feeds)

    def infer_training_unset(self, feeds: Feeds) -> Answer:
        """``model(x)``, operator by operator on the loaded model itself."""
        import keras

        outputs = self._forward.caller(feeds, training=None)
        return {name: owned(keras.ops.convert_to_numpy(value)) for name, value in outputs.items()}

    def describe(self) -> Description:
        """Precision from the compiled model on OpenVINO; elsewhere the layers' compute dtypes, with what changes them."""
        layers = list(self._forward.caller.model._flatten_layers())  # noqa: SLF001 - nested layers too; `layers` gives the top ones
        policies = sorted({layer.dtype_policy.name for layer in layers})
        computed = sorted({layer.compute_dtype for layer in layers if "float" in str(layer.compute_dtype)})
        facts = {"backend": self._backend, "dtype_policies": policies, **self._forward.facts()}
        compiled = self._forward.describe() if hasattr(self._forward, "describe") else None
        differing = {"dtype policy": ("float64", "float32")} if self._narrow and "float64" in computed else {}
        if compiled is not None:
            return Description(compiled.precision, compiled.devices, {**compiled.facts, **facts}, {**compiled.differing, **differing})
        names = ["float32" if name == "float64" and self._narrow else name for name in computed]
        return _describe_backend(self._backend, names, facts, differing)


def _set_jax_cache(folder: str) -> None:
    """Keep every compiled program: loading a model alone compiles one per weight shape, each too small to be kept by default."""
    if not folder:
        return
    import jax

    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _refuse_strings(backend: str, signature: Signature) -> None:
    for spec in signature.inputs if backend != "tensorflow" else ():
        if spec.dtype == "string":
            raise fault(
                "KP311",
                f"Input '{spec.name}' takes strings, which Keras on {backend} can't compute with.",
                'Take the text layer out of the model and preprocess before it, or name backend = "tensorflow" in [model].',
                place=spec.name,
            )


def _openvino_computes() -> Mapping[str, str]:
    from kpipe_stages.openvino_facts import COMPUTES_AS

    return COMPUTES_AS


def _jax_x64() -> bool:
    import jax

    return bool(jax.config.jax_enable_x64)


def _jax(load: Callable[[], KerasCaller], settings: Mapping[str, Any]) -> Forward:
    import jax

    from kpipe_stages.keras_forward import JaxForward

    check_settings("Keras on JAX", settings, ("jax_default_matmul_precision", "run_eagerly"))
    precision = settings.get("jax_default_matmul_precision")
    if precision is not None:
        check_value("Keras on JAX", "jax_default_matmul_precision", precision, JAX_PRECISIONS)
    jax.config.update("jax_default_matmul_precision", precision)
    compiled = not check_value("Keras on JAX", "run_eagerly", settings.get("run_eagerly", False), (True, False))
    return JaxForward(load, compiled=compiled)


def _with_quick_compiles(load: Callable[[], KerasCaller]) -> KerasCaller:
    """Load with XLA's optimisations off, and forget what was compiled so.

    What a load computes are the draws of initial weights, one program for each shape, which the file's weights replace: half of a cold load
    went into making them fast. The same bits are drawn either way. Without fusion a draw takes several times the memory of its weights.
    """
    import jax

    jax.config.update("jax_disable_most_optimizations", True)  # noqa: FBT003 - JAX takes it so
    try:
        return load()
    finally:
        jax.config.update("jax_disable_most_optimizations", False)  # noqa: FBT003 - as above
        jax.clear_caches()


def _tensorflow(load: Callable[[], KerasCaller], settings: Mapping[str, Any]) -> Forward:
    from kpipe_stages.keras_forward import TensorFlowForward

    check_settings("Keras on TensorFlow", settings, ("jit_compile", "run_eagerly"))
    eager, xla = (check_value("Keras on TensorFlow", name, settings.get(name, False), (True, False)) for name in ("run_eagerly", "jit_compile"))
    return TensorFlowForward(load, compiled=not eager, xla=xla)


def _openvino(load: Callable[[], KerasCaller], order: RunJob, settings: Mapping[str, Any]) -> Forward:
    import openvino

    from kpipe_stages.keras_forward import OpenVINOForward
    from kpipe_stages.openvino_facts import asked_of, check_properties

    check_properties(openvino.Core(), settings)
    return OpenVINOForward(load, asked_of(order, settings))


def _describe_backend(backend: str, names: list[str], facts: dict[str, Any], differing: dict[str, tuple[str, str]]) -> Description:
    if backend == "jax":
        import jax

        precision = jax.config.jax_default_matmul_precision or "default"
        more = {"effective_settings": {"jax_default_matmul_precision": precision}, "jax_enable_x64": _jax_x64()}
        words = ", ".join(sorted({*names, *({"bfloat16"} if precision == "bfloat16" else set())})) or "none"
        return Description(f"{words} (declared)", tuple(map(str, jax.devices())), {**facts, **more}, differing)
    if backend == "tensorflow":
        import tensorflow as tf

        from kpipe_stages.run_saved_model import tf_devices, tf_facts, tf_precision

        return Description(tf_precision(names), tf_devices(tf), {**facts, **tf_facts(tf)}, differing)
    return Description(f"{', '.join(names) or 'none'} (declared)", ("CPU",), facts, differing)
