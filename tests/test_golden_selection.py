"""Which inputs of a pool are chosen: never one twice, never one that proves nothing, the same ones for the same pool and seed."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kpipe.curating.selection import By, Candidate, Pick, select, shares

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

CLASSES, SLICES, TARGETS = "abc", ("", "night", "day"), ("litert", "openvino")


@st.composite
def pools(draw: st.DrawFn, least: int = 0) -> list[Candidate]:
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from(CLASSES),
                st.sampled_from(SLICES),
                st.one_of(st.sampled_from([0.0, 0.5]), st.floats(0, 1)),
                st.booleans(),
                st.sets(st.sampled_from(TARGETS)),
                st.sampled_from([0.0, 1e-6, 2e-6, math.inf]),
            ),
            min_size=least,
            max_size=25,
        )
    )
    return [
        Candidate(f"{i}.png", f"{i:064x}", part, decision, math.nan if not usable else margin, usable, tuple(sorted(flips)), drift, "litert")
        for i, (decision, part, margin, usable, flips, drift) in enumerate(rows)
    ]


strategies = st.lists(st.sampled_from(list(By)), min_size=1, max_size=3, unique=True)


def chosen(pool: Sequence[Candidate], wanted: dict[By, int], *, seed: int = 0, classes: dict[str, int] | None = None) -> list[Pick]:
    return select(pool, wanted, seed=seed, pool="POOL", classes=Counter(classes or {}), slices=Counter())


@given(st.integers(1, 500), strategies, st.booleans())
def test_shares_add_up(count: int, by: list[By], mixed: bool) -> None:
    by = sorted(by, key=list(By).index) if mixed else by
    by = [*by, By.COVERAGE] if mixed and By.COVERAGE not in by else by
    given_ = shares(count, by, mixed=mixed)
    assert list(given_) == by
    assert sum(given_.values()) == count
    assert min(given_.values()) >= 0
    assert mixed or max(given_.values()) - min(given_.values()) <= 1


@pytest.mark.parametrize(
    ("count", "by", "mixed", "expected"),
    [
        (8, (By.MARGIN, By.DISAGREEMENT, By.COVERAGE), True, (4, 2, 2)),
        (8, (By.MARGIN, By.COVERAGE), True, (4, 4)),
        (1, (By.MARGIN, By.DISAGREEMENT, By.COVERAGE), True, (1, 0, 0)),
        (6, (By.MARGIN, By.DISAGREEMENT, By.COVERAGE), True, (3, 2, 1)),
        (7, (By.MARGIN, By.COVERAGE), True, (4, 3)),
        (7, (By.COVERAGE, By.MARGIN), False, (4, 3)),
        (3, (By.DISAGREEMENT,), False, (3,)),
    ],
)
def test_the_mix_is_the_stated_one(count: int, by: tuple[By, ...], mixed: bool, expected: tuple[int, ...]) -> None:
    assert tuple(shares(count, by, mixed=mixed).values()) == expected


@given(pools(), st.integers(1, 30), strategies, st.integers(0, 3))
def test_choices_are_usable_distinct_and_as_many_as_there_can_be(pool: list[Candidate], count: int, by: list[By], seed: int) -> None:
    picks = chosen(pool, shares(count, by, mixed=False), seed=seed)
    assert all(pick.candidate.usable for pick in picks)
    assert len({pick.candidate.sha256 for pick in picks}) == len(picks)
    assert all(pick.by in by for pick in picks)
    usable = [c for c in pool if c.usable]
    eligible = usable if {By.MARGIN, By.COVERAGE} & set(by) else [c for c in usable if c.flipped or c.drift > 0]
    assert len(picks) == min(count, len(eligible))


@given(pools(), st.integers(1, 12), st.integers(0, 3), st.randoms(use_true_random=False))
def test_the_order_of_the_pool_changes_nothing(pool: list[Candidate], count: int, seed: int, shuffled: random.Random) -> None:
    wanted = shares(count, tuple(By), mixed=True)
    other = list(pool)
    shuffled.shuffle(other)
    assert chosen(pool, wanted, seed=seed) == chosen(other, wanted, seed=seed)


@given(pools(), st.integers(1, 12))
def test_by_margin_no_other_has_a_smaller_one(pool: list[Candidate], count: int) -> None:
    picks = chosen(pool, {By.MARGIN: count})
    taken = {pick.candidate.sha256 for pick in picks}
    margins = [pick.candidate.margin or 0.0 for pick in picks]
    assert margins == sorted(margins)
    assert all((c.margin or 0.0) >= max(margins) for c in pool if c.usable and c.sha256 not in taken)


@given(pools(), st.integers(1, 12))
def test_by_disagreement_flips_come_before_drifts_and_agreement_never(pool: list[Candidate], count: int) -> None:
    picks = chosen(pool, {By.DISAGREEMENT: count})
    ranks = [(len(pick.candidate.flipped), pick.candidate.drift) for pick in picks]
    assert ranks == sorted(ranks, reverse=True)
    assert all(rank > (0, 0.0) for rank in ranks)
    taken = {pick.candidate.sha256 for pick in picks}
    assert all((len(c.flipped), c.drift) <= min(ranks) for c in pool if c.usable and ranks and c.sha256 not in taken)


@given(pools(least=1), st.integers(1, 12), st.dictionaries(st.sampled_from(CLASSES), st.integers(0, 4)))
def test_by_coverage_each_is_of_the_class_that_is_rarest_then(pool: list[Candidate], count: int, held: dict[str, int]) -> None:
    counts, left = Counter(held), Counter(c.decision for c in pool if c.usable)
    for pick in chosen(pool, {By.COVERAGE: count}, classes=held):
        decision = pick.candidate.decision
        assert decision is not None
        assert counts[decision] == min(counts[name] for name in left if name is not None and left[name])
        counts[decision] += 1
        left[decision] -= 1


@given(pools(least=2))
def test_the_seed_draws_among_equals_by_content(pool: list[Candidate]) -> None:
    alike = [Candidate(c.name, c.sha256, "", "a", 0.5) for c in pool]
    assume(len(alike) > 4)
    first = {chosen(alike, {By.COVERAGE: 1}, seed=seed)[0].candidate.sha256 for seed in range(40)}
    assert len(first) > 1


def test_what_one_strategy_cannot_fill_goes_to_the_next() -> None:
    agreeing = [Candidate(f"{i}", f"{i:064x}", "", "a", i / 10) for i in range(6)]
    picks = chosen(agreeing, {By.MARGIN: 2, By.DISAGREEMENT: 2, By.COVERAGE: 1})
    assert [pick.by for pick in picks] == [By.MARGIN, By.MARGIN, By.COVERAGE, By.MARGIN, By.MARGIN]


def test_reasons_carry_values_and_the_pools_name() -> None:
    pool = [
        Candidate("a", "1" * 64, "night", "7", 0.0031),
        Candidate("b", "2" * 64, "", "7", 0.5, flipped=("litert", "openvino"), drift=0.25, drift_on="openvino"),
        Candidate("c", "3" * 64, "", "7", 0.6, drift=1e-3, drift_on="litert"),
        Candidate("d", "4" * 64, "day", "8", 0.7),
    ]
    why = {pick.candidate.name: pick.why for pick in chosen(pool, {By.MARGIN: 1, By.DISAGREEMENT: 2, By.COVERAGE: 1}, seed=3, classes={"8": 1})}
    assert why == {
        "a": "smallest margin 0.0031 of 4 in POOL",
        "b": "decided otherwise by litert, openvino; drift 0.25 of the output's scale of 4 in POOL",
        "c": "drift 0.001 of the output's scale on litert, among the largest of 4 in POOL",
        "d": "class '8' once and slice 'day' 0 times in the set before; drawn by seed 3 of 4 in POOL",
    }
