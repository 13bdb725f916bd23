"""Precision variants on the real runtimes: every one from raw file to decision, calibration sets that are bad or golden, and what can't be made."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kpipe
from kpipe.diagnosis.subject import open_subject
from kpipe.errors import GoldenError, UsageError
from kpipe.report.savings import saving_rows
from kpipe_stages.catalog import RUNTIMES, VARIANTS
from kpipe_stages.codec import decode, read_json
from kpipe_stages.digest import digest
from kpipe_stages.protocol import Job, QuantizeJob, RunJob, TimingPlan
from kpipe_stages.rows import Rows

from .sample_gate import GOLDEN, LAYERS, MODEL, QUIET, ROOT, artifact, codes, digits_contract, findings, manifest, states
from .sample_worker import Told, python, tell

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.record import TargetRecord

pytestmark = pytest.mark.runtimes

EXAMPLE = ROOT / "examples" / "digits"
COUNT = len(manifest(GOLDEN))


def target(run: kpipe.Run, name: str) -> TargetRecord:
    return next(t for t in run.record.targets if t.name == name)


# ------------------------------------------------------------ every variant, end to end


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    """The shipped example of variants, with few timed calls."""
    folder = tmp_path_factory.mktemp("variants")
    text = (EXAMPLE / "variants.toml").read_text(encoding="utf-8")
    text = text.replace('"layers.py"', json.dumps(str(LAYERS))).replace('"calibration.npz"', json.dumps(str(EXAMPLE / "calibration.npz")))
    text = text.replace('"../../golden_inputs/digits"', json.dumps(str(GOLDEN)))
    contract = folder / "kpipe.toml"
    contract.write_text(text + "\n[timing]\ncalls = 12\nend_to_end_calls = 11\n", encoding="utf-8")
    return kpipe.validate(MODEL, contract=contract, out=folder / "run")


def test_the_example_has_every_variant_of_every_format(every: kpipe.Run) -> None:
    there = {(RUNTIMES[t.runtime].artifact, t.variant) for t in every.record.targets if t.variant}
    assert there == {(kind, name) for kind, known in VARIANTS.items() for name in known}


def test_every_variant_is_checked_on_every_golden_input(every: kpipe.Run) -> None:
    assert every.verdict is kpipe.Verdict.PASS, every.record.headline
    for one in every.record.targets:
        modes = ("alone",) if one.runtime == "litert_compiled" else ("alone", "batch_3", "batch_8")
        assert (one.modes, one.cells.unchecked) == (modes, 0), one.name
        assert one.cells.passed == COUNT * len(modes), one.name
        assert one.latency is not None, one.name
        assert one.end_to_end is not None, one.name
        assert {d.tolerance.numeric for d in one.drift} == {one.variant in {"", "float16"}}, one.name
    assert codes(every.record) <= {"KP209", "KP212", "KP415", "KP405", "KP507"}


def test_variants_are_what_they_say(every: kpipe.Run) -> None:
    for one in every.record.targets:
        if not one.variant:
            continue
        file = artifact(every, one.name)
        assert file.parent.name == f"{RUNTIMES[one.runtime].artifact}_{one.variant}"
        beside = next(v for v in every.record.variants if v.target == one.name)
        assert beside.float_costs is not None, one.name
        assert beside.costs.size is not None
        assert beside.float_costs.size is not None
        assert beside.costs.size < 0.7 * beside.float_costs.size, one.name
        assert 1e-6 < (beside.costs.max_abs or 0) < 0.5, one.name
        record = one.artifact
        assert record is not None
        assert digest(file, tuple(every.folder / name for name in record.companions)) == record.sha256
    for name in ("litert_float16", "onnxruntime_float16", "openvino_ir_float16"):
        assert max(d.max_abs for d in target(every, name).drift) < 0.01, name


def test_operators_are_integers_where_it_is_said(every: kpipe.Run) -> None:
    def ops(name: str) -> dict[str, int]:
        record = target(every, name).artifact
        assert record is not None
        return record.ops

    assert ops("onnxruntime_int8")["QuantizeLinear"] > 10
    assert ops("onnxruntime_dynamic_int8")["ConvInteger"] == 2
    assert ops("litert_int8")["QUANTIZE"] >= 1
    assert ops("openvino_ir_int8")["FakeQuantize"] >= 4
    assert "int8" in target(every, "litert_int8").effective_precision
    assert target(every, "openvino_ir_bf16").effective_precision.startswith("bfloat16") or not any(
        "bf16" in f for f in every.record.environment.cpu_features
    )


def test_what_stays_in_float32_is_named_with_its_layer(every: kpipe.Run) -> None:
    (one,) = [f for f in findings(every.record, "KP209", "litert_int16x8") if "stays in float32" in f.cause]
    assert "SQUARE (layer norm_2)" in one.cause


def test_one_table_shows_each_saving_beside_its_float_row(every: kpipe.Run) -> None:
    rows = saving_rows(every.record)
    assert [row.name for row in rows if not row.variant] == ["tensorflow", "litert", "litert_compiled", "onnxruntime", "openvino_ir"]
    assert {row.name for row in rows if row.variant} == {t.name for t in every.record.targets if t.variant}
    assert all("x)" in row.values[0] and "x)" in row.values[1] for row in rows if row.variant)
    for page in ("report.html", "report.md"):
        text = (every.folder / page).read_text(encoding="utf-8")
        assert "What each saving costs" in text
        assert all(row.name in text for row in rows)
    assert len(json.loads((every.folder / "run.json").read_text(encoding="utf-8"))["variants"]) == len([r for r in rows if r.variant])


def test_a_variant_has_its_own_deployment_with_what_it_was_calibrated_on(every: kpipe.Run) -> None:
    calibrated = tomllib.loads((every.folder / "artifacts" / "litert_int8" / "deploy.toml").read_text(encoding="utf-8"))
    assert calibrated["artifact"]["variant"] == "int8"
    assert calibrated["calibration"] == {
        "path": str(EXAMPLE / "calibration.npz"),
        "sha256": digest(EXAMPLE / "calibration.npz"),
        "inputs": 120,
    }
    assert set(calibrated["targets"]) == {"litert_int8", "litert_int8_without_xnnpack", "litert_compiled_int8"}
    plain = tomllib.loads((every.folder / "artifacts" / "litert_float16" / "deploy.toml").read_text(encoding="utf-8"))
    assert "calibration" not in plain


def test_the_record_fits_its_schema(every: kpipe.Run) -> None:
    from jsonschema import Draft202012Validator

    schema = json.loads((ROOT / "docs" / "schema" / "run.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(json.loads((every.folder / "run.json").read_text(encoding="utf-8")))
    assert kpipe.load_run(every.folder).record == every.record


def test_a_stricter_contract_judges_the_same_variants_again(every: kpipe.Run, tmp_path: Path) -> None:
    text = (every.folder / "contract.toml").read_text(encoding="utf-8").replace("max_flips = 1", "max_flips = 0")
    stricter = tmp_path / "kpipe.toml"
    stricter.write_text(text, encoding="utf-8")
    again = kpipe.judge(every.folder, stricter, write=False)
    assert again.verdict is kpipe.Verdict.FAIL
    flipped = {t.name for t in again.record.targets if t.flips}
    assert {name for name, status in states(again.record).items() if status == "fail"} == flipped
    assert all(t.edge is not None and t.edge.name == "precision" for t in again.record.targets if t.name in flipped)


def test_diagnose_refuses_a_variant_and_says_which_target_to_take(every: kpipe.Run) -> None:
    with pytest.raises(UsageError, match="runs the precision variant int8"):
        open_subject(every.folder, "litert_int8")


# ------------------------------------------------------------ workers that lack something


def quantize_again(every: kpipe.Run, stage: str, kind: str, folder: Path, shadow: str, **changes: Any) -> Told:
    """The worker that made a variant again, with a library of this name that can't be imported."""
    (folder / "shadow").mkdir()
    (folder / "shadow" / f"{shadow}.py").write_text(f"raise ImportError('there is no {shadow}', name='{shadow}')\n")
    order = decode(QuantizeJob, read_json(Job, every.folder / "stages" / stage / "job.json").params)
    return tell(
        f"quantize_{kind}", replace(order, out=str(folder / "out"), **changes), folder / "run", folder / "home", first_on_path=str(folder / "shadow")
    )


def test_without_nncf_the_extra_is_named_and_float16_is_made_all_the_same(every: kpipe.Run, tmp_path: Path) -> None:
    told = quantize_again(every, "quantize.openvino_ir.int8", "openvino_ir", tmp_path, "nncf")
    assert told.code == "KP301"
    assert "pip install 'keras-kpipe[nncf]'" in told.result.observations[-1].remedy
    (tmp_path / "other").mkdir()
    told = quantize_again(every, "quantize.openvino_ir.float16", "openvino_ir", tmp_path / "other", "nncf")
    assert told.result.status == "ok", told.result.observations


def test_a_float_artifact_that_changed_is_not_quantised(every: kpipe.Run, tmp_path: Path) -> None:
    order = decode(QuantizeJob, read_json(Job, every.folder / "stages" / "quantize.onnx.int8" / "job.json").params)
    told = quantize_again(every, "quantize.onnx.int8", "onnx", tmp_path, "nothing", source=replace(order.source, sha256="0" * 64))
    assert told.code == "KP211"


# ------------------------------------------------------------ the compiled-model API


def compiled(every: kpipe.Run, folder: Path, **changes: Any) -> Told:
    """The worker of the target 'litert_compiled' again, told something else."""
    job = read_json(Job, every.folder / "stages" / "run.litert_compiled" / "job.json")
    order = replace(decode(RunJob, job.params), items=(), inputs=(), decisions=(), timing=TimingPlan(0, 0), **changes)
    return tell("run_litert_compiled", order, folder / "run", folder / "home")


def test_the_compiled_model_api_is_never_fed_another_size_than_declared(every: kpipe.Run, tmp_path: Path) -> None:
    """Its output buffers keep the declared size: a bigger batch would be written past them."""
    told = compiled(every, tmp_path, fixed_batch=None, batches=(2,))
    assert told.run.modes == ("alone",)
    assert "takes [1, 16, 16, 1] only" in told.run.failed["batch_2"]


@pytest.mark.parametrize(("name", "value"), [("kernel_mode", "fast"), ("num_threads", 0), ("xnnpack", True)])
def test_the_compiled_model_api_refuses_settings_that_it_does_not_have(every: kpipe.Run, tmp_path: Path, name: str, value: object) -> None:
    refused = compiled(every, tmp_path, load_only=True, settings={name: value})
    assert refused.code == "KP303"
    assert f"'{name}'" in refused.result.observations[-1].cause


def test_the_compiled_model_api_runs_on_its_builtin_kernels_too(every: kpipe.Run, tmp_path: Path) -> None:
    told = compiled(every, tmp_path, settings={"kernel_mode": "builtin", "num_threads": 1})
    assert told.run.facts["effective_settings"] == {"kernel_mode": "builtin", "num_threads": 1}
    known = Rows(every.folder / "stages" / "reference" / "outputs" / "alone" / "0")
    np.testing.assert_allclose(np.stack(list(told.rows("alone", "digit"))), np.stack(list(known)), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------ calibration sets


DARK = """
[calibration]
path = "dark.npz"

[export]
repairs = false

[targets.litert]

[targets.litert_int8]
quantize = "int8"

[targets.litert_int16x8]
quantize = "int16x8"

[targets.litert_dynamic_int8]
quantize = "dynamic_int8"

[targets.openvino_ir_f16]
runtime = "openvino_ir"
settings = { INFERENCE_PRECISION_HINT = "f16" }
"""


@pytest.fixture(scope="module")
def dark(every: kpipe.Run, tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    """Calibrated on images that are fifty times too dark: what is bright is clipped. No repairs; and two files that are handed in as int8."""
    folder = tmp_path_factory.mktemp("dark")
    with np.load(EXAMPLE / "calibration.npz") as known:
        np.savez(folder / "dark.npz", image=(known["image"] * 0.02).astype(np.float32))
    given = {"shipped": artifact(every, "litert_int8"), "mistaken": artifact(every, "litert")}
    targets = [f"[targets.{name}]\nruntime = 'litert'\nquantize = 'int8'\nartifact = {json.dumps(str(path))}\n" for name, path in given.items()]
    return kpipe.validate(MODEL, contract=digits_contract(folder, DARK + "".join(targets)), out=folder / "run")


def test_a_bad_calibration_set_flips_decisions_and_is_caught(dark: kpipe.Run) -> None:
    one = target(dark, "litert_int8")
    assert (dark.verdict, one.status) == (kpipe.Verdict.FAIL, "fail")
    assert one.flips > 10
    assert "KP404" in codes(dark.record, "litert_int8")
    assert one.edge is not None
    assert one.edge.name == "precision"
    assert states(dark.record)["litert"] == "pass"


def test_what_needs_no_calibration_is_not_touched_by_it(dark: kpipe.Run) -> None:
    assert target(dark, "litert_dynamic_int8").flips <= 1


def test_a_variant_that_can_not_be_made_is_a_finding_with_op_and_layer(dark: kpipe.Run) -> None:
    (one,) = findings(dark.record, "KP220")
    assert (one.target, one.place, one.evidence["ops"]) == ("litert_int16x8", "norm_2", ["SQUARE"])
    assert "choose another variant (float16, dynamic_int8, int8)" in one.remedy
    assert target(dark, "litert_int16x8").cells.passed == 0


def test_a_precision_hint_that_the_cpu_does_not_follow_is_caught(dark: kpipe.Run) -> None:
    one = target(dark, "openvino_ir_f16")
    if one.effective_precision.startswith("float16"):
        assert "KP307" not in codes(dark.record, "openvino_ir_f16")
    else:
        assert "KP307" in codes(dark.record, "openvino_ir_f16")
        assert one.status == "fail"


def test_a_file_handed_in_as_int8_is_judged_by_decisions_and_has_to_be_one(dark: kpipe.Run) -> None:
    assert {d.tolerance.numeric for d in target(dark, "shipped").drift} == {False}
    assert codes(dark.record, "shipped") <= {"KP203", "KP404", "KP507"}
    assert "KP221" in codes(dark.record, "mistaken")
    assert states(dark.record)["mistaken"] == "fail"
    assert {s.name for s in dark.record.stages if s.name.startswith("quantize")} == {
        f"quantize.litert.{v}" for v in ("int8", "int16x8", "dynamic_int8")
    }


def test_calibrating_on_golden_inputs_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    targets = "\n".join(
        (
            f"[calibration]\npath = {json.dumps(str(GOLDEN))}",
            "[targets.litert_int8]\nquantize = 'int8'",
            "[targets.litert_float16]\nquantize = 'float16'",
        )
    )
    run = kpipe.validate(MODEL, contract=digits_contract(tmp_path, targets), out=tmp_path / "run")
    assert states(run.record) == {"litert_int8": "fail", "litert_float16": "pass"}
    (one,) = findings(run.record, "KP222")
    assert one.target == "litert_int8"
    assert one.cause.startswith(f"{COUNT} of {COUNT} calibration inputs are golden inputs")
    first = manifest(GOLDEN)[0]["id"]
    assert f"'{first}' is golden input '{first}' (the same file)" in one.cause
    assert not (run.folder / "artifacts" / "litert_int8").exists()
    assert Rows(run.folder / "stages" / "calibrate" / "tensors" / "0").shape(0) == (16, 16, 1)


def test_a_calibration_set_that_is_not_there_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    targets = "[calibration]\npath = 'gone.npz'\n[targets.litert_int8]\nquantize = 'int8'\n"
    with pytest.raises(GoldenError, match=r"calibration set gone\.npz: it does not exist"):
        kpipe.validate(MODEL, contract=digits_contract(tmp_path, targets), out=tmp_path / "run")


# ------------------------------------------------------------ a model without decisions


BUILD = """
import os
import sys

import keras
import numpy as np

os.chdir(sys.argv[1])
keras.utils.set_random_seed(3)
x = keras.Input((8, 8, 3), name="x")
h = keras.layers.Conv2D(48, 3, activation="relu", name="conv")(x)
h = keras.layers.Conv2D(48, 3, activation="relu", name="conv_2")(h)
h = keras.layers.GlobalAveragePooling2D(name="mean")(h)
keras.Model(x, {"kind": keras.layers.Dense(5, name="kind")(h), "vector": keras.layers.Dense(3, name="vector")(h)}).save("plain.keras")
y = keras.Input((8, 8, 3), name="x")
keras.Model(y, keras.layers.Conv2D(48, 3, name="conv")(keras.layers.Conv2D(48, 3, name="conv_1")(y))).save("convolutions.keras")
rng = np.random.default_rng(0)
np.savez("golden.npz", x=rng.normal(size=(12, 8, 8, 3)).astype("float32"))
np.savez("calibration.npz", x=rng.normal(size=(40, 8, 8, 3)).astype("float32"))
mixed = np.concatenate([rng.normal(size=(5, 8, 8, 3)), np.load("golden.npz")["x"][7:8]]).astype("float32")
np.savez("leaked.npz", x=mixed)
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    python(BUILD, folder, "tensorflow")
    return folder


def validate(folder: Path, model: str, text: str, name: str) -> kpipe.Run:
    contract = folder / f"{name}.toml"
    contract.write_text(f"[model]\nbackend = 'tensorflow'\n[golden]\npath = 'golden.npz'\n{text}{QUIET}", encoding="utf-8")
    return kpipe.validate(folder / model, contract=contract, out=folder / name)


def test_an_output_that_no_rule_covers_is_unchecked_and_the_covered_one_is_not(plain: Path) -> None:
    rule = "[decision]\nrule = 'argmax'\noutput = 'kind'\n[agreement]\nmax_flips = 12\n"
    sets = "[calibration]\npath = 'calibration.npz'\n"
    named = ("litert_int8", "litert_dynamic_int8", "onnxruntime_int8")
    targets = "".join(f"[targets.{name}]\nquantize = '{name.split('_', 1)[1]}'\n" for name in named)
    run = validate(plain, "plain.keras", f"{rule}{sets}[targets.litert]\n{targets}", "uncovered")
    assert run.verdict is kpipe.Verdict.INCOMPLETE
    assert int(run.exit_code) == 3
    assert states(run.record) == {"litert": "pass", **dict.fromkeys(named, "unchecked")}
    for name in named:
        cells = target(run, name).cells
        assert (cells.passed, cells.failed, cells.unchecked) == (36, 0, 36), name
        (one,) = findings(run.record, "KP430", name)
        assert one.place == "vector"


def test_a_variant_of_a_model_that_keeps_its_float_weights_is_no_variant(plain: Path) -> None:
    text = "[calibration]\npath = 'leaked.npz'\n[targets.tensorflow_int8]\nquantize = 'int8'\n[targets.litert_int8]\nquantize = 'int8'\n"
    run = validate(plain, "convolutions.keras", text, "nothing")
    (one,) = findings(run.record, "KP221")
    assert one.target == "tensorflow_int8"
    assert "next to nothing was made smaller" in one.cause
    (one,) = findings(run.record, "KP222")
    assert one.evidence["pairs"] == {"row-5": "row-07"}
    assert "(the same tensor)" in one.cause
