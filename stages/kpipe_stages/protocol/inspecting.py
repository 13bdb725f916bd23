"""The archive, looked into before a framework is."""

from __future__ import annotations

from dataclasses import dataclass, field

from kpipe_stages.protocol.messages import Signature, Trust


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds that hold before anything is read."""

    max_members: int = 100_000
    max_config_bytes: int = 64 * 2**20
    max_total_bytes: int = 64 * 2**30
    max_ratio: float = 200.0
    """Declared inflated size over stored size, for members above 1 MiB."""
    max_json_depth: int = 200


@dataclass(frozen=True)
class InspectJob:
    """Read a ``.keras`` archive without running any of it."""

    model: str
    trust: Trust
    limits: ArchiveLimits = ArchiveLimits()


@dataclass(frozen=True)
class LayerRow:
    """A layer as ``config.json`` declares it."""

    name: str
    class_name: str
    module: str
    registered_name: str | None
    dtype: str
    """Dtype or policy name; empty where none is declared."""
    parameters: int | None
    """Numbers stored for it; None where the weights file can't tell."""
    forced_training: bool
    """A call in the config passes ``training=True``."""


@dataclass(frozen=True)
class InspectResult:
    """What lies in the archive. Problems are observations of the result."""

    sha256: str
    size: int
    keras_version: str
    saved_at: str
    model_class: str
    model_name: str
    layers: tuple[LayerRow, ...]
    parameters: int
    weight_bytes: int
    """Bytes of the model's own weights (no optimizer state)."""
    signature: Signature | None
    """Inputs with dtypes as declared; outputs have names only where the config has them. None for a subclassed model."""
    members: dict[str, int]
    has_optimizer: bool
    activations: dict[str, str] = field(default_factory=dict)
    """Output name to the activation of the layer that makes it, where the config tells."""
    integer_ranges: dict[str, int] = field(default_factory=dict)
    """Input name to the number of ids that the smallest Embedding behind it knows."""
