"""Prepared inputs against the model's signature, before any runtime sees them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.errors import nearest
from kpipe_stages.protocol import Observation

if TYPE_CHECKING:
    from kpipe_stages.protocol import PrepareResult, Signature, TensorSpec


def check_prepared(prepared: PrepareResult, signature: Signature) -> list[Observation]:
    """KP104 for every input whose name, dtype, rank or size doesn't fit; KP107 for rows that aren't finite."""
    wanted = {spec.name: spec for spec in signature.inputs}
    problems = [_misnamed(name, list(wanted)) for name in prepared.names if name not in wanted]
    problems += [
        Observation(
            "KP104",
            f"The golden inputs have nothing for the model's input '{name}'; they have {', '.join(prepared.names)}.",
            "Name the arrays or inputs as the model does.",
            name,
        )
        for name in wanted
        if name not in prepared.names
    ]
    for name in prepared.names:
        if name in wanted:
            problems += _unfit(name, prepared, wanted[name])
    return problems


def nonfinite(prepared: PrepareResult, ids: list[str]) -> list[Observation]:
    """KP107 for every input that has NaN or infinities in some row."""
    found = []
    for name, rows in prepared.nonfinite_rows.items():
        if rows:
            names = ", ".join(ids[i] for i in rows[:5])
            found.append(
                Observation(
                    "KP107",
                    f"Input '{name}' holds NaN or infinities in {len(rows)} golden input(s): {names}.",
                    "",
                    name,
                    {"inputs": [ids[i] for i in rows[:50]]},
                )
            )
    return found


def _misnamed(name: str, known: list[str]) -> Observation:
    return Observation(
        "KP104",
        f"The golden inputs have '{name}', which is no input of the model{nearest(name, known)}; its inputs are {', '.join(known)}.",
        "Name the arrays or inputs as the model does.",
        name,
    )


def _unfit(name: str, prepared: PrepareResult, spec: TensorSpec) -> list[Observation]:
    problems = []
    dtype = prepared.dtypes[name]
    if dtype != spec.dtype:
        cause = f"Input '{name}' is {dtype}; the model takes {spec.dtype}."
        problems.append(
            Observation(
                "KP104",
                cause,
                f'Give it as {spec.dtype}: in the array, or with dtype = "{spec.dtype}" in [inputs].',
                name,
                {"got": dtype, "expected": spec.dtype},
            )
        )
    if spec.shape is None:
        return problems
    expected = spec.shape[1:]
    for shape in prepared.shapes[name]:
        if len(shape) != len(expected) or any(n is not None and n != m for n, m in zip(expected, shape, strict=True)):
            cause = f"Input '{name}' has shape {list(shape)} per golden input; the model takes {[n if n is not None else 'any' for n in expected]}."
            problems.append(
                Observation("KP104", cause, "Correct the preprocessing steps or the array.", name, {"got": list(shape), "expected": list(expected)})
            )
    return problems
