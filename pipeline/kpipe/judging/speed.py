"""One target's times, loads and memory: summed up, held against the contract's limits, and what else they tell. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kpipe.judging.limits import Measured, Sample, check_limits, limit_findings
from kpipe.judging.promises import class_of, own_tolerances
from kpipe.judging.raced import race_of
from kpipe.judging.repeats import relative_allowance
from kpipe.judging.timed import quiet_loads, speed_findings, timed_outputs
from kpipe.judging.times import sum_up_freshness, sum_up_loads, sum_up_offline, sum_up_server, summarise
from kpipe.record import CellCounts, CellStatus, LoadRecord, TargetRecord
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import decode
from kpipe_stages.decisions import runs_code
from kpipe_stages.protocol import TimingResult

if TYPE_CHECKING:
    from kpipe.evidence import StageEvidence
    from kpipe.judging.answers import Answers
    from kpipe.judging.scene import Bench
    from kpipe_stages.protocol import Latency, RunResult

BLANK = TargetRecord("", "", "", required=False, status=CellStatus.UNCHECKED, reason="", cells=CellCounts())


def judge_times(bench: Bench, answers: Answers | None, stage: StageEvidence | None) -> dict[str, Any]:
    """The fields of a target's record that are about speed and memory; what they tell is added to the bench's findings."""
    plan, result = bench.plan, answers.result if answers else None
    timing = decode(TimingResult, stage.timing.data) if stage and stage.timing and stage.timing.data else None
    if timing is not None and answers is not None and (reference := bench.scene.reference) is not None:
        own, coarser = own_tolerances(bench, class_of(bench, answers), reference)
        timed_outputs(timing, relative_allowance(own, reference.floors, coarser=coarser), bench.add)
    loads, variants, shared = quiet_loads(bench.scene.stages, plan.name)
    own_code = any(runs_code(table.rule) for table in bench.scene.contract.rule_tables.values())  # it was not timed: a limit is on all of the way
    peak = max((r.peak_rss_bytes for r in (stage.result, stage.timing) if r is not None), default=None) if stage else None
    measured = Measured(
        loads=() if shared or any(one.lean for one in loads) else loads,
        model_only=_sample(timing.model_only) if timing else None,
        end_to_end=_sample(timing.end_to_end) if timing and not own_code else None,
        server=Sample(timing.server.seconds, timing.server.windows) if timing and timing.server else None,
        peak_bytes=None if result is None or result.load.lean else peak,
        size_bytes=_size(bench),
    )
    limits = check_limits(bench.table.limits, measured)
    limit_findings(limits, bench.add)
    found = {"load": sum_up_loads(loads, variants, shared=shared) or _load_beside(result), **(_times(timing) if timing else {})}
    speed_findings(replace(BLANK, **found), bench.add)
    raced = race_of(bench, answers, measured.size_bytes, measured.peak_bytes)
    return {**found, "peak_rss_bytes": peak, "limits": (*limits, *raced.limits), "race": raced.record}


def _times(timing: TimingResult) -> dict[str, Any]:
    return {
        "latency": summarise(timing.model_only),
        "end_to_end": summarise(timing.end_to_end),
        "freshness": sum_up_freshness(timing.freshness),
        "server": sum_up_server(timing.server),
        "offline": sum_up_offline(timing.offline),
    }


def _sample(latency: Latency | None) -> Sample | None:
    return Sample(latency.seconds, latency.windows, latency.looks, latency.waits) if latency is not None else None


def _size(bench: Bench) -> int | None:
    """Bytes of the artifact, or of the ``.keras`` file where that is run."""
    if RUNTIMES[bench.plan.runtime].artifact == "keras" and not bench.plan.quantize:
        return bench.scene.evidence.candidate_size
    return bench.target.artifact.size if bench.target.artifact else None


def _load_beside(result: RunResult | None) -> LoadRecord | None:
    """The load of the agreement run, where none was measured alone."""
    if result is None:
        return None
    load = result.load
    return LoadRecord(load.import_s, load.load_s, load.first_s, shared=True, lean=load.lean)
