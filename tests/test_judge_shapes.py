"""What the judge makes of shapes that were tried, over answers written by hand: nothing that is owed can go missing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe.axes import shape_cases
from kpipe.contract import parse_contract
from kpipe.judging.shapes import ShapeQuestion, Tried, judge_shapes, reference_findings
from kpipe.record import ShapeStatus, Tolerance
from kpipe_stages.digest import digest
from kpipe_stages.protocol import ShapeCase, ShapeOutcome, Signature, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.contract import Contract

SIGNATURE = Signature((TensorSpec("seq", (None, None), "float32"),), (TensorSpec("y", (None, 2), "float32"),))
RANGES = "[axes]\ntime = { min = 1, typical = 4, max = 9 }\n"


def contract(text: str = RANGES) -> Contract:
    return parse_contract(text, "kpipe.toml")


def tried(folder: Path, cases: tuple[ShapeCase, ...], shift: float = 0.0, **changes: Any) -> Tried:
    """One worker's answers: ``y`` is the batch's row numbers, plus ``shift``."""
    done = {}
    for position, case in enumerate(cases):
        place = folder / "shapes" / str(position)
        place.mkdir(parents=True)
        values = np.arange(case.batch * 2, dtype=np.float32).reshape(case.batch, 2) + np.float32(shift)
        np.save(place / "0.npy", values)
        (place / "0.dtype").write_text("float32", encoding="utf-8")
        done[case] = (
            position,
            ShapeOutcome(
                case,
                offered=True,
                refused="",
                source="cut",
                first_s=0.001,
                again_s=0.001,
                shapes={"y": values.shape},
                inputs_sha256="fed",
                digest=digest(place),
            ),
        )
    return replace(Tried(folder, done, "", "", due=True), **changes)


def ask(target: Tried, reference: Tried | None, text: str = RANGES) -> ShapeQuestion:
    tolerance = Tolerance(rtol=1e-4, atol=1e-5, source="default")
    required = True
    return ShapeQuestion("t", required, contract(text), SIGNATURE, ("y",), ("y",), target, reference, {"y": tolerance}, {"y": "float32"})


@pytest.fixture
def cases() -> tuple[ShapeCase, ...]:
    return shape_cases(contract(), SIGNATURE, "")


def codes(question: ShapeQuestion) -> set[tuple[str, str]]:
    return {(f.code, f.place) for f in judge_shapes(question)[1]}


def test_what_agrees_works(tmp_path: Path, cases: tuple[ShapeCase, ...]) -> None:
    rows, findings = judge_shapes(ask(tried(tmp_path / "t", cases), tried(tmp_path / "r", cases)))
    assert {row.status for row in rows} == {ShapeStatus.WORKS}
    assert findings == []


def test_other_numbers_fail_where_they_are_owed(tmp_path: Path, cases: tuple[ShapeCase, ...]) -> None:
    question = ask(tried(tmp_path / "t", cases, shift=0.5), tried(tmp_path / "r", cases))
    assert codes(question) == {("KP241", case.name) for case in cases if case.batch}  # an empty answer has no number to differ


def test_each_way_of_having_no_answer_is_said(tmp_path: Path, cases: tuple[ShapeCase, ...]) -> None:
    reference = tried(tmp_path / "r", cases)
    whole = tried(tmp_path / "t", cases)
    first = next(iter(whole.done))
    position, outcome = whole.done[first]
    changed = {
        "refused": ({**whole.done, first: (position, replace(outcome, refused="RuntimeError: no"))}, "KP241"),
        "gone": ({case: found for case, found in whole.done.items() if case != first}, "KP242"),
        "altered": ({**whole.done, first: (position, replace(outcome, digest="other"))}, "KP242"),
        "fed otherwise": ({**whole.done, first: (position, replace(outcome, inputs_sha256="other"))}, "KP242"),
    }
    for word, (done, code) in changed.items():
        assert codes(ask(replace(whole, done=done), reference)) == {(code, first.name)}, word
    assert {code for code, _ in codes(ask(whole, None))} == {"KP242"}


def test_a_worker_that_died_leaves_what_comes_after_unchecked(tmp_path: Path, cases: tuple[ShapeCase, ...]) -> None:
    done = dict(list(tried(tmp_path / "t", cases).done.items())[:2])
    lost = Tried(tmp_path / "t", done, cases[2].name, "the worker ended: Killed", due=True)
    rows, findings = judge_shapes(ask(lost, tried(tmp_path / "r", cases)))
    assert [row.status for row in rows[2:]] == [ShapeStatus.UNCHECKED] * (len(cases) - 2)
    assert {f.code for f in findings} == {"KP242", "KP244"}  # nobody owes the empty batch
    assert any("while it tried this: the worker ended: Killed" in f.cause and f.place == cases[2].name for f in findings)


def test_an_empty_batch_is_a_note_where_shapes_are_spoken_of_or_the_process_ends(tmp_path: Path) -> None:
    cases = shape_cases(contract(""), SIGNATURE, "")
    whole, reference = tried(tmp_path / "t", cases), tried(tmp_path / "r", cases)
    empty = cases[-1]
    refusing = replace(whole, done={**whole.done, empty: (len(cases) - 1, replace(whole.done[empty][1], refused="ValueError: no"))})
    dying = replace(whole, done={case: found for case, found in whole.done.items() if case.batch}, trying=empty.name, lost="Aborted")
    assert codes(ask(refusing, reference, "")) == set()
    assert codes(ask(dying, reference, "")) == {("KP244", empty.name)}


def test_an_old_run_owes_only_what_the_contract_names(tmp_path: Path) -> None:
    never = Tried(tmp_path, {}, "", "", due=False)
    assert judge_shapes(ask(never, never, "")) == ((), [])
    assert {code for code, _ in codes(ask(never, never))} == {"KP242"}


def test_what_the_model_itself_refuses_is_said_of_it_once(tmp_path: Path, cases: tuple[ShapeCase, ...]) -> None:
    reference = tried(tmp_path / "r", cases)
    first = next(iter(reference.done))
    refusing = replace(reference, done={**reference.done, first: (0, replace(reference.done[first][1], refused="ValueError: too short"))})
    assert [(f.code, f.target, f.place) for f in reference_findings(contract(), SIGNATURE, refusing)] == [("KP241", "reference", first.name)]
    assert codes(ask(tried(tmp_path / "t", cases), refusing)) == set()


def test_a_cost_counts_only_where_it_is_large_and_new(tmp_path: Path, cases: tuple[ShapeCase, ...]) -> None:
    target = tried(tmp_path / "t", cases)
    times = {"slow": (0.5, 0.001, False), "seen": (0.5, 0.001, True), "jitter": (0.0004, 0.0001, False)}
    done = dict(target.done)
    for case, (first, again, known) in zip(cases, times.values(), strict=False):
        position, outcome = done[case]
        done[case] = (position, replace(outcome, first_s=first, again_s=again, known=known))
    rows, findings = judge_shapes(ask(replace(target, done=done), tried(tmp_path / "r", cases)))
    assert [row.status for row in rows[:3]] == [ShapeStatus.RECOMPILES, ShapeStatus.WORKS, ShapeStatus.WORKS]
    assert [(f.code, f.place) for f in findings] == [("KP243", cases[0].name)]
    assert rows[1].first_s is None
