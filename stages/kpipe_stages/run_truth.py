"""The truth: the candidate in float64 on TensorFlow, on every golden input alone. What couldn't be raised is named.

The same graph as the candidate's: its archive with raised dtype policies (`kpipe_stages.archive.raising`), loaded by Keras, weights widened. TensorFlow
because JAX's float64 isn't: where dtypes meet, Keras gives float32 on every backend but TensorFlow. A layer whose op TensorFlow doesn't have in
float64, and only such a layer, keeps its own policy; Keras casts around it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.archive.raising import FLOAT64, raise_archive
from kpipe_stages.feeds import Golden
from kpipe_stages.measure import fixed_size, run_target
from kpipe_stages.nudging import sensitivities
from kpipe_stages.protocol import Signature, StageError
from kpipe_stages.session import Description, check_settings, fault, raise_if_out_of_memory, telling_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe_stages.keras_calling import KerasCaller
    from kpipe_stages.keras_forward import TensorFlowForward
    from kpipe_stages.protocol import Job, RunJob, RunResult
    from kpipe_stages.session import Answer, Feeds
    from kpipe_stages.worker import Worker

MOST_KEPT = 8
"""Layers that are left behind one by one before the model counts as one that can't be raised."""
SMALLER = ("float32", "float16", "bfloat16")


def run(job: Job, worker: Worker) -> RunResult:
    """Run the golden inputs in float64.

    Raises:
        StageError: as `kpipe_stages.measure.run_target` does, and KP617 where the model can't be run in float64.
    """
    result = run_target(job, worker, Truth(worker.folder))
    kept = worker.kept
    assert kept is not None  # noqa: S101 - a run that ended well leaves its session
    try:
        moved: dict[str, Any] = {"sensitivity": sensitivities(kept, kept.session.model, worker)}
    except Exception as error:  # noqa: BLE001 - TensorFlow raises anything; without it floors rest on one draw, and that is said
        raise_if_out_of_memory(error)
        moved = {"sensitivity": {}, "sensitivity_unknown": f"{type(error).__name__}: {telling_line(error)}"}
    return replace(result, facts={**result.facts, **moved})


@dataclass(frozen=True)
class Kept:
    """A layer that could not be raised."""

    layer: str
    why: str


class Truth:
    """The engine."""

    distributions = ("tensorflow", "keras", "numpy")

    def __init__(self, folder: Path) -> None:
        self._archive = folder / "float64.keras"

    def bring(self, _order: RunJob) -> None:
        """Import Keras on TensorFlow, with float64 where no layer says anything."""
        import keras

        if keras.backend.backend() != "tensorflow":
            raise fault(
                "KP310", f"Keras runs on {keras.backend.backend()}; the float64 run needs tensorflow.", "Start it with KERAS_BACKEND=tensorflow."
            )
        keras.config.set_floatx(FLOAT64)
        keras.config.set_dtype_policy(FLOAT64)

    def open(self, order: RunJob, settings: Mapping[str, Any]) -> TruthSession:
        """Load the raised archive; leave behind the layers that refuse, one after another."""
        check_settings("the float64 run", settings, ())
        kept: list[Kept] = []
        while True:
            raise_archive(order.artifact, self._archive, [layer.layer for layer in kept])
            try:
                return self._session(order, tuple(kept))
            except StageError as error:
                if error.observation.code not in {"KP012", "KP617"} or len(kept) >= MOST_KEPT:
                    raise _unraisable(error.observation.cause) from error
                culprit = self._culprit(order, error.observation.cause, kept)
                if culprit is None:
                    raise _unraisable(error.observation.cause) from error
                kept.append(Kept(culprit, error.observation.cause))
            finally:
                self._archive.unlink(missing_ok=True)

    def _session(self, order: RunJob, kept: tuple[Kept, ...]) -> TruthSession:
        from kpipe_stages.keras_forward import TensorFlowForward
        from kpipe_stages.keras_loading import KerasCaller, load_model

        forward = TensorFlowForward(lambda: KerasCaller(load_model(str(self._archive), order.trust)), compiled=True, xla=False)
        session = TruthSession(forward, order, kept)
        session.prove(order)
        return session

    def _culprit(self, order: RunJob, message: str, kept: list[Kept]) -> str | None:
        """The layer that an error is about: the innermost one that its text names."""
        from kpipe_stages.artifacts.tracing import layer_of

        names = frozenset(layer_names(order.artifact)) - {layer.layer for layer in kept}
        paths = re.findall(r"[\w.-]+(?:/[\w.-]+)+", message)
        quoted = [f"{word}/" for word in re.findall(r"[\w.-]+", message)]
        return next((found for path in (*paths, *quoted) if (found := layer_of(path, names))), None)


class TruthSession:
    """The loaded model; takes the inputs that the candidate takes and widens them, which is exact."""

    def __init__(self, forward: TensorFlowForward, order: RunJob, kept: tuple[Kept, ...]) -> None:
        self._forward = forward
        self._kept = kept
        own = forward.caller.signature
        given = {name: Path(f"{order.tensors}/{position}.dtype").read_text(encoding="utf-8") for position, name in enumerate(order.names)}
        inputs = tuple(replace(spec, dtype=given.get(spec.name, spec.dtype)) if "float" in spec.dtype else spec for spec in own.inputs)
        self.signature = Signature(inputs=inputs, outputs=own.outputs)
        self.takes = {spec.name: spec.dtype for spec in inputs}
        self._inside = {spec.name: spec.dtype for spec in own.inputs}
        self.narrows: Mapping[str, str] = {}
        self.computes_as: Mapping[str, str] = {}
        self._small: dict[str, list[str]] = {}

    @property
    def model(self) -> Any:
        """The Keras model."""
        return self._forward.caller.model

    def prove(self, order: RunJob) -> None:
        """Trace and run the model once, on the first golden input.

        Raises:
            StageError: KP617, TensorFlow's own message.
        """
        feeds = Golden(order, self)
        size = fixed_size(order, self) or 1
        try:
            self.infer(feeds.batch([feeds.present[0]] * size))
        except StageError:
            raise
        except Exception as error:  # TensorFlow and the layers' own code raise anything; it is what keeps the model from float64
            raise_if_out_of_memory(error)
            raise fault("KP617", f"{type(error).__name__}: {error}"[:4000], "") from error

    def infer(self, feeds: Feeds) -> Answer:
        """``model(x, training=False)`` in float64."""
        wide = {name: array.astype(self._inside[name]) if array.dtype.kind == "f" else array for name, array in feeds.items()}
        return self._forward({name: array.astype(self._inside[name]) if array.dtype.name == "bfloat16" else array for name, array in wide.items()})

    def describe(self) -> Description:
        """Float64, and what isn't."""
        small = parts_in_less(self._forward.caller)
        kept = {layer.layer: telling_line(ValueError(layer.why)) for layer in self._kept}
        precision = (
            FLOAT64
            if not small and not kept
            else f"{FLOAT64}, {', '.join(sorted({dtype for dtypes in small.values() for dtype in dtypes})) or 'float32'}"
        )
        return Description(precision, ("CPU",), {"kept": kept, "computes_in_less": small, **self._forward.facts()})


def parts_in_less(caller: KerasCaller) -> dict[str, list[str]]:
    """Layer (empty for none) to the floating-point dtypes below float64 that its ops compute in, constants aside."""
    import tensorflow as tf

    from kpipe_stages.artifacts.tracing import layer_names_of, layer_of

    specs = {spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=None) for spec in caller.signature.inputs}
    try:
        graph = tf.function(caller.__call__, autograph=False).get_concrete_function(specs).graph
    except Exception:  # noqa: BLE001 - a model that can't be traced ran operator by operator; then only its layers can be asked
        return {layer.name: [layer.compute_dtype] for layer in caller.model._flatten_layers() if layer.compute_dtype in SMALLER}  # noqa: SLF001
    names = layer_names_of(caller.model)
    found: dict[str, set[str]] = {}
    for op in graph.get_operations():
        dtypes = {tensor.dtype.base_dtype.name for tensor in op.outputs if tensor.dtype.base_dtype.name in SMALLER}
        if dtypes and op.type not in {"Const", "Cast", "Identity", "Placeholder"}:
            found.setdefault(layer_of(op.name, names), set()).update(dtypes)
    return {layer: sorted(dtypes) for layer, dtypes in found.items()}


def layer_names(path: str) -> list[str]:
    """Names of all layers that an archive's config mentions."""
    import json
    import zipfile

    with zipfile.ZipFile(path) as archive:
        pending, names = [json.loads(archive.read("config.json"))], list[str]()
    pending = [pending[0].get("config", {})]  # the model itself is no layer to leave behind
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if "class_name" in item and isinstance(item.get("config"), dict) and isinstance(item["config"].get("name"), str):
                names.append(item["config"]["name"])
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return list(dict.fromkeys(names))


def _unraisable(cause: str) -> StageError:
    reason = telling_line(ValueError(cause))
    return fault(
        "KP617",
        f"The model can't be run in float64: {reason}",
        "Without it tolerances are the defaults of the precision class. State atol and rtol if they don't suit.",
        place="truth",
    )
