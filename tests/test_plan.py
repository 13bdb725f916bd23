"""From a contract to targets: every one is there, with a reason where it can't be run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.contract import LoadedContract, parse_contract
from kpipe.errors import UsageError
from kpipe.running.jobs import needed_formats, timing_plan
from kpipe.running.plan import Interpreter, default_targets, input_specs, plan_reference, plan_targets
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from kpipe.evidence import TargetPlan

VERSIONS = {"jax": "0.10.2", "keras": "3.15.1", "tensorflow": "2.21.0", "ai-edge-litert": "2.3.0", "onnxruntime": "1.32.0", "openvino": "2026.4.1"}
HERE = Interpreter("/here/python", VERSIONS)
BARE = Interpreter("/bare/python", {})


def plan(text: str, here: Interpreter = HERE, *, only: tuple[str, ...] = (), **others: Interpreter) -> dict[str, TargetPlan]:
    loaded = LoadedContract(parse_contract(text, "kpipe.toml"), "kpipe.toml", text, Path("/contract"))
    return {p.name: p for p in plan_targets(loaded, here, others, only)}


def why(found: TargetPlan) -> tuple[str, str]:
    assert found.absent is not None
    return found.absent.code, found.absent.cause


def test_without_targets_every_installed_runtime_is_one() -> None:
    found = plan("")
    assert set(found) == {name for name, row in RUNTIMES.items() if row.default_target}
    assert {name for name, p in found.items() if not p.required} == {"keras_openvino"}
    assert all(p.absent is None for p in found.values())
    some = Interpreter("/some/python", {"onnxruntime": "1.32.0", "openvino": "2026.4.1"})
    assert set(plan("", some)) == {"onnxruntime", "openvino", "openvino_ir"} == set(default_targets(some))


def test_no_runtime_at_all_is_said() -> None:
    with pytest.raises(UsageError, match="no runtime is installed"):
        plan("", BARE)


def test_a_target_of_the_contract_is_never_left_out_for_not_being_installed() -> None:
    found = plan("[targets.litert]\n[targets.onnxruntime]", Interpreter("/some/python", {"onnxruntime": "1.32.0"}))
    assert set(found) == {"litert", "onnxruntime"}
    code, cause = why(found["litert"])
    assert code == "KP301"
    assert "ai-edge-litert" in cause
    assert "/some/python" in cause
    assert found["onnxruntime"].absent is None


@pytest.mark.parametrize("missing", ["keras", "openvino"])
def test_every_distribution_that_a_runtime_needs_has_to_be_there(missing: str) -> None:
    here = Interpreter("/here/python", {name: v for name, v in VERSIONS.items() if name != missing})
    code, cause = why(plan("[targets.keras_openvino]", here)["keras_openvino"])
    assert code == "KP301"
    assert missing in cause


@pytest.mark.parametrize(("wanted", "fits"), [("==2.3.0", True), (">=2.0,<3", True), ("==2.3.*", True), ("==2.2.0", False), (">2.3", False)])
def test_another_version_leaves_it_out_and_names_both(wanted: str, fits: bool) -> None:
    found = plan(f"[targets.litert]\nversion = '{wanted}'")["litert"]
    if fits:
        assert found.absent is None
    else:
        code, cause = why(found)
        assert code == "KP302"
        assert wanted in cause
        assert "2.3.0" in cause


def test_a_version_of_the_future_that_is_a_prerelease_counts_as_itself() -> None:
    here = Interpreter("/here/python", {"ai-edge-litert": "2.4.0rc1"})
    assert plan("[targets.litert]\nversion = '>=2.3'", here)["litert"].absent is None
    assert plan("[targets.litert]\nversion = '==2.4.0'", here)["litert"].absent is not None


def test_only_leaves_the_others_out_by_name() -> None:
    found = plan("[targets.litert]\n[targets.onnxruntime]", only=("litert",))
    assert found["litert"].absent is None
    assert why(found["onnxruntime"])[0] == "KP312"
    assert found["onnxruntime"].required
    with pytest.raises(UsageError, match=r"--target litret.*did you mean 'litert'.*litert, onnxruntime"):
        plan("[targets.litert]\n[targets.onnxruntime]", only=("litret",))


def test_another_interpreter_is_asked_and_not_this_one() -> None:
    text = "[targets.litert]\npython = 'other'"
    assert why(plan(text, other=BARE)["litert"])[0] == "KP301"
    broken = Interpreter("/broken/python", VERSIONS, "no such file")
    code, cause = why(plan(text, other=broken)["litert"])
    assert code == "KP301"
    assert "/broken/python" in cause
    assert "no such file" in cause
    assert plan(text, BARE, other=HERE)["litert"].python == "/here/python"
    with pytest.raises(KeyError):  # never this one instead
        plan(text)


def test_float32_is_asked_for_where_the_contract_says_nothing() -> None:
    assert plan("[targets.openvino]")["openvino"].chosen == {"INFERENCE_PRECISION_HINT": "f32"}
    stated = plan("[targets.openvino]\nsettings = { INFERENCE_PRECISION_HINT = 'bf16' }")["openvino"]
    assert (stated.chosen, stated.settings) == ({}, {"INFERENCE_PRECISION_HINT": "bf16"})
    assert plan("[targets.openvino]\nprecision = 'default'")["openvino"].chosen == {}
    assert plan("[targets.litert]")["litert"].chosen == {}


@pytest.mark.parametrize("stated", [None, True, False])
@pytest.mark.parametrize("runtime", ["litert", "keras_openvino"])
def test_required_is_the_contracts_word_else_the_catalogs(runtime: str, stated: bool | None) -> None:
    text = f"[targets.{runtime}]\n" + (f"required = {str(stated).lower()}" if stated is not None else "")
    assert plan(text)[runtime].required is (RUNTIMES[runtime].required_by_default if stated is None else stated)


def test_paths_and_settings_are_resolved() -> None:
    text = "[targets.phone]\nruntime = 'litert'\nartifact = 'release/m.tflite'\nthreads = 3\nlimits = { load_s = 1 }"
    found = plan(text)["phone"]
    assert (found.runtime, found.provided, found.threads, found.quiet_load) == ("litert", "/contract/release/m.tflite", 3, True)
    assert plan("[targets.litert]")["litert"].provided == ""


def test_own_preprocessing_is_the_whole_of_it() -> None:
    text = "inputs.a.decode = 'npy'\ninputs.b = { decode = 'image', steps = [{ scale = 0.5 }] }\n[targets.litert.inputs.a]\ndecode = 'npy'\ndtype = 'float32'"
    own = {spec.name: spec for spec in plan(text)["litert"].inputs}
    assert (own["a"].dtype, own["b"].steps) == ("float32", ({"scale": 0.5},))
    assert plan("inputs.a.decode = 'npy'\n[targets.litert]")["litert"].inputs == ()


def test_steps_are_plain_json_for_workers() -> None:
    contract = parse_contract("[inputs.a]\ndecode = 'image'\nsteps = [{ resize = [4, 5], method = 'nearest' }]", "kpipe.toml")
    assert input_specs(contract.inputs)[0].steps == ({"resize": [4, 5], "method": "nearest"},)


@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_the_reference_is_the_backend_that_trained_it(backend: str) -> None:
    contract = parse_contract(f"model.backend = '{backend}'", "kpipe.toml")
    found = plan_reference(contract, HERE)
    assert (found.runtime, found.required, found.absent) == (backend, True, None)
    gone = plan_reference(contract, BARE)
    assert why(gone)[0] == "KP301"
    assert backend in why(gone)[1]


@given(st.sets(st.sampled_from(sorted(RUNTIMES)), min_size=1))
def test_formats_are_the_ones_that_targets_run(names: set[str]) -> None:
    found = plan("".join(f"[targets.{name}]\n" for name in names)).values()
    formats = needed_formats(found)
    wanted = {RUNTIMES[p.runtime].artifact for p in found} - {"keras"}
    assert set(formats) == (wanted - {"openvino_ir"}) | ({"saved_model"} if "openvino_ir" in wanted else set())


def test_what_is_handed_in_or_can_not_run_is_not_exported() -> None:
    assert needed_formats(plan("[targets.litert]\nartifact = 'm.tflite'").values()) == ()
    assert needed_formats(plan("[targets.litert]\n[targets.onnxruntime]", only=("litert",)).values()) == ("litert",)


@pytest.mark.parametrize(
    ("text", "raw", "expected"),
    [
        ("", True, (200, 100)),
        ("", False, (200, 0)),
        ("timing = { calls = 0, end_to_end_calls = 0 }", True, (0, 0)),
        ("timing = { calls = 0, end_to_end_calls = 0 }\ntargets.litert.limits = { p99_ms = 1, end_to_end_p50_ms = 1 }", True, (662, 11)),
        ("timing = { calls = 1000 }\ntargets.litert.limits = { p99_ms = 1 }", True, (1000, 100)),
    ],
)
def test_limits_bring_the_calls_that_they_need(text: str, raw: bool, expected: tuple[int, int]) -> None:
    contract = parse_contract(text, "kpipe.toml")
    limits: Any = contract.targets["litert"].limits if contract.targets else parse_contract("targets.litert = {}", "x").targets["litert"].limits
    found = timing_plan(contract, limits, raw=raw)
    assert (found.calls, found.end_to_end_calls) == expected
