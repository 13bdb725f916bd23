"""What may import what, seen from fresh interpreters; and what the wheel holds."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kpipe
import kpipe_stages
from kpipe.golden import sha256_of
from kpipe.store import RunFolder, save_evidence
from kpipe_stages.catalog import FORMATS, RUNTIMES, STAGES
from kpipe_stages.codec import read_json, write_json
from kpipe_stages.protocol import PROTOCOL, GoldenItem, InputSpec, Job, PrepareJob, Result, Status

from .sample_run import Bench

TOP = Path(__file__).parents[1]
PIPELINE, STAGES_FOLDER = Path(kpipe.__file__).parent, Path(kpipe_stages.__file__).parent
FRAMEWORKS = {"keras", "tensorflow", "jax", "torch", "openvino", "onnxruntime", "onnx", "tf2onnx", "ai_edge_litert", "h5py", "ml_dtypes"}
LIBRARIES = {"numpy", "pydantic", "rich", "jinja2", "matplotlib", "tomlkit", "PIL", "packaging"}
TOLD = "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"


def python(code: str, *, env: dict[str, str] | None = None, flags: tuple[str, ...] = ("-P",), cwd: Path | None = None) -> str:
    """What a fresh interpreter prints."""
    environment = {"PATH": os.environ["PATH"], **{k: v for k, v in os.environ.items() if k.startswith("COVERAGE")}, **(env or {})}
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=False, env=environment, cwd=cwd)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def loaded(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after ``code``, without the ones that are always there."""
    always = set(json.loads(python(TOLD)))
    return set(json.loads(python(code + TOLD).splitlines()[-1])) - always


def command(*words: str) -> str:
    return f"import sys\nfrom kpipe.__main__ import run\ntry:\n    run({list(words)!r})\nexcept SystemExit:\n    pass\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was judged by nobody yet."""
    folder = tmp_path_factory.mktemp("run")
    bench = Bench(folder)
    save_evidence(RunFolder(folder), bench.evidence())
    (folder / "contract.toml").write_text(bench.text)
    (folder / "artifacts").mkdir()
    return folder


# ---------------------------------------------------------------- imports


def test_importing_kpipe_brings_nothing() -> None:
    assert loaded("import kpipe") <= {"kpipe"} | set(sys.stdlib_module_names)


def test_names_of_the_package_are_all_there() -> None:
    assert json.loads(python("import kpipe, json; print(json.dumps([n for n in kpipe.__all__ if getattr(kpipe, n) is None]))")) == []
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        kpipe.nonsense  # noqa: B018


@pytest.mark.parametrize(("words", "typers_own"), [(("--help",), set()), (("validate", "--help"), {"pydantic"})])
def test_help_loads_no_library_and_no_framework(words: tuple[str, ...], typers_own: set[str]) -> None:
    modules = loaded(command(*words))
    assert "typer" in modules
    assert not modules & (FRAMEWORKS | LIBRARIES - typers_own)


@pytest.mark.parametrize("words", [("judge",), ("report",)])
def test_judging_and_reporting_load_no_framework(finished: Path, words: tuple[str, ...]) -> None:
    modules = loaded(command("judge", str(finished)) if words == ("judge",) else command("judge", str(finished)) + command("report", str(finished)))
    assert not modules & FRAMEWORKS
    assert (finished / "report.html").exists()
    assert json.loads((finished / "run.json").read_text())["verdict"] == "PASS"


def test_every_worker_module_loads_with_numpy_alone() -> None:
    code = """
    import importlib, pkgutil, sys, kpipe_stages
    for name in ("kpipe", "keras", "tensorflow", "jax", "pydantic", "PIL", "h5py"):
        sys.modules[name] = None
    for module in pkgutil.walk_packages(kpipe_stages.__path__, "kpipe_stages."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    """
    modules = loaded("\n".join(line[4:] for line in code.splitlines()))
    blocked = {"kpipe", "keras", "tensorflow", "jax", "pydantic", "PIL", "h5py"}
    assert modules - blocked <= {"numpy", "kpipe_stages"} | set(sys.stdlib_module_names)


def imported(path: Path) -> set[str]:
    """Top-level modules that a file names in any import, however deep."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_workers_name_no_part_of_the_orchestrator() -> None:
    for path in STAGES_FOLDER.rglob("*.py"):
        assert not imported(path) & {"kpipe", "pydantic", "rich", "typer", "jinja2", "matplotlib", "tomlkit", "packaging"}, path


def test_the_orchestrator_names_no_framework() -> None:
    for path in PIPELINE.rglob("*.py"):
        assert not imported(path) & (FRAMEWORKS - {"h5py"}), path


def test_workers_never_change_their_environment() -> None:
    for path in STAGES_FOLDER.rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Attribute)}
        assert not names & {"environ", "environb", "putenv", "unsetenv"}, path


def test_the_catalog_names_modules_that_are_there() -> None:
    for stage, module in STAGES.items():
        path = STAGES_FOLDER.parent / f"{module.replace('.', '/')}.py"
        assert path.is_file(), stage
        assert "def run(" in path.read_text(encoding="utf-8") or "run = " in path.read_text(encoding="utf-8"), stage
    assert {row.artifact for row in RUNTIMES.values()} == {"keras", *FORMATS}
    assert all(f"run_{name}" in STAGES for name in RUNTIMES)
    assert all(f"open_{kind}" in STAGES for kind in FORMATS)


def test_a_worker_runs_where_there_is_numpy_and_nothing_else(tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    home = Path(np.__file__).parent
    for package in (home, home.parent / "numpy.libs", STAGES_FOLDER):
        if package.exists():
            (alone / package.name).symlink_to(package)
    np.save(tmp_path / "row.npy", np.ones(3, np.float32))
    item = GoldenItem("one", {"x": str(tmp_path / "row.npy")}, {"x": sha256_of(tmp_path / "row.npy")})
    from kpipe_stages.codec import encode

    write_json(tmp_path / "job.json", Job(PROTOCOL, "prepare", "a", str(tmp_path), encode(PrepareJob((item,), (InputSpec("x", "npy"),)))))
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-m", "kpipe_stages", "prepare", str(tmp_path / "job.json")],
        env={"PYTHONPATH": str(alone)},
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 3}, done.stderr  # 3: stdin had ended, after the answer or before it
    if done.returncode == 0:
        assert read_json(Result, tmp_path / "result.json").status is Status.OK


# ---------------------------------------------------------------- the parts of the workers that the orchestrator takes

SHARED = frozenset(
    f"kpipe_stages{name and '.'}{name}"
    for name in (
        "",
        "arrangement",
        "build_orders",
        "catalog",
        "checkpointing.files",
        "checkpointing.record",
        "codec",
        "cutting.orders",
        "deciding_limits",
        "decisions",
        "decisions.borders",
        "decisions.boxes",
        "decisions.detecting",
        "decisions.regression",
        "digest",
        "disturbance",
        "growth",
        "intervals",
        "npz",
        "permuting",
        "plant_orders",
        "preprocess",
        "preprocessing.assets",
        "preprocessing.decoders",
        "preprocessing.errors",
        "preprocessing.function",
        "protocol",
        "racing",
        "ratio",
        "rows",
        "worker",
        "zoo",
        "zoo.case",
        "zoo.orders",
    )
)
"""What `kpipe` may import of the workers: pure, shared. Whoever adds one says here that it is."""

LATER = {"kpipe_stages.preprocessing.parquet"}
"""What a shared part imports only when it is needed; the linter sees that too."""


def module_file(name: str) -> Path | None:
    """The file of a module of the workers; None where there is none."""
    base = STAGES_FOLDER.parent / name.replace(".", "/")
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def modules_named(path: Path, *, when_imported: bool = False) -> set[str]:
    """Modules that a file imports, in full; ``when_imported``: only those that importing the file brings."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if when_imported and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if when_imported and isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for child in node.orelse:
                walk(child)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, path
            assert node.module
            found.add(node.module)
            found.update(name for alias in node.names if module_file(name := f"{node.module}.{alias.name}"))
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(ast.parse(path.read_text(encoding="utf-8")))
    return found


def taken() -> dict[str, Path]:
    """Modules of the workers that `kpipe` imports anywhere, types and functions included."""
    named = {name for path in PIPELINE.rglob("*.py") for name in modules_named(path)}
    return {name: path for name in named if name.partition(".")[0] == "kpipe_stages" and (path := module_file(name))}


def brought(name: str) -> set[str]:
    """What importing a module of the workers brings: the modules above it, and those that it imports, and so on."""
    found, todo = set[str](), [name]
    while todo:
        one = todo.pop()
        if one in found:
            continue
        found.add(one)
        if one.partition(".")[0] == "kpipe_stages" and (path := module_file(one)):
            todo += [*modules_named(path, when_imported=True), *([one.rpartition(".")[0]] if "." in one else [])]
    return found


def test_the_orchestrator_takes_only_listed_parts_of_the_workers() -> None:
    assert set(taken()) == SHARED


@pytest.mark.parametrize("name", sorted(SHARED))
def test_a_shared_part_brings_no_framework(name: str) -> None:
    assert not {one.partition(".")[0] for one in brought(name)} & FRAMEWORKS


def test_the_linter_denies_every_other_part_of_the_workers() -> None:
    """What a shared part brings can't be denied, because the linter follows imports; all else is."""
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["name"] == "The orchestrator takes only the pure, shared parts of the workers")
    denied = set(contract["forbidden_modules"])
    assert all(map(module_file, denied)), "a denied module isn't there"
    allowed = {one for name in SHARED for one in brought(name)} | LATER
    missing = set()
    for path in STAGES_FOLDER.rglob("*.py"):
        parts = ("kpipe_stages", *path.relative_to(STAGES_FOLDER).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        above = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        holds_allowed = any(one.startswith(f"{name}.") for one in allowed)  # such a package can't be denied whole
        if parts[-1] != "__main__" and name not in allowed and not above & denied and not holds_allowed:
            missing.add(name)
    assert not missing


# ---------------------------------------------------------------- the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=TOP, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_both_packages_whole_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    info = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    sources = {
        f"{package.name}/{path.relative_to(package).as_posix()}"
        for package in (PIPELINE, STAGES_FOLDER)
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert names - info == sources
    assert {"kpipe/py.typed", "kpipe_stages/py.typed"} <= names
    assert any(name.endswith(".html.j2") for name in names)
    assert {name.rsplit("/", 1)[-1] for name in info} == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "LICENSE"}
    assert not any("test" in name.replace("selftest", "") for name in names)


def test_the_wheel_judges_and_reports_by_its_own_files(wheel: Path, finished: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        entry = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt"))).decode()
    assert entry.split() == ["[console_scripts]", "kpipe", "=", "kpipe.__main__:main"]
    code = f"import sys; sys.argv = ['kpipe', 'judge', {str(finished)!r}]\nimport kpipe, kpipe_stages\nfrom kpipe.__main__ import main\n"
    where = "print(kpipe.__file__, kpipe_stages.__file__, flush=True)\n"
    said = python(code + where + "main()", env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert said.splitlines()[0].split() == [str(tmp_path / name / "__init__.py") for name in ("kpipe", "kpipe_stages")]
    assert "PASS" in said
