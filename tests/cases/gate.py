"""kpipe as a user runs it, and what a case expects of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import kpipe
from kpipe.findings import Severity
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from kpipe.record import RunRecord, TargetRecord

QUIET = "[timing]\ncalls = 0\nend_to_end_calls = 0\n"
"""A contract that asks for no times, which are not the point here."""

EXPORTED = ("saved_model", "litert", "onnxruntime", "openvino")
"""A target of each artifact that an export makes."""

FLOAT32 = 'settings = { INFERENCE_PRECISION_HINT = "f32" }'
"""The setting that kpipe would choose, stated."""

ALWAYS = frozenset({"KP308", "KP602", "KP605", "KP606"})
"""What arrays without a contract always bring: a chosen setting, unchecked preprocessing, a decision rule inferred or unknown."""

BEFORE_FRAMEWORKS = frozenset({"inspect", "prepare"})


def only(*targets: str) -> str:
    """Contract text that names these targets; OpenVINO gets its setting."""
    return "".join(f"[targets.{name}]\n{FLOAT32 if 'openvino' in name else ''}\n" for name in targets)


@dataclass
class Gate:
    """Validates cases; a case with the same contract is run once."""

    cases: Path
    runs: Path
    known: dict[tuple[Any, ...], kpipe.Run] = field(default_factory=dict)

    def run(self, case: str, contract: str = "", *, golden: Path | None = None, **options: Any) -> kpipe.Run:
        """Validate ``case`` by `QUIET` and ``contract``, with its own ``inputs.npz`` unless told otherwise."""
        key = (case, contract, golden, *sorted(options.items()))
        if key not in self.known:
            place = self.runs / f"{case}-{len(self.known)}"
            text = place.with_suffix(".toml")
            text.write_text(QUIET + contract, encoding="utf-8")
            folder = self.cases / case
            self.known[key] = kpipe.validate(folder / "model.keras", contract=text, golden=golden or folder / "inputs.npz", out=place, **options)
        return self.known[key]


@dataclass(frozen=True)
class Expected:
    """A case's right outcome, the findings that every run without a contract has left out (`ALWAYS`)."""

    verdict: str = "PASS"
    failed: Mapping[str, str] = field(default_factory=dict)
    """Targets whose status is ``fail``, with the border that each names first; all others pass."""
    findings: frozenset[tuple[str, str, str]] = frozenset()
    """Every error and warning: code, target, place."""


def expect(verdict: str = "PASS", *findings: tuple[str, str, str], failed: Mapping[str, str] | None = None) -> Expected:
    """Write an `Expected` in one line."""
    return Expected(verdict, failed or {}, frozenset(findings))


def loud(record: RunRecord) -> set[tuple[str, str, str]]:
    """Errors and warnings as code, target and place, without those that every run has."""
    return {(f.code, f.target, f.place) for f in record.findings if f.severity is not Severity.NOTE and f.code not in ALWAYS}


def named(record: RunRecord, code: str, target: str | None = None) -> list[str]:
    """Places of the findings of one code, of one target or of any."""
    return sorted(f.place for f in record.findings if f.code == code and target in (None, f.target))


def statuses(record: RunRecord) -> dict[str, str]:
    """Target name to status."""
    return {target.name: str(target.status) for target in record.targets}


def edges(record: RunRecord) -> dict[str, str]:
    """Target name to the border that it names first; only those that name one."""
    return {target.name: target.edge.name for target in record.targets if target.edge is not None}


def target(record: RunRecord, name: str) -> TargetRecord:
    """One target."""
    return next(t for t in record.targets if t.name == name)


def check(run: kpipe.Run, expected: Expected) -> None:
    """Verdict, exit code, every target's status, and exactly these findings."""
    record = run.record
    assert loud(record) == expected.findings
    assert statuses(record) == {t.name: "fail" if t.name in expected.failed else "pass" for t in record.targets}
    assert (str(run.verdict), int(run.exit_code)) == (expected.verdict, {"PASS": 0, "FAIL": 1, "INCOMPLETE": 3}[expected.verdict])
    assert all(t.cells.unchecked == 0 for t in record.targets if t.name not in expected.failed)
    assert edges(record) == expected.failed


def check_refused(record: RunRecord, edge: str = "archive") -> None:
    """Nothing but the two stages that load no framework has run; no cell counts as passed."""
    assert {stage.name for stage in record.stages} <= BEFORE_FRAMEWORKS
    assert str(record.verdict) == "FAIL"
    assert {t.cells.passed for t in record.targets} == {0}
    assert set(statuses(record).values()) == {"unchecked"}
    assert record.edge is not None
    assert record.edge.name == edge


def check_answers(run: kpipe.Run, case: Path, *, rtol: float = 1e-4) -> None:
    """The reference's saved outputs and decisions are the ones that the case's builder computed; one row a golden input."""
    with np.load(case / "expected.npz") as file:
        expected = dict(file)
    decisions = expected.pop("decision", None)
    for index in range(len(expected)):
        rows = Rows(run.folder / "stages" / "reference" / "outputs" / "alone" / str(index))
        wanted = expected[f"out{index}"]
        got = np.stack([np.asarray(row, dtype=wanted.dtype) for row in rows])
        scale = max(1e-6, float(np.max(np.abs(wanted.astype(np.float64)))))
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * scale, strict=True)
    if decisions is not None:
        words = {"0": 0, "1": 1, "no": 0, "yes": 1}
        assert [words.get(row.decision, row.decision) for row in run.record.golden.rows] == [words.get(str(d), str(d)) for d in decisions.tolist()]


@dataclass(frozen=True)
class Command:
    """What the command answered."""

    exit_code: int
    stdout: str
    stderr: str

    def record(self, run: Path) -> dict[str, Any]:
        """The record that it wrote."""
        loaded: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
        return loaded


def command(*words: str | Path, folder: Path, **environment: str) -> Command:
    """Run ``kpipe`` in ``folder``, as a shell would."""
    done = subprocess.run(
        [sys.executable, "-m", "kpipe", *map(str, words)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Command(done.returncode, done.stdout, done.stderr)
