"""What a first contract proposes for sizes that the model leaves free, and for sequences that are longer or shorter than it takes. Pure text."""

from __future__ import annotations

from statistics import median_low
from typing import TYPE_CHECKING, Any

import tomlkit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe_stages.protocol import Signature, TensorSpec

IMAGE_RANK = 4
EXAMPLES = {"time": (1, 128, 512), "height": (32, 224, 512), "width": (32, 224, 512)}
"""Axis to the least, typical and largest size that a commented line shows."""
ANY_EXAMPLE = (1, 16, 64)

Shapes = tuple[tuple[int, ...], ...]
"""Of the golden inputs, each without a batch axis; empty where nothing is known of them."""


def free_axes(signature: Signature) -> list[tuple[str, int, str]]:
    """Input, axis (0 being the batch's) and a name for each axis that the model leaves free, no name twice."""
    found: list[tuple[str, int, str]] = []
    for spec in signature.inputs:
        for axis in (axis for axis, size in enumerate(spec.shape or ()) if axis and size is None):
            name, taken = _word(spec, axis), {other for *_, other in found}
            found.append((spec.name, axis, name if name not in taken else next(f"{name}_{n}" for n in range(2, 99) if f"{name}_{n}" not in taken)))
    return found


def _word(spec: TensorSpec, axis: int) -> str:
    rank = len(spec.shape or ())
    return {1: "height", 2: "width"}.get(axis, f"axis_{axis}") if rank == IMAGE_RANK else "time" if axis == 1 else f"axis_{axis}"


def draft_axes(signature: Signature, shapes: Shapes) -> tuple[Any | None, list[str]]:
    """The table ``[axes]`` by the golden inputs' own sizes, or the lines of a commented one where these can't be told; neither where no axis is free."""
    axes = free_axes(signature)
    if not axes:
        return None, []
    known = _fits(signature, shapes)
    table = tomlkit.table()
    for source, axis, name in axes:
        sizes = [shape[axis - 1] for shape in shapes] if known else []
        least, typical, most = (min(sizes), median_low(sizes), max(sizes)) if sizes else EXAMPLES.get(name.partition("_")[0], ANY_EXAMPLE)
        inline, where = tomlkit.inline_table(), tomlkit.inline_table()
        where[source] = axis
        inline.update({"min": least, "typical": max(1, typical), "max": max(1, most), "inputs": where})
        table[name] = inline
        if known:
            table[name].comment("LOOK AT THIS: the golden inputs' own sizes; what does the product promise?")
    if known:
        return table, []
    text = tomlkit.dumps({"axes": table}).rstrip("\n").split("\n")
    told = [
        "The model leaves these sizes free. Say which the product uses, and every target is tried at each (the numbers are examples;",
        "one name for inputs that share a size); see docs/shapes.md.",
    ]
    return None, [*told, *text]


def _fits(signature: Signature, shapes: Shapes) -> bool:
    rank = len(signature.inputs[0].shape or ())
    return len(signature.inputs) == 1 and bool(shapes) and all(len(shape) == rank - 1 for shape in shapes)


def draft_lengths(spec: TensorSpec, shapes: Shapes) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """For arrays: a ``length`` step where the model fixes how long they are and they aren't, and ``pad_batches`` where it doesn't and they differ."""
    axes = list(spec.shape or ())[1:]
    lengths = {shape[0] for shape in shapes if shape}
    if not axes or not lengths or spec.dtype == "string" or any(len(shape) != len(axes) for shape in shapes):
        return [], None
    if axes[0] is not None:
        return [{"length": axes[0], "truncation": "end", "padding": "end", "value": 0}] if lengths != {axes[0]} else [], None
    return [], {"at": "end", "value": 0} if len(lengths) > 1 and len({shape[1:] for shape in shapes}) == 1 else None


def add_comments(document: Any, lines: Sequence[str]) -> None:
    """Put commented lines behind what the document has so far."""
    if lines:
        document.add(tomlkit.nl())
    for line in lines:
        document.add(tomlkit.comment(line) if line else tomlkit.nl())
