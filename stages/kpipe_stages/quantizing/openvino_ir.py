"""OpenVINO variants: the IR with compressed weights, or post-training quantised by NNCF."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe_stages.quantizing.made import Made, NotMadeError
from kpipe_stages.session import telling_line

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe_stages.protocol import QuantizeJob
    from kpipe_stages.quantizing.samples import Array, Samples

DISTRIBUTIONS = ("openvino", "nncf", "numpy")
FILE = "model.xml"


def bring() -> None:
    """Import OpenVINO."""
    import openvino  # noqa: F401 - its import is what is timed


def make(params: QuantizeJob, path: Path, samples: Samples) -> Made:
    """Write ``path`` and its ``.bin``.

    Raises:
        NotMadeError: NNCF refuses the IR.
        ImportError: there is no NNCF.
    """
    import openvino

    model = openvino.Core().read_model(params.source.path)
    if params.variant == "float16":
        openvino.save_model(model, str(path), compress_to_fp16=True)
        return Made()
    import nncf

    names = params.source.binding.inputs

    def fed(feeds: dict[str, Array]) -> dict[str, Any]:
        return {names[name]: array for name, array in feeds.items()}

    try:
        quantised = nncf.quantize(model, nncf.Dataset(list(samples), fed), subset_size=samples.count)
    except MemoryError:
        raise
    except Exception as error:  # NNCF and OpenVINO raise several kinds; each becomes one finding with its reason
        raise NotMadeError(f"{type(error).__name__}: {telling_line(error)}") from error
    openvino.save_model(quantised, str(path), compress_to_fp16=False)
    return Made()
