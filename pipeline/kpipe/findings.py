"""A finding: one graded observation with a stable code."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any


class Severity(enum.StrEnum):
    """Fixed per code (`kpipe.codes`)."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """What was seen, where, in numbers, why, and what to do."""

    code: str
    severity: Severity
    target: str
    """Target name; empty where the finding is about the run, the candidate or the golden set; ``reference`` for the reference."""
    place: str
    """Layer, archive member, input, output, op, golden input: whatever it is about."""
    cause: str
    """One sentence with values."""
    remedy: str
    """One sentence: what to do."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain JSON values."""
    required: bool = True
    """False for a target that is shown but never part of the verdict."""
    waived: str = ""
    """Who answers for it, until when and why; empty where nobody does. A waived finding fails nothing."""
