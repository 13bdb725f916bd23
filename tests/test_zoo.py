"""A zoo of kinds through the whole gate: each outcome names the layer, the op, the reason and a way out, and no target stops another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .cases.gate import Gate, loud, named, only, statuses, target
from .cases.models_zoo_shapes import LOOP_SOURCE, PACKAGE, SUBCLASSED_SOURCE

if TYPE_CHECKING:
    from pathlib import Path

    import kpipe

pytestmark = pytest.mark.runtimes

CODE = {"bent": PACKAGE, "loops": {"loops.py": LOOP_SOURCE}, "subclassed": {"subclassed.py": SUBCLASSED_SOURCE}}


def with_code(case: str, folder: Path) -> str:
    """Contract text that names the case's custom objects, written into ``folder``."""
    for name, source in CODE[case].items():
        (folder / name).write_text(source, encoding="utf-8")
    return f"[model]\ncustom_objects = {[str(folder / name) for name in CODE[case]]}\n"


def causes(run: kpipe.Run, code: str, name: str) -> str:
    return " ".join(f.cause for f in run.record.findings if f.code == code and f.target == name)


def test_custom_layers_over_several_files(gate: Gate, tmp_path: Path) -> None:
    run = gate.run("bent", with_code("bent", tmp_path) + only("tensorflow", "litert"))
    assert statuses(run.record) == {"tensorflow": "pass", "litert": "pass"}


def test_a_nested_structure_of_a_subclassed_model(gate: Gate, tmp_path: Path) -> None:
    run = gate.run("subclassed", with_code("subclassed", tmp_path) + only("saved_model", "onnxruntime"))
    assert statuses(run.record) == {"saved_model": "pass", "onnxruntime": "pass"}
    signature = run.record.candidate.signature
    assert signature is not None
    assert (signature.input_structure, [spec.name for spec in signature.outputs]) == ('{"a": "a", "b": "b"}', ["both_0", "both_1", "sum"])


def test_a_branch_and_a_loop_are_read_back_from_an_ir(gate: Gate, tmp_path: Path) -> None:
    run = gate.run("loops", with_code("loops", tmp_path) + only("openvino_ir"))
    artifact = target(run.record, "openvino_ir").artifact
    assert artifact is not None
    assert {"If", "Loop"} & set(artifact.ops)
    assert ("KP413", "reference", "label") in loud(run.record)  # its branch is taken by the sum of the whole batch: no runtime's fault


def test_a_table_of_text_names_its_layer_on_every_runtime(gate: Gate) -> None:
    run = gate.run("categories", only("saved_model", "litert", "onnxruntime", "openvino", "keras_openvino"))
    assert statuses(run.record) == {"saved_model": "pass", "litert": "fail", "onnxruntime": "fail", "openvino": "fail", "keras_openvino": "fail"}
    assert set(named(run.record, "KP202", "litert")) == {"multi"}
    assert set(named(run.record, "KP202", "onnxruntime")) == {"bins"}
    assert set(named(run.record, "KP202", "openvino")) == {"multi"}
    assert set(named(run.record, "KP311", "keras_openvino")) <= {"bins", "multi", "one_hot"}
    assert all(f.remedy for f in run.record.findings)


def test_weights_that_keras_quantised(gate: Gate) -> None:
    run = gate.run("keras_int8", only("tensorflow", "litert", "onnxruntime", "openvino"))
    assert statuses(run.record) == {"tensorflow": "pass", "litert": "fail", "onnxruntime": "pass", "openvino": "fail"}
    assert "tfl.fully_connected" in causes(run, "KP201", "litert")
    assert set(named(run.record, "KP201", "litert")) <= {"hidden", "einsum", "label"}
    assert named(run.record, "KP404", "openvino")  # it answers, and decides otherwise


def test_eight_bit_floats_name_their_layers(gate: Gate) -> None:
    run = gate.run("keras_float8", only("saved_model", "litert", "onnxruntime"))
    assert statuses(run.record) == {"saved_model": "pass", "litert": "fail", "onnxruntime": "fail"}
    assert "layer 'hidden'" in causes(run, "KP201", "onnxruntime")
    assert "layer 'hidden'" in causes(run, "KP201", "litert")


def test_a_model_that_was_never_built_is_told_so_once(gate: Gate) -> None:
    run = gate.run("sequential_unbuilt", only("litert"))
    assert [f.cause for f in run.record.findings if f.severity == "error"] == [
        "Model 'sequential' was saved before it was built: its 2 layers know no input shape, and the file holds no weights."
    ]


def test_a_layer_that_keras_can_not_load_is_named(gate: Gate) -> None:
    run = gate.run("shear", only("tensorflow"))
    assert ("KP012", "", "shear") in loud(run.record)
    assert "'shear' (RandomShear)" in causes(run, "KP012", "")


def test_what_a_layer_declares_wrongly_fails_no_artifact(gate: Gate) -> None:
    run = gate.run("random_crop", only("saved_model", "onnxruntime"))
    assert statuses(run.record) == {"saved_model": "pass", "onnxruntime": "pass"}
    assert named(run.record, "KP235") == ["crop"]


def test_text_as_an_output(gate: Gate) -> None:
    run = gate.run("words_out", '[model]\nbackend = "tensorflow"\n' + only("saved_model", "onnxruntime"))
    assert statuses(run.record)["saved_model"] == "pass"
    assert not named(run.record, "KP205")


@pytest.mark.parametrize("case", ["scalars", "no_batch", "weightless", "return_state", "attention"])
def test_kinds_that_every_light_runtime_gets_right(gate: Gate, case: str) -> None:
    run = gate.run(case, only("litert", "onnxruntime", "openvino"))
    assert statuses(run.record) == {"litert": "pass", "onnxruntime": "pass", "openvino": "pass"}
