"""The calibration set: prepared as golden inputs are, and held against them. What marks the homework must not have seen it."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from kpipe.running.checks import check_prepared
from kpipe_stages.protocol import Observation
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kpipe.golden import GoldenSet
    from kpipe_stages.protocol import PrepareResult, Signature

NAMED = 5
"""Pairs that a message names; all of them are in its evidence."""


def check_calibration(
    calibration: GoldenSet, ready: PrepareResult, tensors: Path, golden: GoldenSet, prepared: PrepareResult, theirs: Path, signature: Signature
) -> list[Observation]:
    """Why variants can't be made with a calibration set; empty where they can.

    Args:
        calibration: the set.
        ready: what its prepare stage made, into ``tensors``.
        tensors: folder of its tensors.
        golden: the golden set.
        prepared: what the golden set's prepare stage made, into ``theirs``.
        theirs: folder of the golden tensors.
        signature: the model's own.

    Raises:
        OSError, ValueError: tensors can't be read back.
    """
    if problems := check_prepared(ready, signature):
        return [_unfit(f"{problem.cause} ({problem.code} of a calibration input)", problem.remedy, problem.place) for problem in problems]
    if bad := [name for name, rows in ready.nonfinite_rows.items() if rows]:
        return [
            _unfit(f"Input '{bad[0]}' holds NaN or infinities in the calibration set: ranges are taken from it.", "Take those inputs out.", bad[0])
        ]
    pairs = _same_tensors(_rows_of(ready, tensors), _rows_of(prepared, theirs), calibration, golden) | _same_files(calibration, golden)
    return [_golden(pairs, len(calibration.inputs))] if pairs else []


def _unfit(cause: str, remedy: str, place: str) -> Observation:
    return Observation("KP223", cause, remedy, place)


def _golden(pairs: dict[str, tuple[str, str]], count: int) -> Observation:
    told = [f"'{name}' is golden input '{golden}' (the same {what})" for name, (golden, what) in list(pairs.items())[:NAMED]]
    more = f" and {len(pairs) - NAMED} more" if len(pairs) > NAMED else ""
    return Observation(
        "KP222",
        f"{len(pairs)} of {count} calibration inputs are golden inputs: {', '.join(told)}{more}.",
        "Take calibration inputs from the training data; nothing that is judged may have been calibrated on.",
        next(iter(pairs)),
        {"pairs": {name: golden for name, (golden, _) in pairs.items()}},
    )


def _same_files(calibration: GoldenSet, golden: GoldenSet) -> dict[str, tuple[str, str]]:
    """Calibration ids to the golden input that has the same file. One that several golden inputs share (a fixed second input) tells nothing."""
    if calibration.kind != "raw" or golden.kind != "raw":
        return {}
    owners = {digest: one.id for one in golden.inputs for digest in one.sha256.values()}
    shared = {digest for digest, count in Counter(digest for one in golden.inputs for digest in set(one.sha256.values())).items() if count > 1}
    return {
        one.id: (owners[digest], "file") for one in calibration.inputs for digest in one.sha256.values() if digest in owners and digest not in shared
    }


def _same_tensors(mine: Sequence[Rows], theirs: Sequence[Rows], calibration: GoldenSet, golden: GoldenSet) -> dict[str, tuple[str, str]]:
    """Calibration ids to the golden input whose tensors are the same in every model input, bit for bit."""
    known = {_content(theirs, row): one.id for row, one in enumerate(golden.inputs)}
    found = {one.id: known.get(_content(mine, row)) for row, one in enumerate(calibration.inputs)}
    return {name: (golden_id, "tensor") for name, golden_id in found.items() if golden_id is not None}


def _rows_of(ready: PrepareResult, tensors: Path) -> list[Rows]:
    """By input name, so that two sets have one order."""
    return [Rows(tensors / str(ready.names.index(name))) for name in sorted(ready.names)]


def _content(inputs: Sequence[Rows], row: int) -> str:
    total = hashlib.sha256()
    for rows in inputs:
        array = np.ascontiguousarray(rows[row])
        total.update(f"{array.dtype.newbyteorder('=')} {array.shape} ".encode())
        total.update(array.astype(array.dtype.newbyteorder("="), copy=False).tobytes())
    return total.hexdigest()
