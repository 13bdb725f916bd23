"""Faults of speed and memory planted into a real runtime are caught, each by its own finding; a loaded machine alone raises none of them.

A fault lives in a target's interpreter (``sitecustomize.py`` of a virtual environment), where a bad update of a runtime would: kpipe has no hook
for it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import pytest

import kpipe

from .sample_gate import MODEL, codes, findings, shipped, states

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kpipe.record import TargetRecord

pytestmark = pytest.mark.runtimes

HOOK = """\
import importlib.util
import sys


class Hook:
    def find_spec(self, name, path=None, target=None):
        if name != "ai_edge_litert.interpreter":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def load(module):
            run(module)
            spoil(module.SignatureRunner)

        spec.loader.exec_module = load
        return spec


sys.meta_path.insert(0, Hook())
"""

FAULTS = {
    "sleepy": """
def spoil(runner):
    import time
    call = runner.__call__
    def slow(self, **feeds):
        time.sleep(0.005)
        return call(self, **feeds)
    runner.__call__ = slow
""",
    "leaky": """
def spoil(runner):
    call, hoard = runner.__call__, []
    def leaking(self, **feeds):
        hoard.append(b"x" * 2**20)
        return call(self, **feeds)
    runner.__call__ = leaking
""",
    "caching": """
def spoil(runner):
    call, known = runner.__call__, {}
    def cached(self, **feeds):
        key = tuple((name, array.shape, array.tobytes()) for name, array in feeds.items())
        if key not in known:
            known[key] = call(self, **feeds)
        return known[key]
    runner.__call__ = cached
""",
    "hungry": """
def spoil(runner):
    call = runner.__call__
    def hungry(self, **feeds):
        bytearray(512 * 2**20)
        return call(self, **feeds)
    runner.__call__ = hungry
""",
}


def target(run: kpipe.Run, name: str) -> TargetRecord:
    return next(t for t in run.record.targets if t.name == name)


def interpreter(folder: Path, fault: str) -> Path:
    """A virtual environment with this one's packages, where LiteRT has the fault."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / fault], check=True)
    packages = next((folder / fault / "lib").glob("python3*")) / "site-packages"
    (packages / "runtimes.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    (packages / "sitecustomize.py").write_text(HOOK + FAULTS[fault], encoding="utf-8")
    return folder / fault / "bin" / "python"


ONE = min(os.sched_getaffinity(0))

TIMING = f"""
[timing]
max_seconds = 4.0
server_rate = 50.0
server_seconds = 1.0
offline_batches = [1, 4, 16]

[targets.plain]
runtime = "litert"
threads = 1
affinity = [{ONE}]
limits = {{ p50_ms = 1.0, p90_ms = 50.0, end_to_end_p50_ms = 200.0, load_s = 60.0, server_p50_ms = 200.0 }}
"""


def contract(folder: Path, text: str) -> Path:
    path = folder / "kpipe.toml"
    path.write_text(shipped().split("[targets.", 1)[0] + text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    folder = tmp_path_factory.mktemp("spoilt")
    text = TIMING.replace("[timing]\n", "[timing]\ncalls = 200\nend_to_end_calls = 24\n")
    for fault in FAULTS:
        limits = "p50_ms = 1.0" if fault != "hungry" else "p50_ms = 100.0"
        text += f'\n[targets.{fault}]\nruntime = "litert"\npython = "{interpreter(folder, fault)}"\nlimits = {{ {limits} }}\n'
    text += "memory_mib = 300\n"
    return kpipe.validate(MODEL, contract=contract(folder, text), out=folder / "run")


TIMES = {"KP501", "KP502", "KP503", "KP505", "KP508", "KP509", "KP510", "KP511", "KP512"}
"""What a fault of speed or memory is called. KP506 and KP507 are about the machine."""


def test_a_target_without_a_fault_raises_none(spoilt: kpipe.Run) -> None:
    assert not codes(spoilt.record, "plain") & TIMES
    assert states(spoilt.record)["plain"] == "pass"


def test_a_sleep_of_5_ms_in_the_call_misses_the_limit(spoilt: kpipe.Run) -> None:
    assert codes(spoilt.record, "sleepy") & TIMES == {"KP502"}
    (found,) = findings(spoilt.record, "KP502", "sleepy")
    assert found.place == "p50_ms"
    assert found.evidence["low"] > 5
    assert states(spoilt.record)["sleepy"] == "fail"


def test_a_leak_of_a_mebibyte_a_call_is_found(spoilt: kpipe.Run) -> None:
    assert "KP508" in codes(spoilt.record, "leaky")
    assert codes(spoilt.record, "leaky") & TIMES <= {"KP508", "KP502"}
    assert findings(spoilt.record, "KP508", "leaky")[0].evidence["per_call"] == pytest.approx(2**20, rel=0.1)
    assert states(spoilt.record)["leaky"] == "fail"


def test_results_that_are_kept_are_found(spoilt: kpipe.Run) -> None:
    assert codes(spoilt.record, "caching") & TIMES == {"KP509"}
    fresh = target(spoilt, "caching").freshness
    assert fresh is not None
    assert fresh.gain is not None
    assert fresh.gain > 0.3
    assert states(spoilt.record)["caching"] == "fail"


def test_memory_beyond_the_targets_is_a_finding_and_not_a_crash(spoilt: kpipe.Run) -> None:
    assert "KP510" in codes(spoilt.record, "hungry")
    assert states(spoilt.record)["hungry"] == "fail"
    assert target(spoilt, "hungry").confined["memory_mib"] == 300


def test_what_a_target_was_held_to_and_what_the_machine_did_is_recorded(spoilt: kpipe.Run) -> None:
    row = target(spoilt, "plain")
    assert row.confined["affinity"] == [ONE]
    assert row.identity is not None
    assert row.identity.threads == 1
    assert row.latency is not None
    machine = row.latency.machine
    assert machine is not None
    assert machine.disturbed is not None
    assert row.latency.memory is not None
    assert row.latency.memory.steady > 2**20
    assert row.load is not None
    assert row.load.second_s is not None
    assert row.load.new_shape_s is not None


def test_percentiles_have_intervals(spoilt: kpipe.Run) -> None:
    latency = target(spoilt, "plain").latency
    assert latency is not None
    for found in latency.percentiles:
        assert found.low is not None
        assert found.low <= found.seconds
        assert found.high is None or found.high >= found.seconds
    assert latency.confidence >= 0.99


def test_the_steps_from_the_raw_file_to_the_decision_share_all_of_the_time(spoilt: kpipe.Run) -> None:
    whole = target(spoilt, "plain").end_to_end
    assert whole is not None
    assert list(whole.steps) == ["read", "decode", "preprocess", "infer", "decide"]
    assert sum(whole.steps.values()) == pytest.approx(1.0)
    assert all(share > 0 for share in whole.steps.values())


def test_the_scenarios_that_were_asked_for(spoilt: kpipe.Run) -> None:
    row = target(spoilt, "plain")
    assert row.server is not None
    assert row.server.held
    assert row.server.requests > 20
    assert row.offline is not None
    assert [one.batch for one in row.offline.rows] == [1, 4, 16]
    assert all(one.throughput for one in row.offline.rows)
    assert row.offline.knee in {1, 4, 16}


@contextlib.contextmanager
def burning() -> Iterator[None]:
    """Every processor busy with something else."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_a_loaded_machine_alone_raises_no_fault(tmp_path: Path) -> None:
    text = (
        TIMING
        + '\n[targets.onnxruntime]\nlimits = { p50_ms = 20.0, load_s = 60.0 }\n[targets.openvino_ir]\nsettings = { INFERENCE_PRECISION_HINT = "f32" }\nlimits = { p50_ms = 20.0 }\n'
    )
    text = (
        text.replace(f"affinity = [{ONE}]\n", "").replace("server_rate = 50.0\n", "").replace("limits = { p50_ms = 1.0", "limits = { p50_ms = 20.0")
    )
    text = text.replace(", server_p50_ms = 200.0", "").replace("[timing]\n", "[timing]\ncalls = 200\nend_to_end_calls = 24\n")
    with burning():
        run = kpipe.validate(MODEL, contract=contract(tmp_path, text), out=tmp_path / "run")
    for name in ("plain", "onnxruntime", "openvino_ir"):
        assert not codes(run.record, name) & TIMES, name
    assert "KP507" in {code for name in ("plain", "onnxruntime", "openvino_ir") for code in codes(run.record, name)}
    assert str(run.verdict) != "FAIL"
