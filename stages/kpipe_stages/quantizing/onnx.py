"""ONNX variants: ONNX Runtime's own tools, on the float file."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

from kpipe_stages.quantizing.made import Made, NotMadeError
from kpipe_stages.session import telling_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kpipe_stages.protocol import QuantizeJob
    from kpipe_stages.quantizing.samples import Array, Samples

DISTRIBUTIONS = ("onnxruntime", "onnx", "numpy")
FILE = "model.onnx"


def bring() -> None:
    """Import the tools."""
    import onnx  # noqa: F401 - its import is what is timed
    import onnxruntime.quantization
    import onnxruntime.transformers.float16  # noqa: F401


def make(params: QuantizeJob, path: Path, samples: Samples) -> Made:
    """Write ``path``.

    Raises:
        NotMadeError: the tools refuse the file.
    """
    try:
        if params.variant == "float16":
            _float16(params.source.path, path)
        else:
            with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
                _integers(params, path, samples, f"{scratch}/prepared.onnx")
    except MemoryError:
        raise
    except Exception as error:  # the tools raise anything; each becomes one finding with its reason
        raise NotMadeError(f"{type(error).__name__}: {telling_line(error)}") from error
    return Made()


def _float16(source: str, path: Path) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), str(path))


def _integers(params: QuantizeJob, path: Path, samples: Samples, prepared: str) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(params.source.path, prepared, skip_symbolic_shape=True)  # the symbolic one needs sympy, and dynamic batches don't need it
    if params.variant == "dynamic_int8":
        quantize_dynamic(prepared, str(path), per_channel=True, weight_type=QuantType.QInt8)
        return
    names = params.source.binding.inputs

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # ONNX Runtime ships no types
        """The calibration set by the file's own input names."""

        def __init__(self) -> None:
            self._feeds = iter(samples)

        def get_next(self) -> Mapping[str, Array] | None:
            feeds = next(self._feeds, None)
            return None if feeds is None else {names[name]: array for name, array in feeds.items()}

    kinds: dict[str, Any] = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(prepared, str(path), Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **kinds)
