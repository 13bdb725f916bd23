"""The inspect stage on archives made by hand: every way in which a file may lie is refused, by the right code, before it could hurt."""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
import struct
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import h5py
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from kpipe_stages.archive.collecting import Collector, shown
from kpipe_stages.archive.custom_objects import read_custom_objects
from kpipe_stages.archive.json_text import read_json_object
from kpipe_stages.archive.keras_names import is_modelling_class, is_modelling_function
from kpipe_stages.archive.layers import to_snake_case
from kpipe_stages.archive.peek import peek
from kpipe_stages.archive.weights_scan import blocks
from kpipe_stages.codec import encode
from kpipe_stages.inspect_archive import run
from kpipe_stages.protocol import ArchiveLimits, InspectJob, InspectResult, Job, Observation, StageError, Trust
from kpipe_stages.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def inspect(path: Path, limits: ArchiveLimits | None = None, **trust: tuple[str, ...]) -> tuple[InspectResult | None, list[Observation]]:
    """Run the stage as a worker would; the raised observation comes first."""
    folder = path.with_name(f"{path.name}.work")
    folder.mkdir(exist_ok=True)
    channel = os.open(os.devnull, os.O_WRONLY)
    worker = Worker("inspect", folder, channel)
    try:
        result = run(Job(1, "inspect", "x", str(folder), encode(InspectJob(str(path), Trust(**trust), limits or ArchiveLimits()))), worker)
    except StageError as error:
        return None, [error.observation, *worker.observations]
    finally:
        os.close(channel)
        assert not list(folder.iterdir()), "the copy of the weights must not stay"
    return result, worker.observations


def codes(path: Path, **trust: tuple[str, ...]) -> list[str]:
    return [observation.code for observation in inspect(path, None, **trust)[1]]


def refusal(path: Path, **trust: tuple[str, ...]) -> Observation:
    result, observations = inspect(path, None, **trust)
    assert result is None
    assert observations[0].cause
    assert observations[0].remedy
    return observations[0]


# ---------------------------------------------------------------- a model by hand


def tensor(name: str, size: int) -> dict[str, Any]:
    return {"class_name": "__keras_tensor__", "config": {"shape": [None, size], "dtype": "float32", "keras_history": [name, 0, 0]}}


def dense(name: str, source: str, size: int, units: int, **config: Any) -> dict[str, Any]:
    policy = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, "registered_name": None}
    return {
        "module": "keras.layers",
        "class_name": "Dense",
        "config": {"name": name, "dtype": policy, "units": units, "activation": "relu", "use_bias": True, **config},
        "registered_name": None,
        "build_config": {"input_shape": [None, size]},
        "name": name,
        "inbound_nodes": [{"args": [tensor(source, size)], "kwargs": {}}],
    }


def model() -> dict[str, Any]:
    image = {"batch_shape": [None, 4], "dtype": "float32", "name": "x"}
    layers = [
        {"module": "keras.layers", "class_name": "InputLayer", "config": image, "registered_name": None, "name": "x", "inbound_nodes": []},
        dense("hid", "x", 4, 5),
        dense("out", "hid", 5, 2),
    ]
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": {"name": "m", "trainable": True, "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["out", 0, 0]]},
        "registered_name": "Functional",
        "build_config": {"input_shape": None},
        "compile_config": {},
    }


METADATA = json.dumps({"keras_version": "3.0.0", "date_saved": "2026-01-02@03:04:05"}).encode()
SHAPES = {"layers/dense/vars/0": (4, 5), "layers/dense/vars/1": (5,), "layers/dense_1/vars/0": (5, 2), "layers/dense_1/vars/1": (2,)}


def weights(change: Callable[[h5py.File], None] = lambda _: None, dtype: str = "float32") -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for path, shape in SHAPES.items():
            file[path] = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
        change(file)
    return buffer.getvalue()


def parts(**changed: bytes | dict[str, Any]) -> dict[str, bytes]:
    config = changed.pop("config", model())
    data = {
        "metadata.json": METADATA,
        "config.json": config if isinstance(config, bytes) else json.dumps(config).encode(),
        "model.weights.h5": weights(),
    }
    names = {"metadata": "metadata.json", "weights": "model.weights.h5"}
    return data | {names[key]: value for key, value in changed.items() if isinstance(value, bytes)}


def write(path: Path, members: dict[str, bytes], *, deflate: bool = False) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "model.keras"


def layer_named(config: dict[str, Any], name: str) -> dict[str, Any]:
    return next(layer for layer in config["config"]["layers"] if layer["name"] == name)


# ---------------------------------------------------------------- a good file


@pytest.mark.parametrize("deflate", [False, True])
def test_a_good_file_is_described_without_a_finding(target: Path, *, deflate: bool) -> None:
    result, observations = inspect(write(target, parts(), deflate=deflate))
    assert not observations
    assert result is not None
    assert (result.model_class, result.model_name, result.keras_version, result.saved_at) == ("Functional", "m", "3.0.0", "2026-01-02@03:04:05")
    assert (result.parameters, result.weight_bytes, result.has_optimizer) == (37, 148, False)
    assert [(row.name, row.parameters, row.dtype) for row in result.layers] == [("x", 0, "float32"), ("hid", 25, "float32"), ("out", 12, "float32")]
    assert result.signature is not None
    assert [(spec.name, spec.shape, spec.dtype) for spec in result.signature.inputs] == [("x", (None, 4), "float32")]
    assert [(spec.name, spec.shape, spec.dtype) for spec in result.signature.outputs] == [("out", (None, 2), "float32")]
    assert result.size == target.stat().st_size
    assert set(result.members) == {"metadata.json", "config.json", "model.weights.h5"}


def test_a_streamed_zip_with_data_descriptors_is_read(target: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: Any) -> int:
            raise io.UnsupportedOperation

        def tell(self) -> int:
            raise io.UnsupportedOperation

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts().items():
            archive.writestr(name, data)
    target.write_bytes(pipe.getvalue())
    assert not codes(target)


# ---------------------------------------------------------------- not a .keras file


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 100, "HDF5"),
        (pickle.dumps({"a": 1}), "pickle"),
        (b"\x1f\x8b" + b"\0" * 20, "gzip"),
        (b"\0\0\0\0TFL3" + b"\0" * 20, "LiteRT"),
        (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
        (b"{}", "not a file of a known kind"),
    ],
)
def test_what_is_no_zip_file_is_named(target: Path, content: bytes, words: str) -> None:
    target.write_bytes(content)
    found = refusal(target)
    assert found.code == "KP001"
    assert words in found.cause


def test_folders_missing_files_pipes_and_tars_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "plain").write_bytes(b"x")
    with tarfile.open(tmp_path / "tar", "w") as archive:
        archive.add(tmp_path / "plain", "plain")
    assert peek(tmp_path) == "a folder"
    assert peek(tmp_path / "none") == "missing"
    assert peek(tmp_path / "fifo") == "not a regular file"
    assert peek(tmp_path / "tar") == "a tar file"
    assert peek(tmp_path / "nul\0") == "missing"


@pytest.mark.parametrize("keep", [4, 30, 500, 0.5, 0.99, -1])
def test_a_truncated_file_is_refused(target: Path, keep: float) -> None:
    data = write(target, parts()).read_bytes()
    target.write_bytes(data[: int(keep if keep > 1 or keep < 0 else keep * len(data))])
    assert refusal(target).code == "KP001"


# ---------------------------------------------------------------- zip structure


def info(name: str, **fields: Any) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../escape", "'..'"),
        ("assets/../../escape", "'..'"),
        ("assets\\..\\escape", "'..'"),
        ("/etc/absolute", "absolute"),
        ("C:/windows", "absolute"),
        ("assets\\back", "plain relative"),
        ("assets//double", "plain relative"),
        ("assets/./dot", "plain relative"),
        ("Config.json", "beside 'config.json'"),
        ("\uff43onfig.json", "beside 'config.json'"),
    ],
)
def test_names_that_readers_take_differently_are_refused(target: Path, name: str, words: str) -> None:
    found = refusal(write(target, {**parts(), name: b"x"}))
    assert found.code == "KP002"
    assert words in found.cause


def test_composed_and_decomposed_names_are_one_name(target: Path) -> None:
    found = refusal(write(target, {**parts(), "assets/caf\u00e9": b"1", "assets/cafe\u0301": b"2"}))
    assert found.code == "KP002"


def test_a_name_cut_by_nul_is_refused(target: Path) -> None:
    data = write(target, {**parts(), "assets/aXb": b"x"}).read_bytes()
    target.write_bytes(data.replace(b"assets/aXb", b"assets/a\0b"))
    assert "NUL" in refusal(target).cause


def test_two_members_of_one_name_are_refused(target: Path) -> None:
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in parts().items():
            archive.writestr(name, data)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("config.json", b"{}")
    assert refusal(target).code == "KP002"


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (info("assets/link", external_attr=(stat.S_IFLNK | 0o777) << 16, create_system=3), "symbolic link"),
        (info("assets/device", external_attr=(stat.S_IFCHR | 0o666) << 16, create_system=3), "no plain file"),
        (info("assets/lzma", compress_type=zipfile.ZIP_LZMA), "method 14"),
        (info("assets/bzip2", compress_type=zipfile.ZIP_BZIP2), "method 12"),
        (info("assets/other", extra=struct.pack("<HH", 0x7075, 9) + b"\1" + b"\0" * 4 + b"name"), "Unicode path"),
    ],
)
def test_members_that_are_no_plain_files_are_refused(target: Path, member: zipfile.ZipInfo, words: str) -> None:
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in parts().items():
            archive.writestr(name, data)
        archive.writestr(member, b"/etc/passwd")
    found = refusal(target)
    assert found.code == "KP002"
    assert words in found.cause


def patched(data: bytes, signature: bytes, name: bytes, offset: int, value: bytes) -> bytes:
    """Overwrite a field of the header (local or central) that names a member."""
    name_offset = 30 if signature == b"PK\3\4" else 46
    at = data.index(signature)
    while data[at + name_offset : at + name_offset + len(name)] != name:
        at = data.index(signature, at + 1)
    return data[: at + offset] + value + data[at + offset + len(value) :]


def test_an_encrypted_member_is_refused(target: Path) -> None:
    data = write(target, parts()).read_bytes()
    target.write_bytes(patched(data, b"PK\1\2", b"config.json", 8, struct.pack("<H", 1)))
    assert "encrypted" in refusal(target).cause


def test_two_names_for_one_member_are_refused(target: Path) -> None:
    data = write(target, {**parts(), "assets/one": b"x"}).read_bytes()
    target.write_bytes(data.replace(b"assets/one", b"assets/two", 1))
    found = refusal(target)
    assert found.code == "KP002"
    assert "assets/two" in found.cause


def test_a_local_header_of_another_size_is_refused(target: Path) -> None:
    data = write(target, parts()).read_bytes()
    target.write_bytes(patched(data, b"PK\3\4", b"config.json", 22, struct.pack("<L", 10)))
    assert refusal(target).code == "KP002"


def test_overlapping_members_are_refused(target: Path) -> None:
    data = write(target, {**parts(), "assets/a": b"a" * 50, "assets/b": b"b" * 50}).read_bytes()
    offset = data.index(b"assets/a") - 30
    target.write_bytes(patched(data, b"PK\1\2", b"assets/b", 42, struct.pack("<L", offset)))
    found = refusal(target)
    assert found.code == "KP002"
    assert "overlaps" in found.cause


@pytest.mark.parametrize(("before", "after"), [(b"#!/bin/sh\n", b""), (b"", b"tail"), (b"", b"PK\5\6" + b"\0" * 18)])
def test_bytes_around_the_archive_are_refused(target: Path, before: bytes, after: bytes) -> None:
    data = write(target, parts()).read_bytes()
    target.write_bytes(before + data + after)
    assert refusal(target).code in {"KP001", "KP002"}


def test_bytes_before_the_archive_that_look_like_one_are_refused(target: Path) -> None:
    other = write(target, {"config.json": b"{}"}).read_bytes()
    data = write(target, parts()).read_bytes()
    target.write_bytes(other + data)
    assert refusal(target).code == "KP002"


def test_an_archive_comment_is_refused(target: Path) -> None:
    with zipfile.ZipFile(write(target, parts()), "a") as archive:
        archive.comment = b"hello"
    assert "comment" in refusal(target).cause


def test_a_member_that_keras_does_not_write_is_a_note(target: Path) -> None:
    result, observations = inspect(write(target, {**parts(), "readme\x1b[31m.txt": b"x"}))
    assert result is not None
    assert [o.code for o in observations] == ["KP016"]
    assert "\x1b" not in observations[0].cause + observations[0].place


# ---------------------------------------------------------------- sizes


def test_twenty_assets_of_200_mib_in_4_mb_are_refused(target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts().items():
            archive.writestr(name, data)
        archive.writestr("assets/0", b"\0" * (200 * 2**20))
        packed = archive.infolist()[-1]
    data = target.read_bytes()
    body = data[packed.header_offset + 30 + len("assets/0") :][: packed.compress_size]
    write_same(target, {name: (info_of(packed, name), body) for name in (f"assets/{i:02d}" for i in range(20))})
    assert target.stat().st_size < 6 * 2**20
    assert {o.code for o in inspect(target)[1]} == {"KP003"}


def info_of(packed: zipfile.ZipInfo, name: str) -> tuple[int, int, int, str]:
    return packed.CRC, packed.compress_size, packed.file_size, name


def write_same(path: Path, members: dict[str, tuple[tuple[int, int, int, str], bytes]]) -> None:
    """Write a zip of deflated bodies that lie ready."""
    local, central = b"", b""
    for name, ((crc, stored, size, _), body) in members.items():
        common = struct.pack("<5H3L2H", 20, 0, 8, 0, 33, crc, stored, size, len(name), 0)
        central += b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<3H2L", 0, 0, 0, 0, len(local)) + name.encode()
        local += b"PK\3\4" + common + name.encode() + body
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(members), len(members), len(central), len(local), 0)
    path.write_bytes(local + central + end)


def test_small_members_that_add_up_are_refused(target: Path) -> None:
    assert refusal(write(target, {f"assets/{i}": b"\0" * 2**20 for i in range(60)}, deflate=True)).code == "KP003"


@pytest.mark.parametrize("declared", [10, 100_000])
def test_the_declared_size_is_not_trusted(target: Path, declared: int) -> None:
    data = write(target, parts(), deflate=True).read_bytes()
    for signature, offset in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        data = patched(data, signature, b"config.json", offset, struct.pack("<L", declared))
    target.write_bytes(data)
    found = refusal(target)
    assert found.code == "KP001"
    assert str(declared) in found.cause


def test_a_flipped_byte_in_an_asset_is_found(target: Path) -> None:
    data = write(target, {**parts(), "assets/vocabulary.txt": b"one two three"}).read_bytes()
    target.write_bytes(data.replace(b"one two", b"one twp"))
    assert "checksum" in refusal(target).cause


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (ArchiveLimits(max_members=2), "3 members"),
        (ArchiveLimits(max_config_bytes=100), "config.json declares"),
        (ArchiveLimits(max_total_bytes=1000), "together"),
        (ArchiveLimits(max_json_depth=3), "levels deep"),
    ],
)
def test_the_limits_of_the_job_hold(target: Path, limits: ArchiveLimits, words: str) -> None:
    result, observations = inspect(write(target, parts()), limits)
    assert result is None
    assert words in observations[0].cause


def test_a_wrong_count_of_members_is_refused(target: Path) -> None:
    data = bytearray(write(target, parts()).read_bytes())
    end = data.rindex(b"PK\5\6")
    struct.pack_into("<2H", data, end + 8, 0xFFFE, 0xFFFE)
    target.write_bytes(data)
    assert refusal(target).code == "KP002"


def as_above_two_gib(data: bytes, **lies: int) -> bytes:
    """The end of an archive as Python writes it above 2 GiB: a 64-bit record and its locator, and true values in the small record too."""
    at = data.rindex(b"PK\5\6")
    _, _, _, here, entries, length, offset, _ = struct.unpack_from("<4s4H2LH", data, at)
    said = {"here": here, "entries": entries, "length": length, "offset": offset, **lies}
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, *said.values())
    return data[:at] + record + struct.pack("<4sLQL", b"PK\6\7", 0, at, 1) + data[at:]


def test_a_64_bit_end_record_beside_true_small_values_is_read(target: Path) -> None:
    target.write_bytes(as_above_two_gib(write(target, parts()).read_bytes()))
    result, observations = inspect(target)
    assert result is not None
    assert not observations


@pytest.mark.parametrize("lie", [{"entries": 2}, {"length": 10}, {"offset": 0}])
def test_end_records_that_contradict_each_other_are_refused(target: Path, lie: dict[str, int]) -> None:
    target.write_bytes(as_above_two_gib(write(target, parts()).read_bytes(), **lie))
    refused = refusal(target)
    assert refused.code == "KP002"
    assert "64-bit record" in refused.cause


# ---------------------------------------------------------------- config.json


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "levels deep"),
        (b'{"a":' * 5000, "levels deep"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": {"b": 1, "\\u0062": 2}}', "twice"),
        (b"\xef\xbb\xbf{}", "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"a": "\\ud800"}', "UTF-8"),
        (b'{"a": ', "isn't JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "isn't JSON"),
        (b"[]", "list"),
        (b'"' + b'\\"' * 50_000, "isn't JSON"),
    ],
)
def test_json_that_would_hurt_or_reads_two_ways_is_refused(target: Path, text: bytes, words: str) -> None:
    found = refusal(write(target, parts(config=text)))
    assert found.code == "KP004"
    assert words in found.cause


def test_many_containers_are_refused_before_parsing() -> None:
    collector = Collector()
    assert read_json_object(b"[" + b"{}," * 1_000_001 + b"{}]", "config.json", 200, collector) is None
    assert collector.refused


def test_brackets_in_strings_do_not_count() -> None:
    text = json.dumps({"a": "[" * 1000 + '"\\' + "{" * 1000, "b": [1e999, float("nan")]}).encode()
    collector = Collector()
    assert read_json_object(text, "config.json", 5, collector) is not None


@pytest.mark.parametrize("missing", ["config.json", "metadata.json", "model.weights.h5"])
def test_a_missing_part_is_refused(target: Path, missing: str) -> None:
    found = refusal(write(target, {name: data for name, data in parts().items() if name != missing}))
    assert found.code == ("KP008" if missing.endswith("h5") else "KP004")
    assert missing in found.cause


@pytest.mark.parametrize("version", [None, 3, "new", ""])
def test_a_malformed_version_is_refused(target: Path, version: Any) -> None:
    assert refusal(write(target, parts(metadata=json.dumps({"keras_version": version}).encode()))).code == "KP004"


def test_a_newer_keras_is_a_warning(target: Path) -> None:
    result, observations = inspect(write(target, parts(metadata=b'{"keras_version": "3.999.0"}')))
    assert result is not None
    assert [o.code for o in observations] == ["KP014"]


# ---------------------------------------------------------------- names of code


def reference(module: str | None, class_name: Any, config: Any, registered: str | None = None) -> dict[str, Any]:
    return {"module": module, "class_name": class_name, "config": config, "registered_name": registered}


LAMBDA = {"class_name": "__lambda__", "config": {"code": "4wEAAAA", "defaults": None, "closure": None}}


@pytest.mark.parametrize(
    ("activation", "code"),
    [
        (reference("os", "function", "system"), "KP005"),
        (reference("os", "function", "system", "system"), "KP005"),
        (reference("subprocess", "Popen", {}, None), "KP005"),
        (reference("tensorflow.python.framework", "TensorSpec", {}), "KP005"),
        (reference("keras_hub.src.models", "Backbone", {}, "keras_hub>Backbone"), "KP005"),
        (reference("keras.src.engine.functional", "Functional", {}, "Functional"), "KP005"),
        ({"class_name": "__typespec__", "spec_name": "Evil", "module": "evil", "config": [], "registered_name": None}, "KP005"),
        (reference("keras.utils", "function", "get_file"), "KP006"),
        (reference("keras.utils", "get_file", {}), "KP006"),
        (reference("keras.models", "function", "load_model"), "KP006"),
        (reference("keras.config", "function", "enable_unsafe_deserialization"), "KP006"),
        (reference("keras.saving", "KerasFileEditor", {"filepath": "x"}), "KP006"),
        (reference("keras.callbacks", "LambdaCallback", {}), "KP006"),
        (reference("keras.layers", "deserialize", {}), "KP006"),
        (reference("keras.src.utils.python_utils", "function", "func_load"), "KP006"),
        (reference("keras.src.saving.saving_lib", "H5IOStore", {}), "KP006"),
        (reference("keras.layers", "TorchModuleWrapper", {"module": "x", "name": "t"}), "KP006"),
        (reference("keras.src.utils.torch_utils", "TorchModuleWrapper", {}), "KP006"),
        (reference("keras.layers", "TFSMLayer", {"filepath": "x"}), "KP006"),
        (reference("keras.layers", "Lambda", {"name": "l", "function": reference("builtins", "function", "relu")}), "KP006"),
        (reference("keras.layers", "StringLookup", {"name": "s", "vocabulary": "/etc/passwd"}), "KP006"),
        (LAMBDA, "KP006"),
        (reference(None, "Lambda", {"function": LAMBDA}), "KP006"),
        ({"class_name": "Lambda", "config": {"function": ["4wEAAAA", None, None]}}, "KP006"),
        (reference("builtins", "function", "deserialize"), "KP007"),
        (reference("builtins", "function", "my_activation", "function"), "KP007"),
        (reference(None, "Scale", {}, "mine>Scale"), "KP007"),
        (reference("mine.layers", "Scale", {}, "mine>Scale"), "KP007"),
        (reference("keras.layers", "Dense", {}, "mine>Dense"), "KP007"),
        ({"class_name": "Dense", "config": {"units": 3}}, "KP004"),
        (reference("keras.layers", ["Dense"], {}), "KP004"),
        ({"class_name": "__numpy__", "config": {"value": ["a"], "dtype": "U500000000"}}, "KP004"),
    ],
)
@pytest.mark.parametrize("place", ["activation", "call", "compiled model inside"])
def test_what_could_bring_code_is_refused_wherever_it_stands(target: Path, activation: Any, code: str, place: str) -> None:
    config = model()
    layer = layer_named(config, "hid")
    if place == "activation":
        layer["config"]["activation"] = activation
    elif place == "call":
        layer["inbound_nodes"][0]["kwargs"]["mask"] = {"deep": [[{"er": activation}]]}
    else:
        layer["compile_config"] = {"loss": activation}  # only the outermost model's settings stay unread
    found = refusal(write(target, parts(config=config)))
    assert found.code == code
    assert "hid" in found.place or found.place in {"t", "l", "s"}


@pytest.mark.parametrize(
    ("loss", "refused"),
    [
        (reference("builtins", "function", "my_loss"), False),
        (reference(None, "MyLoss", {}, "mine>MyLoss"), False),
        (reference("mine", "MyLoss", {}, "mine>MyLoss"), False),
        ("mse", False),
        (LAMBDA, True),
        (reference("os", "function", "system"), True),
        (reference("keras.utils", "function", "get_file"), True),
    ],
)
def test_training_settings_may_be_unknown_but_may_not_bring_code(target: Path, loss: Any, *, refused: bool) -> None:
    config = model()
    config["compile_config"] = {"optimizer": "adam", "loss": loss}
    assert (inspect(write(target, parts(config=config)))[0] is None) == refused


def scaled(registered: str | None = "mine>Scale", module: str | None = None) -> dict[str, Any]:
    config = model()
    config["config"]["layers"][1] = dense("hid", "x", 4, 5) | {"class_name": "Scale", "module": module, "registered_name": registered}
    config["config"]["layers"][2] = dense("out", "hid", 5, 2, activation=reference("builtins", "function", "mine>squash", "function"))
    return config


def scaled_weights() -> bytes:
    def change(file: h5py.File) -> None:
        file.move("layers/dense", "layers/scale")
        file.move("layers/dense_1", "layers/dense")

    return weights(change)


SOURCE = """
import keras
PACKAGE = "mine"

@keras.saving.register_keras_serializable(package=PACKAGE)
class Scale(keras.layers.Layer):
    pass

@keras.saving.register_keras_serializable("mine", name="squash")
def any_name(x):
    return x

raise SystemExit("this file must not run")
"""


def test_a_custom_object_is_found_in_the_given_file_which_does_not_run(target: Path, tmp_path: Path) -> None:
    source = tmp_path / "layers.py"
    source.write_text(SOURCE, encoding="utf-8")
    write(target, parts(config=scaled(), weights=scaled_weights()))
    assert codes(target) == ["KP007", "KP007"]
    result, observations = inspect(target, custom_objects=(str(source),))
    assert not observations
    assert result is not None
    assert [row.registered_name for row in result.layers] == [None, "mine>Scale", None]


def test_a_missing_custom_object_is_named_with_what_the_file_gives(target: Path, tmp_path: Path) -> None:
    source = tmp_path / "other.py"
    source.write_text("import keras\n@keras.saving.register_keras_serializable()\nclass Other: ...\n", encoding="utf-8")
    found = refusal(write(target, parts(config=scaled(), weights=scaled_weights())), custom_objects=(str(source),))
    assert all(word in found.cause for word in ("hid", "Scale", "mine>Scale", "other.py", "Custom>Other"))
    assert "custom_objects" in found.remedy


@pytest.mark.parametrize("text", [None, "class (", "\0", "(" * 5000])
def test_a_custom_object_file_that_does_not_parse_is_refused(target: Path, tmp_path: Path, text: str | None) -> None:
    source = tmp_path / "bad.py"
    if text is not None:
        source.write_text(text, encoding="utf-8")
    assert refusal(write(target, parts()), custom_objects=(str(source),)).code == "KP007"


def test_a_package_that_is_not_written_out_fits_every_package(tmp_path: Path) -> None:
    source = tmp_path / "layers.py"
    source.write_text("@register_keras_serializable(package=make())\nclass A: ...\n", encoding="utf-8")
    provided = read_custom_objects(Trust(custom_objects=(str(source),)), Collector())
    assert provided.has("x>A")
    assert not provided.has("x>B")


def test_an_allowed_package_may_bring_its_registered_objects(target: Path) -> None:
    write(target, parts(config=scaled(module="mine.layers"), weights=scaled_weights()))
    assert not codes(target, allow_modules=("mine",))
    assert codes(target, allow_modules=("min",))[0] == "KP007"


def test_an_allowed_package_opens_no_door_into_keras(target: Path) -> None:
    config = model()
    layer_named(config, "hid")["config"]["activation"] = reference("keras.utils", "get_file", {}, "mine>get_file")
    assert refusal(write(target, parts(config=config)), allow_modules=("mine",)).code == "KP006"


def with_lambda(**config: Any) -> dict[str, Any]:
    whole = model()
    layer = {**dense("twice", "x", 4, 5), "class_name": "Lambda", "config": {"name": "twice", "function": LAMBDA, **config}}
    whole["config"]["layers"].append(layer)
    return whole


def test_a_lambda_layer_is_refused_and_named_once(target: Path) -> None:
    result, observations = inspect(write(target, parts(config=with_lambda())))
    assert result is None
    assert [(o.code, o.place) for o in observations] == [("KP006", "twice")]
    assert "twice" in observations[0].remedy


def test_an_allowed_lambda_passes_but_not_what_hides_in_it(target: Path) -> None:
    assert not codes(write(target, parts(config=with_lambda())), allow_lambda=("twice",))
    hidden = with_lambda(arguments={"f": reference("os", "function", "system")})
    assert codes(write(target, parts(config=hidden)), allow_lambda=("twice",)) == ["KP005"]
    nested = with_lambda(arguments={"l": reference("keras.layers", "Lambda", {"name": "other", "function": LAMBDA})})
    assert codes(write(target, parts(config=nested)), allow_lambda=("twice",)) == ["KP006"]


def test_the_name_of_an_allowed_lambda_allows_nothing_else(target: Path) -> None:
    config = model()
    layer_named(config, "hid")["config"]["activation"] = LAMBDA
    assert codes(write(target, parts(config=config)), allow_lambda=("hid",)) == ["KP006"]
    config = with_lambda()
    config["config"]["layers"][-1]["module"] = "os"
    assert codes(write(target, parts(config=config)), allow_lambda=("twice",))[0] in {"KP005", "KP006"}


def test_equal_problems_are_one_observation_with_a_count(target: Path) -> None:
    config = model()
    config["config"]["layers"] += [dense(f"d{i}", "x", 4, 5, activation=reference("builtins", "function", "mine")) for i in range(50)]
    observations = inspect(write(target, parts(config=config)))[1]
    assert [(o.code, o.evidence["count"]) for o in observations] == [("KP007", 50)]


# ---------------------------------------------------------------- weights


def edited(change: Callable[[h5py.File], None]) -> dict[str, bytes]:
    return parts(weights=weights(change))


def replace_weight(**fields: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars"].create_dataset("0", **fields)

    return change


def link(value: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars"]["0"] = value

    return change


def cycle(file: h5py.File) -> None:
    file["layers/dense/vars/again"] = file["layers"]


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(4, 5), dtype="float32")
    layout[:] = h5py.VirtualSource("other.h5", "k", shape=(4, 5))
    del file["layers/dense/vars/0"]
    file["layers/dense/vars"].create_virtual_dataset("0", layout)


def plugin_filter(file: h5py.File) -> None:
    del file["layers/dense/vars/0"]
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((4, 5))
    properties.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple((4, 5))
    h5py.h5d.create(file["layers/dense/vars"].id, b"0", h5py.h5t.IEEE_F32LE, space, properties)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (link(h5py.ExternalLink("other.h5", "/k")), "external link"),
        (link(h5py.SoftLink("/layers/dense_1/vars/0")), "soft link"),
        (cycle, "second link"),
        (virtual, "virtual"),
        (plugin_filter, "filter"),
        (replace_weight(shape=(4, 5), dtype="float32", external=[("other.bin", 0, 80)]), "another file"),
        (replace_weight(data=np.array([b"a", b"b"], dtype=object), dtype=h5py.string_dtype()), "plain numbers"),
        (replace_weight(shape=(3,), dtype=h5py.vlen_dtype(np.float32)), "plain numbers"),
        (replace_weight(data=np.zeros(3, dtype=[("a", "f4"), ("b", "i4")])), "plain numbers"),
        (replace_weight(data=h5py.Empty("float32")), "no shape"),
        (lambda file: file.__setitem__("layers/type", np.dtype("float32")), "Datatype"),
    ],
)
def test_weights_that_lie_elsewhere_or_are_no_numbers_are_refused(target: Path, change: Callable[[h5py.File], None], words: str) -> None:
    found = refusal(write(target, edited(change)))
    assert found.code == "KP009"
    assert words in found.cause


def test_a_link_below_the_optimizer_is_refused_too(target: Path) -> None:
    assert refusal(write(target, edited(lambda file: file.__setitem__("optimizer/vars/0", h5py.SoftLink("/vars"))))).code == "KP009"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"shape": (10**6, 10**7), "chunks": (1000, 1000), "compression": "gzip", "dtype": "float32"}, "KP003"),
        ({"shape": (10**6, 10**3), "dtype": "float32"}, "KP003"),
        ({"shape": (4, 5), "dtype": "float32"}, "KP008"),
        ({"data": np.zeros((4, 5)), "maxshape": (None, None), "chunks": (6000, 6000), "compression": "gzip"}, "KP003"),
    ],
)
def test_datasets_that_declare_more_than_they_store_are_refused(target: Path, fields: dict[str, Any], code: str) -> None:
    assert refusal(write(target, edited(replace_weight(**fields)), deflate=True)).code == code


def test_a_partly_written_dataset_is_refused(target: Path) -> None:
    def change(file: h5py.File) -> None:
        replace_weight(shape=(4, 5), chunks=(2, 5), dtype="float32")(file)
        file["layers/dense/vars/0"][0, 0] = 1

    assert "never written whole" in refusal(write(target, edited(change))).cause


def test_weights_that_are_no_hdf5_file_are_refused(target: Path) -> None:
    assert refusal(write(target, parts(weights=b"\0" * 512 + weights()))).code == "KP001"
    assert refusal(write(target, parts(weights=weights()[:600]))).code == "KP001"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
@pytest.mark.parametrize("chunks", [None, (2, 3)])
def test_nan_and_infinity_are_found(target: Path, dtype: str, chunks: tuple[int, int] | None) -> None:
    values = np.ones((4, 5), dtype)
    values[2, 1], values[3, 4] = np.inf, np.nan
    observations = inspect(write(target, edited(replace_weight(data=values, chunks=chunks))))[1]
    [found] = [o for o in observations if o.code == "KP010"]
    assert (found.place, found.evidence["nan"], found.evidence["inf"]) == ("hid", 1, 1)
    assert found.evidence["first"] in ([2, 1], [3, 4])
    assert "layers/dense/vars/0" in found.cause


@pytest.mark.parametrize(("bits", "kinds"), [(0x7F80, (0, 1)), (0xFF80, (0, 1)), (0x7FC0, (1, 0)), (0xFF81, (1, 0)), (0x7F7F, None)])
def test_nan_in_bfloat16_is_found(target: Path, bits: int, kinds: tuple[int, int] | None) -> None:
    def change(file: h5py.File) -> None:
        values = np.zeros((4, 5), "<u2")
        values[1, 3] = bits
        replace_weight(data=values.view("V2"))(file)
        file["layers/dense/vars/0"].attrs["dtype"] = "bfloat16"

    found = [o for o in inspect(write(target, edited(change)))[1] if o.code == "KP010"]
    assert [(o.evidence["nan"], o.evidence["inf"], o.evidence["first"]) for o in found] == ([] if kinds is None else [(*kinds, [1, 3])])


@pytest.mark.parametrize("said", [None, "float16"])
def test_opaque_values_of_an_unknown_kind_are_refused(target: Path, said: str | None) -> None:
    def change(file: h5py.File) -> None:
        replace_weight(data=np.zeros((4, 5), "V2"))(file)
        if said:
            file["layers/dense/vars/0"].attrs["dtype"] = said

    assert refusal(write(target, edited(change))).code == "KP009"


def test_float_values_that_claim_to_be_bfloat16_are_refused(target: Path) -> None:
    assert refusal(write(target, edited(lambda f: f["layers/dense/vars/0"].attrs.__setitem__("dtype", "bfloat16")))).code == "KP009"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (replace_weight(data=np.ones((5, 4), "float32")), "(4, 5)"),
        (replace_weight(data=np.ones(20, "float32")), "(4, 5)"),
        (lambda file: file.__delitem__("layers/dense/vars/1"), "(5,)"),
        (lambda file: file.__delitem__("layers/dense_1"), "needs a weight"),
        (lambda file: file["layers/dense/vars"].attrs.__setitem__("name", "out"), "saved from layer 'out'"),
        (lambda file: file.move("layers", "_layer_checkpoint_dependencies"), "Keras 2"),
    ],
)
def test_weights_that_contradict_the_config_are_refused(target: Path, change: Callable[[h5py.File], None], words: str) -> None:
    found = refusal(write(target, edited(change)))
    assert found.code == "KP008"
    assert words in found.cause


def test_a_layer_with_weights_but_no_declared_input_is_refused(target: Path) -> None:
    config = model()
    del layer_named(config, "hid")["build_config"]
    found = refusal(write(target, parts(config=config)))
    assert found.code == "KP008"
    assert "no build_config" in found.cause


def test_an_axis_that_no_runtime_can_index_is_refused(target: Path) -> None:
    config = model()
    layer_named(config, "x")["config"]["batch_shape"] = [None, 10**11]
    found = refusal(write(target, parts(config=config)))
    assert (found.code, found.evidence["axis"]) == ("KP008", 10**11)


def test_a_wrapped_layer_is_held_to_the_shape_that_its_wrapper_passes_on(target: Path) -> None:
    config = model()
    inner = dense("in", "x", 4, 5)
    del inner["build_config"]
    wrapper = dense("hid", "x", 4, 5) | {
        "class_name": "TimeDistributed",
        "config": {"name": "hid", "layer": inner},
        "build_config": {"input_shape": [None, 7, 9]},
    }
    config["config"]["layers"][1] = wrapper

    def change(file: h5py.File) -> None:
        file.move("layers/dense", "layers/time_distributed/layer")
        file.move("layers/dense_1", "layers/dense")

    found = refusal(write(target, parts(config=config, weights=weights(change))))
    assert found.code == "KP008"
    assert "(9, 5)" in found.cause


@pytest.mark.parametrize(
    "layer",
    [
        dense("huge", "x", 4, 10**11),
        dense("huge", "x", 4, 5) | {"class_name": "Embedding", "config": {"name": "huge", "input_dim": 30, "output_dim": 30}},
        dense("huge", "x", 4, 5) | {"class_name": "Conv2D", "config": {"name": "huge", "filters": 2, "kernel_size": [10**5, 10**5]}},
        dense("huge", "x", 4, 5) | {"class_name": "EinsumDense", "config": {"name": "huge", "output_shape": [None, 10**9]}},
        dense("outer", "x", 4, 5) | {"class_name": "TimeDistributed", "config": {"name": "outer", "layer": dense("huge", "x", 4, 10**11)}},
    ],
)
def test_a_layer_larger_than_all_weights_together_is_refused(target: Path, layer: dict[str, Any]) -> None:
    config = model()
    config["config"]["layers"].append(layer)
    causes = [o.cause for o in inspect(write(target, parts(config=config)))[1] if o.code == "KP008"]
    assert any("'huge' declares" in cause for cause in causes)


def test_integer_weights_of_a_float_layer_are_a_warning(target: Path) -> None:
    result, observations = inspect(write(target, parts(weights=weights(dtype="int8"))))
    assert result is not None
    assert [(o.code, o.evidence["declared"], o.evidence["stored"], o.evidence["count"]) for o in observations] == [("KP015", "float32", "int8", 4)]


def test_weights_that_nothing_loads_are_a_warning(target: Path) -> None:
    for path in ("layers/dense_2/vars/0", "layers/dense/vars/2", "vars/0", "extra"):

        def change(file: h5py.File, path: str = path) -> None:
            file[path] = np.ones(3)

        result, observations = inspect(write(target, edited(change)))
        assert result is not None
        assert [(o.code, o.place) for o in observations] == [("KP017", path)]


def test_optimizer_state_is_not_the_models(target: Path) -> None:
    result, observations = inspect(write(target, edited(lambda file: file.__setitem__("optimizer/vars/0", np.full(100, np.nan)))))
    assert not observations
    assert result is not None
    assert (result.parameters, result.has_optimizer) == (37, True)


# ---------------------------------------------------------------- calls, structure of inputs and outputs


@pytest.mark.parametrize(
    ("node", "forced"),
    [
        ({"args": [tensor("x", 4)], "kwargs": {"training": True}}, True),
        ({"args": [tensor("x", 4)], "kwargs": {"training": False, "mask": None}}, False),
        ({"args": [tensor("x", 4)], "kwargs": {"inner": [{"training": 1}]}}, True),
        ({"args": [tensor("x", 4), True], "kwargs": {}}, True),
        ([["x", 0, 0, {"training": True}]], True),
    ],
)
def test_a_call_that_forces_training_is_seen(target: Path, node: Any, *, forced: bool) -> None:
    config = model()
    layer_named(config, "hid")["inbound_nodes"] = [node]
    result, observations = inspect(write(target, parts(config=config)))
    assert result is not None
    assert [row.name for row in result.layers if row.forced_training] == (["hid"] if forced else [])
    assert [o.code for o in observations] == (["KP013"] if forced else [])


def test_structures_are_flattened_as_keras_does(target: Path) -> None:
    config = model()
    config["config"]["output_layers"] = {"b": ["out", 0, 0], "a": [["hid", 0, 0], ["out", 0, 0]]}
    result, _ = inspect(write(target, parts(config=config)))
    assert result is not None
    assert result.signature is not None
    assert [spec.name for spec in result.signature.outputs] == ["a/0", "a/1", "b"]
    config["config"]["output_layers"] = [["out", 0, 0], ["out", 0, 0]]
    result, _ = inspect(write(target, parts(config=config)))
    assert result is not None
    assert result.signature is not None
    assert [spec.name for spec in result.signature.outputs] == ["out", "out_2"]


# ---------------------------------------------------------------- properties


@hypothesis.given(st.text())
def test_shown_text_can_be_printed_anywhere(text: str) -> None:
    plain = shown(text)
    assert plain.isprintable()
    assert len(plain) <= 100
    plain.encode("utf-8")


@hypothesis.given(st.lists(st.integers(1, 9), max_size=4), st.integers(1, 8), st.integers(1, 200))
def test_blocks_cover_an_array_once(shape: list[int], itemsize: int, limit: int) -> None:
    counts = np.zeros(shape, int)
    for where in blocks(tuple(shape), itemsize, limit):
        counts[where] += 1
        assert counts[where].size == 1 or counts[where].size * itemsize <= limit
    assert (counts == 1).all()


@hypothesis.given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_any_json_object_is_read_or_refused(value: Any) -> None:
    collector = Collector()
    read = read_json_object(json.dumps({"v": value}).encode(), "config.json", 20, collector)
    assert collector.refused == (read is None)
    assert read is None or read == json.loads(json.dumps({"v": value}))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("fuzz") / "model.keras"
    return path, write(path, {**parts(), "assets/vocabulary.txt": b"one\ntwo"}, deflate=True).read_bytes()


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(st.data())
def test_flipped_and_cut_files_are_refused_or_read_never_a_crash(good: tuple[Path, bytes], data: st.DataObject) -> None:
    path, content = good
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged[: data.draw(st.sampled_from([len(damaged), data.draw(st.integers(0, len(damaged)))]))])
    result, observations = inspect(path)
    assert result is not None or observations


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10) | st.floats() | st.sampled_from(["Dense", "relu", "keras.layers", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["class_name", "config", "module", "name", "layers", "dtype", "units"]), inner)
    ),
    max_leaves=8,
)


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(st.data())
def test_configs_with_junk_anywhere_never_crash(good: tuple[Path, bytes], data: st.DataObject) -> None:
    config: Any = model()
    node: Any = config
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        inner = node[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 5)) == 0:
            break
        node = inner
    node[key] = data.draw(JUNK)
    result, observations = inspect(write(good[0], parts(config=config)))
    assert result is not None or observations
    json.dumps(encode(result), allow_nan=False)


@hypothesis.given(st.text(alphabet="abcXYZ_0123.", min_size=1))
def test_snake_case_is_stable(name: str) -> None:
    assert to_snake_case(to_snake_case(name)) == to_snake_case(name)


def test_names_of_keras_in_short() -> None:
    assert is_modelling_class("keras.layers", "Dense")
    assert is_modelling_class("keras.src.ops.numpy", "Clip")
    assert not is_modelling_class("keras.layers", "deserialize")
    assert not is_modelling_class("keras.src.layersx.core", "Dense")
    assert is_modelling_function("builtins", "gelu")
    assert not is_modelling_function("keras.utils", "gelu")
