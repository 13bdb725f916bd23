"""The machine and the interpreters: facts, read once."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

from kpipe.evidence import Installed
from kpipe.record import Environment
from kpipe.running.plan import Interpreter
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.worker import cpu_features, cpu_model

OWN = ("keras-kpipe", "numpy", "h5py", "pillow", "pydantic", "jinja2", "matplotlib", "rich", "typer")
PROBE_LIMIT_S = 30.0

_LISTING = """
import importlib.metadata as m, json, re, sys
index, local = set(), set()
for d in m.distributions():
    name = d.metadata["Name"]
    if name:
        line = re.sub(r"[-_.]+", "-", name).lower() + "==" + d.version
        (local if d.read_text("direct_url.json") else index).add(line)
print(json.dumps([sys.version.split()[0], sorted(index), sorted(local)]))
"""

_PROBE = "import importlib.metadata as m, json, sys; print(json.dumps([sys.version.split()[0], {n: m.version(n) for n in sys.argv[1:] if any(True for _ in m.distributions(name=n))}]))"


def kpipe_version() -> str:
    """The installed version; ``0+unknown`` from a bare checkout."""
    try:
        return importlib.metadata.version("keras-kpipe")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


def catalog_distributions() -> tuple[str, ...]:
    """Every distribution that a runtime of the catalog needs, and the exporters'."""
    names = [name for row in RUNTIMES.values() for name in row.distributions]
    return tuple(dict.fromkeys([*names, "onnx", "tf2onnx", "nncf"]))


@cache
def this_interpreter() -> Interpreter:
    """The interpreter that runs kpipe."""
    return Interpreter(sys.executable, _installed(catalog_distributions()))


def _installed(names: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # absent from the result: the plan says what is missing
    return found


def foreign_interpreter(path: Path) -> Interpreter:
    """Ask another interpreter what it holds."""
    try:
        done = subprocess.run(
            [str(path), "-I", "-c", _PROBE, *catalog_distributions()], capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=True
        )
        version, versions = json.loads(done.stdout)
    except FileNotFoundError:
        return Interpreter(str(path), {}, "no such file")
    except subprocess.CalledProcessError as error:
        return Interpreter(str(path), {}, (error.stderr.strip().splitlines() or ["it ended with an error"])[-1])
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Interpreter(str(path), {}, str(error))
    if tuple(int(n) for n in version.split(".")[:2]) < (3, 11):
        return Interpreter(str(path), versions, f"it is Python {version}; workers need 3.11 or later")
    return Interpreter(str(path), versions)


def installed_in(path: str) -> Installed:
    """Ask an interpreter for every distribution that it holds: what a later run needs to be the same."""
    try:
        done = subprocess.run([path, "-I", "-c", _LISTING], capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=True)
        version, index, local = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Installed("", (), problem=str(error))
    return Installed(version, tuple(index), tuple(line for line in local if line not in index))


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def environment() -> Environment:
    """Where the run takes place."""
    return Environment(
        kpipe=kpipe_version(),
        python=platform.python_version(),
        platform=platform.platform(),
        cpu=cpu_model(),
        cpu_features=cpu_features(),
        cores=cores(),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        versions=_installed((*OWN, *catalog_distributions())),
        load_average=os.getloadavg()[0],
        governor=_first_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        processor_limit=processor_limit(),
        memory_limit=memory_limit(),
    )


CGROUPS = Path("/sys/fs/cgroup")


def _first_text(*paths: str | Path) -> str:
    """What the first of these files that can be read holds; empty for none."""
    for path in paths:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            continue
    return ""


def _own_cgroup(controller: str) -> str:
    """The path of this process's control group, version 1's for a controller, version 2's for an empty name."""
    for line in _first_text("/proc/self/cgroup").splitlines():
        number, names, path = line.split(":", 2)
        if (number == "0" and not controller) or (controller and controller in names.split(",")):
            return path.lstrip("/")
    return ""


def processor_limit(root: Path = CGROUPS) -> float | None:
    """Processors' worth of time that the control group allows (its own or the container's root); None for no limit."""
    own = _own_cgroup("")
    quota, _, period = _first_text(root / own / "cpu.max", root / "cpu.max").partition(" ")
    if not quota:
        folder = root / "cpu"
        group = _own_cgroup("cpu")
        quota, period = (_first_text(folder / group / name, folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def memory_limit(root: Path = CGROUPS) -> int | None:
    """Bytes that the control group allows; None for no limit, or one beyond the machine's memory."""
    own, old = _own_cgroup(""), _own_cgroup("memory")
    memory = root / "memory"
    text = _first_text(root / own / "memory.max", root / "memory.max", memory / old / "memory.limit_in_bytes", memory / "memory.limit_in_bytes")
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(text) if text.isdecimal() and int(text) < whole else None


def cache_folder(wanted: str | None, fallback: Path) -> Path:
    """Kpipe's own cache: ``wanted``, else ``$KPIPE_CACHE_DIR``, else ``kpipe`` below the user's cache folder, else ``fallback`` where that can't be written."""
    own = wanted or os.environ.get("KPIPE_CACHE_DIR")
    base = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kpipe"
    for folder in (base, fallback):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".probe.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError:
            continue
        return folder
    return fallback
