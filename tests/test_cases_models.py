"""Models of the kinds that users met, through the whole gate: the right verdict, every target's status, every finding where it belongs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kpipe_stages.rows import Rows

from .cases.gate import EXPORTED, Expected, Gate, check, check_answers, check_refused, command, edges, expect, loud, named, only, statuses, target
from .cases.models_code import SCALE_SOURCE, SWISHY_SOURCE

if TYPE_CHECKING:
    from pathlib import Path

    import kpipe

pytestmark = pytest.mark.runtimes

WITHOUT_TENSORFLOW = only("litert", "onnxruntime")
ALL = ("tensorflow", *EXPORTED, "openvino_ir", "keras_openvino")
BATCH_OF_ONE = (("KP209", "litert"), ("KP212", "litert"))


def order(*targets: str) -> tuple[tuple[str, str, str], ...]:
    """Artifacts whose inputs or outputs stand in another order: harmless where bound by name, so a warning."""
    return tuple(("KP204", name, name) for name in targets)


# ------------------------------------------------------------ right everywhere


PASSING: dict[str, tuple[str, Expected]] = {
    "00_control_cnn": ("", expect()),
    "01_gru_reset_before": (only(*EXPORTED, "openvino_ir"), expect("PASS", ("KP209", "litert", "gru_1"), ("KP212", "litert", "litert"))),
    "02_lstm_mask_zero": (only(*EXPORTED, "openvino_ir"), expect("PASS", ("KP209", "litert", "lstm"), ("KP212", "litert", "litert"))),
    "recurrent": (only(*EXPORTED), expect("PASS", ("KP209", "litert", "words"), ("KP212", "litert", "litert"), *order("litert"))),
    "18_multi_input_order": (only(*EXPORTED, "openvino_ir"), expect("PASS", *order("litert"))),
    "20_many_outputs_order": (only(*EXPORTED, "openvino_ir"), expect("PASS", *order("litert"))),
    "23_uint8_input": (only(*EXPORTED, "openvino_ir"), expect()),
    "27_augmentation_layers": ("", expect()),
    "plain": (only(*EXPORTED), expect("PASS", ("KP209", "onnxruntime", "bell"), *order("litert"))),
    "free_size": (only(*EXPORTED), expect("PASS", *order("litert"))),
    "57_gelu_default": (only(*EXPORTED, "openvino_ir"), expect("PASS", ("KP209", "onnxruntime", "bell"))),
    "61_normalization_layer": (only(*EXPORTED, "openvino_ir"), expect()),
    "63_two_lstm_openvino_onnx": (only(*EXPORTED, "openvino_ir"), expect("PASS", ("KP209", "litert", "lstm_1"), ("KP212", "litert", "litert"))),
}


@pytest.mark.parametrize("case", PASSING)
def test_what_every_runtime_gets_right_passes(gate: Gate, case: str) -> None:
    contract, expected = PASSING[case]
    run = gate.run(case, contract)
    check(run, expected)
    check_answers(run, gate.cases / case)


def test_each_artifact_keeps_a_byte_input(gate: Gate) -> None:
    record = gate.run(*_order_of("23_uint8_input")).record
    kept = {t.name: t.artifact.signature.inputs[0].dtype for t in record.targets if t.artifact and t.artifact.signature}
    assert kept == dict.fromkeys((*EXPORTED, "openvino_ir"), "uint8")


def test_an_onnx_file_asks_for_no_more_inputs_than_the_model(gate: Gate) -> None:
    artifact = target(gate.run(*_order_of("61_normalization_layer")).record, "onnxruntime").artifact
    assert artifact is not None
    assert artifact.signature is not None
    assert [spec.name for spec in artifact.signature.inputs] == ["row"]


def _order_of(case: str) -> tuple[str, str]:
    return case, PASSING[case][0]


def test_padding_is_seen_by_the_recurrent_layer(gate: Gate) -> None:
    """Were the mask dropped everywhere, all would agree: the case must be able to fail."""
    rows = Rows(gate.run(*_order_of("02_lstm_mask_zero")).folder / "stages" / "reference" / "outputs" / "alone" / "0")
    assert len({np.asarray(row).tobytes() for row in rows}) == len(rows)


# ------------------------------------------------------------ repaired, and not


def test_without_repairs_gelu_fails_where_its_op_is_missing(gate: Gate) -> None:
    run = gate.run("57_gelu_default", "[export]\nrepairs = false\n" + WITHOUT_TENSORFLOW)
    assert statuses(run.record) == {"litert": "pass", "onnxruntime": "fail"}
    assert ("KP202", "onnxruntime", "bell") in loud(run.record)
    assert edges(run.record) == {"onnxruntime": "export"}
    assert not named(run.record, "KP209")
    assert (str(run.verdict), int(run.exit_code)) == ("FAIL", 1)
    assert any("Erfc" in f.cause for f in run.record.findings if f.code == "KP202")


def test_without_repairs_argmax_fails_where_its_op_is_missing(gate: Gate) -> None:
    run = gate.run("36_ties", "[export]\nrepairs = false\n" + WITHOUT_TENSORFLOW)
    assert statuses(run.record)["onnxruntime"] == "fail"
    assert edges(run.record)["onnxruntime"] == "export"
    assert "KP202" in {f.code for f in run.record.findings if f.target == "onnxruntime"}
    assert not named(run.record, "KP209")


def test_ties_are_said_and_do_not_fail(gate: Gate) -> None:
    run = gate.run("36_ties")
    assert named(run.record, "KP414") == ["probs"]
    assert run.record.findings[0].code in {"KP401", "KP414"}
    required = {name: status for name, status in statuses(run.record).items() if name != "keras_openvino"}
    assert required == dict.fromkeys(ALL[:-1], "pass")
    assert {t for t in ALL if named(run.record, "KP209", t)} == {*EXPORTED, "openvino_ir"}
    assert (str(run.verdict), int(run.exit_code)) == ("PASS", 0)


# ------------------------------------------------------------ one runtime is wrong


def test_keras_on_openvino_resamples_otherwise_and_is_not_required(gate: Gate) -> None:
    run = gate.run("05_upsample_bilinear")
    check(run, expect("PASS", ("KP401", "keras_openvino", "smaller"), *order("litert"), failed={"keras_openvino": "backend"}))
    assert target(run.record, "keras_openvino").cells.passed == 18
    check_answers(run, gate.cases / "05_upsample_bilinear")


def test_the_nearest_pixel_on_keras_openvino(gate: Gate) -> None:
    run = gate.run("resize_nearest", only("litert", "openvino", "keras_openvino"))
    check(run, expect("PASS", ("KP401", "keras_openvino", "trimmed"), failed={"keras_openvino": "backend"}))
    check_answers(run, gate.cases / "resize_nearest")


def test_half_precision_fails_on_litert_alone(gate: Gate) -> None:
    run = gate.run("10_mixed_float16", only("tensorflow", *EXPORTED))
    assert statuses(run.record) == {**dict.fromkeys(("tensorflow", *EXPORTED), "pass"), "litert": "fail"}
    assert edges(run.record) == {"litert": "export"}
    assert {f.target for f in run.record.findings if f.code == "KP202"} == {"litert"}
    assert "conv2d" in named(run.record, "KP202")
    assert (str(run.verdict), int(run.exit_code)) == ("FAIL", 1)
    check_answers(run, gate.cases / "10_mixed_float16", rtol=1e-2)


def test_bfloat16_fails_where_the_runtime_lacks_it(gate: Gate) -> None:
    run = gate.run("mixed_bfloat16", only(*EXPORTED))
    found = statuses(run.record)
    assert (found["saved_model"], found["litert"], found["onnxruntime"]) == ("pass", "fail", "fail")
    named_first = edges(run.record)
    assert (named_first["litert"], named_first["onnxruntime"]) == ("export", "runtime"), "ONNX has the type; its runtime has no kernel for it"
    assert "coarse" in named(run.record, "KP202", "litert")
    check_answers(run, gate.cases / "mixed_bfloat16", rtol=2e-2)


def test_layers_that_are_bfloat16_themselves_break_no_promise(gate: Gate) -> None:
    run = gate.run("mixed_bfloat16", only(*EXPORTED))
    assert not named(run.record, "KP307")
    assert statuses(run.record)["openvino"] == "pass"


# ------------------------------------------------------------ nobody can be right


def test_nan_in_the_golden_inputs_is_a_warning_and_disagreement_fails(gate: Gate) -> None:
    record = gate.run("16_nan_pooling_relu", only("tensorflow", *EXPORTED)).record
    assert named(record, "KP107") == ["image"]
    assert str(record.verdict) == "FAIL"
    assert {f.target for f in record.findings if f.code == "KP402"} == {"tensorflow", *EXPORTED}
    assert edges(record) == dict.fromkeys(("tensorflow", *EXPORTED), "backend"), "NaN is lost on TensorFlow already"
    assert all("max_pooling2d" in named(record, "KP402", name) for name in ("tensorflow", *EXPORTED))
    assert not {"KP401", "KP404"} & {f.code for f in record.findings}


def test_a_rule_that_was_only_inferred_does_not_fail_the_model(gate: Gate) -> None:
    assert not named(gate.run("16_nan_pooling_relu", only("tensorflow", *EXPORTED)).record, "KP608")


def test_a_score_that_is_nan_is_no_decision(gate: Gate) -> None:
    run = gate.run("nan_inside", only("litert"))
    check(run, expect("FAIL", ("KP411", "reference", "dense")))
    assert run.record.edge is not None
    assert run.record.edge.name == "backend"
    assert [row.decision == "undecided" for row in run.record.golden.rows] == [False, True, False]


@pytest.mark.parametrize(
    ("case", "layer", "contract"),
    [("40_mc_dropout", "always_on", only("tensorflow", "saved_model", "litert")), ("forced_noise", "nested/always_noisy", only("litert"))],
)
def test_a_model_that_answers_twice_fails(gate: Gate, case: str, layer: str, contract: str) -> None:
    run = gate.run(case, contract)
    assert {("KP409", "reference", ""), ("KP013", "", layer)} <= loud(run.record)
    assert str(run.record.reference.status if run.record.reference else "") == "fail"
    assert run.record.edge is not None
    assert run.record.edge.name == "backend"
    assert (str(run.verdict), int(run.exit_code)) == ("FAIL", 1)


# ------------------------------------------------------------ exported wrongly


@pytest.mark.parametrize(
    ("case", "contract", "right", "wrong"),
    [
        ("49_timedistributed_dynamic_time", "", ("tensorflow", "keras_openvino"), (*EXPORTED, "openvino_ir")),
        ("timedistributed_conv", only("saved_model", "litert", "openvino"), (), ("saved_model", "litert", "openvino")),
    ],
)
def test_a_free_time_axis_below_timedistributed_fails(gate: Gate, case: str, contract: str, right: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    run = gate.run(case, contract)
    assert statuses(run.record) == dict.fromkeys(right, "pass") | dict.fromkeys(wrong, "fail")
    assert edges(run.record) == dict.fromkeys(wrong, "export")
    for name in wrong:
        codes = {f.code for f in run.record.findings if f.target == name}
        assert {"KP401", "KP404"} <= codes
        assert ("KP408" in codes) == (name != "litert"), "at batch 1 alone there is no company to differ from"
    assert (str(run.verdict), int(run.exit_code)) == ("FAIL", 1)
    check_answers(run, gate.cases / case)


def test_the_machines_precision_is_not_blamed_for_what_the_export_does(gate: Gate) -> None:
    assert not named(gate.run("49_timedistributed_dynamic_time").record, "KP309")


def test_ops_that_a_runtime_lacks_are_named(gate: Gate) -> None:
    lacking = ("litert", "onnxruntime", "openvino", "openvino_ir")
    run = gate.run("26_flex_ops", only("tensorflow", *EXPORTED, "openvino_ir"))
    assert statuses(run.record) == {"tensorflow": "pass", "saved_model": "pass"} | dict.fromkeys(lacking, "fail")
    assert edges(run.record) == dict.fromkeys(lacking, "export")
    for name in lacking:
        causes = [f.cause for f in run.record.findings if f.target == name and f.code in {"KP201", "KP202"}]
        assert causes
        assert all("Erfinv" in cause for cause in causes)
    assert (str(run.verdict), int(run.exit_code)) == ("FAIL", 1)
    check_answers(run, gate.cases / "26_flex_ops")


def test_an_antialiased_resize_is_named_with_its_layer(gate: Gate) -> None:
    record = gate.run("antialiased", only(*EXPORTED)).record
    assert statuses(record) == {"saved_model": "pass", "litert": "fail", "onnxruntime": "fail", "openvino": "fail"}
    assert edges(record) == dict.fromkeys(("litert", "onnxruntime", "openvino"), "export")
    assert ("KP201", "litert", "thumb") in loud(record)
    assert ("KP202", "onnxruntime", "thumb") in loud(record)
    assert any("ScaleAndTranslate (layer thumb)" in f.cause for f in record.findings if f.target == "openvino")


def test_a_trace_that_fails_names_the_layer_and_leaves_tensorflow_judged(gate: Gate) -> None:
    run = gate.run("28_dynamic_hw")
    exported = (*EXPORTED, "openvino_ir")
    check(run, expect("FAIL", *(("KP201", name, "blend") for name in exported), failed=dict.fromkeys(exported, "export")))
    assert statuses(run.record)["tensorflow"] == "pass"
    check_answers(run, gate.cases / "28_dynamic_hw")


# ------------------------------------------------------------ strings and tables


def test_strings_inside_the_model_name_the_layer_wherever_they_cannot_run(gate: Gate) -> None:
    run = gate.run("13_text_vectorization", '[model]\nbackend = "tensorflow"\n')
    record = run.record
    assert statuses(record) == dict.fromkeys(ALL, "fail") | dict.fromkeys(("tensorflow", "saved_model"), "pass")
    assert edges(record) == dict.fromkeys(("litert", "onnxruntime", "openvino", "openvino_ir"), "export") | {"keras_openvino": "backend"}
    assert "tv" in named(record, "KP202", "litert")
    assert "tv" in named(record, "KP202", "onnxruntime")
    assert (str(run.verdict), int(run.exit_code)) == ("FAIL", 1)
    assert {row.decision for row in record.golden.rows} == {"0", "1"}


@pytest.mark.parametrize("name", ["openvino", "openvino_ir"])
def test_openvino_names_the_layer_of_strings(gate: Gate, name: str) -> None:
    record = gate.run("13_text_vectorization", '[model]\nbackend = "tensorflow"\n').record
    assert any("tv" in (f.place, *f.cause.replace("'", " ").split()) for f in record.findings if f.target == name)


def test_strings_on_the_wrong_backend_leave_nothing_passed(gate: Gate) -> None:
    record = gate.run("13_text_vectorization", only("saved_model", "litert")).record
    assert {"KP311", "KP313"} <= {f.code for f in record.findings if f.target == "reference"}
    assert statuses(record) == {"saved_model": "unchecked", "litert": "fail"}
    assert edges(record) == {"litert": "export"}
    assert record.edge is not None
    assert record.edge.name == "backend"
    assert {t.cells.passed for t in record.targets} == {0}
    assert str(record.verdict) == "FAIL"


def test_a_hash_table_of_numbers_is_named(gate: Gate) -> None:
    record = gate.run("integer_lookup", '[model]\nbackend = "tensorflow"\n' + only("saved_model", "litert")).record
    assert statuses(record) == {"saved_model": "pass", "litert": "fail"}
    assert edges(record) == {"litert": "export"}
    assert "table" in named(record, "KP202", "litert")


# ------------------------------------------------------------ names


RENAMED = ("saved_model", "litert", "openvino", "openvino_ir")
"""Artifacts whose names are TensorFlow's, which doesn't take any character."""


def test_an_artifact_that_renames_an_input_is_told_apart(gate: Gate) -> None:
    run = gate.run("37_odd_names")
    record = run.record
    assert {name for name in ALL if named(record, "KP203", name)} == set(RENAMED)
    assert statuses(record) == dict.fromkeys(ALL, "pass") | {"tensorflow": "fail"}
    assert edges(record) == {"tensorflow": "backend"}
    assert [f.severity for f in record.findings if f.code == "KP203"] == ["warning"] * len(named(record, "KP203"))
    for name in RENAMED:
        causes = " ".join(f.cause for f in record.findings if f.code == "KP203" and f.target == name)
        assert all(word in causes for word in ("age (years)", "age__years_", "prix:0-\u20ac", "prix_0__"))
    check_answers(run, gate.cases / "37_odd_names")


def test_a_model_name_that_tensorflow_cannot_run_fails_there(gate: Gate) -> None:
    """``predict`` of such a model raises on TensorFlow, whatever an export may do about it."""
    run = gate.run("37_odd_names")
    assert {f.target for f in run.record.findings if f.code == "KP311"} == {"tensorflow"}
    assert any("my model" in f.cause for f in run.record.findings if f.code == "KP311")
    assert (str(run.verdict), int(run.exit_code)) == ("FAIL", 1)


def test_odder_names_and_a_score_of_one_half(gate: Gate) -> None:
    run = gate.run("stranger_names", only("saved_model", "onnxruntime"))
    assert statuses(run.record) == {"saved_model": "pass", "onnxruntime": "pass"}
    assert {f.target for f in run.record.findings if f.code == "KP203"} == {"saved_model"}
    assert {f.target for f in run.record.findings if f.code == "KP209"} == {"saved_model", "onnxruntime"}
    assert named(run.record, "KP414") == ["answer?"]
    assert (str(run.verdict), int(run.exit_code)) == ("PASS", 0)
    check_answers(run, gate.cases / "stranger_names")


def test_an_input_given_back_and_a_tensor_given_twice_are_three_outputs(gate: Gate) -> None:
    """ONNX can't name an output as an input; that it is called otherwise there has to be said."""
    run = gate.run("43_passthrough_outputs", only(*EXPORTED, "openvino_ir"))
    check(run, expect("PASS", ("KP203", "onnxruntime", "x"), *order("litert")))
    assert {t.cells.passed for t in run.record.targets} == {27}
    check_answers(run, gate.cases / "43_passthrough_outputs")


# ------------------------------------------------------------ precision of the machine


def test_a_machine_that_computes_in_bfloat16_flips_decisions_and_is_told(gate: Gate) -> None:
    run = gate.run("24_openvino_bf16_default", "[targets.litert]\n[targets.openvino]\n[targets.keras_openvino]\n")
    coarse = bool({"avx512_bf16", "amx_bf16"} & set(run.record.environment.cpu_features))
    targets = {"openvino", "keras_openvino"}
    assert {f.target for f in run.record.findings if f.code == "KP308"} == targets
    assert {f.target for f in run.record.findings if f.code == "KP309"} == (targets if coarse else set())
    assert all(t.cells.failed == 0 and t.flips == 0 for t in run.record.targets)
    assert str(run.verdict) == ("FAIL" if coarse else "PASS")
    check_answers(run, gate.cases / "24_openvino_bf16_default")


def test_the_setting_stated_passes_and_the_machines_own_choice_fails(gate: Gate) -> None:
    own = '[targets.as_installed]\nruntime = "openvino"\nprecision = "default"\nrequired = false\n'
    run = gate.run("24_openvino_bf16_default", only("openvino") + own)
    coarse = bool({"avx512_bf16", "amx_bf16"} & set(run.record.environment.cpu_features))
    assert not {"KP308", "KP309"} & {f.code for f in run.record.findings}
    assert statuses(run.record) == {"openvino": "pass", "as_installed": "fail" if coarse else "pass"}
    assert edges(run.record) == ({"as_installed": "precision"} if coarse else {})
    assert bool(named(run.record, "KP404", "as_installed")) == coarse
    assert (str(run.verdict), int(run.exit_code)) == ("PASS", 0)


def test_a_threshold_that_a_machines_own_precision_crosses_is_told(gate: Gate) -> None:
    run = gate.run("near_a_threshold", only("onnxruntime") + "[targets.openvino]\n")
    coarse = bool({"avx512_bf16", "amx_bf16"} & set(run.record.environment.cpu_features))
    assert {f.target for f in run.record.findings if f.code == "KP308"} == {"openvino"}
    assert {f.target for f in run.record.findings if f.code == "KP309"} == ({"openvino"} if coarse else set())
    assert all(t.cells.failed == 0 and t.flips == 0 for t in run.record.targets)
    assert str(run.verdict) == ("FAIL" if coarse else "PASS")
    check_answers(run, gate.cases / "near_a_threshold")


# ------------------------------------------------------------ OpenVINO fed from ONNX


FROM_ONNX = '[targets.ov_from_onnx]\nruntime = "openvino_ir"\nartifact = "{artifact}"\nsettings = {{ INFERENCE_PRECISION_HINT = "f32" }}\n'


@pytest.fixture(scope="module")
def onnx_file(gate: Gate) -> Path:
    """The ONNX file that the gate exported and judged right on ONNX Runtime."""
    return gate.run(*_order_of("63_two_lstm_openvino_onnx")).folder / "artifacts" / "onnx" / "model.onnx"


def check_wrong_in_batches(run: kpipe.Run) -> None:
    """Right one by one, wrong in company."""
    judged = target(run.record, "ov_from_onnx")
    by_mode = {drift.mode: drift.cells for drift in judged.drift}
    assert by_mode["alone"].failed == 0
    assert by_mode["alone"].passed == 6
    assert all(by_mode[mode].failed for mode in ("batch_3", "batch_8"))
    assert {"KP401", "KP408"} <= {f.code for f in run.record.findings if f.target == "ov_from_onnx"}
    assert (str(judged.status), str(run.verdict), int(run.exit_code)) == ("fail", "FAIL", 1)
    assert edges(run.record) == {"ov_from_onnx": "batch"}


def test_openvino_on_an_ir_read_from_onnx_is_wrong_in_batches_only(gate: Gate, onnx_file: Path, tmp_path: Path) -> None:
    """As ``Core.read_model`` reads the file; ``convert_model`` gets it right."""
    ir = tmp_path / "model.xml"
    script = "import sys, openvino as ov; ov.save_model(ov.Core().read_model(sys.argv[1]), sys.argv[2], compress_to_fp16=False)"
    subprocess.run([sys.executable, "-c", script, str(onnx_file), str(ir)], check=True, capture_output=True, env={"HOME": str(tmp_path)})
    same_file = f'[targets.onnxruntime]\nartifact = "{onnx_file}"\n'
    run = gate.run("63_two_lstm_openvino_onnx", FROM_ONNX.format(artifact=ir) + same_file)
    check_wrong_in_batches(run)
    assert statuses(run.record)["onnxruntime"] == "pass"


def test_openvino_on_the_onnx_file_itself_is_wrong_in_batches_only(gate: Gate, onnx_file: Path) -> None:
    check_wrong_in_batches(gate.run("63_two_lstm_openvino_onnx", FROM_ONNX.format(artifact=onnx_file)))


def test_a_masked_gru_that_openvino_cannot_read_from_onnx_is_no_silence(gate: Gate) -> None:
    """Sibling of 63: there the file is read and wrong, here it is refused; either way the ONNX file's own runtime is right."""
    file = gate.run(*_order_of("recurrent")).folder / "artifacts" / "onnx" / "model.onnx"
    same_file = f'[targets.onnxruntime]\nartifact = "{file}"\n'
    run = gate.run("recurrent", FROM_ONNX.format(artifact=file) + same_file)
    assert statuses(run.record) == {"ov_from_onnx": "fail", "onnxruntime": "pass"}
    assert target(run.record, "ov_from_onnx").cells.passed == 0
    assert (str(run.verdict), int(run.exit_code)) == ("FAIL", 1)
    assert {"KP303", "KP201", "KP311"} & {f.code for f in run.record.findings if f.target == "ov_from_onnx"}


# ------------------------------------------------------------ code and custom objects


@pytest.mark.parametrize(
    ("case", "code", "place", "word"),
    [
        ("21_lambda_safe_mode", "KP006", "double", "Lambda"),
        ("nested_lambda", "KP006", "hidden_code", "Lambda"),
        ("22_custom_layer_unregistered", "KP007", "tripled", "Scale"),
        ("custom_function", "KP007", "bent", "swishy"),
    ],
)
def test_code_and_custom_objects_are_refused_by_name(gate: Gate, case: str, code: str, place: str, word: str) -> None:
    run = gate.run(case)
    check_refused(run.record)
    finding = next(f for f in run.record.findings if f.code == code)
    assert (finding.place, int(run.exit_code)) == (place, 1)
    assert word in finding.cause
    assert {"KP006": "allow_lambda", "KP007": "custom"}[code] in finding.remedy


@pytest.mark.parametrize(("case", "source"), [("22_custom_layer_unregistered", SCALE_SOURCE), ("custom_function", SWISHY_SOURCE)])
def test_custom_objects_that_are_given_pass(gate: Gate, case: str, source: str, tmp_path: Path) -> None:
    layers = tmp_path / "layers.py"
    layers.write_text(source, encoding="utf-8")
    run = gate.run(case, only("litert"), custom_objects=(layers,))
    check(run, expect())
    check_answers(run, gate.cases / case)


def test_a_lambda_allowed_by_name_passes(gate: Gate) -> None:
    run = gate.run("21_lambda_safe_mode", '[model]\nallow_lambda = ["double"]\n' + only("litert"))
    check(run, expect())
    check_answers(run, gate.cases / "21_lambda_safe_mode")


def test_a_lambda_allowed_by_another_name_is_refused(gate: Gate) -> None:
    run = gate.run("21_lambda_safe_mode", '[model]\nallow_lambda = ["triple"]\n')
    check_refused(run.record)
    assert named(run.record, "KP006") == ["double"]


# ------------------------------------------------------------ the command


def test_the_commands_exit_codes(cases: Path, tmp_path: Path) -> None:
    (tmp_path / "kpipe.toml").write_text("[timing]\ncalls = 0\nend_to_end_calls = 0\n" + WITHOUT_TENSORFLOW, encoding="utf-8")
    model, golden = cases / "base" / "model.keras", cases / "base" / "inputs.npz"
    words = ("validate", model, "--contract", "kpipe.toml", "--golden", golden)
    whole = command(*words, "--out", "whole", folder=tmp_path)
    part = command(*words, "--out", "part", "--target", "litert", folder=tmp_path)
    assert whole.exit_code == 0, whole.stderr
    assert part.exit_code == 3, part.stderr
    assert "PASS" in whole.stdout
    assert "INCOMPLETE" in part.stdout
    assert part.record(tmp_path / "part")["verdict"] == "INCOMPLETE"
    assert command(*words, "--out", "none", "--target", "liter", folder=tmp_path).exit_code == 2
