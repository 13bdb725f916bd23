"""The longest chain of a validation that can't overlap, from what the run itself left behind. Pure.

Import of the runtime, load, export, conversion, run; then, with nothing else running, every timed phase; then the longest search for a setting,
which waits for the first judgement. Judging and reports are no part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe_stages.catalog import FORKED, RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.protocol import ExportResult

if TYPE_CHECKING:
    from kpipe.evidence import Evidence, StageEvidence

MADE = ("saved_model", "onnx", "litert")
"""The order in which the export writes its formats."""


@dataclass(frozen=True)
class Chain:
    """Steps that wait for one another."""

    steps: tuple[tuple[str, float], ...]
    """Name and seconds."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(seconds for _, seconds in self.steps)

    def then(self, name: str, seconds: float) -> Chain:
        """One step more."""
        return Chain((*self.steps, (name, seconds)))

    def told(self) -> str:
        """In one line."""
        return " + ".join(f"{name} {seconds:.2f}" for name, seconds in self.steps)


def critical_path(evidence: Evidence) -> Chain:
    """The longest chain of a finished run."""
    stages = {stage.name: stage for stage in evidence.stages}
    first = _longest([Chain((("inspect", _work(stages["inspect"])),)), Chain((("prepare", _work(stages["prepare"])),))])
    imported = _longest([first, Chain((("import tensorflow", _inherited(evidence)),))])
    artifacts = _artifacts(stages, imported, first)
    chains = [first]
    for name, stage in stages.items():
        if name in {"reference", "reference.one_thread", "truth"}:
            chains.append((imported if _forked(stage) else first).then(name, _work(stage)))
    for target in evidence.targets:
        stage = stages.get(f"run.{target.plan.name}")
        if stage is None:
            continue
        begin = imported if _forked(stage) else first
        made = artifacts.get(RUNTIMES[target.plan.runtime].artifact)
        begin = _longest([begin, made]) if made is not None else begin
        chains.append(begin.then(stage.name, _work(stage)))
    return _last(_timed(_longest(chains), evidence, stages), stages)


def work_in_agreement(evidence: Evidence) -> float:
    """Seconds that all workers took together before the timed phases, TensorFlow's import once: no fewer than this over the cores can be had."""
    quiet = {stage.name for stage in evidence.stages if stage.name.startswith(("load.", "knob."))}
    return _inherited(evidence) + sum(_work(stage) for stage in evidence.stages if stage.name not in quiet and not stage.reused)


def _artifacts(stages: dict[str, StageEvidence], imported: Chain, first: Chain) -> dict[str, Chain]:
    """Format to the chain at whose end it is there."""
    export, found = stages.get("export"), dict[str, Chain]()
    if export is None or export.result is None or not export.result.data:
        return found
    if export.reused:
        found = dict.fromkeys(MADE, first)
    else:
        steps = decode(ExportResult, export.result.data).seconds
        chain = imported
        for name in ("load", "trace", *MADE):
            chain = chain.then(f"export {name}", steps.get(name, 0.0)) if name in steps else chain
            if name in MADE and name in steps:
                found[name] = chain
    convert = stages.get("export_openvino")
    if convert is not None and "saved_model" in found:
        found["openvino_ir"] = found["saved_model"] if convert.reused else found["saved_model"].then("export openvino_ir", _work(convert))
    return found


def _timed(chain: Chain, evidence: Evidence, stages: dict[str, StageEvidence]) -> Chain:
    """Cold loads and warm calls, one after another; how long shapes were tried nobody wrote down, so that it isn't in the chain."""
    for target in evidence.targets:
        load, run = stages.get(f"load.{target.plan.name}"), stages.get(f"run.{target.plan.name}")
        quiet = _work(load) if load is not None else 0.0
        if run is not None and run.timing is not None:
            quiet += run.timing.seconds
        if quiet:
            chain = chain.then(f"time {target.plan.name}", quiet)
    return chain


def _last(chain: Chain, stages: dict[str, StageEvidence]) -> Chain:
    knobs = [stage for name, stage in stages.items() if name.startswith("knob.")]
    longest = max(knobs, key=_work, default=None)
    return chain.then(longest.name, _work(longest)) if longest is not None else chain


def _work(stage: StageEvidence) -> float:
    """Seconds up to its answer, in the process itself."""
    return 0.0 if stage.reused or stage.result is None else stage.result.seconds


def _inherited(evidence: Evidence) -> float:
    """The fork server's import, as its workers tell it; 0 where each imported for itself."""
    told = [stage.result.identity.inherited for stage in evidence.stages if stage.result and stage.result.identity and not stage.reused]
    return max((sum(imports.values()) for imports in told), default=0.0)


def _forked(stage: StageEvidence) -> bool:
    identity = stage.result.identity if stage.result else None
    return identity is not None and identity.stage in FORKED and bool(identity.inherited)


def _longest(chains: list[Chain]) -> Chain:
    return max(chains, key=lambda chain: chain.seconds)
