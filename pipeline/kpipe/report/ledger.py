"""The flips, gathered by golden input: what the reference decided, what each target decided instead, who is right."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.record import Flip
from kpipe.report import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kpipe.record import GoldenRow, RunRecord

SHOWN_SCORES = 4


@dataclass(frozen=True)
class Bar:
    """One element of the score vector, reference beside target. Widths are per cent of the longest bar."""

    label: str
    reference: str
    target: str
    reference_width: float
    target_width: float


@dataclass(frozen=True)
class Outcome:
    """One wrong decision, by every target and mode that made it."""

    got: str
    where: tuple[str, ...]
    """``openvino (alone, batch_3)``."""
    drift: float
    """The largest of them."""
    right: str
    """What the approved decision or the label says; empty where neither is known."""
    required: bool
    tie: bool
    worst: Flip
    """The one with the largest drift."""

    @property
    def bars(self) -> tuple[Bar, ...]:
        """The scores that matter; made when asked for, since most outcomes of a large ledger are only a line."""
        return _bars(self.worst)

    @property
    def scores_kept(self) -> int:
        """How many scores the record holds; a long vector's tail is not in it."""
        return max(len(self.worst.reference_scores), len(self.worst.target_scores))


@dataclass(frozen=True)
class Entry:
    """One golden input on which something flipped, by one rule."""

    input: str
    file: str
    slice: str
    reference: str
    expected: str | None
    label: str | None
    margin: float
    required: bool
    """A required target flips it."""
    tie: bool
    """Every flip of it is a tie."""
    rule: str
    """The decision rule's name; empty for the only one."""
    outcomes: tuple[Outcome, ...]

    @property
    def by_rule(self) -> str:
        """``quality: `` before what that rule decides."""
        return f"{self.rule}: " if self.rule else ""

    @property
    def brief(self) -> str:
        """``8: openvino (alone); 3: litert (alone)``."""
        return "; ".join(f"{o.got}: {text.listing(o.where)}" for o in self.outcomes)


def entries(record: RunRecord) -> list[Entry]:
    """Every input with a flip, once for each rule that flips it: required before not required, real before tied, the largest margin (the worst flip) first."""
    by_input: dict[tuple[str, str], list[Flip]] = {}
    for flip in record.flips:
        by_input.setdefault((flip.input, flip.rule), []).append(flip)
    files = {row.id: row.file for row in record.golden.rows}
    found = [_entry(flips, files.get(name, "")) for (name, _), flips in by_input.items()]
    return sorted(found, key=lambda e: (not e.required, e.tie, -text.badness(e.margin), e.input, e.rule))


def _entry(flips: list[Flip], file: str) -> Entry:
    first = flips[0]
    by_decision: dict[str, list[Flip]] = {}
    for flip in flips:
        by_decision.setdefault(flip.got, []).append(flip)
    return Entry(
        input=first.input,
        file=file,
        slice=first.slice,
        reference=first.reference,
        expected=first.expected,
        label=first.label,
        margin=first.margin,
        required=any(f.required for f in flips),
        tie=all(f.tie for f in flips),
        rule=first.rule,
        outcomes=tuple(_outcome(group) for group in by_decision.values()),
    )


def _outcome(flips: list[Flip]) -> Outcome:
    modes: dict[str, list[str]] = {}
    for flip in flips:
        modes.setdefault(flip.target, []).append(flip.mode)
    worst = max(flips, key=lambda f: text.badness(f.drift))
    return Outcome(
        got=worst.got,
        where=tuple(f"{target} ({text.listing(dict.fromkeys(names))})" for target, names in modes.items()),
        drift=worst.drift,
        right=_right(worst),
        required=any(f.required for f in flips),
        tie=all(f.tie for f in flips),
        worst=worst,
    )


def _right(flip: Flip) -> str:
    """Who is right: the approved decision decides, else the label."""
    for kind, truth in (("approved decision", flip.expected), ("label", flip.label)):
        if truth is not None:
            return f"{_SIDES[flip.right or _by_text(flip, truth)]} by the {kind} {text.shorten(truth, 40)}"
    return ""


_SIDES = {"reference": "the reference is right", "target": "the target is right", "both": "both are right", "neither": "both are wrong"}


def _by_text(flip: Flip, truth: str) -> str:
    """Who is right in a record from before flips said so: decisions were text then."""
    return "reference" if truth == flip.reference else "target" if truth == flip.got else "neither"


def _bars(flip: Flip) -> tuple[Bar, ...]:
    """The elements with the largest scores on either side, in the order of the reference's scores."""
    reference, target = flip.reference_scores, flip.target_scores
    length = max(len(reference), len(target))
    pairs = [(i, _at(reference, i), _at(target, i)) for i in range(length)]
    top = sorted(pairs, key=lambda p: -max(_order(p[1]), _order(p[2])))[:SHOWN_SCORES]
    finite = [abs(v) for _, a, b in pairs for v in (a, b) if v is not None and math.isfinite(v)]
    longest = max(finite, default=0.0) or 1.0
    shown = sorted(top, key=lambda p: -_order(p[1]))
    return tuple(Bar(f"[{i}]", _score(a), _score(b), _width(a, longest), _width(b, longest)) for i, a, b in shown)


def _at(scores: tuple[float, ...], index: int) -> float | None:
    """A score, or None where that side has none: a shorter vector must stay visible."""
    return scores[index] if index < len(scores) else None


def _order(value: float | None) -> float:
    return -math.inf if value is None else text.badness(value)


def _score(value: float | None) -> str:
    return "missing" if value is None else text.score(value)


def _width(value: float | None, longest: float) -> float:
    return 0.0 if value is None or not math.isfinite(value) else round(min(100.0, abs(value) / longest * 100), 2)


@dataclass(frozen=True)
class Histogram:
    """How often each word was seen, the rarest last."""

    rows: tuple[tuple[str, int, float], ...]
    """Word, count, per cent of the most frequent."""
    left_out: int


def histogram(counts: dict[str, int], limit: int) -> Histogram:
    """The ``limit`` most frequent words; how many more there are is kept."""
    top = max(counts.values(), default=0) or 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Histogram(tuple((word, n, round(n / top * 100, 1)) for word, n in ordered[:limit]), max(0, len(ordered) - limit))


def rows_worth_showing(rows: Iterable[GoldenRow], flipped: set[str], limit: int) -> list[GoldenRow]:
    """The inputs on which something is wrong, then those with the smallest margins."""
    ordered = sorted(rows, key=lambda r: (not wrong(r, flipped), -math.inf if math.isnan(r.margin) else r.margin, r.id))
    return ordered[:limit]


def wrong(row: GoldenRow, flipped: set[str]) -> bool:
    """A target flips it, or the reference decides otherwise than approved."""
    return row.id in flipped or unapproved(row)


def unapproved(row: GoldenRow) -> bool:
    """The reference decides otherwise than approved, by any rule; records from before rows said so have decisions of text."""
    return not row.approved if row.approved is not None else row.expected is not None and row.expected != row.decision


def told(row: GoldenRow, what: str) -> str:
    """The ``decision``, ``expected``, ``label`` or ``margin`` of a row, by every rule that has a name; `text.ABSENT` where there is none."""

    def word(value: str | float | None) -> str:
        return text.ABSENT if value is None else text.number(value) if isinstance(value, float) else value

    if not row.rules:
        return word(getattr(row, what))
    return "; ".join(f"{rule.rule}: {word(getattr(rule, what))}" for rule in row.rules)


def flips_by_target(record: RunRecord) -> list[tuple[str, int, int]]:
    """Target, inputs with a real flip in any mode, inputs that only flip on tied scores."""
    real = {(f.target, f.input) for f in record.flips if not f.tie}
    tied = {(f.target, f.input) for f in record.flips if f.tie} - real
    counts, ties = Counter(target for target, _ in real), Counter(target for target, _ in tied)
    return [(t.name, counts[t.name], ties[t.name]) for t in record.targets if counts[t.name] or ties[t.name]]
