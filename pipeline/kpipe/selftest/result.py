"""What a selftest found, and what it comes to. Pure."""

from __future__ import annotations

from dataclasses import dataclass

EDGE_SHARE = 0.95
"""Share of the caught faults whose right edge has to be named."""


@dataclass(frozen=True)
class Row:
    """One fault."""

    name: str
    family: str
    setup: str
    caught: bool
    """The verdict isn't PASS, or the command was refused."""
    equivalent: bool
    """It changes no decision, and its float64 reading is nearer than the noise floor on every golden input: there is nothing to catch."""
    small: bool
    """As equivalent, but between one noise floor and the 16 that derived tolerances allow: too small for what the gate promises."""
    codes: tuple[str, ...]
    """Of the findings that fail or leave unchecked."""
    edge: str
    right_edge: bool
    verdict: str
    floors: float | None
    """Largest difference from the healthy reference in noise floors; None where it gave no answers to the same inputs."""
    margins: float | None
    """The same over the smallest margin of a decision."""
    random: bool | None
    """``numpy.allclose`` on random inputs caught it; None where there was nothing to run it on."""
    golden: bool | None
    """``numpy.allclose`` on the golden inputs caught it."""
    seconds: float
    detail: str = ""
    """The finding or message that comes first."""


@dataclass(frozen=True)
class Skipped:
    """A fault that wasn't planted."""

    name: str
    family: str
    setup: str
    reason: str
    failed: bool
    """It has a place and could not be made; else this setup has no place for it."""


@dataclass(frozen=True)
class Score:
    """Counts over the faults that aren't equivalent."""

    faults: int
    caught: int
    right_edge: int
    """Of the caught ones."""
    random: int
    golden: int
    small: int
    """Not caught, and too small for the tolerance."""
    equivalent: int
    equivalent_alarms: int
    """Equivalent faults that the gate stopped all the same, by what it promises besides numbers and decisions."""

    @property
    def met(self) -> bool:
        """Every fault caught that isn't too small for the tolerance, and the right edge named for nearly all."""
        return self.caught > 0 and self.caught + self.small == self.faults and self.right_edge >= EDGE_SHARE * self.caught


@dataclass(frozen=True)
class Table:
    """A whole selftest."""

    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    setups: tuple[str, ...]
    seconds: float
    random_alarms: tuple[str, ...] = ()
    """Healthy targets that ``numpy.allclose`` on random inputs takes for faulty; each is a ``setup: runtime``."""
    golden_alarms: tuple[str, ...] = ()
    """The same on golden inputs."""

    @property
    def score(self) -> Score:
        """All rows."""
        return score(self.rows)

    @property
    def met(self) -> bool:
        """The targets are met, and no fault was lost on the way."""
        return self.score.met and not any(s.failed for s in self.skipped)


def score(rows: tuple[Row, ...]) -> Score:
    """Count."""
    real = [row for row in rows if not row.equivalent]
    return Score(
        faults=len(real),
        caught=sum(row.caught for row in real),
        right_edge=sum(row.caught and row.right_edge for row in real),
        random=sum(row.random is True for row in real),
        golden=sum(row.golden is True for row in real),
        small=sum(row.small and not row.caught for row in real),
        equivalent=len(rows) - len(real),
        equivalent_alarms=sum(row.caught for row in rows if row.equivalent),
    )


@dataclass(frozen=True)
class Healthy:
    """Healthy validations and what was wrongly said of them."""

    runs: int
    alarms: tuple[str, ...]
    """Setup, verdict and headline of each that didn't pass."""
    seconds: float
