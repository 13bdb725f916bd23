"""A first contract validates as it stands, whatever the model's names; a first manifest loads."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kpipe.axes import placed_axes
from kpipe.contract import check_names, parse_contract
from kpipe.drafting import RawFiles, draft_contract, draft_manifest
from kpipe.golden import load_golden_folder
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.protocol import InspectResult, Signature, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.inputs import InputTable

ALL = {name: row.required_by_default for name, row in RUNTIMES.items() if row.default_target}
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
shapes = st.none() | st.lists(st.none() | st.integers(1, 300), min_size=1, max_size=5).map(tuple)
specs = st.builds(TensorSpec, name=names, shape=shapes, dtype=st.sampled_from(["float32", "float16", "int32", "uint8", "string", "bool"]))
signatures = st.builds(Signature, *[st.lists(specs, min_size=1, max_size=3, unique_by=lambda s: s.name).map(tuple)] * 2)


def inspected(activations: dict[str, str]) -> InspectResult:
    facts: dict[str, Any] = {"sha256": "ab" * 32, "size": 1, "keras_version": "3", "saved_at": "", "model_class": "Functional", "model_name": "m"}
    rest: dict[str, Any] = {"layers": (), "parameters": 0, "weight_bytes": 0, "signature": None, "members": {}, "has_optimizer": False}
    return InspectResult(**facts, **rest, activations=activations)


def image(*shape: int | None, dtype: str = "float32") -> Signature:
    return Signature((TensorSpec("image", (None, *shape), dtype),), (TensorSpec("y", (None, 3), "float32"),))


@given(signatures, st.data(), st.lists(names, max_size=2), st.none() | names)
@settings(deadline=None)
def test_every_draft_is_a_contract_for_its_model(signature: Signature, data: st.DataObject, files: list[str], golden: str | None) -> None:
    outputs = st.sampled_from([spec.name for spec in signature.outputs])
    activations = data.draw(st.dictionaries(outputs, st.sampled_from(["softmax", "sigmoid", "linear"])))
    text = draft_contract(signature, inspected(activations), custom_objects=files, golden=golden, runtimes=ALL)
    contract = parse_contract(text, "kpipe.toml")
    if contract.decision or len(signature.outputs) == 1:
        check_names(contract, signature, "kpipe.toml")
    assert contract.model.sha256 == "ab" * 32
    assert contract.golden.path == golden
    assert contract.model.custom_objects == tuple(files)
    assert list(contract.inputs) == [spec.name for spec in signature.inputs]
    assert {name: t.required is not False for name, t in contract.targets.items()} == ALL
    assert all(t.settings == {"INFERENCE_PRECISION_HINT": "f32"} for name, t in contract.targets.items() if "openvino" in name)
    telling = [name for name, a in activations.items() if a != "linear"]
    assert (contract.decision is not None) == (len(telling) == 1)


def uncommented(text: str) -> str:
    """The draft with its proposals in force: commented tables and what stands in them."""
    lines, inside = [], False
    for line in text.split("\n"):
        inside = line.startswith("# [") or (inside and line.startswith("# "))
        lines.append(line.removeprefix("# ") if inside else line)
    return "\n".join(lines)


@given(signatures, names)
@settings(deadline=None)
def test_what_is_proposed_in_comments_is_a_contract_too(signature: Signature, name: str) -> None:
    facts = dataclasses.replace(inspected({}), model_name=name)
    text = draft_contract(signature, facts, custom_objects=[], golden=None, runtimes=ALL)
    contract = parse_contract(uncommented(text), "kpipe.toml")
    assert contract.product is not None
    free = [(spec.name, axis) for spec in signature.inputs for axis, size in enumerate(spec.shape or ()) if axis and size is None]
    assert sorted(place for axis in placed_axes(contract, signature, "kpipe.toml") for place in axis.places) == sorted(free)
    assert not parse_contract(text, "kpipe.toml").axes


@pytest.mark.parametrize(
    ("shape", "files", "axes", "steps", "pads"),
    [
        ((None, None, 3), [(5, 3), (9, 3), (2, 3), (9, 3)], {"time": (2, 5, 9)}, [], {"at": "end", "value": 0}),
        ((None, None, 3), [(5, 3), (5, 3)], {"time": (5, 5, 5)}, [], None),
        ((None, None, 3), [(0, 3)], {"time": (0, 1, 1)}, [], None),
        ((None, None, 3), [(5,)], {}, [], None),
        ((None, None, None, 2), [(8, 4, 2), (6, 9, 2)], {"height": (6, 6, 8), "width": (4, 4, 9)}, [], None),
        ((None, 6, 3), [(5, 3), (9, 3)], {}, [{"length": 6, "truncation": "end", "padding": "end", "value": 0}], None),
        ((None, 6, 3), [(6, 3)], {}, [], None),
    ],
)
def test_free_axes_take_the_sizes_of_the_golden_inputs(
    shape: tuple[int | None, ...],
    files: list[tuple[int, ...]],
    axes: dict[str, tuple[int, int, int]],
    steps: list[dict[str, Any]],
    pads: dict[str, Any] | None,
) -> None:
    signature = Signature((TensorSpec("x", shape, "float32"),), (TensorSpec("y", (None, 2), "float32"),))
    raw = RawFiles("npy", "npy", shapes=tuple(files))
    text = draft_contract(signature, inspected({}), custom_objects=[], golden=None, runtimes=ALL, raw=raw)
    contract = parse_contract(text, "kpipe.toml")
    assert {name: (table.min, table.typical, table.max) for name, table in contract.axes.items()} == axes
    assert list(contract.inputs["x"].steps) == steps
    found = contract.inputs["x"].pad_batches
    assert (found and {"at": found.at, "value": found.value}) == pads


def test_the_side_of_truncation_is_asked_for_where_the_model_takes_any_length() -> None:
    signature = Signature((TensorSpec("x", (None, None), "int32"),), (TensorSpec("y", (None, 2), "float32"),))
    text = draft_contract(signature, inspected({}), custom_objects=[], golden=None, runtimes=ALL, raw=RawFiles("text"))
    assert 'truncation = "end" or "start"' in text


@pytest.mark.parametrize(("channels", "word"), [(1, "gray"), (3, "rgb"), (4, "rgba")])
def test_an_image_is_resized_to_the_models_size_and_marked_to_be_looked_at(channels: int, word: str) -> None:
    text = draft_contract(image(20, 30, channels), inspected({}), custom_objects=[], golden=None, runtimes=ALL)
    table = parse_contract(text, "kpipe.toml").inputs["image"]
    assert table.decode == "image"
    resize = {"resize": [20, 30], "method": "bilinear", "antialias": True}
    transparency = [] if word == "rgba" else [{"alpha": "composite"}]
    assert list(table.steps) == [*transparency, {"channels": word}, resize, {"scale": 1 / 255}]
    assert "LOOK AT THIS" in text


def test_bytes_stay_bytes_and_free_sizes_are_not_resized() -> None:
    table = parse_contract(draft_contract(image(None, None, 3, dtype="uint8"), inspected({}), custom_objects=[], golden=None, runtimes=ALL), "x")
    assert list(table.inputs["image"].steps) == [{"alpha": "composite"}, {"channels": "rgb"}]
    assert table.inputs["image"].dtype == "uint8"


@pytest.mark.parametrize("shape", [(8, 3), (20, 30, 5), (4, 4, 4, 1), (300,)])
def test_what_is_no_image_is_an_array(shape: tuple[int, ...]) -> None:
    text = draft_contract(image(*shape), inspected({}), custom_objects=[], golden=None, runtimes=ALL)
    assert parse_contract(text, "kpipe.toml").inputs["image"].decode == "npy"


def drafted(spec: TensorSpec, raw: RawFiles = RawFiles()) -> InputTable:  # noqa: B008 - frozen
    signature = Signature((spec,), (TensorSpec("y", (None, 2), "float32"),))
    return parse_contract(draft_contract(signature, inspected({}), custom_objects=[], golden=None, runtimes=ALL, raw=raw), "kpipe.toml").inputs["x"]


@pytest.mark.parametrize(
    ("shape", "dtype", "raw", "decode", "steps"),
    [
        ((None, 3), "float32", RawFiles(), "table", []),
        ((None, 3), "float32", RawFiles("npy"), "npy", []),
        ((None, 3), "float32", RawFiles("text"), "npy", []),
        ((None, 2), "float32", RawFiles("table", "parquet"), "table", []),
        ((None, 12), "int32", RawFiles(), "npy", []),
        ((None, 12), "int32", RawFiles("text"), "text", ["tokenize", "length"]),
        ((None, None), "int64", RawFiles("text"), "text", ["tokenize"]),
        ((None,), "string", RawFiles(), "text", []),
        ((None, 1), "string", RawFiles("text"), "text", ["reshape"]),
        ((None, 16000), "float32", RawFiles("audio"), "audio", ["length"]),
        ((None, None, 40), "float32", RawFiles("audio"), "audio", ["mel", "decibels"]),
        ((None, 98, 40), "float32", RawFiles("audio"), "audio", ["mel", "decibels", "length"]),
        ((None, 8, 8, 3), "float32", RawFiles("npy"), "npy", []),
    ],
)
def test_inputs_are_drafted_by_the_raw_files_and_the_signature(
    shape: tuple[int | None, ...], dtype: str, raw: RawFiles, decode: str, steps: list[str]
) -> None:
    table = drafted(TensorSpec("x", shape, dtype), raw)
    assert table.decode == decode
    assert [next(iter(step)) for step in table.steps] == steps


def test_a_table_is_drafted_with_the_names_of_its_header() -> None:
    spec = TensorSpec("x", (None, 2), "float32")
    named = drafted(spec, RawFiles("table", "csv", ("mean radius", 'a "b"'))).read
    assert [column["name"] for column in named["columns"]] == ["mean radius", 'a "b"']
    assert [column["name"] for column in drafted(spec).read["columns"]] == ["column 1", "column 2"]
    assert drafted(spec, RawFiles("table", "parquet")).read["format"] == "parquet"


def test_a_table_of_several_rows_becomes_an_entry_a_row(tmp_path: Path) -> None:
    entries = [("files/a.csv", "0f" * 32, None), ("files/b.csv", "1e" * 32, None)]
    (tmp_path / "manifest.toml").write_text(draft_manifest(entries, "collected", {"files/a.csv": 3}), encoding="utf-8")
    found = load_golden_folder(tmp_path, {"x": ("x", True)})
    assert [g.shown for g in found.inputs] == ["files/a.csv#row=0", "files/a.csv#row=1", "files/a.csv#row=2", "files/b.csv"]


@given(st.lists(st.tuples(names.filter(lambda n: not n.startswith("/") and "\0" not in n), st.none() | names), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_manifest_loads_again(tmp_path: Path, files: list[tuple[str, str | None]]) -> None:
    entries = [(f"files/{name.replace('..', '__')}", "0f" * 32, label) for name, label in files]
    (tmp_path / "manifest.toml").write_text(draft_manifest(entries, "collected"), encoding="utf-8")
    found = load_golden_folder(tmp_path, ("image",))
    assert [(g.shown, g.label) for g in found.inputs] == [(file, label) for file, _, label in entries]
    assert {g.chosen for g in found.inputs} == {"sampled"}


def test_files_of_one_stem_keep_ids_of_their_own() -> None:
    files = ["files/a/x.png", "files/a-x.png", "files/a/x.jpg", "files/b/x.png"]
    text = draft_manifest([(file, "0f" * 32, None) for file in files], "collected")
    ids = [row["id"] for row in tomllib.loads(text)["golden"]]
    assert len(set(ids)) == len(files)
