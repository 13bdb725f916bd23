"""Stage ``prepare``: every golden input decoded and preprocessed once, its digest taken from the very bytes that are decoded.

A row whose file is missing, altered or undecodable is an observation and an absent row (`kpipe_stages.rows.AbsentRowError` on reading
it); the others go on. Rows keep the positions of the job's items.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.codec import decode
from kpipe_stages.npz import NpzFile, NpzLimits, npz_row, split_reference
from kpipe_stages.preprocess import CastNote, Limits, PreprocessError, Preprocessor
from kpipe_stages.preprocessing.decoders import distributions
from kpipe_stages.preprocessing.files import read_bytes
from kpipe_stages.preprocessing.function import is_function
from kpipe_stages.preprocessing.tensors import ServedTensors
from kpipe_stages.protocol import GoldenItem, Job, Observation, PrepareJob, PrepareResult, StageError
from kpipe_stages.rows import RowsWriter

if TYPE_CHECKING:
    from kpipe_stages.worker import Worker

Array = np.ndarray[Any, np.dtype[Any]]

PROGRESS_EVERY = 20


def run(job: Job, worker: Worker) -> PrepareResult:
    """Write every input's rows below ``<folder>/tensors/``.

    Raises:
        StageError: there are no golden inputs, a step is wrong, or not one golden input could be decoded.
    """
    params = decode(PrepareJob, job.params)
    worker.distributions = ["numpy", *sorted({"pillow"}.union(*(distributions(spec) for spec in params.inputs)))]
    if not params.items or not params.inputs:
        raise StageError(
            Observation("KP101", f"{len(params.items)} {params.what}s for {len(params.inputs)} model inputs", "Add golden inputs to the manifest.")
        )
    worker.enter("prepare")
    reader, findings = _Reader(params), _Findings(params)
    with ExitStack() as stack:
        writers = [stack.enter_context(RowsWriter(worker.folder / "tensors" / str(i))) for i in range(len(params.inputs))]
        for position, item in enumerate(params.items):
            if position % PROGRESS_EVERY == 0:
                worker.progress(f"{params.what}s", position, len(params.items))
            try:
                tensors, notes = _tensors(item, reader, writers)
            except PreprocessError as error:
                worker.observe(
                    error.code, f"{params.what} {item.id!r}: {error.what} (expected {error.expected})", error.do, place=item.id, step=error.step
                )
                findings.bad.append(position)
                for writer in writers:
                    writer.append_absent()
                continue
            for writer, tensor in zip(writers, tensors, strict=True):
                writer.append(tensor)
            findings.add(position, item, tensors, notes)
        if len(findings.bad) == len(params.items):
            raise StageError(worker.observations.pop())  # the last of them speaks for all; the others are observed already
    findings.observe(worker)
    return findings.result()


def _tensors(item: GoldenItem, reader: _Reader, writers: list[RowsWriter]) -> tuple[list[Array], dict[str, list[CastNote]]]:
    """All inputs of an item, before any of them is written: a row is whole or absent."""
    notes: dict[str, list[CastNote]] = {}
    tensors = [reader.tensor(item, index, notes) for index in range(len(writers))]
    for writer, tensor, name in zip(writers, tensors, reader.names, strict=True):
        _check_kind(writer, tensor, name)
    return tensors, notes


def _check_kind(writer: RowsWriter, tensor: Array, name: str) -> None:
    """All rows of an input have one dtype and rank; the first one that decodes sets them."""
    kind = ("string" if tensor.dtype.kind in "SU" else tensor.dtype.name, tensor.ndim)
    if writer.kind not in (None, kind):
        raise PreprocessError(
            "steps",
            f"input {name!r} became {kind[0]} of rank {kind[1]}",
            f"{writer.kind[0]} of rank {writer.kind[1]}, as the rows before",
            "Add channels, cast or dtype so that all rows are alike.",
            "KP104",
        )


@dataclass
class _Npz:
    """The ``.npz`` that the latest rows came from, with what of it is inflated."""

    path: str
    digest: str
    file: NpzFile
    arrays: dict[str, Array]


class _Reader:
    """Turns items into tensors; holds at most one ``.npz`` in memory."""

    def __init__(self, params: PrepareJob) -> None:
        self._limits = Limits(params.max_pixels, params.max_bytes)
        self.names = [spec.name for spec in params.inputs]
        ids = [item.id for item in params.items]
        try:
            self._inputs = [
                ServedTensors(spec, ids, params.max_bytes) if spec.decode == "tensors" else Preprocessor(spec, self._limits) for spec in params.inputs
            ]
        except PreprocessError as error:
            raise StageError(Observation(error.code, f"{error.what} (expected {error.expected})", error.do, place=error.step)) from error
        self._npz: _Npz | None = None

    def tensor(self, item: GoldenItem, index: int, notes: dict[str, list[CastNote]]) -> Array:
        """The tensor of one input of one item."""
        prepare, name = self._inputs[index], self.names[index]
        if name not in item.files or name not in item.sha256:
            raise PreprocessError("read", f"no file and digest for input {name!r}", "one of each", "Name a file for every model input.", "KP105")
        if isinstance(prepare, ServedTensors):
            return prepare.row(item.id)
        found = notes.setdefault(name, [])
        if prepare.spec.decode == "array":
            return prepare.apply(self._row(item.files[name], item.sha256[name]), found)
        file = prepare.file_of(item.files[name])
        data = read_bytes(file, self._limits.max_bytes)
        _check_digest(file, hashlib.sha256(data).hexdigest(), item.sha256[name])
        if not is_function(prepare.spec.decode):
            return prepare.from_bytes(data, item.files[name], found)
        tensor = prepare.from_path(item.files[name], found)  # the function opens the file itself: it must be the same afterwards
        _check_digest(item.files[name], hashlib.sha256(read_bytes(item.files[name], self._limits.max_bytes)).hexdigest(), item.sha256[name])
        return tensor

    def _row(self, reference: str, expected: str) -> Array:
        path, member, row = split_reference(reference)
        if self._npz is None or self._npz.path != path:
            self._npz = None  # the old one goes before the new one comes
            data = read_bytes(path, self._limits.max_bytes)
            digest = hashlib.sha256(data).hexdigest()
            _check_digest(path, digest, expected)
            self._npz = _Npz(path, digest, NpzFile(data, path, NpzLimits(max_bytes=self._limits.max_bytes)), {})
        _check_digest(path, self._npz.digest, expected)
        if member not in self._npz.arrays:
            self._npz.arrays[member] = self._npz.file.array(member)
        return npz_row(self._npz.file, self._npz.arrays[member], member, row)


def _check_digest(path: str, found: str, expected: str) -> None:
    if found != expected:
        raise PreprocessError(
            "read",
            f"{path} has SHA-256 {found}",
            f"{expected}, as the manifest says",
            "Restore the file, or approve the new one in the manifest.",
            "KP102",
        )


class _Findings:
    """What was seen over all rows."""

    def __init__(self, params: PrepareJob) -> None:
        self._ids = [item.id for item in params.items]
        self._what = params.what
        self._names = [spec.name for spec in params.inputs]
        self._dtypes: dict[str, str] = {}
        self._shapes: dict[str, dict[tuple[int, ...], None]] = {name: {} for name in self._names}
        self._nonfinite: dict[str, list[int]] = {name: [] for name in self._names}
        self._casts: dict[str, list[tuple[str, CastNote]]] = {name: [] for name in self._names}
        self.bad: list[int] = []

    def add(self, position: int, item: GoldenItem, tensors: list[Array], notes: dict[str, list[CastNote]]) -> None:
        """Note one good row."""
        for name, tensor in zip(self._names, tensors, strict=True):
            self._dtypes[name] = "string" if tensor.dtype.kind in "SU" else tensor.dtype.name
            self._shapes[name][tensor.shape] = None
            if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
                self._nonfinite[name].append(position)
            self._casts[name] += [(item.id, note) for note in notes.get(name, [])]

    def observe(self, worker: Worker) -> None:
        """Casts that changed values, one observation an input, not one a row; NaN and infinities are a fact of the result."""
        for name in self._names:
            if notes := self._casts[name]:
                worker.observe(
                    "KP108",
                    f"input {name!r}, {self._what} {notes[0][0]!r}: {notes[0][1].sentence()}; {len(notes)} {self._what}s in all",
                    "Give the input the dtype that its values need, or scale before the cast.",
                    place=name,
                    ids=[identity for identity, _ in notes],
                )

    def result(self) -> PrepareResult:
        """The stage's answer."""
        return PrepareResult(
            names=tuple(self._names),
            rows=len(self._ids),
            dtypes=self._dtypes,
            shapes={name: tuple(shapes) for name, shapes in self._shapes.items()},
            nonfinite_rows={name: tuple(rows) for name, rows in self._nonfinite.items()},
            bad_rows=tuple(self.bad),
        )
