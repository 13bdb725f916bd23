"""Orders and answers of the stages that cut a model open (`kpipe_stages.cut_model`) and take a layer out (`kpipe_stages.isolate_layer`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kpipe_stages.protocol import Signature, Trust


@dataclass(frozen=True)
class CutJob:
    """Write a model that gives what its layers give."""

    model: str
    trust: Trust
    sha256: str
    """Digest that ``model`` must have."""
    out: str
    """The ``.keras`` file to write."""
    expose: tuple[str, ...] | None = None
    """Names of the points to give besides the model's own outputs; None for all."""


@dataclass(frozen=True)
class Point:
    """One tensor inside the model."""

    name: str
    """Its name as an output of the cut model: ``p007``."""
    layer: str
    """The layer that makes it, by the path through nested models: ``encoder/conv1``; the second call of a shared layer is ``conv1#2``."""
    class_name: str
    config: dict[str, Any]
    """The layer's, plain JSON values."""
    inputs: tuple[str, ...]
    """Points and model inputs that the layer reads."""
    shape: tuple[int | None, ...] | None
    dtype: str


@dataclass(frozen=True)
class CutResult:
    """The cut model and its points, in the order of computation."""

    sha256: str
    points: tuple[Point, ...]
    """Every point inside, exposed or not; strings and what has no fixed rank are left out."""
    finals: dict[str, str]
    """Output of the model to its point."""
    inputs: dict[str, str]
    """Input of the model to its name in the cut one."""
    signature: Signature
    """Of the cut model."""
    closed: dict[str, str] = field(default_factory=dict)
    """Layer that holds layers and could not be cut open, to the reason."""


@dataclass(frozen=True)
class IsolateJob:
    """Write a model of the one layer that makes a point, with its weights, fed by inputs of the shapes that it gets."""

    model: str
    trust: Trust
    sha256: str
    point: str
    out: str


@dataclass(frozen=True)
class IsolateResult:
    """The layer alone."""

    sha256: str
    feeds: dict[str, str]
    """Input of the new model to the point or the model input whose value it takes."""
    output: str
    """The output that is the point."""
    signature: Signature
