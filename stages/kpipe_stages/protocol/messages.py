"""What every order and every answer shares."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

PROTOCOL = 1

MEMORY_SIGNS = ("MemoryError", "bad_alloc", "RESOURCE_EXHAUSTED", "Cannot allocate memory", "OOM when allocating", "Failed to allocate memory")
"""What says that there was too little memory: Python, C++, JAX, the system, TensorFlow, ONNX Runtime."""


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of one input or output."""

    name: str
    """The model's own name for it."""
    shape: tuple[int | None, ...] | None
    """None where an axis is free; the whole is None where even the rank isn't known."""
    dtype: str
    """A numpy dtype name, ``bfloat16`` or ``string``."""


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model or of an artifact, in order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_structure: str = field(default="", compare=False)
    """How the model itself takes its inputs, as JSON with names for leaves: ``{"pair": ["left", "right"]}``. Empty where nobody said."""
    output_structure: str = field(default="", compare=False)
    """How it gives its outputs, likewise."""


@dataclass(frozen=True)
class Observation:
    """A fact that a worker found worth a finding. The worker names it; severity and verdict are the orchestrator's."""

    code: str
    """Finding code, ``KP201``."""
    cause: str
    """One sentence: what happened, with values."""
    remedy: str
    """One sentence: what to do."""
    place: str = ""
    """Layer, archive member, input, output or op."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Numbers and names, plain JSON values."""


class StageError(Exception):
    """A stage can't go on for a reason that it can name."""

    def __init__(self, observation: Observation) -> None:
        super().__init__(observation.cause)
        self.observation = observation


class Status(enum.StrEnum):
    """How a stage ended, by its own account."""

    OK = "ok"
    FAILED = "failed"


@dataclass(frozen=True)
class Failure:
    """An exception that ended a stage."""

    phase: str
    """``import``, ``load``, ``run``, ``time`` or a stage's own step."""
    type: str
    message: str
    traceback: str


@dataclass(frozen=True)
class Identity:
    """Who did the work: read from the running process, never from the job."""

    stage: str
    pid: int
    python: str
    versions: dict[str, str]
    """Distribution name to version, of what the stage imported."""
    backend: str | None
    """``keras.backend.backend()`` where Keras is loaded."""
    threads: int
    cpu: str
    cpu_features: tuple[str, ...]
    """The ones that change numerics: avx2, avx512f, avx512_bf16, amx_bf16, ..."""
    inherited: dict[str, float] = field(default_factory=dict)
    """Module to the seconds of its import, of what this process got by being forked (`kpipe_stages.fork_server`)."""


@dataclass(frozen=True)
class Job:
    """One order. ``params`` is the stage's own dataclass, encoded."""

    protocol: int
    stage: str
    attempt: str
    """A fresh token per attempt; the result repeats it, so an old result can't be taken for a new one."""
    folder: str
    """Absolute; everything the stage writes lies below it."""
    params: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """One answer: ``result.json`` (and ``timing.json`` for the timed phase)."""

    protocol: int
    stage: str
    attempt: str
    status: Status
    identity: Identity | None
    observations: tuple[Observation, ...]
    failure: Failure | None
    data: dict[str, Any]
    """The stage's own result dataclass, encoded; empty after a failure."""
    seconds: float
    peak_rss_bytes: int


@dataclass(frozen=True)
class Trust:
    """Which code a model may bring: nothing but Keras unless the contract says so."""

    custom_objects: tuple[str, ...] = ()
    """Absolute paths of Python files that register custom objects."""
    allow_modules: tuple[str, ...] = ()
    """Installed packages whose registered objects may be loaded."""
    allow_lambda: tuple[str, ...] = ()
    """Names of the Lambda layers that the contract allows."""
