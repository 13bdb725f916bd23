"""Faults in a LiteRT file: bytes of a healthy one, or a conversion with other options than the contract's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.planting import ImpossibleError
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Array = np.ndarray[Any, np.dtype[Any]]

SEED = 20_260_902
FLOAT32 = 0
INT8 = 9
"""``TensorType`` of the LiteRT schema."""
CALIBRATION_ROWS = 32


def _all_constants(data: bytearray) -> list[tuple[int, Array]]:
    """Tensor type and bytes of every constant: views, so that writing to them writes to ``data``."""
    from kpipe_stages.artifacts.litert import flatbuffer_schema

    model = flatbuffer_schema().Model.GetRootAs(data, 0)
    found: dict[int, tuple[int, Array]] = {}
    for g in range(model.SubgraphsLength()):
        graph = model.Subgraphs(g)
        for t in range(graph.TensorsLength()):
            tensor = graph.Tensors(t)
            buffer = model.Buffers(tensor.Buffer())
            if buffer.DataLength():
                found[tensor.Buffer()] = (tensor.Type(), buffer.DataAsNumpy())
    return list(found.values())


def _constants(data: bytearray) -> list[Array]:
    """Views of the float32 constants, largest first."""
    found = [values.view(np.float32) for dtype, values in _all_constants(data) if dtype == FLOAT32]
    if not found:
        raise ImpossibleError("the file has no float32 constant")
    return sorted(found, key=lambda values: -values.size)


def one_number(data: bytearray, *, factor: float) -> None:
    """The largest number of the largest constant is multiplied."""
    values = _constants(data)[0]
    values[int(np.abs(values).argmax())] *= factor


def flipped_bit(data: bytearray, *, bit: int) -> None:
    """One bit of one number of the largest constant is wrong, as after a bad copy; 23 is the lowest of the exponent."""
    values = _constants(data)[0]
    bits = values.view(np.uint32)
    bits[int(np.abs(values).argmax())] ^= np.uint32(1 << bit)


def cut_short(data: bytearray) -> None:
    """The last tenth of the file is missing."""
    del data[len(data) * 9 // 10 :]


EDITS: dict[str, Callable[..., None]] = {"one_number": one_number, "flipped_bit": flipped_bit, "cut_short": cut_short}


def convert(saved_model: str, *, kind: str, tensors: str, names: Sequence[str]) -> bytes:
    """The healthy SavedModel as LiteRT, quantised.

    Args:
        saved_model: its folder.
        kind: ``float16`` or ``dynamic`` for the weights alone; ``int8``, calibrated on golden inputs; ``int8_wrong``, on noise of another scale.
        tensors: the healthy golden tensors.
        names: model input names in the order of that folder.
    """
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(saved_model, signature_keys=["serving_default"])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    elif kind.startswith("int8"):
        converter.representative_dataset = lambda: _calibration(tensors, names, wrong=kind == "int8_wrong")
    data = bytearray(converter.convert())
    if kind == "dynamic" and not any(dtype == INT8 for dtype, _ in _all_constants(data)):
        raise ImpossibleError("the converter left the weights alone: they are too few")
    return bytes(data)


def _calibration(tensors: str, names: Sequence[str], *, wrong: bool) -> Iterator[dict[str, Array]]:
    rng = np.random.default_rng(SEED)
    columns = {name: Rows(Path(tensors) / str(position)) for position, name in enumerate(names)}
    for i in range(min(CALIBRATION_ROWS, *(len(rows) for rows in columns.values()))):
        feed = {name: rows[i][None] for name, rows in columns.items()}
        if wrong:
            feed = {name: 0.1 * rng.standard_normal(row.shape).astype(np.float32) if row.dtype.kind == "f" else row for name, row in feed.items()}
        yield feed
