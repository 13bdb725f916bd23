"""Files of custom objects that import one another, as the worker that loads the model runs them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kpipe_stages.named_modules import NamedModules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def finders() -> Iterator[None]:
    """What a test puts into the import system goes away with it."""
    finders, modules = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def named(folder: Path, **sources: str) -> tuple[NamedModules, dict[str, str]]:
    """Files below ``folder`` (``house__layers`` is ``house/layers.py``), installed as the last finder."""
    files = {}
    for name, source in sources.items():
        path = folder / (name.replace("__", "/", 1) + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(source, encoding="utf-8")
        files[name] = str(path)
    modules = NamedModules(files.values())
    sys.meta_path.append(modules)
    return modules, files


def test_a_file_imports_another_by_its_name_and_each_runs_once(tmp_path: Path) -> None:
    modules, files = named(
        tmp_path, kpt_bent="import kpt_base\nfrom kpt_base import SLOPE\nseen = kpt_base.RUNS\n", kpt_base="RUNS = [1]\nSLOPE = 0.3\n"
    )
    bent, base = modules.run(files["kpt_bent"]), modules.run(files["kpt_base"])
    assert bent.SLOPE == 0.3
    assert bent.kpt_base is base
    assert bent.seen is base.RUNS


def test_a_package_is_imported_by_its_whole_name_or_relatively(tmp_path: Path) -> None:
    modules, files = named(
        tmp_path, kpthouse__layers="from .base import BASE\nfrom kpthouse.more import MORE\nTOTAL = BASE + MORE\n", kpthouse__base="BASE = 1\n",
        kpthouse__more="MORE = 2\n",
    )  # fmt: skip
    assert modules.run(files["kpthouse__layers"]).TOTAL == 3


def test_files_may_import_each_other_in_a_circle(tmp_path: Path) -> None:
    modules, files = named(tmp_path, kpt_one="import kpt_two\nONE = 1\n", kpt_two="import kpt_one\nTWO = 2\n")
    one = modules.run(files["kpt_one"])
    assert (one.ONE, one.kpt_two.TWO, one.kpt_two.kpt_one is one) == (1, 2, True)


def test_what_lies_beside_and_is_not_named_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "kpt_stranger.py").write_text("x = 1\n", encoding="utf-8")
    modules, files = named(tmp_path, kpt_guest="import kpt_stranger\n")
    with pytest.raises(ModuleNotFoundError, match="kpt_stranger"):
        modules.run(files["kpt_guest"])


def test_an_installed_module_is_never_hidden(tmp_path: Path) -> None:
    modules, files = named(tmp_path, json="LOADED = True\n", kpt_user="import json\nloads = json.loads\n")
    assert modules.run(files["kpt_user"]).loads("1") == 1
    assert modules.run(files["json"]).LOADED


def test_a_file_that_fails_is_forgotten(tmp_path: Path) -> None:
    modules, files = named(tmp_path, kpt_bad="raise ValueError('no')\n")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            modules.run(files["kpt_bad"])


def test_a_later_set_of_files_gets_its_own_helpers(tmp_path: Path) -> None:
    """A baseline's custom objects and a candidate's, in one process."""
    seen = []
    for number, name in enumerate(("old", "new")):
        folder = tmp_path / name / "house"
        folder.mkdir(parents=True)
        (folder / "kpt_layers.py").write_text("import house.kpt_helpers\nfrom kpt_helpers import SLOPE\n", encoding="utf-8")
        (folder / "kpt_helpers.py").write_text(f"SLOPE = {number}\n", encoding="utf-8")
        modules = NamedModules([str(folder / "kpt_layers.py"), str(folder / "kpt_helpers.py")])
        modules.install()
        module = modules.run(str(folder / "kpt_layers.py"))
        seen.append((module.SLOPE, module.house.kpt_helpers.SLOPE))
    assert seen == [(0, 0), (1, 1)]
    assert sum(isinstance(finder, NamedModules) for finder in sys.meta_path) == 1
