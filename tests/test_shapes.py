"""Shapes and signatures through the whole gate, on real runtimes: what works, what costs, what fails, and names in the wrong place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

from kpipe.record import ShapeStatus

from .cases.gate import FLOAT32, Gate, loud, named, only, statuses, target

if TYPE_CHECKING:
    from pathlib import Path

    import kpipe

pytestmark = pytest.mark.runtimes

RANGES = "[axes]\ntime = { min = 1, typical = 9, max = 40 }\n"
GOOD = {ShapeStatus.WORKS, ShapeStatus.RECOMPILES}


@pytest.fixture(scope="module")
def ranged(gate: Gate) -> kpipe.Run:
    """A model with a free time axis, by a contract that promises sizes that no golden input has."""
    return gate.run("free_time", RANGES + only("tensorflow", "litert", "onnxruntime", "openvino"))


def outcomes(run: kpipe.Run, name: str) -> dict[str, ShapeStatus]:
    return {row.name: row.status for row in target(run.record, name).shapes}


def test_every_promised_size_is_tried_on_every_target(ranged: kpipe.Run) -> None:
    for name in ("tensorflow", "onnxruntime", "openvino"):
        tried = outcomes(ranged, name)
        assert {tried[case] for case in ("time 1", "time 40", "typical, batch 1", "typical, batch 8", "typical, batch 5 (a partial one)")} <= GOOD, (
            name
        )
    assert statuses(ranged.record) == dict.fromkeys(("tensorflow", "litert", "onnxruntime", "openvino"), "pass")


def test_numbers_at_those_sizes_were_compared(ranged: kpipe.Run) -> None:
    rows = [row for t in ranged.record.targets for row in t.shapes if row.status in GOOD and row.batch]
    assert len(rows) >= 15
    assert all(row.max_abs is not None and row.max_abs < 1e-5 for row in rows)
    assert {row.source for row in rows} == {"cut", "tiled"}


def test_compiling_anew_has_its_cost(ranged: kpipe.Run) -> None:
    rows = {row.name: row for row in target(ranged.record, "tensorflow").shapes}
    assert rows["time 40"].status is ShapeStatus.RECOMPILES
    assert rows["time 40"].first_s is not None
    assert rows["time 40"].again_s is not None
    assert rows["time 40"].first_s > 3 * rows["time 40"].again_s
    assert len(named(ranged.record, "KP243", "tensorflow")) == 1  # its dearest shape, whichever that was


def test_one_batch_size_is_not_offered_and_fails_only_where_it_is_promised(ranged: kpipe.Run, gate: Gate) -> None:
    assert outcomes(ranged, "litert")["typical, batch 8"] is ShapeStatus.NOT_OFFERED
    promised = gate.run("free_time", RANGES + "batch = { min = 1, typical = 4, max = 8 }\n" + only("litert"))
    assert statuses(promised.record) == {"litert": "fail"}
    assert "typical, batch 8" in named(promised.record, "KP241", "litert")
    edge = target(promised.record, "litert").edge
    assert edge is not None
    assert edge.name == "shape"


def test_an_empty_batch_that_ends_or_fails_a_runtime_is_a_note(ranged: kpipe.Run) -> None:
    """ONNX Runtime ends the process, Keras on TensorFlow refuses; neither loses what was done before."""
    assert outcomes(ranged, "tensorflow")["empty batch"] is ShapeStatus.REFUSED
    assert {"tensorflow", "onnxruntime"} <= {f.target for f in ranged.record.findings if f.code == "KP244"}
    assert not [f for f in ranged.record.findings if f.code in {"KP241", "KP242"}]


def test_an_empty_batch_that_is_promised_fails(gate: Gate) -> None:
    run = gate.run("free_time", RANGES + "batch = { min = 0, typical = 4, max = 8 }\n" + only("tensorflow", "onnxruntime"))
    assert ("KP241", "tensorflow", "empty batch") in loud(run.record)
    assert ("KP242", "onnxruntime", "empty batch") in loud(run.record)
    assert statuses(run.record) == {"tensorflow": "fail", "onnxruntime": "unchecked"}


def test_the_table_is_in_every_report(ranged: kpipe.Run) -> None:
    page, brief = ((ranged.folder / name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))
    assert '<section id="shapes">' in page
    assert "steps[1] = 40" in page
    assert "| time 40 |" in brief
    assert '"time 40" = ' in (ranged.folder / "artifacts" / "onnx" / "deploy.toml").read_text(encoding="utf-8")


def test_a_free_axis_without_a_range_is_said(gate: Gate) -> None:
    run = gate.run("free_time", only("onnxruntime"))
    assert named(run.record, "KP245") == ["steps"]
    assert set(outcomes(run, "onnxruntime")) == {"batch 1", "batch 5 (a partial one)", "batch 8", "empty batch"}


def test_an_exported_graph_that_is_wrong_at_other_sizes_fails_there(gate: Gate) -> None:
    """The exported TimeDistributed takes the batch for the steps: at one size they agree by luck, at the promised ones they don't."""
    run = gate.run("49_timedistributed_dynamic_time", "[axes]\nsteps = { min = 1, typical = 7, max = 11 }\n" + only("onnxruntime"))
    assert outcomes(run, "onnxruntime")["steps 11"] in {ShapeStatus.DIFFERS, ShapeStatus.REFUSED}
    assert "steps 11" in named(run.record, "KP241", "onnxruntime")


# ------------------------------------------------------------ names in the wrong place


def renamed(source: Path, out: Path, pairs: dict[str, str]) -> Path:
    """The ONNX file with tensors under each other's names."""
    model = onnx.load(str(source))
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [pairs.get(name, name) for name in names]
    for value in (*model.graph.input, *model.graph.output):
        value.name = pairs.get(value.name, value.name)
    onnx.save(model, str(out))
    return out


@pytest.fixture(scope="module")
def swapped(gate: Gate, tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    """Handed-in files: right, with two inputs under each other's names, and with two outputs."""
    made = gate.run("twins", only("onnxruntime"))
    file = made.folder / "artifacts" / "onnx" / "model.onnx"
    folder = tmp_path_factory.mktemp("swapped")
    inputs = renamed(file, folder / "inputs.onnx", {"left": "right", "right": "left"})
    outputs = renamed(file, folder / "outputs.onnx", {"near": "far", "far": "near"})
    files = {"right": file, "inputs": inputs, "outputs": outputs}
    return gate.run("twins", "".join(f'[targets.{name}]\nruntime = "onnxruntime"\nartifact = "{path}"\n' for name, path in files.items()))


def test_the_right_file_is_proved(swapped: kpipe.Run) -> None:
    record = target(swapped.record, "right")
    assert (str(record.status), record.binding) == ("pass", "2 pairs of inputs or outputs proved")
    assert record.inputs == {"left": "left", "right": "right"}
    assert record.outputs == {"near": "near", "far": "far"}


def test_exchanged_inputs_are_found_where_every_golden_input_agrees(swapped: kpipe.Run) -> None:
    record = target(swapped.record, "inputs")
    assert record.cells.failed == 0  # left and right hold the same values in every golden input
    assert ("KP231", "inputs", "binding") in loud(swapped.record)
    assert str(record.status) == "fail"
    assert record.edge is not None
    assert record.edge.name == "signature"
    assert any("'left' and 'right' are exchanged" in f.cause for f in swapped.record.findings if f.code == "KP231")


def test_exchanged_outputs_are_found(swapped: kpipe.Run) -> None:
    assert any("'near' and 'far' are exchanged" in f.cause and f.target == "outputs" for f in swapped.record.findings if f.code == "KP231")


def test_what_the_model_itself_does_not_tell_apart_is_a_note(gate: Gate) -> None:
    run = gate.run("symmetric", only("litert", "saved_model") + f"[targets.openvino]\n{FLOAT32}\n")
    assert statuses(run.record) == dict.fromkeys(("litert", "saved_model", "openvino"), "pass")
    told = [f.cause for f in run.record.findings if f.code == "KP232"]
    assert told == ["The model gives the same answers with inputs 'a' and 'b' exchanged: which is which can't be told from them."]


def test_the_structure_of_inputs_and_outputs_is_kept(gate: Gate) -> None:
    signature = gate.run("nested_structures", only("saved_model", "litert")).record.candidate.signature
    assert signature is not None
    assert signature.input_structure == '{"pair": ["left", "right"], "deep": {"far": "far"}}'
    assert signature.output_structure.startswith('{"z": [')
