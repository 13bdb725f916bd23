"""What the orchestrator tells the stage ``build``, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass


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
