"""What the orchestrator tells the stages ``build`` and ``list_ops``, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kpipe_stages.protocol import OpUse, Signature


@dataclass(frozen=True)
class BuildJob:
    """Which function, and where the model goes."""

    module: str
    """A module's dotted name, or the path of a ``.py`` file."""
    function: str
    folder: str
    """The folder that the module is found in, absolute."""
    out: str
    seed: int


@dataclass(frozen=True)
class BuildResult:
    """What was built."""

    parameters: int
    layers: dict[str, str]
    """Layer name to its class."""
    registered: tuple[str, ...]
    """Files that define custom objects of the model: what loading it needs."""


@dataclass(frozen=True)
class ListJob:
    """Which file."""

    format: str
    path: str
    device: str = ""
    """An OpenVINO device to ask about the ops; empty for none."""


@dataclass(frozen=True)
class ListResult:
    """What lies in it."""

    signature: Signature
    inventory: tuple[OpUse, ...]
    foreign_ops: tuple[str, ...]
    parameters: int
    parameters_bytes: int
    opset: int
    query: dict[str, Any]
    """What OpenVINO said of the device; empty where none was asked."""
