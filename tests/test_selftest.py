"""The selftest's pure parts: what faults change and what they leave alone, which edge is read, what counts as equivalent, what is counted."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kpipe.contract import parse_contract
from kpipe.errors import ContractError, GoldenError, UsageError
from kpipe.judging.edges import FIRST
from kpipe.judging.floor import Floor
from kpipe.record import DecisionRecord, Edge, RuleRow
from kpipe.selftest.decision import rules_of
from kpipe.selftest.distance import allclose, decides_alike, decisions_of, in_floors, row_gap, smallest_margin
from kpipe.selftest.edges import edge_of_error, edge_of_run, first
from kpipe.selftest.fault import Family, Fault, NotPlantableError, Setup
from kpipe.selftest.faults import FAULTS
from kpipe.selftest.own import HEALTHY, OWN
from kpipe.selftest.planting import Files, case_of, slug
from kpipe.selftest.result import Healthy, Row, Skipped, Table, score
from kpipe.selftest.subjects import absolute, settled
from kpipe.selftest.text import healthy_line, rendered
from kpipe.selftest.yardsticks import bare, random_rows
from kpipe_stages.plant_orders import Planted
from kpipe_stages.planting.models import BUILDERS, HEADS
from kpipe_stages.protocol import Trust
from kpipe_stages.rows import Rows, write_rows

from .sample_record import failing, finding, passing, target

TARGETS: dict[str, Any] = {"litert": {}, "onnxruntime": {}, "openvino": {"settings": {"INFERENCE_PRECISION_HINT": "f32"}}}
ARTIFACTS = {"litert": "/healthy/model.tflite", "onnx": "/healthy/model.onnx", "saved_model": "/healthy/saved_model/1"}
EDGES = {*FIRST, "batch"}


def setup_of(name: str, golden: Path | None = None) -> Setup:
    """A healthy setup that was never run."""
    table = settled({**copy.deepcopy(OWN[name]), "golden": {"path": str(golden or "/golden"), "batches": [2, 5]}}, copy.deepcopy(TARGETS))
    record = passing(8)
    rows = tuple(
        replace(
            row,
            scores=(score,),
            margin=abs(score - 0.5),
            rules=(RuleRow("risk", "low", abs(score - 0.5), None, None, None, (score,)),) if name == "pair" else (),
        )
        for row, score in zip(record.golden.rows, (0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9), strict=True)
    )
    record = replace(record, golden=replace(record.golden, rows=rows))
    return Setup(name, Path("/healthy/model.keras"), table, Trust(), Path("/healthy/run"), record, dict(ARTIFACTS))


def files_for(fault: Fault) -> Files:
    """What a worker would have planted."""
    if fault.file is None:
        return Files()
    made = {kind: f"/faulty/{kind}" for kind in ("litert", "onnx", "saved_model")} if not fault.file.candidate else {}
    return Files({slug(fault.name): Planted(slug(fault.name), "/faulty/model.keras" if fault.file.on == "keras" else "", made)})


# ------------------------------------------------------------ faults as data


def test_there_are_enough_faults_of_every_family_and_each_has_a_name_of_its_own() -> None:
    assert len(FAULTS) >= 60
    assert {fault.family for fault in FAULTS} == set(Family)
    assert len({slug(fault.name) for fault in FAULTS}) == len(FAULTS)
    assert all(fault.edges <= EDGES and fault.edges for fault in FAULTS)
    assert {name for fault in FAULTS for name in fault.subjects} <= set(OWN)
    assert set(HEALTHY) == set(BUILDERS) == set(HEADS)


def test_every_fault_changes_something() -> None:
    assert [fault.name for fault in FAULTS if fault.file is None and fault.contract is None and fault.golden is None] == []


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.subjects and f.golden is None], ids=lambda f: slug(f.name))
def test_a_fault_leaves_the_healthy_setup_alone_and_gives_a_contract_that_can_be_read(fault: Fault, tmp_path: Path) -> None:
    import tomlkit

    for name in sorted(fault.subjects):
        (tmp_path / "manifest.toml").write_text("version = 1\n")
        setup = setup_of(name, tmp_path)
        before = copy.deepcopy(setup.contract)
        case = case_of(fault, setup, files_for(fault), tmp_path)
        assert setup.contract == before
        parse_contract(tomlkit.dumps(case.contract), "x")
        assert list(case.contract["targets"]) == [fault.runtime]
        healthy = {**before, "targets": {fault.runtime: {**before["targets"][fault.runtime], "artifact": ARTIFACTS[kind_of(fault.runtime)]}}}
        assert case.contract != healthy or case.model != setup.model


def kind_of(runtime: str) -> str:
    return {"litert": "litert", "onnxruntime": "onnx", "openvino": "saved_model"}[runtime]


def test_a_fault_that_could_not_be_made_is_never_a_fault_that_has_no_place() -> None:
    fault = next(f for f in FAULTS if f.file is not None and f.file.on == "keras" and not f.file.candidate)
    for files, words in (
        (Files(impossible={slug(fault.name): "no BatchNormalization"}), "^no Batch"),
        (Files(failed={slug(fault.name): "ValueError: x"}), "^failed: Value"),
        (Files(), "^failed: not planted"),
    ):
        with pytest.raises(NotPlantableError, match=words):
            case_of(fault, setup_of("swatch"), files, Path("/x"))


def test_a_runtime_that_is_not_there_is_said() -> None:
    fault = next(f for f in FAULTS if f.runtime == "openvino")
    setup = setup_of("swatch")
    with pytest.raises(NotPlantableError, match="no target openvino"):
        case_of(fault, replace(setup, contract={**setup.contract, "targets": {"litert": {}}}), Files(), Path("/x"))


@given(st.lists(st.sampled_from(["alpha", "channels", "resize", "invert", "scale", "normalize"]), unique=True))
def test_preprocessing_faults_change_the_targets_steps_or_say_that_there_is_no_place(names: list[str]) -> None:
    values: dict[str, Any] = {
        "alpha": {"alpha": "composite"},
        "channels": {"channels": "rgb"},
        "resize": {"resize": [8, 8], "method": "bilinear", "antialias": True},
        "invert": {"invert": True},
        "scale": {"scale": 1 / 255},
        "normalize": {"normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.1]}},
    }
    setup = setup_of("swatch")
    for fault in (f for f in FAULTS if f.family is Family.PREPROCESSING):
        contract = copy.deepcopy(setup.contract)
        contract["inputs"]["photo"]["steps"] = [copy.deepcopy(values[name]) for name in names]
        before = copy.deepcopy(contract)
        assert fault.contract is not None
        try:
            fault.contract(contract, "litert", setup)
        except NotPlantableError:
            assert contract == before
            continue
        assert contract["inputs"] == before["inputs"]
        assert contract["targets"]["litert"]["inputs"] != before["inputs"], fault.name


def test_rules_are_found_whichever_way_they_are_written() -> None:
    assert list(rules_of(OWN["pair"])) == ["risk", "price"]
    assert list(rules_of(OWN["tokens"])) == [""]
    assert rules_of({}) == {}


def test_a_users_contract_is_settled_without_pins_and_with_paths_that_hold_anywhere(tmp_path: Path) -> None:
    given_ = {"model": {"sha256": "0" * 64, "custom_objects": ["layers.py"]}, "golden": {"path": "gold", "manifest_sha256": "1" * 64}}
    table = settled(absolute(given_, tmp_path), {"litert": {}})
    assert table["model"] == {"custom_objects": [str(tmp_path / "layers.py")]}
    assert table["golden"] == {"path": str(tmp_path / "gold")}
    assert table["agreement"]["tolerance"] == "auto"
    assert given_["golden"]["manifest_sha256"] == "1" * 64


# ------------------------------------------------------------ edges


def test_a_run_that_passes_names_no_edge() -> None:
    assert edge_of_run(passing(8)) == ""


def test_the_targets_own_edge_counts_unless_something_before_it_broke() -> None:
    record = failing(8)
    bad = replace(target("litert", 8, 0.1), edge=Edge("precision", "because"))
    drift = finding("KP401", "litert", "digit", "far")
    assert edge_of_run(replace(record, targets=(bad,), findings=(drift,))) == "precision"
    altered = replace(finding("KP102", "litert", "x", "altered"), target="")
    assert edge_of_run(replace(record, targets=(bad,), findings=(drift, altered))) == "golden"
    decided = replace(finding("KP410", "litert", "x", "otherwise"), target="reference")
    assert edge_of_run(replace(record, targets=(bad,), findings=(drift, decided))) == "precision"
    assert edge_of_run(replace(record, targets=(replace(bad, edge=None),), findings=(decided,))) == "decision"


def test_what_leaves_a_target_unchecked_is_the_runtimes() -> None:
    record = replace(passing(8), findings=(finding("KP302", "litert", "litert", "another version"),))
    assert edge_of_run(record) == "runtime"


def test_refusals_have_edges() -> None:
    assert edge_of_error(GoldenError("empty")) == "golden"
    assert edge_of_error(ContractError("x", ["decision.output: no such output"])) == "decision"
    assert edge_of_error(ContractError("x", ["inputs.a.steps: no"])) == "preprocess"
    assert edge_of_error(UsageError("x")) == ""
    assert first(["runtime", "golden", "nonsense"]) == "golden"


# ------------------------------------------------------------ distance and equivalence

FLOATS = arrays.arrays(np.float32, arrays.array_shapes(max_dims=2, max_side=4), elements=st.floats(-1e6, 1e6, width=32))


@given(FLOATS)
def test_nothing_is_far_from_itself(values: Any) -> None:
    assert row_gap(values, values) == 0.0
    spoiled = values.copy()
    spoiled.flat[0] = np.nan
    assert row_gap(values, spoiled) == row_gap(spoiled, values) == float("inf")
    assert row_gap(spoiled, spoiled) == 0.0
    assert row_gap(values, values[None]) == float("inf")


@given(FLOATS, st.floats(2.0**-10, 1e3))
def test_a_gap_is_the_largest_difference_in_both_directions(values: Any, step: float) -> None:
    moved = values.astype(np.float64)
    moved.flat[-1] += step
    assert row_gap(values, moved) == row_gap(moved, values) == pytest.approx(step, rel=1e-3)


def rows_at(folder: Path, name: str, values: Any) -> Rows:
    write_rows(folder / name, list(np.asarray(values, dtype=np.float64)))
    return Rows(folder / name)


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=6))
def test_a_reading_is_the_worst_input_and_what_cannot_be_compared_whole_is_far(tmp_path_factory: pytest.TempPathFactory, moves: list[float]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    widths = np.full(len(moves), 1e-3)
    floor = Floor(errors=widths, scales=np.ones(len(moves)), widths=widths)
    healthy = rows_at(folder, "healthy", np.ones((len(moves), 2)))
    fault = rows_at(folder, "fault", np.ones((len(moves), 2)) + 1e-3 * np.asarray(moves)[:, None])
    gaps = np.abs(np.stack(list(fault)) - 1.0).max(axis=1)
    assert in_floors({"y": floor}, {"y": healthy}, {"y": fault}) == pytest.approx(gaps.max() / 1e-3)
    fewer = rows_at(folder, "fewer", np.ones((len(moves) + 1, 2)))
    for nothing in (
        in_floors({}, {"y": healthy}, {"y": healthy}),
        in_floors({"y": floor}, {"y": healthy}, {}),
        in_floors({"y": floor}, {"y": healthy, "z": healthy}, {"y": healthy, "z": healthy}),
        in_floors({"y": floor}, {"y": healthy}, {"y": fewer}),
        in_floors({"y": floor}, {"y": fewer}, {"y": fewer}),
    ):
        assert nothing == float("inf")


def test_decided_alike_means_all_of_it_was_seen_and_approved_alike() -> None:
    record = replace(passing(8), targets=(target("litert", 8, 0.0),))
    assert decides_alike(record, record)
    rows = record.golden.rows
    for other in (
        replace(rows[0], decision="other"),
        replace(rows[0], expected="other"),
        replace(rows[0], id="other"),
    ):
        assert not decides_alike(record, replace(record, golden=replace(record.golden, rows=(other, *rows[1:]))))
    first_target = record.targets[0]
    for spoiled in (
        replace(first_target, flips=1),
        replace(first_target, ties=1),
        replace(first_target, cells=replace(first_target.cells, failed=1)),
    ):
        assert not decides_alike(record, replace(record, targets=(spoiled,)))
    for unseen in (replace(first_target.cells, unchecked=1), replace(first_target.cells, passed=0)):
        assert not decides_alike(record, replace(record, targets=(replace(first_target, cells=unseen),)))


def test_a_digit_that_is_a_label_counts_and_a_number_that_is_decided_does_not() -> None:
    record = passing(2)
    rules = (RuleRow("digit", "3", 0.1, "3", None, approved=True), RuleRow("size", "1.25", 0.1, None, None, approved=None))
    rows = tuple(replace(row, rules=rules) for row in record.golden.rows)
    decisions = (DecisionRecord("argmax", "a", "", inferred=False, name="digit"), DecisionRecord("tolerance", "b", "", inferred=False, name="size"))
    named = replace(record, decisions=decisions, golden=replace(record.golden, rows=rows))
    assert decisions_of(named)[0][1] == (("3", "3"), ("", None))
    assert smallest_margin(named) == 0.1


# ------------------------------------------------------------ yardsticks


def test_random_inputs_are_seeded_and_like_the_golden_ones(tmp_path: Path) -> None:
    write_rows(tmp_path / "ids", [np.array([3, 5, 9], np.int32), np.array([4, 4, 4], np.int32)])
    ids = random_rows(Rows(tmp_path / "ids"), 50, "a")
    assert (ids.shape, ids.dtype, ids.min(), ids.max()) == ((50, 3), np.int32, 3, 9)
    assert np.array_equal(ids, random_rows(Rows(tmp_path / "ids"), 50, "a"))
    write_rows(tmp_path / "x", [np.ones((2, 2), np.float32)])
    assert random_rows(Rows(tmp_path / "x"), 7, "b").dtype == np.float32


def test_a_script_knows_no_rules_no_versions_and_no_preprocessing() -> None:
    contract = {**setup_of("swatch").contract}
    contract["targets"] = {
        "litert": {"inputs": {"photo": {}}, "version": "==1", "threads": 2},
        "openvino": {"settings": {"A": 1}, "precision": "f32"},
    }
    known = bare(contract)
    assert set(known) == {"model", "agreement", "timing", "targets", "golden"}
    assert known["targets"] == {"litert": {"threads": 2, "precision": "default"}, "openvino": {"settings": {"A": 1}}}
    assert "version" in contract["targets"]["litert"]


def test_a_script_without_answers_has_stopped() -> None:
    assert allclose(None, None, range(3)) is False


# ------------------------------------------------------------ counts and text


def a_row(**changes: Any) -> Row:
    base = Row(
        "f", "export", "swatch", caught=True, equivalent=False, small=False, codes=("KP401",), edge="export", right_edge=True, verdict="FAIL",
        floors=20.0, margins=0.1, random=False, golden=True, seconds=1.0,
    )  # fmt: skip
    return replace(base, **changes)


@given(st.lists(st.builds(a_row, caught=st.booleans(), equivalent=st.booleans(), small=st.booleans(), right_edge=st.booleans()), max_size=30))
def test_what_is_counted(rows: list[Row]) -> None:
    counts = score(tuple(rows))
    real = [r for r in rows if not r.equivalent]
    assert counts.faults + counts.equivalent == len(rows)
    caught = [r for r in real if r.caught]
    assert counts.met is (bool(caught) and all(r.caught or r.small for r in real) and sum(r.right_edge for r in caught) >= 0.95 * len(caught))
    assert counts.right_edge <= counts.caught <= counts.faults


def test_a_fault_that_was_lost_on_the_way_fails_the_selftest() -> None:
    table = Table((a_row(),), (), ("swatch",), 1.0)
    assert table.met
    assert replace(table, skipped=(Skipped("g", "export", "swatch", "no colour", failed=False),)).met
    assert not replace(table, skipped=(Skipped("g", "export", "swatch", "failed: x", failed=True),)).met
    assert not replace(table, rows=()).met
    assert not replace(table, rows=(a_row(caught=False), a_row())).met
    assert not replace(table, rows=(a_row(caught=False, small=True),)).met
    assert replace(table, rows=(a_row(caught=False, small=True), a_row())).met


@pytest.mark.parametrize("markdown", [False, True])
def test_the_table_says_what_was_missed_and_what_was_named_wrongly(markdown: bool) -> None:
    rows = (
        a_row(),
        a_row(name="lost", caught=False, codes=()),
        a_row(name="odd", right_edge=False, edge="runtime"),
        a_row(name="nil", equivalent=True),
    )
    text = rendered(Table(rows, (Skipped("g", "export", "swatch", "failed: x", failed=True),), ("swatch",), 1.0), markdown=markdown)
    assert "Missed: swatch: lost." in text
    assert "Wrong edge: swatch: odd (runtime)." in text
    assert "3 faults: kpipe 2, right edge 1, allclose on random inputs 0, on golden inputs 3; 1 equivalent, 1 of them stopped." in text
    assert "MISSED" in text
    assert "= alarm" in text
    assert "swatch: g: failed: x" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_alarms_are_listed() -> None:
    assert healthy_line(Healthy(3, (), 1.0)) == "3 healthy validations, 0 alarms.\n"
    assert healthy_line(Healthy(3, ("pair: FAIL",), 1.0)) == "3 healthy validations, 1 alarm.\n  pair: FAIL\n"
