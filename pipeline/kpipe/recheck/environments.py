"""Environments made from locked versions, with uv or with venv and pip; kept in a cache by what they hold.

The package index is whatever the user's own uv or pip is told; nothing here names one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from kpipe.text import first_line

if TYPE_CHECKING:
    from kpipe.recheck.columns import Recipe

BUILD_LIMIT_S = 1800.0
PROBE_LIMIT_S = 60.0
EXACT = re.compile(r"[^=<>!~]+==[^*,]+")
"""A requirement that only one version meets."""
COMPLETE = "kpipe-environment.json"
"""Written last: a folder without it was interrupted, and is made anew."""

_HELD = (
    "import importlib.metadata as m, json, sys; print(json.dumps([sys.version.split()[0], {d.name: d.version for d in m.distributions() if d.name}]))"
)


@dataclass(frozen=True)
class Environment:
    """An interpreter, and what it holds."""

    python: str
    """Absolute path; empty where there is none."""
    version: str
    """Of Python."""
    held: Mapping[str, str]
    """Canonical name to version."""
    how: str
    """``this interpreter``, ``built``, ``built before`` or ``named``."""
    problem: str = ""
    """Why there is none."""


def this_environment() -> Environment:
    """The interpreter that runs kpipe."""
    held = {str(canonicalize_name(d.name)): d.version for d in importlib.metadata.distributions() if d.name}
    return Environment(sys.executable, platform.python_version(), held, "this interpreter")


def named_environment(python: Path) -> Environment:
    """An interpreter of the user's, asked what it holds."""
    path = python if python.is_absolute() else Path.cwd() / python  # unresolved: a venv's python is a link
    return _probed(path, "named")


def satisfies(here: Environment, pins: Mapping[str, str], names: frozenset[str], python: str) -> bool:
    """Whether an environment holds the sealed version of everything that matters: the same Python but for its patch, and every pin that is there.

    Args:
        here: the environment.
        pins: canonical name to version, as sealed.
        names: distributions that have to be there.
        python: the sealed version of Python.
    """
    same_python = here.version.split(".")[:2] == python.split(".")[:2]
    there = all(name in here.held for name in names)
    return same_python and there and all(here.held[name] == version for name, version in pins.items() if name in here.held and name != "keras-kpipe")


def build(recipe: Recipe, python: str, cache: Path) -> Environment:
    """Make an environment, or take the one that was made of the same and still holds it; where a version is a range, only one of the same day.

    Args:
        recipe: what to install.
        python: version of Python, of which the first two numbers count.
        cache: where environments are kept.
    """
    minor = ".".join(python.split(".")[:2])
    day = () if all(EXACT.fullmatch(line) for line in recipe.requirements) else (datetime.now(UTC).date().isoformat(),)
    key = hashlib.sha256("\n".join([minor, platform.machine(), *recipe.requirements, "--", *recipe.constraints, *day]).encode()).hexdigest()[:24]
    folder = cache / key
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{key}.lock"):
            if (folder / COMPLETE).is_file():
                there = _probed(_python_of(folder), "built before")
                if there.problem or {"python": there.version, "held": dict(there.held)} == _written(folder):
                    return there  # else somebody changed it since
            shutil.rmtree(folder, ignore_errors=True)
            problem = _make(folder, minor, recipe)
            if problem:
                shutil.rmtree(folder, ignore_errors=True)
                return Environment("", minor, {}, "built", problem)
            made = _probed(_python_of(folder), "built")
            if not made.problem:
                (folder / COMPLETE).write_text(json.dumps({"python": made.version, "held": dict(made.held)}, indent=1), encoding="utf-8")
            return made
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        return Environment(
            "", minor, {}, "built", f"{folder} can't be written ({error.strerror}). Make room, or set KPIPE_CACHE_DIR to another place."
        )


def _written(folder: Path) -> object:
    """What an environment held when it was made; None where that can't be read."""
    try:
        return json.loads((folder / COMPLETE).read_text(encoding="utf-8"))
    except ValueError:
        return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One maker at a time; the lock goes with the process that holds it."""
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(folder: Path, minor: str, recipe: Recipe) -> str:
    """Make it; why not, empty where it was made."""
    base = sys.executable if minor == ".".join(platform.python_version_tuple()[:2]) else minor
    uv = _uv()
    if not uv and base == minor:
        return f"it needs Python {minor}, and only uv can find another Python than this one ({platform.python_version()}). Install uv, or name an interpreter with --python."
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in recipe.requirements), encoding="utf-8")
    (folder / "constraints.txt").write_text("".join(f"{line}\n" for line in recipe.constraints), encoding="utf-8")
    files = ["--requirement", str(folder / "requirements.txt"), "--constraint", str(folder / "constraints.txt")]
    place = folder / "venv"
    if uv:
        commands = [
            [*uv, "venv", "--quiet", "--no-python-downloads", "--python", base, str(place)],
            [*uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(_python_of(folder)), *files],
        ]
    else:
        commands = [
            [base, "-m", "venv", str(place)],
            [str(_python_of(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *files],
        ]
    for command in commands:
        if problem := _done(command):
            return problem
    return ""


def _uv() -> list[str]:
    """How uv is called here; empty where it isn't there."""
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    return [found] if found else []


def _done(command: list[str]) -> str:
    """Run it; what it said last where it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return f"installing took longer than {BUILD_LIMIT_S:g} s"
    if done.returncode == 0:
        return ""
    said = " ".join((done.stderr or done.stdout).split())
    return f"it could not be installed: {said[-600:] or f'exit code {done.returncode}'}"


def _python_of(folder: Path) -> Path:
    return folder / "venv" / "bin" / "python"


def _probed(python: Path, how: str) -> Environment:
    """Ask an interpreter what it holds."""
    try:
        done = subprocess.run([str(python), "-I", "-c", _HELD], capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=True)
        version, held = json.loads(done.stdout)
    except FileNotFoundError:
        return Environment("", "", {}, how, f"{python} doesn't exist")
    except subprocess.CalledProcessError as error:
        return Environment("", "", {}, how, f"{python}: {first_line(error.stderr) or 'it ended with an error'}")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Environment("", "", {}, how, f"{python}: {error}")
    if tuple(int(n) for n in version.split(".")[:2]) < (3, 11):
        return Environment("", version, held, how, f"{python} is Python {version}; workers need 3.11 or later")
    return Environment(str(python), version, {str(canonicalize_name(name)): v for name, v in held.items()}, how)
