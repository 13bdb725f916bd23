"""The golden set: a manifest that is sound, or a message that says where it isn't."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kpipe.errors import Exit, GoldenError
from kpipe.golden import GoldenSet, array_golden_set, load_golden_folder, sha256_of
from kpipe.running.request import load_arrays
from kpipe_stages.decisions import value_of

if TYPE_CHECKING:
    from pathlib import Path

D0, D1 = "0" * 64, "1" * 64
ROW: dict[str, Any] = {"id": "one", "file": "files/one.png", "sha256": D0, "chosen": "sampled"}


def write(folder: Path, *rows: dict[str, Any], **top: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "manifest.toml").write_text(tomlkit.dumps({"version": 1, **top, "golden": list(rows)}), encoding="utf-8")
    return folder


def loaded(folder: Path, *rows: dict[str, Any], inputs: tuple[str, ...] = ("image",), **top: Any) -> GoldenSet:
    return load_golden_folder(write(folder, *rows, **top), inputs)


def refused(folder: Path, *rows: dict[str, Any], inputs: tuple[str, ...] = ("image",), **top: Any) -> str:
    with pytest.raises(GoldenError) as caught:
        loaded(folder, *rows, inputs=inputs, **top)
    assert caught.value.exit_code is Exit.USAGE
    assert str(folder) in str(caught.value)
    return str(caught.value)


def without(*names: str) -> dict[str, Any]:
    return {key: value for key, value in ROW.items() if key not in names}


def test_a_manifest_becomes_golden_inputs_in_its_own_order(tmp_path: Path) -> None:
    full = ROW | {"id": "two", "label": "7", "expected": "1", "slice": "night", "chosen": "mined", "origin": "camera 3", "margin": 0.25}
    found = loaded(tmp_path, full, ROW, set={"name": "x", "anything": [1, 2]})
    assert (found.kind, [g.id for g in found.inputs]) == ("raw", ["two", "one"])
    first = found.inputs[0]
    assert first.files == {"image": str(tmp_path / "files/one.png")}
    assert first.sha256 == {"image": D0}
    assert (first.shown, first.label, first.expected, first.slice, first.chosen) == ("files/one.png", "7", "1", "night", "mined")
    assert (found.inputs[1].label, found.inputs[1].expected, found.inputs[1].chosen) == (None, None, "sampled")
    assert found.manifest_sha256 == hashlib.sha256((tmp_path / "manifest.toml").read_bytes()).hexdigest() == sha256_of(tmp_path / "manifest.toml")


def test_an_entry_of_several_files_has_one_and_a_digest_for_each_input(tmp_path: Path) -> None:
    row = without("file") | {"files": {"left": "l.npy", "right": "r.npy"}, "sha256": {"left": D0, "right": D1}}
    (found,) = loaded(tmp_path, row, inputs=("right", "left")).inputs
    assert found.files == {"left": str(tmp_path / "l.npy"), "right": str(tmp_path / "r.npy")}
    assert found.sha256 == {"left": D0, "right": D1}


def test_expected_classes_are_what_the_rule_would_say(tmp_path: Path) -> None:
    (found,) = loaded(tmp_path, ROW | {"expected": ["cat", "dog"]}).inputs
    assert found.expected == value_of(["cat", "dog"])
    (none,) = loaded(tmp_path, ROW | {"expected": []}).inputs
    assert none.expected == value_of([])


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        (without("id"), ("golden.0.id", "required")),
        (ROW | {"id": ""}, ("golden.0.id", "at least 1")),
        (ROW | {"id": 3}, ("golden.0.id", "string", "3")),
        (without("sha256"), ("golden.0.sha256",)),
        (ROW | {"sha256": "abc"}, ("golden.0.sha256", "abc")),
        (ROW | {"sha256": D0.replace("0", "A")}, ("golden.0.sha256",)),
        (without("chosen"), ("golden.0.chosen", "required")),
        (ROW | {"chosen": "random"}, ("golden.0.chosen", "random", "'sampled' or 'mined'")),
        (ROW | {"lable": "7"}, ("golden.0.lable", "Extra inputs")),
        (ROW | {"expected": 7}, ("golden.0.expected",)),
        (ROW | {"label": 7}, ("golden.0.label", "7")),
        (without("file"), ("'one'", "either 'file' or 'files'")),
        (ROW | {"files": {"image": "x"}}, ("'one'", "either 'file' or 'files'")),
        (without("file") | {"files": {"mask": "x"}, "sha256": {"mask": D0}}, ("'one'", "['mask']", "['image']")),
        (without("file") | {"files": {"image": "x", "mask": "y"}, "sha256": {"image": D0, "mask": D1}}, ("'one'", "['image', 'mask']")),
        (without("file") | {"files": {"image": "x"}}, ("'one'", "digests for []")),
        (ROW | {"sha256": {"image": D0}}, ("'one'",)),
        (ROW | {"file": "../secret.png"}, ("'one'", "'../secret.png'", "outside the golden folder")),
        (ROW | {"file": "a/../../secret.png"}, ("outside the golden folder",)),
        (ROW | {"file": "/etc/passwd"}, ("'/etc/passwd'", "outside the golden folder")),
        (ROW | {"file": "link.png"}, ("'link.png'", "outside the golden folder")),
        (ROW | {"file": "folder/one.png"}, ("'folder/one.png'", "outside the golden folder")),
        (ROW | {"file": "a\0b"}, ("outside the golden folder",)),
    ],
)
def test_a_wrong_entry_is_refused_by_name(tmp_path: Path, row: dict[str, Any], parts: tuple[str, ...]) -> None:
    folder = tmp_path / "golden"
    folder.mkdir()
    (tmp_path / "secret.png").touch()
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "folder").symlink_to(tmp_path)
    message = refused(folder, row)
    assert all(part in message for part in parts), message


def test_one_file_for_a_model_of_two_inputs_is_refused(tmp_path: Path) -> None:
    assert "2 inputs (left, right); use files = { input = path }" in refused(tmp_path, ROW, inputs=("left", "right"))


def test_no_entries_or_the_same_id_twice_are_refused(tmp_path: Path) -> None:
    assert "is empty" in refused(tmp_path)
    assert "the id 'one' stands more than once" in refused(tmp_path, ROW, ROW | {"id": "two"}, ROW | {"file": "other.png"})


@pytest.mark.parametrize("top", [{"version": 2}, {"version": "1"}, {"sets": {}}, {"set": 3}])
def test_another_version_or_table_is_refused(tmp_path: Path, top: dict[str, Any]) -> None:
    assert next(iter(top)) in refused(tmp_path, ROW, **top)


@pytest.mark.parametrize("data", [b"version = ", b"\xff\xfe", b"a = " + b"[" * 20_000, b"a = " + b"9" * 5000, b"golden = 3\nversion = 1", b""])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "manifest.toml").write_bytes(data)
    with pytest.raises(GoldenError, match=r"manifest\.toml"):
        load_golden_folder(tmp_path, ("image",))


def test_a_folder_without_a_manifest_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="kpipe init --raw DIR"):
        load_golden_folder(tmp_path, ("image",))


@given(st.binary(max_size=80) | st.text(alphabet="[]{}=.\"'\n version1golden#,\\u0", max_size=80).map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_raise_anything_else(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "manifest.toml").write_bytes(data)
    with pytest.raises(GoldenError):  # nothing so short holds a whole entry
        load_golden_folder(tmp_path, ("image",))


# ---------------------------------------------------------------- arrays


def arrays(folder: Path, **values: Any) -> GoldenSet:
    np.savez(folder / "x.npz", **values)
    return load_arrays(folder / "x.npz")


def test_every_row_of_every_array_is_a_golden_input(tmp_path: Path) -> None:
    found = arrays(tmp_path, left=np.zeros((11, 2), np.float32), right=np.zeros((11,), np.int64))
    assert (found.kind, len(found.inputs), found.manifest_sha256) == ("arrays", 11, "")
    assert [g.id for g in found.inputs] == [f"row-{i:02d}" for i in range(11)]
    last = found.inputs[-1]
    assert last.files == {name: f"{(tmp_path / 'x.npz').resolve()}#{name}#10" for name in ("left", "right")}
    assert last.sha256 == dict.fromkeys(("left", "right"), sha256_of(tmp_path / "x.npz"))
    assert {g.chosen for g in found.inputs} == {"sampled"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"left": np.zeros((3, 2)), "right": np.zeros((4, 2))}, "differ in their number of rows"),
        ({"left": np.zeros((0, 2))}, "no row to compare"),
        ({"left": np.zeros((3, 2)), "right": np.zeros(())}, "no row to compare"),
        ({"left": np.float32(3)}, "no row to compare"),
        ({}, "0 members"),
    ],
)
def test_arrays_without_the_same_rows_are_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(GoldenError, match=message):
        arrays(tmp_path, **values)


def test_pickled_arrays_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GoldenError):
        arrays(tmp_path, left=np.array([{"a": 1}], object))
    (tmp_path / "y.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(GoldenError, match=r"y\.npz"):
        load_arrays(tmp_path / "y.npz")


def test_synthetic_rows_are_no_sample(tmp_path: Path) -> None:
    found = array_golden_set(tmp_path / "s.npz", {"x": ((3, 2), "float32")}, D0, kind="synthetic")
    assert {g.chosen for g in found.inputs} == {"synthetic"}
