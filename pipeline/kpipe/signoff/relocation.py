"""The paths of a worker's job, changed by a rule: into a bundle, and out of it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.protocol import GoldenItem, InputSpec, PrepareJob, RunJob

    Move = Callable[[str], str]


def move_run(job: RunJob, move: Move) -> RunJob:
    """A run job with every path moved. Compile caches stay behind."""
    return replace(
        job,
        artifact=move(job.artifact),
        companions=tuple(move(path) for path in job.companions),
        trust=replace(job.trust, custom_objects=tuple(move(path) for path in job.trust.custom_objects)),
        tensors=move(job.tensors),
        common=move(job.common) if job.common else "",
        items=tuple(_item(item, move) for item in job.items),
        inputs=tuple(_input(spec, move) for spec in job.inputs),
        cache="",
    )


def move_prepare(job: PrepareJob, move: Move) -> PrepareJob:
    """A prepare job with every path moved."""
    return replace(job, items=tuple(_item(item, move) for item in job.items), inputs=tuple(_input(spec, move) for spec in job.inputs))


def _item(item: GoldenItem, move: Move) -> GoldenItem:
    return replace(item, files={name: move(path) for name, path in item.files.items()})


def _input(spec: InputSpec, move: Move) -> InputSpec:
    return replace(spec, files={move(path): known for path, known in spec.files.items()})
