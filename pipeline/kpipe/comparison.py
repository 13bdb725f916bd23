"""One model against another on the same golden inputs: the document that ``kpipe compare`` makes and every report reads."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kpipe.findings import Finding

COMPARISON_VERSION = 1


class Outcome(enum.StrEnum):
    """What the contract's policy makes of a comparison."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    INCOMPLETE = "INCOMPLETE"


class Answer(enum.StrEnum):
    """Whether a rule of the policy holds."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class Side:
    """One of the two that are compared."""

    kind: str
    """``run`` or ``bundle``."""
    path: str
    id: str
    """Of the run, or of the bundle."""
    candidate_sha256: str
    verdict: str
    made: str
    """ISO 8601, UTC."""
    golden_sha256: str
    """Of the golden set's manifest; empty where it has none."""
    inputs: int


@dataclass(frozen=True)
class Inputs:
    """Golden inputs of both sides, paired by their SHA-256."""

    shared: int
    """Different files that both have: the ones that are compared."""
    repeated: int
    """Further entries of these files."""
    only_before: tuple[str, ...]
    """Golden ids."""
    only_now: tuple[str, ...]


@dataclass(frozen=True)
class Changed:
    """A golden input that the two models decide otherwise."""

    input: str
    """Golden id, of the new side."""
    rule: str
    """Name of the decision rule; empty for the only one."""
    slices: tuple[str, ...]
    """Where either side's golden set puts it."""
    before: str
    now: str
    margin_before: float
    """Output units."""
    margin_now: float
    truth: str | None
    """The approved decision, else the label, as the new side's golden set has it."""
    right: str
    """``before``, ``now``, ``both`` or ``neither``; empty where the truth isn't known."""


@dataclass(frozen=True)
class Tally:
    """Both models on the shared inputs of one slice, by one rule."""

    rule: str
    slice: str
    """Empty for all inputs."""
    inputs: int
    changed: int
    known: int
    """Inputs whose truth is known; what follows speaks of these."""
    right_before: int
    right_now: int
    only_before: int
    """Right before, wrong now."""
    only_now: int
    p_value: float | None
    """McNemar's exact test, two-sided: how likely at least such a difference is between models that are right as often; None where none is known."""


@dataclass(frozen=True)
class Moved:
    """How far the model's own outputs moved, on its own backend, inputs run one by one."""

    since: str
    """``baseline`` or ``first approved``."""
    id: str
    output: str
    max_abs: float
    """Output units; infinite where shapes or types differ, or a number isn't finite on one side only."""
    max_rel: float
    """Of the largest magnitude of the output on that input."""
    worst_input: str
    changed: int
    """Decisions on shared inputs."""
    inputs: int


@dataclass(frozen=True)
class Pair:
    """One number then and now."""

    name: str
    unit: str
    """``bytes``, ``s``, ``units`` of the output, ``x`` of the tolerance, or empty for a count."""
    before: float | None
    now: float | None
    told: str
    """What can be said of the difference: ``same``, ``more``, ``less``, or why nothing can."""


@dataclass(frozen=True)
class TargetPair:
    """One target then and now."""

    target: str
    before: str
    """Its status: ``pass``, ``fail``, ``unchecked``; empty where it wasn't there."""
    now: str
    numbers: tuple[Pair, ...]


@dataclass(frozen=True)
class Difference:
    """One thing of environment or contract that isn't the same."""

    where: str
    """``machine``, ``contract``, ``reference`` or a target."""
    what: str
    before: str
    now: str


@dataclass(frozen=True)
class Check:
    """One rule of the policy."""

    rule: str
    """As the contract has it: ``max_changed``, ``slices.critical``."""
    allowed: float
    """Share of the inputs."""
    changed: int
    inputs: int
    """That were compared."""
    unchecked: int
    """That would have had to be."""
    answer: Answer
    why: str


@dataclass(frozen=True)
class Comparison:
    """All of it."""

    version: int
    before: Side
    now: Side
    outcome: Outcome
    headline: str
    inputs: Inputs
    tallies: tuple[Tally, ...]
    changed: tuple[Changed, ...]
    moved: tuple[Moved, ...]
    targets: tuple[TargetPair, ...]
    differences: tuple[Difference, ...]
    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]
    """Whatever else could not be compared, a sentence each."""
    findings: tuple[Finding, ...]
    interleaved: bool = False
    """Whether the times of a target were measured in turns, in one session; of the others a difference below the machine's noise can't be told."""
