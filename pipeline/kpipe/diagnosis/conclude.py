"""From what was seen to what is said. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kpipe.diagnosis.result import DIAGNOSIS_VERSION, Diagnosis, Fusion, Outcome
from kpipe.diagnosis.subject import Choice, Subject
from kpipe.judging.answers import ALONE, Answers
from kpipe.judging.floor import K
from kpipe.judging.layers import LayerDrift, Standing, first_to_leave, reference_leaves
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.cutting.orders import CutResult, Point

NAMED = 6
"""Layers that a sentence lists."""


@dataclass
class Seen:
    """What the passes left, filled in as they end."""

    subject: Subject
    choice: Choice
    notes: list[str]
    cut: CutResult | None = None
    reference: Answers | None = None
    """The candidate itself on the reference's backend."""
    inside: Answers | None = None
    """The cut model there."""
    truth: Answers | None = None
    precision: str = "float32"
    before: float | None = None
    """The largest drift of the target's own outputs, in floors."""
    after: float | None = None
    own: float | None = None
    """The same of what kpipe exports, where the target's artifact was handed in."""
    rows: tuple[LayerDrift, ...] = ()
    fusion: Fusion | None = None
    untold: str = ""

    @property
    def baseline(self) -> float | None:
        """The drift that exposing outputs may have changed: of what kpipe itself exports."""
        return self.own if self.subject.plan.provided else self.before

    @property
    def fused(self) -> bool:
        """The fault is there without, and gone with, the layers' outputs exposed."""
        return self.baseline is not None and self.after is not None and self.baseline >= K > self.after and first_to_leave(self.rows) is None


def conclude(seen: Seen) -> Diagnosis:
    """What can be said, in one sentence and one of what to do."""
    outcome, sentence, remedy, layer = _say(seen)
    subject = seen.subject
    return Diagnosis(
        version=DIAGNOSIS_VERSION,
        run=str(subject.run),
        target=subject.plan.name,
        runtime=subject.plan.runtime,
        mode=seen.choice.mode,
        inputs=tuple(subject.ids[row] for row in seen.choice.rows),
        outcome=outcome,
        sentence=sentence,
        remedy=remedy,
        before_cut=seen.before,
        after_cut=seen.after,
        layer=layer,
        layers=seen.rows,
        notes=tuple(seen.notes),
        fusion=seen.fusion,
        reproducer=None,
        seconds=0.0,
    )


Said = tuple[Outcome, str, str, LayerDrift | None]


def _say(seen: Seen) -> Said:
    if seen.subject.plan.provided and seen.before is not None and seen.own is not None and (found := _handed_in(seen)) is not None:
        return found
    if seen.untold:
        return Outcome.UNTOLD, f"It can't be told which layer differs: {seen.untold.rstrip('.')}.", "Mend what it names, and diagnose again.", None
    if (unknown := next((row for row in seen.rows if row.standing is Standing.UNKNOWN), None)) is not None:
        return Outcome.UNTOLD, f"It can't be told which layer differs: {_named(unknown, small=True)} can't be compared: {unknown.why}.", "", unknown
    if (row := reference_leaves(seen.rows)) is not None:
        return _reference(seen, row)
    if seen.fusion is not None:
        return _fusion(seen, seen.fusion)
    return _layer(seen)


def _layer(seen: Seen) -> Said:
    row, target = first_to_leave(seen.rows), seen.subject.plan.name
    if row is None:
        if any(one.standing is not Standing.AGREES for one in seen.rows) or seen.before is None or seen.before >= K:
            return Outcome.UNTOLD, f"It can't be told which layer differs: {target} is off and no layer's output says where it begins.", "", None
        count = len(seen.rows)
        sentence = f"Nothing differs: all {count} outputs inside the model are within {K:g} floors of the reference on {target}."
        return Outcome.NOTHING, sentence, "Look at the preprocessing or the decision rule if the run has failed.", None
    if seen.baseline is not None and seen.baseline < K and seen.after is not None and seen.after >= K:
        sentence = (
            f"It can't be told which layer differs: {target} agrees as it is ({seen.baseline:.3g} floors), and differs only once the layers' outputs "
            f"are exposed ({_times(seen.after)}), first at {_named(row, small=True)}."
        )
        return Outcome.UNTOLD, sentence, "Report it to the runtime with the exported artifact; the model that ships is not touched by it.", row
    calm = "" if seen.baseline is None or seen.baseline >= K else f" The model's own outputs agree all the same ({seen.baseline:.3g} floors)."
    others = [one for one in seen.rows if one.standing is Standing.LEAVES and one is not row]
    more = f" {len(others)} more begin on their own: {', '.join(one.layer for one in others[:NAMED])}." if others else ""
    return (
        Outcome.NAMED,
        f"{_leaves(seen, row)}{calm}{more}",
        f"Look at {_named(row, small=True)} in the reproducer, replace it, or report it to the runtime.",
        row,
    )


def _leaves(seen: Seen, row: LayerDrift) -> str:
    assert row.drift is not None
    drift, target = row.drift, seen.subject.plan.name
    golden = seen.subject.ids[seen.choice.rows[drift.row]]
    found = drift.detail or f"{drift.target:.6g} where the reference has {drift.reference:.6g}, at element {list(drift.element)}"
    amounts = {"unequal": "it has to be equal, and isn't", "shape": "another shape", "nonfinite": "a number on one side only"}
    amount = amounts.get(drift.problem) or f"{_times(drift.floors)}, where {K:g} are allowed"
    mode = "" if seen.choice.mode == ALONE else f" in mode '{seen.choice.mode}'"
    assert seen.cut is not None
    first = set(_point(seen, row.point).inputs) <= set(seen.cut.inputs)
    before = "it reads the model's inputs" if first else f"what it reads agrees ({row.before:.2g} floors)"
    return f"{_named(row)} is the first whose output leaves the reference on {target}{mode}: {amount}; worst on input '{golden}': {found}; {before}."


def _point(seen: Seen, name: str) -> Point:
    assert seen.cut is not None
    return next(point for point in seen.cut.points if point.name == name)


def _reference(seen: Seen, row: LayerDrift) -> Said:
    assert row.drift is not None
    target, backend = seen.subject.plan.name, RUNTIMES[seen.subject.evidence.reference.runtime].title
    differs = row.standing is not Standing.AGREES
    target = f"{target} differs there, and may be right" if differs else f"{target} agrees with it there"
    sentence = f"The reference itself ({backend}) leaves its float64 run at {_named(row, small=True)}, by more than rounding explains; {target}."
    return Outcome.REFERENCE, sentence, "Compare the reference's backend with TensorFlow first: a wrong reference can't judge a target.", row


def _fusion(seen: Seen, fusion: Fusion) -> Said:
    target = seen.subject.plan.name
    names = ", ".join(f"'{name}'" for name in fusion.hides[:NAMED]) + (" ..." if len(fusion.hides) > NAMED else "")
    smallest = (
        "is enough for that" if fusion.complete else f"still hides it; time ran out after {fusion.trials} trials before a smaller set was known"
    )
    still = f" With all other outputs exposed it shows first at '{fusion.still_shows[0]}'." if fusion.still_shows else ""
    before, after = _times(seen.baseline or 0.0), f"{seen.after:.3g}" if seen.after is not None else "?"
    sentence = (
        f"No layer by itself differs on {target}: with the layers' outputs exposed it agrees ({before} before, {after} floors now). It is a fusion or "
        f"an optimisation across layers. Exposing the output of {names} {smallest}.{still}"
    )
    return Outcome.FUSION, sentence, "Give that layer's output as an output of the model, or turn the runtime's optimisation off.", None


def _handed_in(seen: Seen) -> Said | None:
    """What a handed-in artifact and kpipe's own export say of each other; None where the search has to say more."""
    assert seen.before is not None and seen.own is not None  # noqa: PT018 - the caller has looked
    target, path = seen.subject.plan.name, seen.subject.plan.provided
    if seen.before >= K > seen.own:
        sentence = (
            f"The artifact that was handed in for {target} differs ({_times(seen.before)}), and the one that kpipe exports of the same candidate "
            f"doesn't ({seen.own:.3g} floors): it is the file ({path}) that is off, not a layer on this runtime."
        )
        return Outcome.HANDED_IN, sentence, "Export it again from this candidate, or compare how it was converted.", None
    if seen.own >= K > seen.before:
        sentence = (
            f"The artifact that was handed in for {target} agrees ({seen.before:.3g} floors), and the one that kpipe exports differs "
            f"({_times(seen.own)}); what ships is the file that was handed in."
        )
        return Outcome.HANDED_IN, sentence, "Nothing has to be done for this target.", None
    if seen.before >= K:
        seen.notes.append("The artifact that was handed in differs, and so does the one that kpipe exports; the layers are those of kpipe's export.")
    return None


def _named(row: LayerDrift, *, small: bool = False) -> str:
    return f"{'l' if small else 'L'}ayer '{row.layer}' ({row.class_name})"


def _times(floors: float) -> str:
    return "more than floors can tell" if math.isinf(floors) else f"{floors:.3g} floors"
