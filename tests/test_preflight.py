"""Preflight on real runtimes, its answer from records, op profiles and the listing of artifacts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kpipe.contract import OpProfileTable, parse_contract
from kpipe.errors import ContractError
from kpipe.judging.ops import check_ops
from kpipe.opsets import LITERT_MICRO, RUNTIME_OF_OPSET, named_profile
from kpipe.preflight.ways import GENERAL, REMEDIES, ways_out
from kpipe_stages.build_orders import ListResult
from kpipe_stages.protocol import OpUse, Signature

from .cases.gate import command

if TYPE_CHECKING:
    from pathlib import Path

ARCHITECTURE = """
import keras

def build():
    x = keras.Input((12, 12, 3), name="picture")
    y = keras.layers.Conv2D(4, 3, activation="gelu", name="looks")(x)
    y = keras.layers.GlobalAveragePooling2D()(y)
    return keras.Model(x, keras.layers.Dense(3, activation="softmax", name="says")(y))

def colours():
    x = keras.Input((8, 8, 3), name="picture")
    y = keras.layers.Rescaling(0.1)(x)
    y = keras.ops.image.rgb_to_hsv(y)
    return keras.Model(x, keras.layers.Flatten()(y))

def nothing():
    return 3

def raises():
    return 1 / 0
"""
CONTRACT = """
[targets.litert]
op_profile = "tflite-micro"
[targets.onnxruntime]
op_profile = "onnxruntime-1.13"
[targets.openvino_ir]
op_profile = "openvino-CPU"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("preflight")
    (path / "arch.py").write_text(ARCHITECTURE)
    (path / "kpipe.toml").write_text('[model]\nbackend = "tensorflow"\n' + CONTRACT)
    return path


@pytest.mark.runtimes
def test_ops_outside_their_profiles_are_named_with_layer_and_three_ways_out(folder: Path) -> None:
    answer = command("preflight", "arch.py:build", "--contract", "kpipe.toml", "--out", "run", "--json", folder=folder)
    assert answer.exit_code == 1, answer.stderr
    found = json.loads(answer.stdout)
    assert {target["name"]: target["answer"] for target in found["targets"]} == {
        "litert": "would not",
        "onnxruntime": "would not",
        "openvino_ir": "would convert and agree",
    }
    problems = [one for one in found["problems"] if one["error"]]
    assert {(one["target"], one["code"], one["layer"], tuple(one["ops"])) for one in problems} >= {("litert", "KP230", "looks", ("GELU",))}
    assert {(one["target"], tuple(one["ops"])) for one in problems if one["target"] == "onnxruntime"} == {("onnxruntime", ("ReduceMean",))}
    assert all(len(one["ways"]) == 3 for one in problems)
    record = json.loads((folder / "run" / "run.json").read_text())
    assert record["verdict"] != "PASS"
    artifact = next(row["artifact"] for row in record["targets"] if row["name"] == "litert")
    convolution = next(use for use in artifact["inventory"] if use["op"] == "CONV_2D")
    assert (convolution["count"], convolution["dtypes"], convolution["layers"]) == (1, ["float32"], ["looks"])
    assert sum(use["count"] for use in artifact["inventory"]) == sum(artifact["ops"].values())
    converted = next(row["artifact"] for row in record["targets"] if row["name"] == "openvino_ir")
    layers = {use["op"]: use["layers"] for use in converted["inventory"]}
    assert layers["Convolution"] == ["looks"]
    assert layers["Constant"] == []  # which layer a constant belongs to is not to be told


@pytest.mark.runtimes
def test_a_model_that_would_convert_ends_with_0_and_inspect_lists_the_artifacts_ops(folder: Path) -> None:
    answer = command("preflight", "arch.py:build", "--target", "litert", "--target", "onnxruntime", "--out", "fine", folder=folder)
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout.startswith("WOULD CONVERT AND AGREE: 2 of 2 required targets")
    assert "no verdict" in answer.stdout
    listed = command("inspect", "fine/artifacts/litert/model.tflite", "--op-profile", "tflite-micro", folder=folder)
    assert listed.exit_code == 1
    assert "CONV_2D" in listed.stdout
    assert "GELU version 1, 1 times" in listed.stdout
    assert "doesn't tell" in listed.stdout
    assert command("inspect", "fine/artifacts/onnx/model.onnx", "--op-profile", "onnxruntime-1.14", folder=folder).exit_code == 0
    refused = command("inspect", "fine/artifacts/onnx/model.onnx", "--op-profile", "tflite-micro", folder=folder)
    assert refused.exit_code == 2
    assert "this file is of the format onnx" in refused.stderr


@pytest.mark.runtimes
def test_what_cannot_run_ends_with_1_and_three_ways_out(folder: Path) -> None:
    (folder / "two.toml").write_text('[model]\nbackend = "tensorflow"\n[targets.litert]\n[targets.saved_model]\n')
    answer = command("preflight", "arch.py:colours", "--contract", "two.toml", "--out", "colours", folder=folder)
    assert answer.exit_code == 1, answer.stderr
    assert "WOULD NOT: 1 of 2 required targets" in answer.stdout
    assert "RGBToHSV" in answer.stdout
    assert all(f"\n  {number}. " in answer.stdout for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("model.txt", "Expected module:function"),
        ("none.keras", "does not exist"),
        ("none.py:build", "none.py does not exist"),
        ("arch.py:not-a-name", "is no function's name"),
    ],
)
def test_sources_that_are_off_end_with_2(folder: Path, source: str, message: str) -> None:
    answer = command("preflight", source, "--out", "never", folder=folder)
    assert answer.exit_code == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (folder / "never").exists()


@pytest.mark.runtimes
@pytest.mark.parametrize(
    ("name", "message"), [("missing", "has no function 'missing'"), ("nothing", "returned a int"), ("raises", "ZeroDivisionError at")]
)
def test_functions_that_give_no_model_end_with_2(folder: Path, name: str, message: str) -> None:
    answer = command("preflight", f"arch.py:{name}", "--out", f"never-{name}", folder=folder)
    assert answer.exit_code == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


# ---------------------------------------------------------------- pure


def listed(*uses: OpUse, opset: int = 0) -> ListResult:
    return ListResult(Signature((), ()), uses, (), 0, 0, opset, {})


def outside(
    profile: str, *uses: OpUse, opset: int = 0, facts: dict[str, Any] | None = None, own: dict[str, OpProfileTable] | None = None
) -> list[str]:
    checked = check_ops(profile, own or {}, listed(*uses, opset=opset), facts)
    assert not checked.unknown
    return [violation.op for violation in checked.violations]


def use(op: str, version: str = "1") -> OpUse:
    return OpUse(op, version, 1, ("float32",), ("layer",))


def test_lists_of_litert() -> None:
    uses = (use("CONV_2D"), use("GELU"), use("FlexErf"), use("CUSTOM:Mine"))
    assert outside("litert-builtin", *uses) == ["FlexErf", "CUSTOM:Mine"]
    assert outside("litert-select-tf", *uses) == ["CUSTOM:Mine"]
    assert outside("tflite-micro", *uses) == ["GELU", "FlexErf", "CUSTOM:Mine"]
    assert len(LITERT_MICRO) == 96


def test_opsets_and_runtimes() -> None:
    uses = (use("Add", "14"), use("ReduceMean", "18"), use("com.microsoft::Gelu", "1"))
    assert outside("onnx-opset-17", *uses, opset=18) == ["ReduceMean", "com.microsoft::Gelu"]
    assert outside("onnx-opset-18", *uses, opset=18) == ["com.microsoft::Gelu"]
    assert outside("onnxruntime-1.13", *uses, opset=18) == ["ReduceMean"]
    assert outside("onnxruntime-1.14", *uses[:2], opset=18) == []
    assert "com.microsoft::Gelu" in check_ops("onnxruntime-1.14", {}, listed(*uses, opset=18), None).unknown
    assert outside("onnxruntime-1.13", use("Add", "14"), opset=18) == ["(opset)"], "an older op in a file of a newer opset is refused as well"
    assert list(RUNTIME_OF_OPSET.values()) == sorted(RUNTIME_OF_OPSET.values())


@pytest.mark.parametrize(
    ("profile", "listing", "facts"),
    [
        ("onnxruntime-1.30", listed(use("Add", "99"), opset=99), None),
        ("onnxruntime-1.30", listed(use("Add", "7"), opset=0), None),
        ("openvino-NPU", listed(use("Add", "opset1")), None),
        ("openvino-NPU", listed(use("Add", "opset1")), {"query_model": {"device": "NPU", "problem": "this machine has no NPU", "unsupported": {}}}),
        ("openvino-NPU", listed(use("Add", "opset1")), {"query_model": {"device": "CPU", "problem": "", "unsupported": {}}}),
        ("tflite-micro", listed(), None),
    ],
)
def test_what_is_not_known_is_unchecked(profile: str, listing: ListResult, facts: dict[str, Any] | None) -> None:
    checked = check_ops(profile, {}, listing, facts)
    assert checked.unknown
    assert checked.violations == ()


def test_devices_and_lists_of_ones_own() -> None:
    facts = {"query_model": {"device": "CPU", "problem": "", "unsupported": {"Erf": ["a", "b"]}}}
    assert outside("openvino-CPU", use("Erf", "opset1"), facts=facts) == ["Erf"]
    own = {"chip": OpProfileTable(ops=("CONV_2D", "ADD"), versions={"CONV_2D": 3})}
    assert outside("chip", use("CONV_2D", "3"), use("ADD", "9"), own=own) == []
    assert outside("chip", use("CONV_2D", "5"), use("MEAN"), own=own) == ["CONV_2D", "MEAN"]
    assert outside("chip", use("CONV_2D", ""), own=own) == ["CONV_2D"], "a version that isn't known is not below a limit"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[targets.litert]\nop_profile = "tflite-mikro"', "did you mean 'tflite-micro'"),
        ('[targets.litert]\nop_profile = "onnx-opset-17"', "it is about onnx, and litert runs a file of another format"),
        ('[targets.tensorflow]\nop_profile = "litert-builtin"', "has layers and no ops"),
        ('[op_profiles.tflite-micro]\nops = ["ADD"]', "not one of kpipe's own"),
        ("[op_profiles.chip]\nops = []", "op_profiles.chip.ops"),
    ],
)
def test_profiles_that_are_off_are_refused(text: str, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        parse_contract(text, "kpipe.toml")


@pytest.mark.parametrize("name", ["onnx-opset-", "onnxruntime-1", "openvino-cpu", "openvino-", ""])
def test_names_that_are_none(name: str) -> None:
    assert named_profile(name) is None


def test_every_remedy_has_three_different_ways_out_and_is_found() -> None:
    for remedy in REMEDIES:
        assert len(set(remedy.ways)) == 3
    assert ways_out("litert", "FlexStaticRegexReplace TextVectorization")[0].startswith("move the layer out")
    assert ways_out("litert", "TensorListReserve")[0].startswith("leave [export] repairs on")
    assert ways_out("saved_model", "anything") == GENERAL
