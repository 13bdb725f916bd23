"""Findings of one code on one target, gathered: forty thousand alike are read as one with examples."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from kpipe.codes import CODES
from kpipe.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Group:
    """The findings of one code on one target."""

    code: str
    target: str
    title: str
    required: bool
    shown: tuple[Finding, ...]
    left_out: int
    waived: bool = False


@dataclass(frozen=True)
class Groups:
    """The groups of one severity."""

    shown: tuple[Group, ...]
    left_out: int
    """Findings in groups that are not shown."""


def group(findings: Sequence[Finding], *, each: int, most: int) -> Groups:
    """Gather neighbours (`kpipe.report.summary.by_severity` has sorted them).

    Args:
        findings: of one severity.
        each: how many findings of a group to show.
        most: how many groups to show.
    """
    groups = []
    for (code, target, required, waived), members in groupby(findings, key=lambda f: (f.code, f.target, f.required, bool(f.waived))):
        listed = tuple(members)
        title = CODES[code].title if code in CODES else "unknown code"
        groups.append(Group(code, target, title, required, listed[:each], max(0, len(listed) - each), waived))
    return Groups(tuple(groups[:most]), sum(len(g.shown) + g.left_out for g in groups[most:]))
