"""Records that try to break a report: hostile names and numbers that are not finite everywhere; twenty thousand inputs that all flip."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kpipe.record import (
    ContractRef,
    DecisionRecord,
    Drift,
    Flip,
    GoldenRow,
    LatencyRecord,
    LoadRecord,
    Percentile,
    RunRecord,
    StageRecord,
    TargetRecord,
)
from kpipe_stages.protocol import Signature, TensorSpec

from .sample_record import failing, finding, flip

if TYPE_CHECKING:
    from kpipe.findings import Finding

HOSTILE = (
    "<script>alert(1)</script>",
    "a]]>b",
    "x\x1b[31mred\x00\x07",
    "| pipe ` tick ``` \n# head",
    "\U0001f600 emoji \u202e rtl \ud800",
    '"><img src=x onerror=alert(1)>',
    "n" * 300,
    "[link](javascript:alert(1)) @team #1 $\\frac{x}$ {{ 7*7 }} http://example.com",
    "&amp; &#x3c; --> <!--",
    "\r\n::error::injected",
)
WILD = (math.nan, math.inf, -math.inf)


def name(index: int) -> str:
    """The hostile names in turn."""
    return HOSTILE[index % len(HOSTILE)]


def hostile() -> RunRecord:
    """Every text that comes from outside is hostile, every number that can be is not finite."""
    base = failing(40)
    rows = tuple(_row(i, row) for i, row in enumerate(base.golden.rows))
    words = dict.fromkeys(HOSTILE, 1)
    signature = Signature((TensorSpec(name(0), None, name(5)),), (TensorSpec(name(6), (None, 3), "string"),))
    return replace(
        base,
        headline=name(0),
        caveats=HOSTILE,
        candidate=replace(base.candidate, path=f"../../{name(3)}", model_name=name(0), signature=signature),
        contract=ContractRef(name(5), "x"),
        golden=replace(base.golden, path=name(0), rows=rows, slices=words, classes=words, flip_rate_bound=math.nan),
        decision=DecisionRecord(name(0), name(5), name(3), inferred=True),
        targets=tuple(_target(i, target) for i, target in enumerate(base.targets)),
        flips=tuple(_flip(i, f, rows[i].id) for i, f in enumerate(base.flips)),
        findings=tuple(_finding(i, f) for i, f in enumerate(base.findings)),
        stages=(*base.stages, StageRecord(name(0), name(5), math.nan, math.inf, 0, name(3), {name(0): math.nan})),
        environment=replace(base.environment, cpu=name(0), versions={name(0): name(5)}, load_average=math.nan),
    )


def _target(i: int, target: TargetRecord) -> TargetRecord:
    latency = LatencyRecord(
        3, 0, stable=False, percentiles=(Percentile(50, math.nan), Percentile(90, math.inf)), mean_s=math.nan, histogram=(1e-3, *WILD)
    )
    artifact = target.artifact
    return replace(
        target,
        name=name(i),
        title=name(i + 1),
        reason=name(i + 2),
        settings={name(3): name(0)},
        facts={name(0): [name(5)]},
        devices=(name(0),),
        load=LoadRecord(*WILD, shared=True),
        latency=latency,
        drift=tuple(_drift(i, j, d) for j, d in enumerate(target.drift)),
        artifact=replace(artifact, path=f"/secret/place/{name(0)}", repairs=HOSTILE, ops={name(0): 1}) if artifact else None,
    )


def _drift(i: int, j: int, drift: Drift) -> Drift:
    numbers = dict.fromkeys(("max_rel", "rms", "cosine"), math.nan)
    names = {"output": name(i + j), "mode": name(0), "worst_input": name(5)}
    return replace(drift, max_abs=WILD[j % 3], smallest_factor=WILD[(i + j) % 3], worst_pair=(math.nan, 1.0), **numbers, **names)  # type: ignore[arg-type]


def _row(i: int, row: GoldenRow) -> GoldenRow:
    return replace(row, id=f"{name(i)}{i // len(HOSTILE)}", decision=name(i + 3), slice=name(0), margin=WILD[i % 3], scores=(math.nan, math.inf))


def _flip(i: int, wrong: Flip, where: str) -> Flip:
    return replace(
        wrong, target=name(i), input=where, reference=name(0), got=name(5), expected=name(1), margin=WILD[i % 3], target_scores=(*WILD, 0.3)
    )


def _finding(i: int, seen: Finding) -> Finding:
    evidence = {name(0): name(5), "nan": "NaN"}
    return replace(seen, target=name(i), place=name(i + 1), cause=name(i + 2), remedy=name(i + 3), evidence=evidence)


def huge(count: int = 20_000) -> RunRecord:
    """Every golden input flips on two targets, each with a finding of its own."""
    base = failing(count)
    flips = tuple(flip(target, "alone", row, str((int(row.decision) + 5) % 10), 0.2) for row in base.golden.rows for target in ("openvino", "litert"))
    findings = tuple(
        finding("KP404", f.target, f.input, f"On {f.input} the decision is {f.got}; the reference decides {f.reference}.") for f in flips
    )
    return replace(base, flips=flips, findings=findings)
