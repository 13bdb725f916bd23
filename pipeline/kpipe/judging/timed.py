"""What a target's timed phase found, besides its times: answers that changed, memory that grows, results that are kept, a server that falls behind.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe.loads import load_of
from kpipe_stages.deciding_limits import SLOWER
from kpipe_stages.protocol import LEAST_COMPARED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kpipe.evidence import StageEvidence, TargetPlan
    from kpipe.record import FreshRecord, LatencyRecord, MachineRecord, ServerRecord, TargetRecord
    from kpipe_stages.protocol import BatchTimes, LoadTimes, Served, TimingResult

    Add = Callable[..., None]

KEPT = 0.1
"""A repeated input that saves no more than this share of a fresh one's time isn't answered from memory."""

STOLEN_WORTH_SAYING = 0.005

VARIANTS = {"cached": "compile cache", "cold_file": "cold file"}
"""Ending of a load stage's name to what its record is called."""


def timed_outputs(timing: TimingResult, allowed: float, add: Add) -> None:
    """A runtime that is fast because it is wrong fails; ``allowed`` is a share of the output's scale."""
    for kind, latency in (("model only", timing.model_only), ("end to end", timing.end_to_end)):
        if latency is None:
            continue
        if latency.compared != len(latency.seconds):
            cause = f"Of {len(latency.seconds)} timed calls ({kind}) only {latency.compared} outputs were compared; the times are void."
            add("KP412", cause, place=kind)
        if latency.decision_changes:
            add("KP412", f"{latency.decision_changes} timed calls ({kind}) decided otherwise than the same input before.", place=kind)
        if not latency.worst_relative <= allowed:
            cause = f"A timed call ({kind}) differs from the same input's earlier answer by {latency.worst_difference:.3g} ({latency.worst_relative:.3g} of its scale)."
            add("KP412", cause, place=kind, difference=latency.worst_difference)
    _served_outputs(timing.server, allowed, add)
    for batch in timing.offline:
        _batch_outputs(batch, allowed, add)


def _served_outputs(server: Served | None, allowed: float, add: Add) -> None:
    if server is not None:
        if server.compared < min(LEAST_COMPARED, len(server.seconds)):
            cause = f"Of {len(server.seconds)} requests to the server only {server.compared} answers were compared; the times are void."
            add("KP412", cause, place="server")
        if not server.worst_relative <= allowed:
            cause = f"A request to the server differs from the same input's earlier answer by {server.worst_relative:.3g} of its scale."
            add("KP412", cause, place="server")


def _batch_outputs(batch: BatchTimes, allowed: float, add: Add) -> None:
    place = f"batches of {batch.batch}"
    if batch.seconds and not batch.compared:
        add("KP412", f"Of {len(batch.seconds)} timed {place} no answer was compared; the times are void.", place=place)
    if not batch.worst_relative <= allowed:
        cause = f"A timed call ({place}) differs from the same batch's earlier answer by {batch.worst_relative:.3g} of its scale."
        add("KP412", cause, place=place)


def speed_findings(record: TargetRecord, add: Add) -> None:
    """What the summed up samples say."""
    for kind, latency in (("model only", record.latency), ("end to end", record.end_to_end)):
        _memory(kind, latency, add)
    _freshness(record.freshness, add)
    _server(record.server, add)
    _machine(record, add)


def _memory(kind: str, latency: LatencyRecord | None, add: Add) -> None:
    found = latency.memory if latency is not None else None
    if found is not None and found.grows:
        each = f"{_size(found.per_call)} a call ({_size(found.low)} to {_size(found.high)}, 99 %)"
        add("KP508", f"Memory grows by {each} over {found.calls} calls ({kind}), and doesn't subside.", place=kind, per_call=found.per_call)


def _size(count: float) -> str:
    return f"{count / 2**20:.3g} MiB" if count >= 2**20 else f"{count / 2**10:.3g} KiB"


def _freshness(found: FreshRecord | None, add: Add) -> None:
    if found is not None and found.low is not None and found.gain is not None and found.low > KEPT:
        cause = f"An input seen before takes {found.gain:.0%} less than one never seen before (at least {found.low:.0%}, {found.pairs} pairs): results are kept."
        add("KP509", cause, place="repeated inputs", gain=found.gain, low=found.low)


def _server(found: ServerRecord | None, add: Add) -> None:
    if found is None or found.held:
        return
    machine = found.latency.machine
    if machine is not None and machine.disturbed and found.rate < SLOWER * found.capacity:
        cause = f"At {found.rate:g} requests a second they piled up, and others took the machine meanwhile: whether the rate can be held can't be told yet."
        add("KP506", cause, place="server", remedy="Run again on a quiet machine.", rate=found.rate, capacity=found.capacity)
    else:
        cause = f"At {found.rate:g} requests a second they pile up: the calls alone allow {found.capacity:.4g} a second."
        add("KP512", cause, place="server", rate=found.rate, capacity=found.capacity)


def _machine(record: TargetRecord, add: Add) -> None:
    """One note for all of the target's times."""
    server = record.server.latency.machine if record.server else None
    kinds = {
        "load": record.load.machine if record.load and not record.load.shared else None,
        "model only": record.latency.machine if record.latency else None,
        "end to end": record.end_to_end.machine if record.end_to_end else None,
        "server": server,
    }
    told = {kind: machine for kind, machine in kinds.items() if machine is not None and machine.disturbed}
    if told:
        cause = f"Others took the machine while this was measured: {'; '.join(f'{kind} ({busy(machine)})' for kind, machine in told.items())}."
        add("KP507", cause, place=", ".join(told))


def busy(machine: MachineRecord) -> str:
    """``others used 40% of the processors, its threads waited 0.12 s for one in each second``."""
    parts = [f"others used {machine.others:.0%} of the processors"] if machine.others else []
    parts += [f"its threads waited {machine.waited:.2g} s for one in each second"] if machine.waited else []
    parts += [f"{machine.stolen:.0%} was stolen"] if machine.stolen and machine.stolen >= STOLEN_WORTH_SAYING else []
    return ", ".join(parts) or "nothing known"


def quiet_loads(stages: Mapping[str, StageEvidence], name: str) -> tuple[list[LoadTimes], dict[str, LoadTimes], bool]:
    """A target's loads in fresh processes of their own, those under another condition, and whether any ran beside other workers."""
    plain: list[LoadTimes] = []
    variants: dict[str, LoadTimes] = {}
    shared = False
    for stage_name, stage in stages.items():
        kind = _kind(stage_name, name)
        load = load_of(stage) if kind is not None else None
        if load is None or kind is None:
            continue
        if kind in VARIANTS:
            variants[VARIANTS[kind]] = load
        elif not kind or kind.isdecimal():
            plain.append(load)
            shared = shared or stage.shared
    return plain, variants, shared


def _kind(stage: str, target: str) -> str | None:
    """What a stage's name says after ``load.TARGET``; None where it's no load of the target."""
    whole = f"load.{target}"
    return "" if stage == whole else stage.removeprefix(f"{whole}.") if stage.startswith(f"{whole}.") else None


def confined(plan: TargetPlan) -> dict[str, Any]:
    """What of the machine a target was held to."""
    found: dict[str, Any] = {"threads": plan.threads} if plan.threads else {}
    if plan.affinity:
        found |= {"affinity": list(plan.affinity), "affinity_by": "sched_setaffinity before the runtime's import"}
    if plan.memory_mib:
        found |= {"memory_mib": plan.memory_mib, "memory_by": "RLIMIT_DATA: private memory asked for"}
    return found
