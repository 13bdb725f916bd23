"""Stage ``fingerprint``: what a target's own preprocessing does otherwise than the reference's, searched on the raw golden files.

It names a suspect only where the suspect's tensors are the target's on every input that was used (`kpipe_stages.suspects.search`).
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.codec import decode
from kpipe_stages.digest import digest
from kpipe_stages.npz import npy_array
from kpipe_stages.preprocess import Limits
from kpipe_stages.preprocessing.files import read_bytes
from kpipe_stages.preprocessing.function import is_function
from kpipe_stages.preprocessing.image import decode_image
from kpipe_stages.protocol import Fingerprint, FingerprintJob, FingerprintResult, InputSpec, Job
from kpipe_stages.rows import Rows
from kpipe_stages.suspects.gap import gap
from kpipe_stages.suspects.search import Found, Question, search
from kpipe_stages.suspects.variation import Kitchen, Variation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kpipe_stages.worker import Worker

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class _Sides:
    """Both sides' tensors of one input."""

    spec: InputSpec
    ours: Rows
    theirs: Rows
    differing: tuple[int, ...]
    equal: tuple[int, ...]


def run(job: Job, worker: Worker) -> FingerprintResult:
    """Search for every input whose tensors differ.

    Raises:
        ValueError: the two sides have other inputs, other numbers of rows, or other bytes than when they were prepared.
    """
    params = decode(FingerprintJob, job.params)
    worker.distributions = ["numpy", "pillow"]
    worker.enter("fingerprint")
    if set(params.reference_names) != set(params.target_names):
        raise ValueError(f"tensors of {params.target_names} against {params.reference_names} of the reference")
    for folder, known in ((params.reference, params.reference_sha256), (params.target, params.target_sha256)):
        if known and digest(folder) != known:
            raise ValueError(f"the tensors in {folder} changed since they were prepared")
    found = []
    for name in params.reference_names:
        sides = _sides(params, name)
        worker.progress(f"fingerprint of {name}")
        if sides.differing:
            found.append(_named(params, sides))
        elif sides.ours.dtype != sides.theirs.dtype:
            found.append(_other_dtype(sides))
    return FingerprintResult(tuple(found))


def _sides(params: FingerprintJob, name: str) -> _Sides:
    spec = next(spec for spec in params.inputs if spec.name == name)
    ours = Rows(f"{params.reference}/{params.reference_names.index(name)}")
    theirs = Rows(f"{params.target}/{params.target_names.index(name)}")
    if not len(ours) == len(theirs) == len(params.items):
        raise ValueError(f"{len(theirs)} tensors of '{name}' against {len(ours)} of the reference, for {len(params.items)} golden inputs")
    same = [gap(a, b, rtol=params.rtol, atol=params.atol).equal for a, b in zip(ours, theirs, strict=True)]
    return _Sides(spec, ours, theirs, tuple(i for i, equal in enumerate(same) if not equal), tuple(i for i, equal in enumerate(same) if equal))


def spread(cases: Sequence[int], most: int) -> tuple[int, ...]:
    """At most so many of the cases, evenly from the first to the last."""
    if len(cases) <= most:
        return tuple(cases)
    return tuple(dict.fromkeys(cases[round(i * (len(cases) - 1) / (most - 1))] for i in range(most)))


def _named(params: FingerprintJob, sides: _Sides) -> Fingerprint:
    base, kitchen = _kitchen(params, sides)
    end = time.monotonic() + params.max_seconds
    question = Question(
        base=base,
        make=kitchen.tensor,
        target=lambda case: sides.theirs[case],
        differing=spread(sides.differing, params.max_inputs),
        equal=spread(sides.equal, params.max_equal),
        rtol=params.rtol,
        atol=params.atol,
        in_time=lambda: time.monotonic() < end,
    )
    before = max(one.residual for one in question.gaps(base, question.differing))
    return _answer(sides, question, search(question), before)


def _answer(sides: _Sides, question: Question, found: Found, before: float) -> Fingerprint:
    best = found.best
    notes = []
    if question.base.dtype is None and not question.base.steps and sides.spec.decode not in ("image", "npy"):
        own = "own steps are a function" if is_function(sides.spec.decode) else f"raw files are read by decode = {sides.spec.decode!r}"
        notes.append(f"the reference's {own}, so only what can be done to its tensors was tried")
    if sides.ours.dtype != sides.theirs.dtype:
        notes.append(f"the target's tensors are {sides.theirs.dtype}, the reference's {sides.ours.dtype}")
    return Fingerprint(
        input=sides.spec.name,
        differing=len(sides.differing),
        used=len(question.differing),
        suspect=best.does if best else "",
        instead=best.instead if best else "",
        steps=best.variation.written() if best and found.matched else "",
        also=tuple(other.does for other in found.also),
        matched=found.matched,
        explained=best.explained if best else 0,
        residual=best.residual if best else before,
        before=before,
        tried=found.tried,
        complete=found.complete,
        note="; ".join(notes),
    )


def _other_dtype(sides: _Sides) -> Fingerprint:
    count, theirs = len(sides.ours), sides.theirs.dtype
    return Fingerprint(
        input=sides.spec.name,
        differing=count,
        used=count,
        suspect=f"the same values in {theirs}",
        instead=sides.ours.dtype,
        steps=f'dtype = "{theirs}"',
        also=(),
        matched=True,
        explained=count,
        residual=0.0,
        before=0.0,
        tried=1,
        complete=True,
    )


def _kitchen(params: FingerprintJob, sides: _Sides) -> tuple[Variation, Kitchen]:
    """The reference's way as the search varies it: its steps from the raw file, or its tensors where a function made them."""
    spec = sides.spec
    if spec.decode not in ("image", "npy"):
        return Variation((), None), Kitchen(lambda case, _, __: sides.ours[case])
    limits = Limits()

    def decoded(case: int, upright: bool, sixteen: Callable[[Array], Array]) -> Array:
        item = params.items[case]
        data = read_bytes(item.files[spec.name], limits.max_bytes)
        if hashlib.sha256(data).hexdigest() != item.sha256[spec.name]:
            raise ValueError(f"{item.files[spec.name]} changed since it was prepared")
        if spec.decode == "image":
            turn = upright and spec.read.get("orientation", "exif") == "exif"
            return decode_image(data, limits.max_pixels, upright=turn, sixteen=sixteen, options=spec.read)
        return npy_array(data, item.files[spec.name])

    return Variation(spec.steps, spec.dtype or ("float32" if spec.decode == "image" else None)), Kitchen(decoded)
