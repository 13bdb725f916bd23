"""Precision variants: what a contract may ask for, what a calibration set must not hold, and how a variant is judged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.contract import parse_contract, runtime_of
from kpipe.errors import ContractError
from kpipe.evidence import Ending
from kpipe.golden import GoldenInput, GoldenSet
from kpipe.report import summary
from kpipe.report.plots import drift_plot
from kpipe.report.savings import saving_rows, without_ratio
from kpipe.report.terminal import render_table
from kpipe.running.calibration import check_calibration
from kpipe.running.plan import plan_targets
from kpipe_stages.catalog import FORMATS, RUNTIMES, VARIANTS
from kpipe_stages.protocol import ExportResult, Observation, PrepareResult, Signature, Status, TensorSpec
from kpipe_stages.rows import write_rows

from .sample_run import CONTRACT, HERE, SCORES, SIGNATURE, Bench, answers, artifact, codes, found, inspected, result, row, stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CALIBRATION = 'calibration = { path = "c.npz" }\n'


def problems(text: str) -> str:
    with pytest.raises(ContractError) as caught:
        parse_contract(text, "kpipe.toml")
    return str(caught.value)


# ------------------------------------------------------------ the contract


@pytest.mark.parametrize(("kind", "variant"), [(kind, name) for kind, known in VARIANTS.items() for name in known])
def test_every_variant_can_be_asked_for_in_one_line_beside_a_calibration_set(kind: str, variant: str) -> None:
    for name in [name for name, runtime in RUNTIMES.items() if runtime.artifact == kind]:
        text = f'[calibration]\npath = "c.npz"\n[targets.{name}_{variant}]\nquantize = "{variant}"\n'
        table = parse_contract(text, "kpipe.toml").targets[f"{name}_{variant}"]
        assert runtime_of(f"{name}_{variant}", table) == name


def test_every_variant_has_what_makes_it_and_belongs_to_a_format() -> None:
    from kpipe_stages.catalog import STAGES

    assert set(VARIANTS) <= {*FORMATS, "keras"}
    assert {f"quantize_{kind}" for kind in VARIANTS} == {name for name in STAGES if name.startswith("quantize_")}
    assert all(name == variant.name and variant.title and variant.extra for known in VARIANTS.values() for name, variant in known.items())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[targets.litert_int4]\nquantize = "int4"', ("targets.litert_int4.quantize is 'int4'", "float16, dynamic_int8, int8, int16x8 for litert")),
        ('[targets.litert_x]\nquantize = "int8x"', ("did you mean 'int8'?",)),
        ('[targets.saved_model_int8]\nquantize = "int8"', ("saved_model runs the saved_model, of which there are no variants", "litert: float16")),
        ('[targets.openvino_int8]\nquantize = "int8"', ("openvino runs the saved_model", "openvino_ir: float16, int8")),
        (
            '[targets.litert_int8]\nquantize = "int8"',
            ("which is made with a calibration set, and the contract has none", "never from the golden set"),
        ),
        ('[targets.lightrt_int8]\nquantize = "int8"', ("targets.lightrt_int8 names no runtime",)),
        ("[targets.litert_fast]\nthreads = 1", ("targets.litert_fast names no runtime",)),
        ("[targets.litert]\nquantize = 8", ("targets.litert.quantize is 8",)),
        ("[calibration]", ("'calibration.path' is missing",)),
        ('[calibration]\npath = "c"\nfile = "c"', ("unknown key 'calibration.file'",)),
    ],
)
def test_what_a_contract_can_not_mean_is_refused_with_what_exists(text: str, said: Sequence[str]) -> None:
    message = problems(text)
    assert all(part in message for part in said), message


def test_a_variant_without_calibration_and_a_file_handed_in_need_no_set() -> None:
    text = '[targets.litert_dynamic_int8]\nquantize = "dynamic_int8"\n[targets.litert_int8]\nquantize = "int8"\nartifact = "m.tflite"\n'
    assert parse_contract(text, "kpipe.toml").targets["litert_int8"].artifact == "m.tflite"


# ------------------------------------------------------------ the calibration set


def a_set(folder: Path, name: str, rows: Sequence[Any], digests: Sequence[str] = (), kind: str = "raw") -> tuple[GoldenSet, PrepareResult, Path]:
    folder = folder / name
    write_rows(folder / "0", [np.asarray(one) for one in rows])
    digests = digests or [f"{name}-{i}" for i in range(len(rows))]
    inputs = tuple(GoldenInput(f"{name}-{i}", {"x": "f"}, {"x": d}, "f", None, None, "", "sampled") for i, d in enumerate(digests))
    dtype = np.asarray(rows[0]).dtype.name
    bad = tuple(i for i, one in enumerate(rows) if not np.isfinite(one).all())
    return GoldenSet(kind, "/f", "f", "d", inputs), PrepareResult(("x",), len(rows), {"x": dtype}, {"x": ((2,),)}, {"x": bad}), folder


WANTED = Signature((TensorSpec("x", (None, 2), "float32"),), ())


def check(mine: tuple[GoldenSet, PrepareResult, Path], theirs: tuple[GoldenSet, PrepareResult, Path]) -> list[Observation]:
    return check_calibration(*mine, *theirs, WANTED)


def f32(*rows: Sequence[float]) -> list[Any]:
    return [np.array(one, np.float32) for one in rows]


def test_a_set_of_its_own_is_taken(tmp_path: Path) -> None:
    assert check(a_set(tmp_path, "c", f32([1, 2], [3, 4])), a_set(tmp_path, "g", f32([5, 6]))) == []


def test_a_golden_file_in_the_set_is_named(tmp_path: Path) -> None:
    (one,) = check(a_set(tmp_path, "c", f32([1, 2], [3, 4]), ["same", "other"]), a_set(tmp_path, "g", f32([5, 6], [7, 8]), ["mine", "same"]))
    assert one.code == "KP222"
    assert "1 of 2 calibration inputs are golden inputs: 'c-0' is golden input 'g-1' (the same file)" in one.cause


def test_a_golden_tensor_in_the_set_is_named_whatever_its_file(tmp_path: Path) -> None:
    mine = a_set(tmp_path, "c", f32([1, 2], [7, 8]), kind="arrays")
    (one,) = check(mine, a_set(tmp_path, "g", f32([5, 6], [7, 8])))
    assert (one.code, one.evidence) == ("KP222", {"pairs": {"c-1": "g-1"}})
    assert "(the same tensor)" in one.cause


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 5))
def test_one_golden_row_is_found_wherever_it_stands(tmp_path_factory: pytest.TempPathFactory, order: list[int], at: int) -> None:
    folder = tmp_path_factory.mktemp("rows")
    golden = f32(*[[i, i + 0.5] for i in range(6)])
    mine = f32(*[[i + 10, 0] for i in range(6)])
    mine[at] = golden[order[at]]
    (one,) = check(a_set(folder, "c", mine), a_set(folder, "g", golden))
    assert one.evidence == {"pairs": {f"c-{at}": f"g-{order[at]}"}}


def test_a_file_that_golden_inputs_share_tells_nothing(tmp_path: Path) -> None:
    golden = a_set(tmp_path, "g", f32([5, 6], [7, 8]), ["mask", "mask"])
    assert check(a_set(tmp_path, "c", f32([1, 2]), ["mask"]), golden) == []


@pytest.mark.parametrize("rows", [[np.array([1.0, 2.0])], f32([np.nan, 1])], ids=["float64", "NaN"])
def test_a_set_that_does_not_fit_is_refused(tmp_path: Path, rows: list[Any]) -> None:
    (one,) = check(a_set(tmp_path, "c", rows), a_set(tmp_path, "g", f32([5, 6])))
    assert one.code == "KP223"
    assert "calibration" in one.cause


# ------------------------------------------------------------ judging


def variant(folder: Path, quantize: str, scores: Any = SCORES, *, more: str = "", decision: str = CONTRACT, **changes: Any) -> Bench:
    text = f'{decision}{CALIBRATION}[targets.litert]\n[targets.litert_q]\nruntime = "litert"\nquantize = "{quantize}"\n{more}'
    return Bench(folder, text=text, targets={"litert": answers(), "litert_q": answers(scores)}, **changes)


def shifted(by: float) -> Any:
    """Every decision stays, every number moves."""
    return (SCORES * (1 - by)).astype(np.float32)


def test_an_integer_variant_is_judged_by_decisions_and_not_by_numbers(tmp_path: Path) -> None:
    record = variant(tmp_path, "int8", shifted(0.05)).judge()
    assert record.verdict == "PASS", codes(record)
    one = row(record, "litert_q")
    assert (one.status, one.variant) == ("pass", "int8")
    assert {(d.tolerance.numeric, d.tolerance.source) for d in one.drift} == {(False, "decisions: int8 promises no numbers")}
    assert max(d.max_abs for d in one.drift) > 0.03


def test_the_same_numbers_on_the_float_target_fail(tmp_path: Path) -> None:
    bench = Bench(tmp_path, targets={"litert": answers(shifted(0.05))})
    assert "KP401" in codes(bench.judge())


@pytest.mark.parametrize("quantize", ["dynamic_int8", "int8", "int16x8"])
def test_a_flip_fails_an_integer_variant_at_the_border_of_precision(tmp_path: Path, quantize: str) -> None:
    scores = SCORES.copy()
    scores[3] = [0.4, 0.5, 0.1]
    record = variant(tmp_path, quantize, scores).judge()
    assert (record.verdict, row(record).status, row(record, "litert_q").status) == ("FAIL", "pass", "fail")
    assert "KP401" not in codes(record, "litert_q")
    assert found(record, "KP404").target == "litert_q"
    edge = row(record, "litert_q").edge
    assert edge is not None
    assert edge.name == "precision"
    assert f"It runs the variant {quantize}; target 'litert', on the float artifact, agrees" in edge.sentence


def test_without_a_decision_rule_nothing_of_an_integer_variant_has_passed(tmp_path: Path) -> None:
    record = variant(tmp_path, "int8", decision="").judge()
    cells = row(record, "litert_q").cells
    assert (cells.passed, cells.failed, cells.unchecked) == (0, 0, 3 * len(SCORES))
    assert (record.verdict, row(record).status, row(record, "litert_q").status) == ("INCOMPLETE", "pass", "unchecked")
    assert "no decision rule covers it in alone, batch_3, batch_8" in found(record, "KP430").cause
    drifts = row(record, "litert_q").drift
    assert {(d.cells.passed, d.cells.unchecked) for d in drifts} == {(0, len(SCORES))}  # nor does any report show one that passed
    assert not any(summary.drift_passes(d) for d in drifts)
    assert "judged by decisions" in drift_plot(record)
    assert "of the tolerance" in drift_plot(record)


def test_a_declared_drift_does_not_stand_in_for_a_decision_rule(tmp_path: Path) -> None:
    record = variant(tmp_path, "int8", decision="", more="tolerance = { atol = 1.0, rtol = 1.0 }\n").judge()
    assert row(record, "litert_q").status == "unchecked"
    assert row(record, "litert_q").cells.passed == 0


def test_a_rule_by_tolerance_covers_a_number(tmp_path: Path) -> None:
    rule = "decision = { rule = 'tolerance', output = 'y', atol = 0.1, rtol = 0.0 }\n"
    assert variant(tmp_path, "int8", shifted(0.05), decision=rule).judge().verdict == "PASS"
    record = variant(tmp_path / "far", "int8", shifted(0.3), decision=rule).judge()
    assert "KP404" in codes(record, "litert_q")


def test_a_declared_drift_is_held_to_besides(tmp_path: Path) -> None:
    close = variant(tmp_path, "int8", shifted(0.05), more="tolerance = { atol = 0.1, rtol = 0.0 }\n").judge()
    assert close.verdict == "PASS"
    far = variant(tmp_path / "far", "int8", shifted(0.05), more="outputs = { y = { atol = 0.01, rtol = 0.0 } }\n").judge()
    assert codes(far, "litert_q").count("KP401") == 1
    assert row(far, "litert_q").status == "fail"


@pytest.mark.parametrize(("change", "code"), [("nan", "KP402"), ("shape", "KP403"), ("missing", "KP311")])
def test_what_is_no_matter_of_precision_fails_as_ever(tmp_path: Path, change: str, code: str) -> None:
    bench = variant(tmp_path, "int8")
    target = bench.targets["litert_q"]
    assert target is not None
    if change == "nan":
        target.outputs["y"][2] = np.array([0.2, 0.3, np.nan], np.float32)
    if change == "shape":
        target.outputs["y"] = [np.array([*one, 0], np.float32) for one in SCORES]
    if change == "missing":
        del target.modes["batch_3"]
        target.result = replace(target.result, modes=("alone", "batch_8"), failed={"batch_3": "no"}, lonely_rows={"batch_8": ()})
    record = bench.judge()
    assert code in codes(record, "litert_q")
    assert record.verdict == "FAIL"


def test_a_decision_that_depends_on_the_company_fails_though_flips_are_allowed(tmp_path: Path) -> None:
    bench = variant(tmp_path, "dynamic_int8")
    bench.text = f"agreement = {{ max_flips = 6 }}\n{bench.text}"
    target = bench.targets["litert_q"]
    assert target is not None
    target.modes["batch_8"]["y"][3] = np.array([0.4, 0.5, 0.1], np.float32)
    assert "KP408" in codes(bench.judge(), "litert_q")


def test_float16_is_held_to_its_own_class(tmp_path: Path) -> None:
    assert variant(tmp_path, "float16", shifted(5e-4)).judge().verdict == "PASS"
    record = variant(tmp_path / "far", "float16", shifted(0.05)).judge()
    assert "KP401" in codes(record, "litert_q")
    one = row(record, "litert_q")
    assert {d.tolerance.source for d in one.drift} == {"default for float16"}


def test_float16_weights_are_what_was_asked_for(tmp_path: Path) -> None:
    bench = variant(tmp_path, "float16")
    bench.targets["litert_q"] = answers(effective_precision="float16, float32 (declared)")
    assert "KP307" not in codes(bench.judge())
    bench.targets["litert"] = answers(effective_precision="float16, float32 (declared)")
    assert found(bench.judge(), "KP307").target == "litert"


def test_what_making_a_variant_says_is_about_the_targets_that_run_it(tmp_path: Path) -> None:
    bench = variant(tmp_path, "int8")
    seen = Observation("KP220", "The LiteRT int8 variant can't be made (CUMSUM (layer sum)): no int8.", "Choose another.", "sum")
    failed = result("quantize_litert", None, status=Status.FAILED, observations=(seen,))
    bench.replaced = {"quantize.litert.int8": stage("quantize.litert.int8", failed, Ending.FAILED), "run.litert_q": None}
    bench.targets["litert_q"] = None
    record = bench.judge()
    one = found(record, "KP220")
    assert (one.target, one.place) == ("litert_q", "sum")
    assert (row(record).status, row(record, "litert_q").status) == ("pass", "fail")
    edge = row(record, "litert_q").edge
    assert edge is not None
    assert edge.name == "export"


@pytest.mark.parametrize(("ending", "code"), [(Ending.CRASHED, "KP304"), (Ending.TIMED_OUT, "KP305")])
def test_a_lost_worker_leaves_its_variant_unchecked(tmp_path: Path, ending: Ending, code: str) -> None:
    bench = variant(tmp_path, "int8")
    bench.replaced = {"quantize.litert.int8": stage("quantize.litert.int8", None, ending), "run.litert_q": None}
    bench.targets["litert_q"] = None
    record = bench.judge()
    assert (record.verdict, code in codes(record, "litert_q")) == ("INCOMPLETE", True)


@pytest.mark.parametrize(("ops", "said"), [({"WHILE": 1}, True), ({"CONV_2D": 1}, False)])
def test_a_crash_on_a_loop_has_its_way_out(tmp_path: Path, ops: dict[str, int], said: bool) -> None:
    bench = variant(tmp_path, "int8")
    exported = result("export", ExportResult(SIGNATURE, (artifact("litert", ops=ops),), {"trace": 1.0}))
    bench.replaced = {
        "quantize.litert.int8": stage("quantize.litert.int8", None, Ending.CRASHED),
        "export": stage("export", exported),
        "run.litert_q": None,
    }
    bench.targets["litert_q"] = None
    assert ("unroll=True" in found(bench.judge(), "KP304").remedy) is said


def test_a_calibration_input_that_does_not_decode_is_not_called_a_golden_one(tmp_path: Path) -> None:
    bench = variant(tmp_path, "int8")
    seen = Observation("KP103", "calibration input 'c-1': not an image (expected PNG)", "Replace it.", "c-1")
    bench.replaced = {"calibrate": stage("calibrate", result("prepare", None, observations=(seen,)), Ending.OK), "run.litert_q": None}
    bench.targets["litert_q"] = None
    record = bench.judge()
    assert found(record, "KP223").cause == "Calibration input 'c-1': not an image (expected PNG) (KP103 of a calibration input)."
    assert record.verdict == "FAIL"


def test_a_file_handed_in_as_a_variant_has_to_be_smaller(tmp_path: Path) -> None:
    big = stage("inspect", result("inspect", inspected(parameters=10_000, weight_bytes=40_000)))
    bench = variant(tmp_path, "int8", more='artifact = "m.tflite"\n', replaced={"inspect": big})
    bench.artifacts = {"litert_q": {"parameters_bytes": 39_000}}
    assert "it is no smaller" in found(bench.judge(), "KP221").cause
    bench.artifacts = {"litert_q": {"parameters_bytes": 12_000}}
    assert bench.judge().verdict == "PASS"


# ------------------------------------------------------------ the table


def test_each_variant_stands_beside_its_float_row_with_what_it_costs(tmp_path: Path) -> None:
    scores = SCORES.copy()
    scores[3] = [0.4, 0.5, 0.1]
    bench = variant(tmp_path, "int8", scores)
    bench.artifacts = {"litert": {"size": 8000}, "litert_q": {"size": 2000}}
    record = bench.judge()
    (one,) = record.variants
    assert (one.target, one.variant, one.beside, one.costs.size, one.costs.flips) == ("litert_q", "int8", "litert", 2000, 1)
    assert one.costs.widest_margin_lost == pytest.approx(0.1)
    assert one.costs.least_margin_input == "in-3"
    assert one.costs.least_margin_left == pytest.approx(-1.0)
    assert one.float_costs is not None
    assert (one.float_costs.flips, one.float_costs.least_margin_left) == (0, pytest.approx(1.0))
    rows = saving_rows(record)
    assert [(line.name, line.variant) for line in rows] == [("litert", False), ("litert_q", True)]
    assert rows[1].values[0] == "2 kB (0.25x)"
    assert without_ratio(rows[1].values[0]) == "2 kB"


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_terminal_shows_the_table_whole(tmp_path: Path, width: int) -> None:
    text = render_table(variant(tmp_path, "int8", shifted(0.05)).judge(), color=False, width=width)
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("precision"))
    assert ("least left" in lines[at]) == (width > 60)
    assert [line.split()[0] for line in lines[at + 1 : at + 3]] == ["litert", "litert_q"]
    assert lines[at + 2].split()[-1].endswith("%")


def test_without_a_float_row_a_variant_stands_alone(tmp_path: Path) -> None:
    text = f'{CONTRACT}{CALIBRATION}[targets.litert_int8]\nquantize = "int8"\n'
    record = Bench(tmp_path, text=text, targets={"litert_int8": answers()}).judge()
    assert record.verdict == "PASS"
    assert [(line.name, line.variant) for line in saving_rows(record)] == [("litert_int8", True)]


def test_a_run_without_variants_has_no_table(tmp_path: Path) -> None:
    record = Bench(tmp_path).judge()
    assert (record.variants, saving_rows(record)) == ((), [])
    assert "least left" not in render_table(record, color=False, width=160)


def test_the_runtime_of_compiled_models_runs_one_batch_and_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, text=CONTRACT + "[targets.litert_compiled]\n")
    bench.targets = {"litert_compiled": answers(modes=("alone",), fixed_batch=1, not_offered=("batch_3", "batch_8"))}
    record = bench.judge()
    one = row(record, "litert_compiled")
    assert (record.verdict, one.cells.passed, one.cells.unchecked) == ("PASS", len(SCORES), 0)
    assert "takes batches of 1 only" in found(record, "KP212").cause


def test_variants_are_planned_by_name(tmp_path: Path) -> None:
    bench = variant(tmp_path, "int8")
    plans = plan_targets(bench.loaded(), HERE, {}, ())
    assert [(plan.name, plan.runtime, plan.quantize) for plan in plans] == [("litert", "litert", ""), ("litert_q", "litert", "int8")]
