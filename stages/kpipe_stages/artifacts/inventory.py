"""What was found in an artifact, and the proof that its inputs and outputs are the model's. Standard library only."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.protocol import Binding, Observation, OpUse, Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FORMAT_TITLES = {"saved_model": "SavedModel", "litert": "LiteRT", "onnx": "ONNX", "openvino_ir": "OpenVINO IR"}
SHOWN = 6
"""Names in a message; all of them are in its evidence."""
LEAST_SHARE = 0.25
"""Below this share of the model's numbers an artifact is taken for one without its weights. Normalization folds four numbers a channel into one at worst."""
FLOAT32_BYTES = 4
LEAST_PARAMETERS = 1000
"""A smaller model can fold away altogether; lost weights show in its outputs."""


@dataclass(frozen=True)
class Opened:
    """An artifact as it was read back from disk."""

    signature: Signature
    """Its own names and order."""
    ops: dict[str, int]
    """Op type to count, functions and sub-graphs included."""
    foreign_ops: tuple[str, ...]
    """Ops outside the runtime's own set."""
    parameters: int
    """Numbers in its constants and variables."""
    parameters_bytes: int
    companions: tuple[Path, ...] = ()
    """Files that it can't be loaded without, besides the one that is opened."""
    ordered: bool = True
    """Its inputs and outputs have positions (a SavedModel's have none)."""
    uses: tuple[OpUse, ...] = ()
    """``ops`` with version and dtypes."""
    opset: int = 0
    """ONNX: the opset of ai.onnx that it declares."""

    @property
    def batch(self) -> int | None:
        """The one batch size that every input asks for; None where it is free (or where inputs have no axis in common)."""
        first = {spec.shape[0] if spec.shape else None for spec in self.signature.inputs}
        return first.pop() if len(first) == 1 else None


def op_uses(found: Iterable[tuple[str, str, Iterable[str]]]) -> tuple[OpUse, ...]:
    """Rows of the inventory from each op's name, version and the dtypes that it gives, sorted by name."""
    counts, dtypes = Counter[tuple[str, str]](), dict[tuple[str, str], set[str]]()
    for op, version, given in found:
        counts[op, version] += 1
        dtypes.setdefault((op, version), set()).update(given)
    return tuple(OpUse(op, version, counts[op, version], tuple(sorted(dtypes[op, version]))) for op, version in sorted(counts))


def identifier(name: str) -> str:
    """The nearest name that a SavedModel can hold as an input's: ASCII letters, digits and ``_``, a letter first, no Python keyword."""
    safe = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("_")
    if not safe or not safe[0].isalpha():
        safe = f"x_{safe}"
    return f"{safe}_" if keyword.iskeyword(safe) else safe


def identifiers(names: Sequence[str]) -> tuple[str, ...]:
    """`identifier` of each, made unique in order."""
    taken: list[str] = []
    for name in names:
        safe, number = identifier(name), 1
        while safe in taken or (safe != name and safe in names):
            number += 1
            safe = f"{identifier(name)}_{number}"
        taken.append(safe)
    return tuple(taken)


def bind(kind: str, model: Signature, opened: Opened, known: Binding | None = None) -> tuple[Binding | None, list[Observation]]:
    """Bind the model's names to the artifact's and compare what they declare.

    Args:
        kind: the artifact's format.
        model: the model's own signature.
        opened: what was read back from the artifact.
        known: names under which the export wrote the model's; None for a file that was handed in.

    Returns:
        The binding, None where an input or output of the model has no partner or the artifact asks for more inputs; and observations
        KP203 to KP207, KP212, KP213.
    """
    seen: list[Observation] = []
    inputs = _bind_side(kind, "input", model.inputs, opened.signature.inputs, known.inputs if known else {}, seen)
    outputs = _bind_side(kind, "output", model.outputs, opened.signature.outputs, known.outputs if known else {}, seen)
    if inputs is None or outputs is None:
        return None, seen
    for side, mine, theirs, names in (
        ("input", model.inputs, opened.signature.inputs, inputs),
        ("output", model.outputs, opened.signature.outputs, outputs),
    ):
        _compare_order(kind, side, mine, theirs, names, seen, ordered=opened.ordered)
        found = {spec.name: spec for spec in theirs}
        for spec in mine:
            _compare_spec(kind, side, spec, found[names[spec.name]], seen)
    _compare_batch(kind, model, opened, inputs, seen)
    return Binding(inputs=inputs, outputs=outputs), seen


def compare_size(kind: str, opened: Opened, parameters: int) -> list[Observation]:
    """KP208 where the artifact holds far fewer numbers than the model has parameters (0 for unknown)."""
    if parameters < LEAST_PARAMETERS or opened.parameters >= LEAST_SHARE * parameters:
        return []
    return [
        Observation(
            "KP208",
            f"The {FORMAT_TITLES[kind]} artifact holds {opened.parameters:,} numbers; the model has {parameters:,} parameters.",
            "The converter drops what one file of 2 GiB can't hold, without a word: make the model smaller (quantise it, split it), or leave the target out."
            if parameters * FLOAT32_BYTES >= 2**31
            else "The conversion lost weights (or the file is of another model): export again, from the SavedModel.",
            place=kind,
            evidence={"found": opened.parameters, "found_bytes": opened.parameters_bytes, "model": parameters, "least_share": LEAST_SHARE},
        )
    ]


# ---------------------------------------------------------------- names


def _bind_side(
    kind: str, side: str, mine: Sequence[TensorSpec], theirs: Sequence[TensorSpec], known: Mapping[str, str], seen: list[Observation]
) -> dict[str, str] | None:
    title = FORMAT_TITLES[kind]
    if len(mine) != len(theirs):
        names = [spec.name for spec in theirs]
        seen.append(
            Observation(
                "KP207",
                f"The {title} artifact has {len(theirs)} {side}s ({_short(names)}); the model has {len(mine)} ({_short([s.name for s in mine])}).",
                f"Export again from a SavedModel with frozen weights; an artifact with other {side}s than the model's can't be run in its place.",
                place=kind,
                evidence={"artifact": names, "model": [spec.name for spec in mine]},
            )
        )
        return None
    bound = match_names([spec.name for spec in mine], [spec.name for spec in theirs], known)
    if missing := [spec.name for spec in mine if spec.name not in bound]:
        names = [spec.name for spec in theirs if spec.name not in bound.values()]
        seen.append(
            Observation(
                "KP213",
                f"{side.capitalize()} '{missing[0]}' of the model can't be told among the {title} artifact's {_short(names)}.",
                f"Give the artifact the model's {side} names; kpipe never binds by position or by shape.",
                place=missing[0],
                evidence={"unbound": missing, "candidates": names},
            )
        )
        return None
    renamed = {spec.name: bound[spec.name] for spec in mine if bound[spec.name] != spec.name}
    if renamed:
        seen.append(_renamed(kind, side, renamed))
    return {spec.name: bound[spec.name] for spec in mine}


def _renamed(kind: str, side: str, renamed: Mapping[str, str]) -> Observation:
    pairs = [f"'{name}' is '{other}'" for name, other in renamed.items()]
    more = f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
    return Observation(
        "KP203",
        f"The {FORMAT_TITLES[kind]} artifact has other names for the model's {side}s: {', '.join(pairs[:SHOWN])}{more}.",
        f"Feed and read the {side}s by the artifact's names (they are in deploy.toml), or give the model names of letters, digits and underscores.",
        place=next(iter(renamed)) if len(renamed) == 1 else kind,
        evidence={"names": dict(renamed), "side": side},
    )


def match_names(mine: Sequence[str], theirs: Sequence[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Model names to artifact names: those that are ``known`` and there, then equal ones, then in turn ever looser forms; a form that fits two is not used.

    The forms: without a tool's wrapping (``serving_default_``, ``:0``), as `identifiers` writes it, without regard to case and
    punctuation; then the numbered outputs of an exporter (``output_0``, ``Identity_1:0``), which follow the model's order; then the only one left.
    """
    bound = {name: other for name, other in (known or {}).items() if name in mine and other in theirs}
    bound.update({name: name for name in mine if name in theirs and name not in bound and name not in bound.values()})
    safe = dict(zip(mine, identifiers(mine), strict=True))
    forms = (
        lambda name, other: name == _unwrapped(other),
        lambda name, other: safe.get(name, name) == _unwrapped(other),
        lambda name, other: letters(name) == letters(_unwrapped(other)) != "",
    )
    for form in forms:
        left, right = _left(mine, bound), _right(theirs, bound)
        pairs = [(name, other) for name in left for other in right if form(name, other)]
        names, others = Counter(name for name, _ in pairs), Counter(other for _, other in pairs)
        bound.update({name: other for name, other in pairs if names[name] == others[other] == 1})
    left, right = _left(mine, bound), _right(theirs, bound)
    if not bound and (numbers := _numbered(right)) is not None:
        bound.update({name: numbers[position] for position, name in enumerate(mine)})
    elif len(left) == len(right) == 1:
        bound[left[0]] = right[0]
    return bound


def _left(mine: Sequence[str], bound: dict[str, str]) -> list[str]:
    return [name for name in mine if name not in bound]


def _right(theirs: Sequence[str], bound: dict[str, str]) -> list[str]:
    return [name for name in theirs if name not in bound.values()]


def _unwrapped(name: str) -> str:
    return re.sub(r":\d+$", "", name).removeprefix("serving_default_")


def letters(name: str) -> str:
    """A name without regard to case and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _numbered(names: Sequence[str]) -> list[str] | None:
    """Names by their number, where they are an exporter's own numbered outputs, all with one stem and counting from 0."""
    found: dict[int, str] = {}
    stems: set[str] = set()
    for name in names:
        match = re.fullmatch(r"(output|Identity)(?:_(\d+))?(?::0)?", name)
        if match is None:
            return None
        stems.add(match[1])
        found[int(match[2] or 0)] = name
    if len(stems) != 1 or sorted(found) != list(range(len(names))):
        return None
    return [found[number] for number in range(len(names))]


def _short(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


# ---------------------------------------------------------------- what is declared


def _compare_order(
    kind: str, side: str, mine: Sequence[TensorSpec], theirs: Sequence[TensorSpec], names: dict[str, str], seen: list[Observation], *, ordered: bool
) -> None:
    if not ordered:
        return
    wanted, found = [names[spec.name] for spec in mine], [spec.name for spec in theirs]
    if wanted != found:
        order = [wanted.index(name) for name in found]
        seen.append(
            Observation(
                "KP204",
                f"The {FORMAT_TITLES[kind]} artifact has the model's {side}s in the order {order} (of {_short(wanted)}).",
                f"Bind {side}s by name, as kpipe does; code that takes them by position reads another one.",
                place=kind,
                evidence={"model": wanted, "artifact": found, "order": order, "side": side},
            )
        )


def _compare_spec(kind: str, side: str, mine: TensorSpec, theirs: TensorSpec, seen: list[Observation]) -> None:
    title, what = FORMAT_TITLES[kind], f"{side} '{mine.name}'"
    if mine.dtype != theirs.dtype:
        seen.append(
            Observation(
                "KP205",
                f"{what.capitalize()} is {theirs.dtype} in the {title} artifact; the model's is {mine.dtype}.",
                f"Feed and read {theirs.dtype}, or change the model's own dtype to it.",
                place=mine.name,
                evidence={"model": mine.dtype, "artifact": theirs.dtype},
            )
        )
    if mine.shape is None or theirs.shape is None:
        return
    rank_differs = len(mine.shape) != len(theirs.shape)
    lost = [] if rank_differs else [axis for axis, (a, b) in enumerate(zip(mine.shape, theirs.shape, strict=True)) if b is not None and a != b]
    lost = [axis for axis in lost if axis != 0 or mine.shape[0] is not None]  # a lost batch axis is KP212
    if rank_differs or lost:
        where = "" if rank_differs else f" (axis {', '.join(map(str, lost))})"
        seen.append(
            Observation(
                "KP206",
                f"{what.capitalize()} has shape {_shape(theirs)} in the {title} artifact; the model's is {_shape(mine)}{where}.",
                "Export with the model's own signature; a size that the artifact fixed can't be given another value later.",
                place=mine.name,
                evidence={"model": list(mine.shape), "artifact": list(theirs.shape), "axes": lost},
            )
        )


def _compare_batch(kind: str, model: Signature, opened: Opened, inputs: dict[str, str], seen: list[Observation]) -> None:
    found = {spec.name: spec.shape for spec in opened.signature.inputs}
    fixed = {
        spec.name: shape[0]
        for spec in model.inputs
        if spec.shape and spec.shape[0] is None and (shape := found[inputs[spec.name]]) and shape[0] is not None
    }
    if fixed:
        size = next(iter(fixed.values()))
        seen.append(
            Observation(
                "KP212",
                f"The {FORMAT_TITLES[kind]} artifact takes batches of {size} only; the model's batch axis is free.",
                "Feed it one batch of that size at a time, or export with a free batch axis.",
                place=kind,
                evidence={"batch": size, "inputs": fixed},
            )
        )


def _shape(spec: TensorSpec) -> str:
    return "(" + ", ".join("None" if n is None else str(n) for n in spec.shape or ()) + ")"
