"""The shapes that a contract promises, and the ones that are tried in any case. Pure.

A case is a batch size and a size for some free axes. Every named axis is tried at its least, typical and largest size, the others being
typical, and all of them together at their least and at their largest. Batches are tried of one, of several, of what is left of several (the
last batch of a set), and of none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.errors import ContractError, nearest
from kpipe_stages.protocol import AxisSize, ShapeCase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.contract import Contract
    from kpipe_stages.protocol import Signature, TensorSpec

BATCH = "batch"
EMPTY = "empty batch"


@dataclass(frozen=True)
class Axis:
    """A named axis, placed."""

    name: str
    places: tuple[tuple[str, int], ...]
    """Input and axis of its shape."""
    least: int
    typical: int
    most: int

    def at(self, size: int) -> tuple[AxisSize, ...]:
        """The axis at this size, wherever it is."""
        return tuple(AxisSize(name, axis, size) for name, axis in self.places)


def free_axes(signature: Signature) -> dict[str, tuple[int, ...]]:
    """Input name to its free axes besides the batch's, of the inputs that have any."""
    found = {spec.name: _free(spec) for spec in signature.inputs}
    return {name: axes for name, axes in found.items() if axes}


def _free(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(axis for axis, size in enumerate(spec.shape or ()) if axis and size is None)


def unpromised(contract: Contract, signature: Signature) -> dict[str, tuple[int, ...]]:
    """The free axes that no range of the contract names."""
    named = {place for axis in placed_axes(contract, signature, "") for place in axis.places}
    left = {name: tuple(axis for axis in axes if (name, axis) not in named) for name, axes in free_axes(signature).items()}
    return {name: axes for name, axes in left.items() if axes}


def placed_axes(contract: Contract, signature: Signature, source: str) -> tuple[Axis, ...]:
    """Every named axis but the batch's, with its place in the model's inputs.

    Raises:
        ContractError: an axis that the model doesn't have, that it fixes, or whose place can't be told.
    """
    problems: list[str] = []
    axes = [
        Axis(name, _places(name, dict(table.inputs), contract, signature, problems), table.min, table.typical, table.max)
        for name, table in contract.axes.items()
        if name != BATCH
    ]
    if problems:
        raise ContractError(source, problems)
    return tuple(axes)


def _places(name: str, written: Mapping[str, int], contract: Contract, signature: Signature, problems: list[str]) -> tuple[tuple[str, int], ...]:
    shapes = {spec.name: spec.shape for spec in signature.inputs}
    free = free_axes(signature)
    if not written:
        taken = {(other, axis) for table in contract.axes.values() for other, axis in table.inputs.items()}
        left = [(other, axis) for other, axes in free.items() for axis in axes if (other, axis) not in taken]
        if len({other for other, _ in left}) != len(left):
            problems.append(f"axes.{name} names no inputs, and an input has several free axes {_shown(free)}; say which: inputs = {{ NAME = AXIS }}")
        elif not left:
            problems.append(f"axes.{name}: the model has no free axis besides the batch axis{' that is not named already' if free else ''}; drop it")
        return tuple(left)
    for other, axis in written.items():
        shape = shapes.get(other)
        if other not in shapes:
            problems.append(
                f"axes.{name}.inputs.{other}: the model has no input '{other}'{nearest(other, list(shapes))}; its inputs are {', '.join(shapes)}"
            )
        elif shape is not None and axis >= len(shape):
            problems.append(f"axes.{name}.inputs.{other} is {axis}; expected an axis of its shape {_shape(shape)}, counted from 0, the batch axis")
        elif shape is not None and shape[axis] is not None:
            problems.append(
                f"axes.{name}.inputs.{other} is {axis}, which the model fixes at {shape[axis]}; expected one of its free axes {list(free.get(other, ()))}"
            )
    return tuple(written.items())


def _shape(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("None" if n is None else str(n) for n in shape) + ")"


def _shown(free: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name}: {list(axes)}" for name, axes in free.items())


def shape_cases(contract: Contract, signature: Signature, source: str) -> tuple[ShapeCase, ...]:
    """The cases to try, the harmless ones first: a process that dies of one loses those behind it.

    Raises:
        ContractError: see `placed_axes`.
    """
    axes = placed_axes(contract, signature, source)
    typical = tuple(size for axis in axes for size in axis.at(axis.typical))
    cases = []
    for axis in axes:
        others = tuple(size for other in axes if other is not axis for size in other.at(other.typical))
        sizes = [size for size in dict.fromkeys((axis.least, axis.most)) if size != axis.typical]
        cases += [ShapeCase(f"{axis.name} {size}", 1, (*axis.at(size), *others)) for size in sizes]
    if len(axes) > 1:
        corners = {"all least": [a.at(a.least) for a in axes], "all largest": [a.at(a.most) for a in axes]}
        cases += [ShapeCase(word, 1, tuple(one for sizes in corner for one in sizes)) for word, corner in corners.items()]
    return tuple(_ordered([*cases, *_batches(contract, signature, typical)]))


def _batches(contract: Contract, signature: Signature, typical: tuple[AxisSize, ...]) -> list[ShapeCase]:
    """Every axis at its typical size: one, several, what is left of several, and none."""
    word = "typical, " if typical else ""
    if any(spec.shape and spec.shape[0] is not None for spec in signature.inputs):  # the model has one batch size, or no batch axis
        fixed = next(spec.shape[0] for spec in signature.inputs if spec.shape and spec.shape[0] is not None)
        return [ShapeCase("typical", fixed, typical)] if typical else []
    table = contract.axes.get(BATCH)
    several = table.typical if table else max(contract.golden.batches)
    sizes = {1, several} if table is None else {1 if typical else table.typical, table.min, table.typical, table.max} - {0}
    left = several // 2 + 1
    partial = {left} if several > left > (table.min if table else 1) and left not in sizes else set()
    cases = [
        ShapeCase(
            f"{word}batch {size}{' (a partial one)' if size in partial else ''}", size, typical, owed=not table or table.min <= size <= table.max
        )
        for size in sorted(sizes | partial)
    ]
    return [*cases, ShapeCase(EMPTY, 0, typical, owed=table is not None and table.min == 0)]


def _ordered(cases: list[ShapeCase]) -> list[ShapeCase]:
    """Small before large, and nothing at all at the very end."""
    return sorted(cases, key=lambda case: (case.batch == 0, max((one.size for one in case.axes), default=0) * max(1, case.batch)))
