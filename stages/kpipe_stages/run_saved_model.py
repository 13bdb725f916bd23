"""A SavedModel as TensorFlow Serving loads it: ``tf.saved_model.load`` and its ``serving_default`` signature, by keyword. No Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe_stages.measure import run_target
from kpipe_stages.session import Description, bound, check_settings, fault, load_refused, owned
from kpipe_stages.timing import time_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.protocol import Job, RunJob, RunResult, TimingResult
    from kpipe_stages.session import Answer, Feeds
    from kpipe_stages.worker import Worker

NAME = "TensorFlow"
SIGNATURE = "serving_default"


def run(job: Job, worker: Worker) -> RunResult:
    """Run the golden inputs."""
    return run_target(job, worker, SavedModel())


def measure(job: Job, worker: Worker) -> TimingResult:
    """Time the session that `run` opened."""
    return time_target(job, worker)


def engine(_runtime: str) -> SavedModel:
    """What opens its artifacts."""
    return SavedModel()


class SavedModel:
    """The engine."""

    distributions = ("tensorflow", "numpy")

    def bring(self, order: RunJob) -> None:
        """Import TensorFlow and set its threads, which it reads before its first op."""
        import tensorflow as tf

        set_threads(tf, order.threads)

    def open(self, order: RunJob, settings: Mapping[str, Any]) -> SavedModelSession:
        """Load the folder."""
        import tensorflow as tf

        check_settings(NAME, settings, ())
        try:
            loaded = tf.saved_model.load(order.artifact)
        except Exception as error:  # the loader raises errors of many families; each is the same answer: it doesn't load
            raise load_refused(NAME, error) from error
        if SIGNATURE not in loaded.signatures:
            raise fault(
                "KP303",
                f"The SavedModel has no signature '{SIGNATURE}'; it has {sorted(loaded.signatures) or 'none'}.",
                f"Export it with a '{SIGNATURE}' signature: TensorFlow Serving looks for it.",
                place=SIGNATURE,
            )
        return SavedModelSession(tf, order, loaded)


class SavedModelSession:
    """One loaded SavedModel."""

    def __init__(self, tf: Any, order: RunJob, loaded: Any) -> None:
        self._tf = tf
        self._loaded = loaded  # the signature's function holds its variables only weakly
        self._function = loaded.signatures[SIGNATURE]
        inputs = self._function.structured_input_signature[1]
        outputs = self._function.structured_outputs
        self.signature, self._binding = bound(order, inputs, outputs)
        self.takes = {name: inputs[artifact].dtype.name for name, artifact in self._binding.inputs.items()}
        self.narrows: Mapping[str, str] = {}
        self.computes_as: Mapping[str, str] = {}
        self._declared = sorted({spec.dtype.name for spec in (*inputs.values(), *outputs.values())})

    def infer(self, feeds: Feeds) -> Answer:
        """Call the signature with tensors by keyword; feeds carry their batch axis (without one TensorFlow ends the process)."""
        outputs = self._function(**{self._binding.inputs[name]: self._tf.constant(array) for name, array in feeds.items()})
        return {name: owned(outputs[artifact].numpy()) for name, artifact in self._binding.outputs.items()}

    def describe(self) -> Description:
        """TensorFlow computes in the graph's dtypes: the environment that would tell oneDNN otherwise never reaches a worker."""
        return Description(tf_precision(self._declared), tf_devices(self._tf), {**tf_facts(self._tf), "signature": SIGNATURE})


def set_threads(tf: Any, threads: int) -> None:
    """Bound TensorFlow's pools; 0 leaves them as they are."""
    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)


def tf_precision(declared: list[str]) -> str:
    """The declared float dtypes, or all declared ones where none is a float."""
    floats = {name for name in declared if "float" in name} or set(declared)
    return f"{', '.join(sorted(floats))} (declared)"


def tf_devices(tf: Any) -> tuple[str, ...]:
    """Names of the devices that TensorFlow would use."""
    return tuple(device.device_type for device in tf.config.list_logical_devices())


def tf_facts(tf: Any) -> dict[str, Any]:
    """Threads in effect."""
    return {
        "effective_settings": {
            "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
        },
    }
