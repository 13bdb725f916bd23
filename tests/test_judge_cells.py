"""Cells: every golden input, output and way of running is passed, failed or unchecked, and none is lost."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kpipe.judging.judge import judge
from kpipe.record import CellCounts, CellStatus, Verdict
from kpipe_stages.protocol import ExportResult, TensorSpec
from kpipe_stages.rows import RowsWriter, write_rows

from .sample_run import CONTRACT, MODES, SCORES, SIGNATURE, Answers, Bench, answers, codes, found, result, row, stage

N = len(SCORES)
TWO = replace(SIGNATURE, outputs=(*SIGNATURE.outputs, TensorSpec("z", (None, 1), "float32")))


def moved(*places: tuple[int, int], by: float = 0.01) -> Any:
    scores = SCORES.copy()
    for i, j in places:
        scores[i, j] += by
    return scores


def two_outputs(z: Any = None, **changes: Any) -> Answers:
    made = answers(signature=TWO, **changes)
    for outputs in made.modes.values():
        outputs["z"] = [np.array([v], np.float32) for v in (np.arange(1, N + 1) if z is None else z)]
    return made


def test_agreement_in_every_way_of_running_is_a_pass(tmp_path: Path) -> None:
    record = Bench(tmp_path).judge()
    assert record.verdict is Verdict.PASS
    assert f"all {3 * N} cells" in record.headline
    assert row(record).cells == CellCounts(3 * N, 0, 0)
    assert row(record).status is CellStatus.PASS
    assert {(d.mode, d.cells) for d in row(record).drift} == {
        (mode, CellCounts(N, 0, 0)) for mode in (*MODES, "batch_3 vs alone", "batch_8 vs alone")
    }
    assert all(d.smallest_factor == 0 for d in row(record).drift)


def test_drift_in_one_cell_of_one_mode_fails_and_names_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.targets["litert"] = answers()
    bench.targets["litert"].modes["batch_8"]["y"] = list(moved((4, 2)))
    record = bench.judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).cells == CellCounts(3 * N - 1, 1, 0)
    cause = found(record, "KP401").cause
    assert all(part in cause for part in ("'y'", "1 of 6 inputs (batch_8)", "in-4", "[2]", "0.81", "0.8"))
    assert found(record, "KP408").evidence["modes"] == {"batch_8": 1}  # and it isn't what the target says alone


def test_drift_everywhere_alike_is_one_finding(tmp_path: Path) -> None:
    bench = Bench(tmp_path, targets={"litert": answers(moved((0, 0), (1, 0)))})
    record = bench.judge()
    assert codes(record).count("KP401") == 1
    assert "KP408" not in codes(record)
    assert row(record).cells == CellCounts(3 * (N - 2), 3 * 2, 0)
    smallest = found(record, "KP401").evidence["smallest_passing"]
    looser = f"{CONTRACT}agreement.tolerance = {{ rtol = {smallest['rtol'] * 1.0001}, atol = {smallest['atol'] * 1.0001} }}\n[targets.litert]\n"
    assert bench.judge(looser).verdict is Verdict.PASS


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("whose", ["target", "reference"])
def test_nan_on_one_side_fails(tmp_path: Path, value: float, whose: str) -> None:
    bad = SCORES.copy()
    bad[2, 0] = value
    bench = Bench(tmp_path, text="[targets.litert]\n", **{"targets": {"litert": answers(bad)}} if whose == "target" else {"reference": answers(bad)})
    record = bench.judge()
    assert record.verdict is Verdict.FAIL
    assert found(record, "KP402").evidence["factor"] == math.inf
    assert row(record).cells.failed == 3


def test_a_mode_that_never_ran_is_unchecked(tmp_path: Path) -> None:
    record = Bench(tmp_path, targets={"litert": answers(modes=("alone", "batch_3"))}).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).cells == CellCounts(2 * N, 0, N)
    assert row(record).status is CellStatus.UNCHECKED


def test_a_mode_that_the_runtime_refused_fails(tmp_path: Path) -> None:
    record = Bench(tmp_path, targets={"litert": answers(modes=("alone", "batch_3"), failed={"batch_8": "RuntimeError: shape"})}).judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).cells == CellCounts(2 * N, N, 0)
    assert "'batch_8': RuntimeError: shape" in found(record, "KP311").cause


def test_not_offered_is_believed_only_of_an_artifact_of_a_fixed_batch(tmp_path: Path) -> None:
    lone = answers(modes=("alone",), not_offered=("batch_3", "batch_8"))
    claimed = Bench(tmp_path / "a", targets={"litert": lone}).judge()
    assert claimed.verdict is Verdict.INCOMPLETE
    assert row(claimed).cells == CellCounts(N, 0, 2 * N)
    fixed_lone = answers(modes=("alone",), not_offered=("batch_3", "batch_8"), fixed_batch=1)
    fixed = Bench(tmp_path / "b", targets={"litert": fixed_lone}, artifacts={"litert": {"batch": 1}}).judge()
    assert fixed.verdict is Verdict.PASS
    assert row(fixed).cells == CellCounts(N, 0, 0)
    assert row(fixed).modes_not_offered == ("batch_3", "batch_8")


def test_a_fixed_batch_of_several_is_owed_in_that_size(tmp_path: Path) -> None:
    only = answers(modes=("alone",), not_offered=("batch_3", "batch_8"), fixed_batch=4)
    bench = Bench(tmp_path, targets={"litert": only}, artifacts={"litert": {"batch": 4}})
    assert row(bench.judge()).cells == CellCounts(N, 0, N)
    bench.targets["litert"] = answers(modes=("alone", "batch_4"), not_offered=("batch_3", "batch_8"), fixed_batch=4)
    assert bench.judge().verdict is Verdict.PASS
    bench.targets["litert"].modes["batch_4"]["y"] = list(moved((1, 1)))
    assert row(bench.judge()).cells == CellCounts(2 * N - 1, 1, 0)


def test_an_output_that_is_missing_fails_its_cells(tmp_path: Path) -> None:
    record = Bench(tmp_path, reference=two_outputs(), targets={"litert": answers()}).judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).cells == CellCounts(3 * N, 3 * N, 0)
    assert "'z' is missing" in found(record, "KP407").cause


def test_the_decisive_output_that_is_missing_fails(tmp_path: Path) -> None:
    only_z = replace(SIGNATURE, outputs=TWO.outputs[1:])
    other = answers(signature=only_z)
    for outputs in other.modes.values():
        outputs["z"] = [np.array([v], np.float32) for v in np.arange(1, N + 1)]
    record = Bench(tmp_path, reference=two_outputs(), targets={"litert": other}).judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).cells == CellCounts(3 * N, 3 * N, 0)


def test_an_output_too_many_fails(tmp_path: Path) -> None:
    record = Bench(tmp_path, targets={"litert": two_outputs()}).judge()
    assert record.verdict is Verdict.FAIL
    assert "doesn't have: z" in found(record, "KP407").cause


def test_outputs_are_bound_by_name(tmp_path: Path) -> None:
    turned = two_outputs()
    turned.result = replace(turned.result, signature=replace(TWO, outputs=TWO.outputs[::-1]))
    assert Bench(tmp_path, reference=two_outputs(), targets={"litert": turned}).judge().verdict is Verdict.PASS


def test_another_shape_or_dtype_fails_with_both_in_words(tmp_path: Path) -> None:
    record = Bench(tmp_path / "a", targets={"litert": answers([[*scores, 0.0] for scores in SCORES.tolist()])}).judge()
    assert row(record).cells == CellCounts(0, 3 * N, 0)
    assert "float64 [4], where float32 [3] was expected" in found(record, "KP406").cause
    record = Bench(tmp_path / "b", targets={"litert": answers([np.float32([*scores, 0.0]) for scores in SCORES])}).judge()
    assert "float32 [4], where float32 [3] was expected" in found(record, "KP403").cause


def test_the_dtype_that_tensorflow_gives_is_accepted_beside_the_references(tmp_path: Path) -> None:
    half = replace(SIGNATURE, outputs=(TensorSpec("y", (None, 3), "float16"),))
    bench = Bench(tmp_path, targets={"litert": answers(SCORES.astype(np.float16))})
    assert "KP406" in codes(bench.judge())
    bench.replaced["export"] = stage("export", result("export", ExportResult(half, (), {})))
    assert "KP406" not in codes(bench.judge())


@pytest.mark.parametrize("fault", ["gone", "short", "long", "absent"])
@pytest.mark.parametrize("whose", ["run.litert", "reference"])
def test_outputs_that_can_not_be_read_back_are_unchecked(tmp_path: Path, fault: str, whose: str) -> None:
    bench = Bench(tmp_path)
    evidence = bench.evidence()
    prefix = tmp_path / "stages" / whose / "outputs" / "alone" / "0"
    if fault == "gone":
        Path(f"{prefix}.values.npy").unlink()
    elif fault == "absent":
        with RowsWriter(prefix) as writer:
            for scores in SCORES[:-1]:
                writer.append(scores)
            writer.append_absent()
    else:
        write_rows(prefix, list(SCORES[:-1] if fault == "short" else np.concatenate([SCORES, SCORES[:1]])))
    record = judge(tmp_path, bench.loaded(), evidence)
    assert record.verdict is Verdict.INCOMPLETE
    causes = [f.cause for f in record.findings if f.code == "KP314"]
    assert causes
    assert all("can't be read back" in cause for cause in causes)
    assert row(record).cells.unchecked >= N
    assert row(record).cells.failed == 0


def test_rows_that_both_sides_have_lost_do_not_pass(tmp_path: Path) -> None:
    short = answers(SCORES[:-2])
    record = Bench(tmp_path, text="[targets.litert]\n", reference=short, targets={"litert": short}).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).cells == CellCounts(0, 0, 3 * N)
    assert "4 rows for 6 golden inputs" in next(f.cause for f in record.findings if f.code == "KP314")


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_cells_add_up_and_pass_only_what_agrees(tmp_path: Path, data: st.DataObject) -> None:
    places = st.sets(st.tuples(st.integers(0, N - 1), st.integers(0, 2)), max_size=4)
    by_mode = {mode: data.draw(places) for mode in MODES}
    ran = data.draw(st.lists(st.sampled_from(MODES), unique=True))
    target = answers(modes=tuple(ran))
    for mode in ran:
        target.modes[mode]["y"] = list(moved(*by_mode[mode], by=0.003))
    record = Bench(tmp_path, targets={"litert": target}).judge()
    cells = row(record).cells
    assert cells.passed + cells.failed + cells.unchecked == 3 * N
    assert cells.unchecked == N * (3 - len(ran))
    alone = by_mode["alone"] if "alone" in ran else None
    wrong = {mode: {i for i, _ in by_mode[mode]} for mode in ran}
    for mode in ran:
        if alone is not None:  # and what disagrees with the target's own answer alone
            wrong[mode] |= {i for i, _ in by_mode[mode] ^ alone}
    assert cells.failed == sum(len(rows) for rows in wrong.values())
    expected = Verdict.FAIL if cells.failed else Verdict.INCOMPLETE if cells.unchecked else Verdict.PASS
    assert record.verdict is expected


# ---------------------------------------------------------------- outputs without a batch axis


def whole(scale: float = 1.0, **changes: Any) -> Answers:
    """An output that a whole batch shares: each row holds all of it."""
    made = answers(unbatched=dict.fromkeys(MODES, ("y",)), **changes)
    made.modes["batch_3"]["y"] = [SCORES[0] * np.float32(2 * scale)] * N
    made.modes["batch_8"]["y"] = [SCORES[0] * np.float32(3 * scale)] * N
    return made


def test_an_output_that_a_batch_shares_is_compared_in_the_same_mode(tmp_path: Path) -> None:
    assert Bench(tmp_path / "a", reference=whole(), targets={"litert": whole()}).judge().verdict is Verdict.PASS
    record = Bench(tmp_path / "b", reference=whole(), targets={"litert": whole(1.01)}).judge()
    assert row(record).cells == CellCounts(N, 2 * N, 0)


def test_its_decisions_are_still_compared_alone(tmp_path: Path) -> None:
    lax = CONTRACT + "agreement.tolerance = { rtol = 9, atol = 9 }\n[targets.litert]\n"
    flipped = whole()
    flipped.outputs["y"] = [SCORES[0][::-1].copy(), *flipped.outputs["y"][1:]]
    record = Bench(tmp_path, text=lax, reference=whole(), targets={"litert": flipped}).judge()
    assert record.verdict is Verdict.FAIL
    assert found(record, "KP404").evidence["inputs"] == ["in-0"]


def test_a_target_can_not_claim_that_its_output_is_shared(tmp_path: Path) -> None:
    claimed = answers(unbatched={"batch_3": ("y",)})
    claimed.modes["batch_3"]["y"] = [np.stack([SCORES[0]] * 3)] * N
    record = Bench(tmp_path, targets={"litert": claimed}).judge()
    assert row(record).cells == CellCounts(2 * N, N, 0)
    assert "KP403" in codes(record)


# ---------------------------------------------------------------- decisions

LAX = "agreement = { tolerance = { rtol = 9, atol = 9 }, max_flips = %d }\n[targets.litert]\n"
"""Numbers pass, so that decisions alone decide."""


def flipping(*inputs: int, modes: tuple[str, ...] = MODES) -> Answers:
    made = answers()
    for mode in modes:
        for i in inputs:
            made.modes[mode]["y"][i] = np.roll(SCORES[i], 1)
    return made


@pytest.mark.parametrize(("flips", "allowed", "verdict"), [(1, 0, "FAIL"), (1, 1, "PASS"), (2, 1, "FAIL"), (3, 3, "PASS"), (6, 5, "FAIL")])
def test_flips_are_counted_in_inputs_against_the_allowance(tmp_path: Path, flips: int, allowed: int, verdict: str) -> None:
    record = Bench(tmp_path, text=CONTRACT + LAX % allowed, targets={"litert": flipping(*range(flips))}).judge()
    assert record.verdict == verdict
    assert row(record).flips == flips
    assert len(record.flips) == flips * 3
    assert row(record).cells.failed == (3 * flips if flips > allowed else 0)
    assert ("KP404" in codes(record)) == (flips > allowed)
    assert ("KP415" in codes(record)) == (flips <= allowed)


def test_flips_of_different_modes_add_up_to_inputs(tmp_path: Path) -> None:
    made = flipping(0, modes=("alone",))
    made.modes["batch_3"]["y"][1] = np.roll(SCORES[1], 1)
    record = Bench(tmp_path, text=CONTRACT + LAX % 1, targets={"litert": made}).judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).flips == 2


def test_a_flip_says_what_became_of_what_and_who_is_right(tmp_path: Path) -> None:
    text = CONTRACT.replace("output", "labels = ['cat', 'dog', 'owl'], output") + LAX % 0
    bench = Bench(tmp_path, text=text, targets={"litert": flipping(3, modes=("batch_8",))})
    bench.golden_changes[3] = {"label": "dog", "expected": "cat", "slice": "night"}
    record = bench.judge()
    (flip,) = record.flips
    assert (flip.target, flip.mode, flip.input, flip.slice, flip.reference, flip.got) == ("litert", "batch_8", "in-3", "night", "cat", "dog")
    assert (flip.label, flip.expected, flip.tie) == ("dog", "cat", False)
    assert flip.margin == pytest.approx(0.1)
    assert flip.drift == pytest.approx(0.4)
    assert (flip.reference_scores, flip.target_scores) == (tuple(SCORES[3].tolist()), tuple(np.roll(SCORES[3], 1).tolist()))
    assert all(part in found(record, "KP404").cause for part in ("1 of 6 inputs", "in-3", "'cat' became 'dog'", "batch_8"))


def tied_reference() -> Any:
    scores = SCORES.copy()
    scores[0] = [0.4, 0.4, 0.2]
    return scores


def test_a_tie_that_is_broken_otherwise_only_warns(tmp_path: Path) -> None:
    broken = tied_reference()
    broken[0, 1] = np.nextafter(broken[0, 1], np.float32(1))
    record = Bench(tmp_path, reference=answers(tied_reference()), targets={"litert": answers(broken)}).judge()
    assert record.verdict is Verdict.PASS
    assert (row(record).ties, row(record).flips) == (1, 0)
    assert {"KP405", "KP414"} <= set(codes(record))
    assert all(flip.tie for flip in record.flips)


def test_a_tie_excuses_no_other_class(tmp_path: Path) -> None:
    other = tied_reference()
    other[0] = [0.3, 0.3, 0.4]
    record = Bench(tmp_path, text=CONTRACT + LAX % 0, reference=answers(tied_reference()), targets={"litert": answers(other)}).judge()
    assert record.verdict is Verdict.FAIL
    assert (row(record).ties, row(record).flips) == (0, 1)


def test_nan_scores_of_the_target_are_a_flip(tmp_path: Path) -> None:
    bad = answers()
    bad.outputs["y"][0] = np.array([0.7, math.nan, 0.1], np.float32)
    record = Bench(tmp_path, targets={"litert": bad}).judge()
    assert record.verdict is Verdict.FAIL
    assert record.flips[0].got == "undecided"
    assert not record.flips[0].tie


def test_scores_that_can_not_be_decided_fail(tmp_path: Path) -> None:
    record = Bench(tmp_path, targets={"litert": answers([scores[:1] for scores in SCORES])}).judge()
    assert record.verdict is Verdict.FAIL
    assert {"KP403", "KP608"} <= set(codes(record))
