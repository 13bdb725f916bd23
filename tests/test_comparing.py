"""Comparing, the pure part: McNemar's exact test, pairing by bytes, the three-valued policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from kpipe.comparing.decisions import both_sides, tallies
from kpipe.comparing.mcnemar import p_value
from kpipe.comparing.pairing import Row, pair
from kpipe.comparing.policy import check, check_policy
from kpipe.comparing.subject import Decided
from kpipe.comparison import Answer
from kpipe.contract import parse_contract
from kpipe.errors import ContractError
from kpipe.golden import GoldenInput, GoldenSet
from kpipe_stages.decisions import Decision
from kpipe_stages.protocol import DecisionSpec

# ---------------------------------------------------------------- McNemar


@given(st.integers(0, 400), st.integers(0, 400))
def test_the_p_value_is_the_exact_binomial_one(lost: int, won: int) -> None:
    expected = binomtest(lost, lost + won, 0.5).pvalue if lost + won else 1.0
    assert p_value(lost, won) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert p_value(lost, won) == p_value(won, lost)
    assert 0 < p_value(lost, won) <= 1


@given(st.integers(0, 60), st.integers(0, 60))
def test_one_more_lost_makes_a_loss_less_likely_by_chance(lost: int, more: int) -> None:
    if lost >= more:
        assert p_value(lost + 1, more) <= p_value(lost, more)


def test_known_values() -> None:
    assert p_value(0, 0) == 1.0
    assert p_value(5, 5) == 1.0
    assert p_value(6, 0) == 2 / 64
    assert p_value(10, 1) == 2 * (1 + 11) / 2**11
    assert p_value(3000, 2000) > 0  # beyond float64's own powers of two
    with pytest.raises(ValueError, match="no numbers of inputs"):
        p_value(-1, 2)


# ---------------------------------------------------------------- pairing


def golden(name: str, data: str, *, slice_: str = "", expected: str | None = None, label: str | None = None) -> GoldenInput:
    return GoldenInput(name, {"x": f"/somewhere/{name}"}, {"x": data}, name, label, expected, slice_, "sampled")


def a_set(*inputs: GoldenInput, kind: str = "raw") -> GoldenSet:
    return GoldenSet(kind, "/somewhere", "somewhere", "m", inputs)


FILES = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(("", "easy", "hard"))), max_size=14)


@given(FILES, FILES)
def test_every_entry_is_paired_or_listed(before: list[tuple[str, str]], now: list[tuple[str, str]]) -> None:
    old = a_set(*(golden(f"old-{i}", data, slice_=name) for i, (data, name) in enumerate(before)))
    new = a_set(*(golden(f"new-{i}", data, slice_=name) for i, (data, name) in enumerate(now)))
    found = pair(old, new)
    shared = {data for data, _ in before} & {data for data, _ in now}
    assert found.inputs.shared == len(found.rows) == len(shared)
    assert all(before[row.before][0] == now[row.now][0] for row in found.rows)
    assert set(found.inputs.only_before) == {f"old-{i}" for i, (data, _) in enumerate(before) if data not in shared}
    assert set(found.inputs.only_now) == {f"new-{i}" for i, (data, _) in enumerate(now) if data not in shared}
    assert found.inputs.shared + found.inputs.repeated + len(found.inputs.only_now) == len(now)
    for row in found.rows:
        data = now[row.now][0]
        assert set(row.slices) == {name for part in (before, now) for known, name in part if known == data and name}
    assert sum(found.slices_alone.values()) == len(found.inputs.only_before) + len(found.inputs.only_now)


def test_names_mean_nothing_and_bytes_everything() -> None:
    found = pair(a_set(golden("same", "1"), golden("moved", "2")), a_set(golden("renamed", "2"), golden("same", "3")))
    assert [(row.before, row.now) for row in found.rows] == [(1, 0)]
    assert found.inputs.only_before == ("same",)
    assert found.inputs.only_now == ("same",)


def test_made_up_inputs_are_never_paired() -> None:
    made_up = a_set(golden("a", "1"), kind="synthetic")
    assert pair(made_up, made_up).inputs.only_now == ("a",)


def test_rows_of_one_file_are_told_apart_and_its_place_does_not_matter() -> None:
    def rows(folder: str, count: int) -> GoldenSet:
        return a_set(*(replace(golden(f"row-{i}", "1"), files={"x": f"/{folder}/a.npz#x#{i}"}) for i in range(count)), kind="arrays")

    found = pair(rows("there", 3), rows("here", 2))
    assert [(row.before, row.now) for row in found.rows] == [(0, 0), (1, 1)]
    assert found.inputs.only_before == ("row-2",)


# ---------------------------------------------------------------- decisions

SPEC = DecisionSpec(rule="argmax", output="y")


def decided(values: str, spec: DecisionSpec = SPEC) -> Decided:
    return Decided(spec, tuple(Decision(value, 0, 0.1, (), tied=False) for value in values))


@given(st.lists(st.tuples(*[st.sampled_from("ab")] * 3, st.sampled_from(("", "s")), st.booleans()), max_size=30))
def test_tallies_count_what_is_there(cases: list[tuple[str, str, str, str, bool]]) -> None:
    inputs = [golden(str(i), str(i), label=truth if known else None) for i, (_, _, truth, _, known) in enumerate(cases)]
    rows = [Row(i, i, (name,) if name else ()) for i, (_, _, _, name, _) in enumerate(cases)]
    sides = (decided("".join(case[i] for case in cases)) for i in (0, 1))
    found = tallies("", both_sides(*sides, rows, inputs))
    for one in found:
        mine = [case for case in cases if not one.slice or case[3] == one.slice]
        known = [case for case in mine if case[4]]
        assert (one.inputs, one.known) == (len(mine), len(known))
        assert one.changed == sum(a != b for a, b, *_ in mine)
        assert one.right_before == sum(a == truth for a, _, truth, *_ in known)
        assert one.right_now == sum(b == truth for _, b, truth, *_ in known)
        assert one.right_before - one.right_now == one.only_before - one.only_now
    assert {one.slice for one in found} == {"", *(case[3] for case in cases)}


def test_the_approved_decision_comes_before_the_label() -> None:
    ((line, differs),) = both_sides(decided("a"), decided("b"), [Row(0, 0, ())], [golden("i", "1", expected="b", label="a")])
    assert differs
    assert (line.truth, line.right) == ("b", "now")


def test_rules_of_two_kinds_are_compared_by_what_the_product_is_told() -> None:
    numbers = DecisionSpec(rule="bins", output="y", edges=(1.0,), labels=("a", "b"))
    pairs = both_sides(decided("ab", numbers), decided("aa"), [Row(0, 0, ()), Row(1, 1, ())], [golden("i", "1"), golden("j", "2")])
    assert [differs for _, differs in pairs] == [False, True]


# ---------------------------------------------------------------- policy


@given(st.floats(0, 1), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_a_rule_is_answered_only_where_every_case_answers_alike(allowed: float, changed: int, same: int, unchecked: int) -> None:
    inputs = changed + same
    one = check("max_changed", allowed, changed, inputs, unchecked)
    total = inputs + unchecked
    worlds = {(changed + more) <= allowed * total for more in range(unchecked + 1)}
    if not inputs:
        assert one.answer is Answer.UNCHECKED
    elif worlds == {True}:
        assert one.answer is Answer.HOLDS
    elif worlds == {False}:
        assert one.answer is Answer.BROKEN
    else:
        assert one.answer is Answer.UNCHECKED


COMPARE = "[compare]\nmax_changed = 0.5\nslices = { critical = 0.0, typo = 0.0 }\n"


def test_a_slice_that_nobody_has_proves_nothing() -> None:
    table = parse_contract(COMPARE, "c").compare
    lines = both_sides(decided("aab"), decided("aaa"), [Row(i, i, ("critical",) if i == 2 else ()) for i in range(3)], [golden(n, n) for n in "xyz"])
    changed = [line for line, differs in lines if differs]
    checks = {one.rule: one for one in check_policy(table, changed, tallies("", lines), 0, {}, 0)}
    assert checks["max_changed"].answer is Answer.HOLDS
    assert checks["slices.critical"].answer is Answer.BROKEN
    assert checks["slices.typo"].answer is Answer.UNCHECKED
    undecided = {one.rule: one.answer for one in check_policy(table, changed, tallies("", lines), 0, {}, 1)}
    assert undecided == {"max_changed": Answer.UNCHECKED, "slices.critical": Answer.BROKEN, "slices.typo": Answer.UNCHECKED}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[compare]\n", "compare is empty; expected max_changed or slices"),
        ("[compare]\nmax_changed = 1.5\n", "compare.max_changed is 1.5"),
        ("[compare]\nmax_change = 0.5\n", "did you mean 'max_changed'"),
        ("[compare]\nslices = { a = -1.0 }\n", "compare.slices.a is -1.0"),
    ],
)
def test_a_policy_that_says_nothing_or_nonsense_is_refused(text: str, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        parse_contract(text, "c")
