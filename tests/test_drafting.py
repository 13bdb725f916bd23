"""A first contract validates as it stands, whatever the model's names; a first manifest loads."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kpipe.contract import check_names, parse_contract
from kpipe.drafting import draft_contract, draft_manifest
from kpipe.golden import load_golden_folder
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.protocol import InspectResult, Signature, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize("shape", [(8,), (20, 30, 5), (4, 4, 4, 1)])
def test_what_is_no_image_is_an_array(shape: tuple[int, ...]) -> None:
    text = draft_contract(image(*shape), inspected({}), custom_objects=[], golden=None, runtimes=ALL)
    assert parse_contract(text, "kpipe.toml").inputs["image"].decode == "npy"


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
