"""What making a variant comes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Made:
    """A variant that was written."""

    kept: tuple[str, ...] = ()
    """Ops that stay in float32 because the variant has no integer form of them."""
    repairs: tuple[str, ...] | None = None
    """Those of what it was made from; None where that is the float artifact."""


class NotMadeError(Exception):
    """The converter refused."""

    def __init__(self, reason: str, ops: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.ops = ops
        """The artifact's ops that it named."""
