"""A run's folder written by hand: what workers would have left, with whatever fault a test wants in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kpipe.contract import LoadedContract, parse_contract
from kpipe.evidence import EVIDENCE_VERSION, Ending, Evidence, StageEvidence, TargetEvidence, TargetPlan
from kpipe.golden import GoldenInput, GoldenSet
from kpipe.judging.judge import judge
from kpipe.record import Environment, Finding, RunRecord, TargetRecord
from kpipe.running.plan import Interpreter, plan_reference, plan_targets
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import encode
from kpipe_stages.digest import digest
from kpipe_stages.protocol import (
    PROTOCOL,
    Artifact,
    Binding,
    ExportResult,
    Failure,
    Identity,
    InspectResult,
    LayerRow,
    LoadTimes,
    Observation,
    PrepareResult,
    Result,
    RunResult,
    Signature,
    Status,
    TensorSpec,
)
from kpipe_stages.rows import write_rows

VERSIONS = {"jax": "0.10.2", "keras": "3.15.1", "tensorflow": "2.21.0", "ai-edge-litert": "2.3.0", "onnxruntime": "1.32.0", "openvino": "2026.4.1"}
HERE = Interpreter("/here/python", VERSIONS)
SIGNATURE = Signature(inputs=(TensorSpec("x", (None, 2), "float32"),), outputs=(TensorSpec("y", (None, 3), "float32"),))
SCORES = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.3, 0.5], [0.5, 0.4, 0.1], [0.05, 0.15, 0.8], [0.1, 0.8, 0.1]], np.float32)
CONTRACT = "decision = { rule = 'argmax', output = 'y' }\n"
MODES = ("alone", "batch_3", "batch_8")
ENVIRONMENT = Environment("0.1.0", "3.11.9", "Linux", "a cpu", (), 2, 2**33, VERSIONS, 0.5)

Outputs = dict[str, list[Any]]


def result(stage: str, data: Any, **changes: Any) -> Result:
    """A worker's good answer."""
    identity = Identity(stage, 1, "3.11.9", VERSIONS, None, 2, "a cpu", ())
    good = Result(
        PROTOCOL, stage, "attempt", Status.OK, identity, (), None, encode(data) if data is not None else {}, seconds=1.0, peak_rss_bytes=2**27
    )
    return replace(good, **changes)


def stage(name: str, answer: Result | None, ending: Ending = Ending.OK, **changes: Any) -> StageEvidence:
    """One worker's evidence."""
    return replace(StageEvidence(name, ending, "the log's last line", 0.0, 1.0, answer), **changes)


def failure(phase: str = "run", kind: str = "RuntimeError", message: str = "it broke") -> Result:
    """A worker's answer that it could not."""
    return result("run_x", None, status=Status.FAILED, failure=Failure(phase, kind, message, "Traceback ..."))


def run_result(**changes: Any) -> RunResult:
    """What a runtime says that did all it was asked for."""
    good = RunResult(
        signature=SIGNATURE,
        modes=MODES,
        digests={},
        not_offered=(),
        unbatched={},
        failed={},
        lonely_rows={mode: () for mode in MODES if mode.startswith("batch_")},
        fixed_batch=None,
        repeats_equal=True,
        repeat_difference=0.0,
        training_unset_repeats=None,
        load=LoadTimes(0.5, 0.25, 0.125, lean=False),
        effective_precision="float32",
        devices=("CPU",),
        facts={},
        decoded_here=True,
        tensor_mismatches=(),
    )
    return replace(good, **changes)


def artifact(kind: str, **changes: Any) -> Artifact:
    """An exported file."""
    good = Artifact(kind, f"/run/artifacts/{kind}", "ab" * 32, 4096, SIGNATURE, Binding({"x": "x"}, {"y": "y"}), {"DENSE": 1}, (), 4000)
    return replace(good, **changes)


@dataclass
class Answers:
    """One runtime's outputs by mode, and what it says of itself."""

    modes: dict[str, Outputs]
    result: RunResult
    observations: tuple[Observation, ...] = ()

    @property
    def outputs(self) -> Outputs:
        """The alone mode's, to be changed in place: only there."""
        return self.modes["alone"]


def answers(scores: Any = SCORES, modes: tuple[str, ...] = MODES, **changes: Any) -> Answers:
    """The same numbers in every mode."""
    return Answers({mode: {"y": [np.array(row) for row in scores]} for mode in modes}, run_result(**{"modes": modes} | changes))


@dataclass
class Bench:
    """A run to be written and judged."""

    folder: Path
    text: str = CONTRACT + "[targets.litert]\n"
    kind: str = "raw"
    count: int = len(SCORES)
    golden_changes: dict[int, dict[str, Any]] = field(default_factory=dict)
    reference: Answers | None = field(default_factory=answers)
    truth: Answers | None = None
    targets: dict[str, Answers | None] = field(default_factory=lambda: {"litert": answers()})
    replaced: dict[str, StageEvidence | None] = field(default_factory=dict)
    """Stage name to the evidence that stands instead, or None for a stage that never was."""
    timings: dict[str, Result] = field(default_factory=dict)
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: dict[str, tuple[Observation, ...]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    here: Interpreter = HERE
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of the evidence."""

    def loaded(self, text: str | None = None) -> LoadedContract:
        """The contract."""
        text = self.text if text is None else text
        return LoadedContract(parse_contract(text, "kpipe.toml"), "kpipe.toml", text, Path("/contract"))

    def golden(self) -> GoldenSet:
        """Golden inputs ``in-0`` and so on, each of its own file."""
        base = [
            GoldenInput(f"in-{i}", {"x": f"/golden/{i}.npy"}, {"x": f"{i:064x}"}, f"{i}.npy", None, None, "", "sampled") for i in range(self.count)
        ]
        inputs = tuple(replace(g, **self.golden_changes.get(i, {})) for i, g in enumerate(base))
        return GoldenSet(kind=self.kind, path="/golden", shown="golden", manifest_sha256="cd" * 32, inputs=inputs)

    def evidence(self) -> Evidence:
        """Write the outputs and put together what the orchestrator would have."""
        plans = plan_targets(self.loaded(), self.here, {}, self.only)
        facts: dict[str, Any] = {
            "version": EVIDENCE_VERSION,
            "run_id": "run-1",
            "started": "2026-11-30T12:00:00+00:00",
            "wall_s": 9.0,
            "candidate_path": "/models/model.keras",
            "candidate_sha256": "ef" * 32,
            "candidate_size": 2**20,
            "contract_source": "kpipe.toml",
            "contract_sha256": self.loaded().sha256,
            "contract_folder": "",
            "golden": self.golden(),
            "refusals": (),
            "reference": plan_reference(self.loaded().contract, self.here),
            "targets": tuple(self._target(plan) for plan in plans),
            "stages": tuple(self._stages(plans)),
            "environment": ENVIRONMENT,
        }
        return Evidence(**(facts | self.changes))

    def judge(self, text: str | None = None) -> RunRecord:
        """Judge it, by its own contract or another."""
        return judge(self.folder, self.loaded(text), self.evidence())

    def _target(self, plan: TargetPlan) -> TargetEvidence:
        kind = RUNTIMES[plan.runtime].artifact
        there = kind != "keras" and plan.absent is None and self.targets.get(plan.name) is not None
        made = artifact(kind, **self.artifacts.get(plan.name, {})) if there else None
        return TargetEvidence(plan, made, self.problems.get(plan.name, ()))

    def _stages(self, plans: tuple[TargetPlan, ...]) -> list[StageEvidence]:
        found: dict[str, StageEvidence | None] = {
            "inspect": stage("inspect", result("inspect", inspected())),
            "prepare": stage("prepare", result("prepare", prepared(self.count))),
            "export": stage("export", result("export", ExportResult(SIGNATURE, (), {"trace": 1.0}))),
            "reference": self._ran("reference", self.reference),
            "truth": self._ran("truth", self.truth),
        }
        for plan in plans:
            if plan.absent is None:
                name = f"run.{plan.name}"
                ran = self._ran(name, self.targets.get(plan.name))
                found[name] = replace(ran, timing=self.timings.get(plan.name)) if ran else None
        return [evidence for evidence in (found | self.replaced).values() if evidence is not None]

    def _ran(self, name: str, of: Answers | None) -> StageEvidence | None:
        if of is None:
            return None
        names = [spec.name for spec in of.result.signature.outputs]
        for mode, outputs in of.modes.items():
            for position, output in enumerate(names):
                write_rows(self.folder / "stages" / name / "outputs" / mode / str(position), outputs[output])
        digests = {mode: digest(self.folder / "stages" / name / "outputs" / mode) for mode in of.modes}
        return stage(name, result(name, replace(of.result, digests=digests), observations=of.observations))


def inspected(**changes: Any) -> InspectResult:
    """A plain float32 model."""
    layer = LayerRow("dense", "Dense", "keras.layers", None, "float32", 9, forced_training=False)
    good = InspectResult("ef" * 32, 2**20, "3.15.1", "", "Functional", "m", (layer,), 9, 36, SIGNATURE, {}, has_optimizer=False)
    return replace(good, **changes)


def prepared(count: int, **changes: Any) -> PrepareResult:
    """Every row prepared."""
    return replace(PrepareResult(("x",), count, {"x": "float32"}, {"x": ((2,),)}, {"x": ()}), **changes)


def codes(record: RunRecord, target: str | None = None) -> list[str]:
    """Codes of the findings, those that decide first."""
    return [f.code for f in record.findings if target is None or f.target == target]


def found(record: RunRecord, code: str) -> Finding:
    """The only finding of that code."""
    (one,) = [f for f in record.findings if f.code == code]
    return one


def row(record: RunRecord, name: str = "litert") -> TargetRecord:
    """A target's row."""
    (one,) = [t for t in record.targets if t.name == name]
    return one
