"""Is each input and output of a target the one that it is bound to? The permutation probe's answers, compared. Pure, over saved outputs.

For two inputs that could be exchanged the reference has answered both ways. Where its two answers are apart, a target that lies by the straight
one, four times nearer than the two are to each other, is proved; one that lies by the other is exchanged; anything else proves nothing. Where
they are the same, nobody can tell, and nothing depends on it. Outputs likewise: the reference's values under two names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.judging.grade import finding
from kpipe_stages.digest import digest
from kpipe_stages.permuting import MODE, exchanged_mode
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from kpipe.findings import Finding
    from kpipe.judging.answers import Answers
    from kpipe_stages.protocol import ProbeResult, RunResult

Array = np.ndarray[Any, np.dtype[Any]]
Column = list[Array]
"""One output's answers, a probe row each."""

SAME = 2.0**-20
"""Of the output's scale: what is nearer is the same, up to rounding."""
NEARER = 0.25
"""Of the distance between the two ways: what is as near to one of them is that one."""
LOOSE = 0.05
"""Of the scale: as near a target must be where the reference could not answer the other way at all."""
MOST_PAIRS = 4000


@dataclass
class Proof:
    """What the probe shows of one target, or of the model itself."""

    proved: int = 0
    """Pairs."""
    alike: list[str] = field(default_factory=list)
    """Pairs that can't be told apart, in words."""
    exchanged: list[str] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """For the record."""
        parts = [f"{self.proved} pairs of inputs or outputs proved" if self.proved != 1 else "1 pair of inputs or outputs proved"]
        parts += [f"{len(self.alike)} alike"] if self.alike else []
        parts += [f"{len(self.exchanged)} exchanged"] if self.exchanged else []
        parts += [f"{len(self.unproved)} not proved"] if self.unproved else []
        return ", ".join(parts)


def judge_binding(target: str, required: bool, answers: Answers, reference: Answers) -> tuple[str, list[Finding]]:
    """How far the target's binding is proved, in words, and KP231, KP233."""
    mine, theirs = answers.result.probe, reference.result.probe
    if theirs is None:
        return "", []
    if problem := _unanswered(mine, theirs):
        return "not proved", [
            finding("KP233", f"The binding of '{target}' is not proved: {problem}.", target=target, place="binding", required=required)
        ]
    assert mine is not None
    try:
        proof = _prove(columns(answers, mine, MODE), reference, theirs)
    except (OSError, ValueError, LookupError) as error:
        return "not proved", [
            finding("KP233", f"The probe's answers can't be read back: {error}.", target=target, place="binding", required=required)
        ]
    found = [finding("KP231", f"{told}.", target=target, place="binding", required=required) for told in proof.exchanged]
    if proof.unproved:
        cause = f"The binding of '{target}' is not proved for {_few(proof.unproved)}."
        found.append(finding("KP233", cause, target=target, place="binding", required=required))
    return proof.sentence(), found


def alike(reference: Answers) -> list[Finding]:
    """KP232: what can't be told apart by anybody, because the model itself doesn't."""
    probe = reference.result.probe
    if probe is None or probe.failed.get(MODE):
        return []
    try:
        proof = _prove(columns(reference, probe, MODE), reference, probe)
    except (OSError, ValueError, LookupError):
        return []  # each target says that it isn't proved
    return [finding("KP232", f"{told}.", place="binding") for told in proof.alike[:5]]


def narrower(result: RunResult, target: str, *, required: bool = True) -> list[Finding]:
    """KP234: inputs that the runtime computes with in a smaller integer than the model declares."""
    declared = {spec.name: spec.dtype for spec in result.signature.inputs}
    found = []
    for name, dtype in result.takes.items():
        cause = f"'{target}' computes with input '{name}' as {dtype}; the model declares {declared[name]}. The golden values fit."
        found.append(finding("KP234", cause, target=target, place=name, required=required, narrower=dtype))
    return found


def _unanswered(mine: ProbeResult | None, theirs: ProbeResult) -> str:
    if reason := theirs.failed.get(MODE):
        return f"the reference did not answer the probe: {reason}"
    if mine is None:
        return "it was not asked the probe"
    if reason := mine.failed.get(MODE):
        return f"it did not answer the probe: {reason}"
    if mine.inputs_sha256 != theirs.inputs_sha256:
        return "it was fed other rows than the reference"
    return ""


def columns(answers: Answers, probe: ProbeResult, mode: str) -> dict[str, Column]:
    """Output name to its answers in one mode of the probe.

    Raises:
        OSError: they are gone.
        ValueError: they were altered, or some are missing.
    """
    folder = answers.folder / "outputs" / mode
    if (found := digest(folder)) != probe.digests.get(mode):
        raise ValueError(f"{folder} was altered: its digest is {found}")
    result = {name: list(Rows(folder / str(position))) for position, name in enumerate(answers.outputs)}
    if any(len(column) != probe.rows for column in result.values()):
        raise ValueError(f"{folder} doesn't hold {probe.rows} rows")
    return result


def _prove(mine: dict[str, Column], reference: Answers, probe: ProbeResult) -> Proof:
    straight = columns(reference, probe, MODE)
    proof = Proof()
    names = [spec.name for spec in reference.result.signature.inputs]
    pairs = [pair for group in probe.groups for pair in combinations(group, 2)]
    for one, other in pairs[: len(pairs) - probe.left]:
        mode = exchanged_mode(names.index(one), names.index(other))
        other_way = None if probe.failed.get(mode) else columns(reference, probe, mode)
        _inputs(proof, (one, other), mine, straight, other_way, unvaried=(one, other) in probe.same)
    proof.unproved += [f"inputs '{one}' and '{other}' (too many pairs to try)" for one, other in pairs[len(pairs) - probe.left :]]
    for one, other in list(combinations(straight, 2))[:MOST_PAIRS]:
        if one in mine and other in mine and _could_be(straight[one], straight[other]):
            _outputs(proof, (one, other), mine, straight)
    return proof


def _inputs(
    proof: Proof, pair: tuple[str, str], mine: dict[str, Column], straight: dict[str, Column], other_way: dict[str, Column] | None, *, unvaried: bool
) -> None:
    words = f"inputs '{pair[0]}' and '{pair[1]}'"
    near = _apart(mine, straight)
    if unvaried:
        proof.unproved.append(f"{words} (the golden inputs hold one and the same value for both)")
    elif other_way is None:
        (proof.unproved.append(words) if near > LOOSE else _count(proof))
    elif (between := _apart(straight, other_way)) <= SAME:
        proof.alike.append(f"The model gives the same answers with {words} exchanged: which is which can't be told from them")
    elif near <= NEARER * between:
        _count(proof)
    elif _apart(mine, other_way) <= NEARER * between:
        proof.exchanged.append(f"I{words[1:]} are exchanged: given the values of one in the other, it answers as the model does the other way round")
    else:
        proof.unproved.append(words)


def _outputs(proof: Proof, pair: tuple[str, str], mine: dict[str, Column], straight: dict[str, Column]) -> None:
    one, other = pair
    words = f"outputs '{one}' and '{other}'"
    scale = _scale([*straight[one], *straight[other]])
    between = _distance(straight[one], straight[other], scale)
    right = max(_distance(mine[name], straight[name], scale) for name in pair)
    if between <= SAME:
        proof.alike.append(f"The model gives the same values for {words}")
    elif right <= NEARER * between:
        _count(proof)
    elif max(_distance(mine[one], straight[other], scale), _distance(mine[other], straight[one], scale)) <= NEARER * between:
        proof.exchanged.append(f"O{words[1:]} are exchanged: each gives the numbers that the model gives under the other name")
    else:
        proof.unproved.append(words)


def _count(proof: Proof) -> None:
    proof.proved += 1


def _could_be(left: Column, right: Column) -> bool:
    return all(a.shape == b.shape and a.dtype.kind == b.dtype.kind for a, b in zip(left, right, strict=True))


def _apart(left: dict[str, Column], right: dict[str, Column]) -> float:
    """The largest distance of any output, of its scale; infinite where one is missing."""
    if set(left) != set(right):
        return float("inf")
    return max((_distance(left[name], right[name], _scale(right[name])) for name in right), default=0.0)


def _scale(column: Column) -> float:
    finite = [np.abs(a[np.isfinite(a)].astype(np.float64)).max(initial=0.0) for a in column if a.dtype.kind == "f"]
    return float(max(finite, default=0.0))


def _distance(left: Column, right: Column, scale: float) -> float:
    """Largest difference over ``scale``; 1 where what isn't floating point, or isn't finite, differs at all."""
    worst = 0.0
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape or "U" in {a.dtype.kind, b.dtype.kind} or "f" not in {a.dtype.kind, b.dtype.kind}:
            worst = max(worst, 0.0 if a.shape == b.shape and bool((a == b).all()) else 1.0)
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        both = np.isfinite(x) & np.isfinite(y)
        if not np.array_equal(x[~both], y[~both], equal_nan=True):
            return 1.0
        gap = float(np.abs(x[both] - y[both]).max(initial=0.0))
        worst = max(worst, gap / scale if scale else float(gap > 0))
    return worst


def _few(words: list[str]) -> str:
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")  # noqa: PLR2004 - as sliced
