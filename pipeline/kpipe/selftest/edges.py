"""Which edge a run names first. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.errors import ContractError, GoldenError, KpipeError
from kpipe.judging.edges import FIRST, edge_of
from kpipe.judging.verdict import failing, unchecking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kpipe.record import RunRecord

RUNTIME = "runtime"


def edge_of_run(record: RunRecord) -> str:
    """The edge that a person reads first; empty where none is named.

    What is wrong before any target (archive, golden set, decoding) comes first, then the target's own edge, then what is wrong with the reference.
    What leaves a target unchecked is the machine's: its runtime, where no code says more.
    """
    failed = failing(record.findings)
    common = [edge_of(f) for f in failed if f.target in {"", "reference"}]
    own = [target.edge.name for target in record.targets if target.edge is not None]
    before = [edge for edge in common if edge in FIRST[: FIRST.index("preprocess")]]
    named = first(before) or next(iter(own), "") or first(common) or first(edge_of(f) for f in failed)
    return named or (RUNTIME if unchecking(record.findings) else "")


def edge_of_error(error: KpipeError) -> str:
    """The edge of a command that was refused."""
    if isinstance(error, GoldenError):
        return "golden"
    if isinstance(error, ContractError):
        return "decision" if any(problem.startswith("decision") for problem in error.problems) else "preprocess"
    return ""


def first(edges: Iterable[str]) -> str:
    """The one that a golden input meets first on its way."""
    named = set(edges)
    return next((edge for edge in FIRST if edge in named), "")
