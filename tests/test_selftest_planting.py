"""Faulty files, made without a framework: configs, roundings, raw images."""

from __future__ import annotations

import io
import json
import zipfile
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from kpipe_stages.planting import ImpossibleError, configs, raw_files, weights

if TYPE_CHECKING:
    from pathlib import Path

LAYERS = [
    {"class_name": "Conv2D", "config": {"name": "a", "padding": "same", "activation": "gelu"}},
    {"class_name": "Conv2D", "config": {"name": "b", "padding": "same", "activation": "relu"}},
    {"class_name": "Functional", "config": {"name": "inner", "layers": [{"class_name": "Dense", "config": {"name": "c", "activation": "gelu"}}]}},
]


def config() -> dict[str, Any]:
    return json.loads(json.dumps({"class_name": "Functional", "config": {"name": "m", "layers": LAYERS}}))


def own(changed: dict[str, Any], key: str) -> dict[str, Any]:
    return {layer["name"]: layer.get(key) for layer in configs.layers_of(changed)}


def test_a_key_is_changed_where_it_has_that_value_and_nowhere_else() -> None:
    changed = config()
    configs.set_key(changed, key="padding", old="same", new="valid", most=1)
    assert own(changed, "padding") == {"a": "valid", "b": "same", "inner": None, "c": None}
    assert own(changed, "activation") == own(config(), "activation")
    configs.activation(changed, old="gelu", new="tanh")
    assert own(changed, "activation") == {"a": "tanh", "b": "relu", "inner": None, "c": "tanh"}


def test_a_custom_activation_is_written_as_the_function_that_it_is() -> None:
    changed = config()
    configs.activation(changed, old="relu", new="gelu_tanh", custom=True)
    assert own(changed, "activation")["b"]["registered_name"] == "kpipe_selftest>gelu_tanh"


@pytest.mark.parametrize(("key", "old", "new"), [("epsilon", 1e-3, 1e-5), ("padding", "valid", "same"), ("epsilon", None, 1.0)])
def test_what_isnt_there_is_impossible(key: str, old: Any, new: Any) -> None:
    with pytest.raises(ImpossibleError, match=key):
        configs.set_key(config(), key=key, old=old, new=new)


def test_an_archive_keeps_everything_but_its_config(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(config()))
        archive.writestr("model.weights.h5", b"\0weights")
    configs.rewrite(tmp_path / "a.keras", tmp_path / "b.keras", partial(configs.set_key, key="padding", old="same", new="valid"))
    with zipfile.ZipFile(tmp_path / "b.keras") as archive:
        assert archive.namelist() == ["config.json", "model.weights.h5"]
        assert archive.read("model.weights.h5") == b"\0weights"
        assert own(json.loads(archive.read("config.json")), "padding")["a"] == "valid"
        assert "_own" not in archive.read("config.json").decode()


VALUES = arrays.arrays(np.float32, st.integers(1, 20), elements=st.floats(-100, 100, width=32).filter(lambda v: v == 0 or abs(v) > 1e-3))


@given(VALUES)
def test_roundings_lose_what_their_format_cannot_hold_and_no_more(values: Any) -> None:
    rounded = {name: round_(values.copy()) for name, round_ in weights._ROUNDINGS.items()}
    assert np.all(np.abs(rounded["bfloat16"] - values) <= np.abs(values) * 2.0**-8)
    assert np.all((rounded["bfloat16"].view(np.uint32) & 0xFFFF) == 0)
    assert np.all(np.abs(rounded["float16"] - values) <= np.abs(values) * 2.0**-11 + 1e-6)
    assert len(np.unique(rounded["int8"])) <= 255
    assert np.all(np.abs(rounded["int8"] - values) <= np.abs(values).max() / 127 / 2 * 1.001 + 1e-9)
    for name, round_ in weights._ROUNDINGS.items():
        assert np.allclose(round_(rounded[name].copy()), rounded[name], rtol=1e-6, atol=0.0)


def picture(values: Any, suffix: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, suffix, **options)
    return stream.getvalue()


def test_raw_files_are_rewritten_where_the_fault_is_about_them(tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    golden.mkdir()
    deep = np.array([[0x0102, 0xFF00], [0x00FF, 0xFFFF]], np.uint16)
    flat = np.arange(24, dtype=np.uint8).reshape(4, 6)
    exif = Image.Exif()
    exif[raw_files.ORIENTATION] = 6
    (golden / "deep.png").write_bytes(picture(deep, "png"))
    (golden / "flat.png").write_bytes(picture(flat, "png"))
    (golden / "turned.jpg").write_bytes(picture(flat, "jpeg", exif=exif))
    (golden / "manifest.toml").write_text("version = 1\n")
    wanted = {"high_byte": [[0x01, 0xFF], [0x00, 0xFF]], "low_byte": [[0x02, 0x00], [0xFF, 0xFF]]}
    for kind, values in wanted.items():
        raw_files.rewrite(golden, tmp_path / kind, kind)
        with Image.open(tmp_path / kind / "deep.png") as image:
            assert image.mode == "L"
            assert np.asarray(image).tolist() == values
    raw_files.rewrite(golden, tmp_path / "unturned", "unturned")
    with Image.open(tmp_path / "unturned" / "turned.jpg") as image:
        assert image.getexif().get(raw_files.ORIENTATION, 1) == 1
        assert image.size == (6, 4)
    for kind in ("high_byte", "low_byte", "unturned"):
        assert (tmp_path / kind / "flat.png").read_bytes() == (golden / "flat.png").read_bytes()
        assert (tmp_path / kind / "manifest.toml").read_text() == "version = 1\n"


def test_a_set_without_such_files_has_no_place_for_the_fault(tmp_path: Path) -> None:
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "flat.png").write_bytes(picture(np.zeros((4, 4), np.uint8), "png"))
    for kind in raw_files.EDITS:
        with pytest.raises(ImpossibleError, match="no golden file"):
            raw_files.rewrite(tmp_path / "golden", tmp_path / kind, kind)
