"""LiteRT variants: the converter again, from the SavedModel that the float file was converted from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kpipe_stages.artifacts.litert import SIGNATURE
from kpipe_stages.catalog import VARIANTS
from kpipe_stages.quantizing.made import Made, NotMadeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kpipe_stages.protocol import QuantizeJob, Twin
    from kpipe_stages.quantizing.samples import Samples

DISTRIBUTIONS = ("tensorflow", "numpy")
FILE = "model.tflite"


def bring() -> None:
    """Import the converter."""
    import tensorflow as tf  # noqa: F401 - its import is what is timed


def make(params: QuantizeJob, path: Path, samples: Samples) -> Made:
    """Convert to ``path``.

    Raises:
        NotMadeError: an op has no form in this precision, or the converter refuses for another reason.
    """
    kept: list[str] = []
    while True:
        try:
            path.write_bytes(_convert(params, samples, mixed=bool(kept)))
        except MemoryError:
            raise
        except Exception as error:  # the converter raises its own and TensorFlow's kinds; each becomes one finding with its reason
            ops = _missing(str(error))
            if not ops or kept or not params.repairs:
                raise NotMadeError(_reason(str(error)), tuple(ops)) from error
            kept = ops
        else:
            twin = _twin(params)
            return Made(tuple(kept), None if twin is None else twin.repairs)


def _convert(params: QuantizeJob, samples: Samples, *, mixed: bool) -> bytes:
    import tensorflow as tf

    sets: dict[str, Any] = {"int8": tf.lite.OpsSet.TFLITE_BUILTINS_INT8, "int16x8": _int16x8(tf)}
    converter = tf.lite.TFLiteConverter.from_saved_model(_saved_model(params), signature_keys=[SIGNATURE])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if params.variant == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if params.variant in sets:
        converter.representative_dataset = lambda: _feeds(params, samples)
        converter.target_spec.supported_ops = [sets[params.variant], *([tf.lite.OpsSet.TFLITE_BUILTINS] if mixed else [])]
    return bytes(converter.convert())


def _saved_model(params: QuantizeJob) -> str:
    """What the float file was converted from, or, to calibrate, the trace without loops that stands beside it."""
    if (twin := _twin(params)) is not None:
        return twin.path
    if params.source.source or params.saved_model is None:
        return params.source.source
    return params.saved_model.path


def _twin(params: QuantizeJob) -> Twin | None:
    return params.source.unrolled if VARIANTS["litert"][params.variant].calibrates else None


def _int16x8(tf: Any) -> Any:
    return tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8


def _feeds(params: QuantizeJob, samples: Samples) -> Iterator[dict[str, Any]]:
    """By the signature's own names."""
    for feeds in samples:
        yield {params.source.binding.inputs[name]: array for name, array in feeds.items()}


def _missing(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"not yet supported for op: '?(\w+)'?", text)))


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "error:" in line or "not yet supported" in line] or lines or ["no reason given"]
    return told[0].rsplit("error: ", 1)[-1][:300]
