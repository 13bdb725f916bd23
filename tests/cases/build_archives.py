"""Archive cases: a sound small ``.keras`` file, cut up with zipfile and h5py. Payloads leave a file behind, so that a test can prove that none ran."""

from __future__ import annotations

import io
import json
import pickle
import stat
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "canary_of_the_case"
"""A module that a config names; importing it leaves a file."""

CANARY_SOURCE = '''\
"""Importing this, or making one of its objects, leaves a file behind."""

import pathlib

HERE = pathlib.Path(__file__).parent
(HERE / "MARKER_imported").touch()


class Thing:
    def __init__(self, **_):
        (HERE / "MARKER_made").touch()

    @classmethod
    def from_config(cls, config):
        (HERE / "MARKER_from_config").touch()
        return cls()


def function(*_):
    (HERE / "MARKER_called").touch()
'''

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"


@dataclass(frozen=True)
class Base:
    """What every archive is cut from."""

    members: dict[str, bytes]
    """Of a model of two dense layers, ``hidden`` and ``probs``."""
    folder: Path
    """Where the archive goes; payloads leave their files here."""

    def config(self) -> Any:
        """The parsed ``config.json``, to be changed."""
        return json.loads(self.members[CONFIG])

    def zipped(self, extra: dict[str, bytes] | None = None, **replaced: bytes) -> bytes:
        """The archive, with members replaced (by the first word of their names) and others added at the end."""
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # zipfile warns of duplicate names, which are the point
            for name, data in self.members.items():
                archive.writestr(name, replaced.get(name.split(".", 1)[0], data))
            for name, data in (extra or {}).items():
                archive.writestr(name, data)
        return stream.getvalue()

    def with_config(self, change: Callable[[Any], None]) -> bytes:
        """The archive with another ``config.json``."""
        config = self.config()
        change(config)
        return self.zipped(config=json.dumps(config).encode())

    def with_weights(self, change: Callable[[h5py.Group], None]) -> bytes:
        """The archive with other weights; ``change`` gets the group of the first dense layer's arrays."""
        stream = io.BytesIO(self.members[WEIGHTS])
        with h5py.File(stream, "a") as file:
            change(file["layers/dense/vars"])
        return self.zipped(model=stream.getvalue())


@dataclass(frozen=True)
class Archive:
    """One archive case."""

    build: Callable[[Base], bytes]
    code: str
    """The finding that refuses it."""
    says: str
    """A word that its cause must have, or the reader can't tell what is wrong."""


# ------------------------------------------------------------ not an archive


def truncated(base: Base) -> bytes:
    """Cut short while it was copied."""
    whole = base.zipped()
    return whole[: len(whole) * 3 // 5]


def renamed_hdf5(base: Base) -> bytes:
    """Weights of the older format under the new name."""
    return base.members[WEIGHTS]


def web_page(base: Base) -> bytes:
    """What a failed download leaves."""
    del base
    return b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n"


class Touch:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return (Path.touch, (self.path,))


def pickled(base: Base) -> bytes:
    """A pickle that acts when it is read."""
    return pickle.dumps(Touch(base.folder / "MARKER_unpickled"))


# ------------------------------------------------------------ zip structure


def traversal(base: Base) -> bytes:
    """Members that leave the folder they are unpacked into."""
    return base.zipped({"assets/ok.txt": b"x", "../../MARKER_escaped.txt": b"x", "assets/../../../MARKER_roundabout.txt": b"x"})


def absolute(base: Base) -> bytes:
    """A member with an absolute path."""
    return base.zipped({str(base.folder / "MARKER_absolute.txt"): b"x"})


def symbolic_link(base: Base) -> bytes:
    """A member that is a link to another file."""
    stream = io.BytesIO(base.zipped())
    with zipfile.ZipFile(stream, "a") as archive:
        info = zipfile.ZipInfo("assets/vocabulary.txt")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/hostname")
    return stream.getvalue()


def other_activation(config: Any) -> None:
    """A model that is not the one it was."""
    config["config"]["layers"][1]["config"]["activation"] = "linear"


def duplicate_config(base: Base) -> bytes:
    """Two ``config.json``: which one counts is the reader's choice."""
    config = base.config()
    other_activation(config)
    return base.zipped({CONFIG: json.dumps(config).encode()})


def duplicate_by_case(base: Base) -> bytes:
    """Two names that are one on some file systems."""
    return base.zipped({"Config.JSON": base.members[CONFIG]})


def inflated(base: Base, bombs: dict[str, int]) -> bytes:
    """The archive with members of spaces, which deflate a thousandfold, added or (behind their own text) swollen."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in (*base.members, *(n for n in bombs if n not in base.members)):
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(base.members.get(name, b""))
                for block in _spaces(bombs.get(name, 0)):
                    member.write(block)
    return stream.getvalue()


def _spaces(size: int) -> Iterator[bytes]:
    block = b" " * 2**22
    for start in range(0, size, len(block)):
        yield block[: size - start]


def config_bomb(base: Base) -> bytes:
    """Three quarters of a gigabyte of spaces behind a sound config."""
    return inflated(base, {CONFIG: 768 * 2**20})


def asset_bombs(base: Base) -> bytes:
    """Small alone, large together."""
    return inflated(base, {f"assets/{i}.txt": 96 * 2**20 for i in range(12)})


# ------------------------------------------------------------ config.json


def foreign_module(base: Base) -> bytes:
    """A layer's class in a module that is not Keras'."""
    return base.with_config(lambda c: c["config"]["layers"][1].update(module=CANARY, class_name="Thing", registered_name=None))


def foreign_function(base: Base) -> bytes:
    """An activation that is a function of the standard library."""
    reference = {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"}
    return base.with_config(lambda c: c["config"]["layers"][1]["config"].update(activation=reference))


def foreign_initializer(base: Base) -> bytes:
    """An initializer's class in a module that is not Keras'."""
    reference = {"module": CANARY, "class_name": "Thing", "config": {}, "registered_name": None}
    return base.with_config(lambda c: c["config"]["layers"][1]["config"].update(kernel_initializer=reference))


def marshalled_activation(base: Base) -> bytes:
    """Marshalled code where an activation's name should be."""
    code = {"class_name": "__lambda__", "config": {"code": "4wAAAAA=\n", "defaults": None, "closure": None}}
    return base.with_config(lambda c: c["config"]["layers"][1]["config"].update(activation=code))


def deep_config(base: Base) -> bytes:
    """Brackets deeper than any parser's stack."""
    return base.zipped(config=b'{"config": ' + b"[" * 200_000 + b"]" * 200_000 + b"}")


def deep_metadata(base: Base) -> bytes:
    """The same in the other file."""
    return base.zipped(metadata=b'{"keras_version": ' * 100_000 + b"1" + b"}" * 100_000)


def repeated_key(base: Base) -> bytes:
    """One key twice: which value counts is the parser's choice."""
    text = base.members[CONFIG].replace(b'"units": 5', b'"units": 5, "units": 5', 1)
    assert text != base.members[CONFIG]
    return base.zipped(config=text)


# ------------------------------------------------------------ weights


def nan_weight(base: Base) -> bytes:
    """One NaN, which relu hides on some runtimes."""
    return base.with_weights(lambda arrays: arrays["0"].write_direct(_spoilt(arrays["0"], np.nan)))


def infinite_bias(base: Base) -> bytes:
    """One infinity."""
    return base.with_weights(lambda arrays: arrays["1"].write_direct(_spoilt(arrays["1"], np.inf)))


def _spoilt(dataset: h5py.Dataset, value: float) -> np.ndarray[Any, np.dtype[Any]]:
    values = dataset[()]
    values.flat[values.size // 2] = value
    return values


def external_link(base: Base) -> bytes:
    """Weights that lie in another file."""
    other = base.folder / "other.h5"
    with h5py.File(other, "w") as file:
        file["kernel"] = np.ones((4, 5), np.float32)
    return base.with_weights(lambda arrays: _relink(arrays, h5py.ExternalLink(str(other), "/kernel")))


def soft_link(base: Base) -> bytes:
    """Weights that are another dataset's."""
    return base.with_weights(lambda arrays: _relink(arrays, h5py.SoftLink("/layers/dense_1/vars/0")))


def external_storage(base: Base) -> bytes:
    """Weights whose bytes lie in any file that the reader can read."""
    raw = base.folder / "raw.bin"
    raw.write_bytes(bytes(80))

    def change(arrays: h5py.Group) -> None:
        del arrays["0"]
        arrays.create_dataset("0", (4, 5), np.float32, external=[(str(raw), 0, 80)])

    return base.with_weights(change)


def _relink(arrays: h5py.Group, link: h5py.ExternalLink | h5py.SoftLink) -> None:
    del arrays["0"]
    arrays["0"] = link


ARCHIVES: dict[str, Archive] = {
    "A01_truncated_zip": Archive(truncated, "KP001", "cut short"),
    "A01_web_page": Archive(web_page, "KP001", "zip"),
    "A04_config_names_module": Archive(foreign_module, "KP005", CANARY),
    "A04_standard_function": Archive(foreign_function, "KP005", "os"),
    "A04_initializer": Archive(foreign_initializer, "KP005", CANARY),
    "A03_marshalled_activation": Archive(marshalled_activation, "KP006", "hidden"),
    "A06_zip_traversal": Archive(traversal, "KP002", "MARKER_"),
    "A06_absolute_path": Archive(absolute, "KP002", "absolute path"),
    "A06_symbolic_link": Archive(symbolic_link, "KP002", "vocabulary.txt"),
    "A07_zip_bomb_config": Archive(config_bomb, "KP003", "config.json"),
    "A07_many_assets": Archive(asset_bombs, "KP003", ""),
    "A09_h5_renamed": Archive(renamed_hdf5, "KP001", "HDF5"),
    "A09_pickle": Archive(pickled, "KP001", "pickle"),
    "A11_nan_weights": Archive(nan_weight, "KP010", "hidden"),
    "A11_infinite_bias": Archive(infinite_bias, "KP010", "hidden"),
    "A12_duplicate_config": Archive(duplicate_config, "KP002", "config.json"),
    "A12_names_that_differ_in_case": Archive(duplicate_by_case, "KP002", "Config.JSON"),
    "A12_repeated_key": Archive(repeated_key, "KP004", "units"),
    "A16_h5_external_link": Archive(external_link, "KP009", "other.h5"),
    "A16_soft_link": Archive(soft_link, "KP009", "link"),
    "A16_external_storage": Archive(external_storage, "KP009", "raw.bin"),
    "A20_deep_json": Archive(deep_config, "KP004", "config.json"),
    "A20_deep_metadata": Archive(deep_metadata, "KP004", "metadata.json"),
}


def members_of(archive: Path) -> dict[str, bytes]:
    """The members of a sound archive."""
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}
