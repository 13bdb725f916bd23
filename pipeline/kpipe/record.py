"""``run.json``: the one versioned document that every report, ``kpipe judge`` and later sign-off read.

Floats that are not finite are written as strings (`kpipe_stages.codec`). A field is only ever added; `SCHEMA_VERSION` says which.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Any

from kpipe.comparison import Comparison
from kpipe.findings import Finding
from kpipe_stages.protocol import AxisSize, Identity, OpUse, Signature

SCHEMA_VERSION = 1


class Verdict(enum.StrEnum):
    """The answer to the one question."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    INCOMPLETE = "INCOMPLETE"


class CellStatus(enum.StrEnum):
    """What became of one cell."""

    PASS = "pass"  # noqa: S105 - as above
    FAIL = "fail"
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class CellCounts:
    """Cells of one target, by status."""

    passed: int = 0
    failed: int = 0
    unchecked: int = 0


@dataclass(frozen=True)
class Tolerance:
    """``|target - reference| <= atol * scale + rtol * |reference|``; ``unit`` says what the scale is."""

    rtol: float
    atol: float
    source: str
    """``contract``, the precision class whose default it is, or how it was derived."""
    numeric: bool = True
    """False where only decisions are judged."""
    unit: str = "scale"
    """``scale``: the output's largest magnitude on that input. ``floor``: the model's noise floor on that input."""


@dataclass(frozen=True)
class Steadiness:
    """How far the reference's answers to the same input are from one another; evidence that widens no tolerance."""

    max_abs: float
    """Output units, over the golden inputs."""
    floors: float | None
    """In noise floors of the input; None where the floor isn't used."""


@dataclass(frozen=True)
class FloorRecord:
    """The noise floor of one output: how far the reference is from the candidate in float64."""

    output: str
    typical: float
    """Median over the golden inputs, output units."""
    largest: float
    smallest_allowed: float
    """The smallest floor that a tolerance multiplies, over the inputs: never zero, whatever luck the rounding had."""
    scale: float
    """Largest magnitude of the output on any input."""
    used: bool
    """False where the floor was too high to be rounding, and the default tolerance stands."""
    repeat: Steadiness | None = None
    """Asked again, alone; in the smallest floor of any input, so at most. None where it wasn't."""
    batch: Steadiness | None = None
    """In company against alone, over every way of running in batches; None where the output has no batch axis."""
    threads: Steadiness | None = None
    """On one thread against all; None where it wasn't run so (the sign-off profile does)."""


@dataclass(frozen=True)
class TruthRecord:
    """The float64 run."""

    kept: dict[str, str]
    """Layer that kept its own dtype, and why."""
    computes_in_less: dict[str, tuple[str, ...]]
    """Layer (empty for an op outside any) to the dtypes below float64 that it computes in all the same."""
    floors: tuple[FloorRecord, ...]


@dataclass(frozen=True)
class Drift:
    """Agreement of one output of one target in one way of running, over all golden inputs."""

    output: str
    mode: str
    """``alone``, ``batch_3``, ...; ``batch_3 vs alone`` for the target against itself."""
    cells: CellCounts
    tolerance: Tolerance
    max_abs: float
    """Largest absolute difference, in output units."""
    max_rel: float
    """Largest difference relative to the scale of the output on that input."""
    rms: float
    """Root mean square of the differences of the worst input."""
    cosine: float
    """Smallest cosine similarity of any input's output."""
    max_ulp: float
    """Largest distance in units in the last place (float32 spacing at the reference)."""
    worst_input: str
    """Id of the golden input with the largest drift relative to what is allowed."""
    worst_element: tuple[int, ...]
    """Index of the worst element in that input's output."""
    worst_pair: tuple[float, float]
    """Reference and target at that element."""
    smallest_factor: float
    """By how much the tolerance could be multiplied and still pass: above 1 means it failed. The smallest tolerance that passes is this times ``tolerance``."""


@dataclass(frozen=True)
class Flip:
    """A target's decision differs from the reference's."""

    target: str
    mode: str
    input: str
    slice: str
    reference: str
    """The reference's decision."""
    got: str
    expected: str | None
    label: str | None
    margin: float
    """How far the reference's decision is from flipping, in output units."""
    drift: float
    """Largest absolute difference of the decision's output on this input."""
    reference_scores: tuple[float, ...]
    target_scores: tuple[float, ...]
    tie: bool
    """The reference's own scores are tied on this input."""
    required: bool
    score_indices: tuple[int, ...] = ()
    """Flat positions of the scores that are kept: all, or the largest of either side."""
    rule: str = ""
    """Name of the decision rule, as in ``[decisions.NAME]``; empty for the only one."""
    right: str = ""
    """Whom ``expected``, else ``label``, agrees with: ``reference``, ``target``, ``both`` or ``neither``; empty where neither is known."""


@dataclass(frozen=True)
class Percentile:
    """One latency percentile; only those that the sample supports are there."""

    p: float
    seconds: float
    low: float | None = None
    """The true percentile lies between ``low`` and ``high`` at the sample's confidence; None: the calls leave that end open."""
    high: float | None = None
    effective: int = 0
    """Independent calls that the sample is worth for it; 0 in a record of an earlier kpipe."""


@dataclass(frozen=True)
class MachineRecord:
    """What else happened on the machine while this was measured. None: the system doesn't say."""

    disturbed: bool | None
    """Others took enough of it to slow what was measured (`kpipe_stages.disturbance`)."""
    waited: float | None
    """Seconds that threads waited for a processor, a second of measuring; all threads together."""
    others: float | None
    """Share of the usable processors that others used."""
    stolen: float | None
    """Share that the hypervisor took."""
    switches: int
    """Times that a thread was made to give up its processor."""
    quiet_calls: int
    """Calls made in stretches that are known to be undisturbed."""


@dataclass(frozen=True)
class MemoryRecord:
    """Resident memory over the timed calls, bytes."""

    steady: float
    """The median after the first quarter of the calls."""
    per_call: float
    """Growth a call: the median slope."""
    low: float
    """Of its 99 % interval."""
    high: float
    calls: int
    grows: bool
    """It grows for sure, and doesn't subside."""


@dataclass(frozen=True)
class LatencyRecord:
    """A warm latency sample, summed up."""

    calls: int
    warmup_calls: int
    stable: bool
    percentiles: tuple[Percentile, ...]
    mean_s: float
    histogram: tuple[float, ...] = ()
    """The calls, seconds, sorted, thinned to at most 400 for the plot."""
    confidence: float = 0.0
    """Of the percentiles' intervals; 0 in a record of an earlier kpipe."""
    looks: int = 1
    """How often it was looked at whether limits are decided, with more calls each time."""
    machine: MachineRecord | None = None
    memory: MemoryRecord | None = None
    """None where too few calls were made, or the system doesn't say."""
    steps: dict[str, float] = field(default_factory=dict)
    """End to end: step to its share of all calls' time."""


@dataclass(frozen=True)
class FreshRecord:
    """Inputs seen before against inputs never seen before."""

    pairs: int
    gain: float | None
    """What a repeated input saves, as a share of a fresh one's time (medians); None where nothing was compared."""
    low: float | None
    """Of its 99.8 % interval (sign test on pairs); None: too few pairs."""
    why_not: str = ""


@dataclass(frozen=True)
class ServerRecord:
    """Requests at random moments, each counted from the moment it was meant to come."""

    rate: float
    """Requests a second, asked for."""
    requests: int
    capacity: float
    """Requests a second that the calls alone would take: one over their mean."""
    held: bool
    """The requests didn't pile up."""
    latency: LatencyRecord


@dataclass(frozen=True)
class BatchRecord:
    """One batch size's throughput."""

    batch: int
    seconds: float | None
    """The median call; None where it was refused."""
    throughput: float | None
    """Inputs a second."""
    low: float | None
    """Of its 99 % interval; None: too few calls."""
    high: float | None
    refused: str = ""


@dataclass(frozen=True)
class OfflineRecord:
    """A batch sweep."""

    rows: tuple[BatchRecord, ...]
    knee: int | None
    """The smallest batch that reaches nine tenths of the best throughput."""


@dataclass(frozen=True)
class LoadVariant:
    """Loads under another condition, seconds."""

    kind: str
    """``compile cache``: the runtime's own, filled by an earlier load. ``cold file``: the artifact dropped from the system's file cache."""
    import_s: float
    load_s: float
    first_s: float


@dataclass(frozen=True)
class LoadRecord:
    """Cold load in a fresh process, seconds; of several loads the median of each part."""

    import_s: float
    load_s: float
    first_s: float
    shared: bool
    """Another process ran on the machine at the time."""
    lean: bool = False
    """Keras was imported without the libraries that it only takes along, where they are installed. No limit is held against such a load."""
    loads: int = 1
    """How many fresh processes."""
    total_s: float | None = None
    """The median of import, load and first inference together; None in a record of an earlier kpipe."""
    low_s: float | None = None
    """The interval of that median; None for one load alone."""
    high_s: float | None = None
    confidence: float = 0.0
    """Of the interval."""
    second_s: float | None = None
    """The second inference of the same shape."""
    new_shape_s: float | None = None
    """The first inference with another number of rows."""
    variants: tuple[LoadVariant, ...] = ()
    machine: MachineRecord | None = None


@dataclass(frozen=True)
class LimitCheck:
    """One limit of the contract against what was measured."""

    name: str
    limit: float
    value: float | None
    """None: it could not be measured."""
    unit: str
    """``x baseline`` for a limit that is relative: the value is then the ratio."""
    ok: bool
    """Met for sure."""
    low: float | None = None
    """The value's interval, in the limit's unit; None: open, or a single number."""
    high: float | None = None
    undecided: str = ""
    """Why it can't be told whether it is met; empty where it can, or nothing was measured."""


@dataclass(frozen=True)
class RaceRatio:
    """One number of the candidate's over the baseline's, timed in turns."""

    name: str
    """``p50_ms``, ``p90_ms``, ``p95_ms``, ``p99_ms`` or ``load_s``."""
    ratio: float
    low: float
    """The interval misses the ratio with a chance of at most `RaceRecord.error`, however often it was looked at."""
    high: float
    told: str
    """``faster``, ``slower``, ``same`` (the interval lies within the smallest difference that counts) or ``can't tell yet``."""


@dataclass(frozen=True)
class RaceRecord:
    """A target's artifact and the baseline's, timed call by call in one process."""

    baseline_sha256: str
    """Of the baseline's artifact."""
    told: str
    """Of the median."""
    ratios: tuple[RaceRatio, ...]
    before_p50_s: float
    now_p50_s: float
    rounds: int
    """Sessions that were opened of each."""
    calls: int
    """Of each."""
    seconds: float
    smallest: float
    """The smallest difference that counts, a share."""
    error: float


@dataclass(frozen=True)
class ArtifactRecord:
    """The file or folder that was judged."""

    format: str
    path: str
    """Relative to the run folder, or absolute for one that was handed in."""
    sha256: str
    size: int
    provided: bool
    repairs: tuple[str, ...]
    versions: dict[str, str]
    signature: Signature | None
    ops: dict[str, int]
    fixed_batch: int | None = None
    variant: str = ""
    """The precision variant that it is; empty for the artifact as exported."""
    companions: tuple[str, ...] = ()
    """Files that belong to it and are in its digest and size, as ``path`` is given."""
    inventory: tuple[OpUse, ...] = ()
    """``ops`` with version, dtypes and layers; empty in a record of an earlier kpipe."""
    opset: int = 0
    """ONNX only: the opset of ai.onnx that the file declares; 0 elsewhere."""
    reused: str = ""
    """The entry of kpipe's cache that the file was taken from, made by an earlier run of the same things; empty where this run made it."""


@dataclass(frozen=True)
class CalibrationRecord:
    """The calibration set that precision variants were made with."""

    kind: str
    """``raw`` or ``arrays``."""
    path: str
    """As the contract names it."""
    sha256: str
    """Of its manifest, or of the ``.npz``."""
    count: int


@dataclass(frozen=True)
class Edge:
    """A border between the raw file and a target's decision, at which something broke."""

    name: str
    """``archive``, ``golden``, ``decode``, ``preprocess``, ``signature``, ``backend``, ``export``, ``runtime``, ``precision``, ``batch``, ``shape`` or ``decision``."""
    sentence: str
    """Why this one."""


@dataclass(frozen=True)
class EdgeDrift:
    """The largest step that a target's numbers take at one border."""

    edge: str
    output: str
    mode: str
    max_abs: float
    """Output units."""
    multiple: float
    """Of ``unit``, on the input where it is largest."""
    unit: str
    """``floors``: the model's noise floor; ``spacings``: float32 spacings of the output's scale, where no floor is known."""


@dataclass(frozen=True)
class KnobRecord:
    """A target that differs, run again with one setting changed."""

    title: str
    settings: dict[str, Any]
    removes: bool | None
    """Whether it then agrees with the reference; None where it couldn't be run so."""
    why: str = ""
    """Why it couldn't."""


class ShapeStatus(enum.StrEnum):
    """What became of one shape on one target."""

    WORKS = "works"
    RECOMPILES = "recompiles"
    """It works, and the first call took much longer: something was traced, compiled or allocated anew."""
    DIFFERS = "differs"
    """It answers, and otherwise than the reference."""
    REFUSED = "refused"
    NOT_OFFERED = "not offered"
    """The artifact, or the model, declares another batch size."""
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class ShapeRecord:
    """One shape tried on one target. Agreement only: what is fed is golden inputs cut or tiled, which nobody has decided on."""

    name: str
    """``time 4096``, ``batch 8``, ``empty batch``."""
    batch: int
    axes: tuple[AxisSize, ...]
    owed: bool
    """Promised by the contract, or by the model's own free batch axis."""
    status: ShapeStatus
    detail: str = ""
    """Why, where it isn't simply so."""
    source: str = ""
    """``golden`` inputs as they are, or such ``cut`` or ``tiled`` to the size."""
    first_s: float | None = None
    """The first call; None where that says nothing: the shape had been run before, or wasn't."""
    again_s: float | None = None
    """The fastest of the calls after it."""
    max_abs: float | None = None
    """Largest difference from the reference, output units; None where nothing was compared."""


@dataclass(frozen=True)
class TargetRecord:
    """One target, checked or not. The reference has one too."""

    name: str
    runtime: str
    title: str
    required: bool
    status: CellStatus
    reason: str
    """One line: why it failed or is unchecked; what is worth knowing where it passed."""
    cells: CellCounts
    artifact: ArtifactRecord | None = None
    variant: str = ""
    """The precision variant that it runs; empty for the artifact as exported."""
    settings: dict[str, Any] = field(default_factory=dict)
    chosen_settings: dict[str, Any] = field(default_factory=dict)
    """Settings that kpipe added."""
    effective_precision: str = ""
    devices: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    identity: Identity | None = None
    modes: tuple[str, ...] = ()
    modes_not_offered: tuple[str, ...] = ()
    drift: tuple[Drift, ...] = ()
    flips: int = 0
    ties: int = 0
    load: LoadRecord | None = None
    latency: LatencyRecord | None = None
    """Model only."""
    end_to_end: LatencyRecord | None = None
    """Raw file to decision."""
    freshness: FreshRecord | None = None
    server: ServerRecord | None = None
    offline: OfflineRecord | None = None
    confined: dict[str, Any] = field(default_factory=dict)
    """What of the machine it was held to: ``threads``, ``affinity``, ``memory_mib``, and how that was enforced."""
    peak_rss_bytes: int | None = None
    limits: tuple[LimitCheck, ...] = ()
    race: RaceRecord | None = None
    """Against the baseline's artifact; None where the two weren't timed in turns."""
    flip_rate_bound: float | None = None
    """The flip rate that its flips on the sampled inputs leave possible at the contract's confidence (Clopper-Pearson, upper, one-sided)."""
    predicted_flip_rate: float | None = None
    """Share of pairs of a sampled input's margin and any input's drift in which the drift could flip the decision: an upper estimate."""
    edge: Edge | None = None
    """The first border at which it leaves the reference; None where it didn't fail, or where nothing tells."""
    knobs: tuple[KnobRecord, ...] = ()
    """Settings that were tried because its numbers or decisions differ."""
    edge_drifts: tuple[EdgeDrift, ...] = ()
    """How far its numbers move at each border that could be measured."""
    waived: bool = False
    """It fails, and every finding that fails it is waived: it fails nothing."""
    preprocessing: dict[str, str] = field(default_factory=dict)
    """The user's code or tensors that its inputs were made by: path, relative to the contract's folder where it lies below, to SHA-256."""
    shapes: tuple[ShapeRecord, ...] = ()
    """Shapes that were tried, or owed."""
    inputs: dict[str, str] = field(default_factory=dict)
    """The model's input names to the artifact's; empty where it runs the ``.keras`` file itself."""
    outputs: dict[str, str] = field(default_factory=dict)
    binding: str = ""
    """How far that is proved, in one sentence; empty where nothing could be exchanged."""


@dataclass(frozen=True)
class VariantCosts:
    """What one target takes, and what it does to decisions."""

    size: int | None
    """Bytes of its artifact, or of the ``.keras`` file where that is run."""
    p50_s: float | None
    """Warm latency, model only, seconds."""
    load_s: float | None
    """Import, load and first inference, seconds."""
    max_abs: float | None
    """Largest difference from the reference, in output units."""
    flips: int | None
    """Inputs decided otherwise, ties aside; None where no decisions were compared."""
    ties: int
    widest_margin_lost: float
    """The reference's margin on the most clear-cut input that flipped, output units; 0 where none did."""
    least_margin_left: float | None
    """The smallest share of the reference's margin that is left on any input run alone: 1 is all of it, below 0 the decision went over."""
    least_margin_input: str
    """That input."""


@dataclass(frozen=True)
class VariantRecord:
    """A precision variant beside its float row."""

    target: str
    variant: str
    title: str
    status: CellStatus
    costs: VariantCosts
    beside: str
    """The target that runs the float artifact on the same runtime; empty where the contract has none."""
    float_costs: VariantCosts | None


@dataclass(frozen=True)
class Candidate:
    """The file under validation."""

    path: str
    sha256: str
    size: int
    keras_version: str = ""
    model_class: str = ""
    model_name: str = ""
    parameters: int = 0
    layers: int = 0
    signature: Signature | None = None


@dataclass(frozen=True)
class RuleRow:
    """What one rule makes of one golden input."""

    rule: str
    """Its name."""
    decision: str
    margin: float
    expected: str | None
    label: str | None
    approved: bool | None
    """Whether the decision is the approved one; None where none was approved."""
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class GoldenRow:
    """One golden input as reports show it."""

    id: str
    file: str
    """Path as the manifest gives it; empty for arrays and synthetic inputs."""
    slice: str
    chosen: str
    label: str | None
    expected: str | None
    decision: str
    """The reference's, by the first rule."""
    margin: float
    scores: tuple[float, ...] = ()
    approved: bool | None = None
    """Whether every decision that has an approved one is it; None where none has."""
    rules: tuple[RuleRow, ...] = ()
    """Where rules have names: what each makes of the input, the first one too."""
    drift: float = math.nan
    """Largest difference of a required target from the reference on this input, in the first rule's output and its units; NaN where nothing
    was compared."""
    drift_target: str = ""
    """Which target that was."""


@dataclass(frozen=True)
class GoldenSummary:
    """What the inputs are and what they can prove."""

    kind: str
    """``raw``, ``arrays`` (already preprocessed), ``synthetic``, or ``none`` where the run was refused before it had any."""
    path: str
    manifest_sha256: str
    count: int
    sampled: int
    mined: int
    slices: dict[str, int]
    classes: dict[str, int]
    """Reference decisions and how often each was seen; ``rule: decision`` where rules have names. Numbers aren't counted."""
    flip_rate_bound: float | None
    """The flip rate that zero flips in the sampled inputs can exclude at ``confidence``: ``1 - (1 - confidence) ** (1 / n)``."""
    confidence: float
    rows: tuple[GoldenRow, ...] = ()


@dataclass(frozen=True)
class DecisionRecord:
    """The decision rule in force."""

    rule: str
    output: str
    detail: str
    inferred: bool
    name: str = ""
    """As in ``[decisions.NAME]``; empty for the only one."""
    files: dict[str, str] = field(default_factory=dict)
    """The user's own code that decides: path, relative to the contract's folder where it lies below, to SHA-256."""


@dataclass(frozen=True)
class StageRecord:
    """One worker process."""

    name: str
    outcome: str
    """``ok``, ``failed``, ``crashed``, ``timed out``, ``out of memory``, ``not started``, ``reused`` (an earlier attempt's or run's answer)."""
    begin_s: float
    end_s: float
    """Since the run began."""
    peak_rss_bytes: int
    log: str
    """Relative to the run folder."""
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds per step, where the stage tells."""


@dataclass(frozen=True)
class Environment:
    """Where the run took place."""

    kpipe: str
    python: str
    platform: str
    cpu: str
    cpu_features: tuple[str, ...]
    cores: int
    memory_bytes: int
    versions: dict[str, str]
    load_average: float
    """Of the last minute when the run began."""
    governor: str = ""
    """How the system sets the processor's frequency; empty where it doesn't say."""
    processor_limit: float | None = None
    """Processors' worth of time that a control group allows; None for no limit."""
    memory_limit: int | None = None
    """Bytes that a control group allows; None for no limit."""


class WaiverState(enum.StrEnum):
    """What became of a waiver."""

    USED = "used"
    EXPIRED = "expired"
    UNUSED = "unused"
    """Nothing of the run is what it speaks of."""
    REFUSED = "does not cover"
    """The run has what it speaks of, with another artifact or a value outside of what it allows."""


@dataclass(frozen=True)
class WaiverRecord:
    """One waiver, and what became of it."""

    code: str
    target: str
    where: str
    """Golden input, output, limit or model input."""
    artifact: str
    """SHA-256."""
    observed: float
    """The value that was looked at when it was written."""
    allowed: tuple[float, float]
    owner: str
    reason: str
    expires: str
    """ISO 8601; the last day."""
    state: WaiverState
    found: float | None
    """The value in this run; None where there is none."""


@dataclass(frozen=True)
class ContractRef:
    """Which contract was used."""

    source: str
    """Path as given; ``inferred`` where there was none."""
    sha256: str


@dataclass(frozen=True)
class RunRecord:
    """The whole of one validation."""

    schema_version: int
    run_id: str
    started: str
    """ISO 8601, UTC."""
    wall_s: float
    verdict: Verdict
    headline: str
    """One sentence that says why."""
    caveats: tuple[str, ...]
    """What this verdict does not prove; shown first in every report."""
    candidate: Candidate
    contract: ContractRef
    golden: GoldenSummary
    decision: DecisionRecord | None
    """The first one."""
    reference: TargetRecord | None
    targets: tuple[TargetRecord, ...]
    findings: tuple[Finding, ...]
    flips: tuple[Flip, ...]
    stages: tuple[StageRecord, ...]
    environment: Environment
    truth: TruthRecord | None = None
    """The float64 run, where tolerances are derived from it."""
    edge: Edge | None = None
    """The first border at which the run itself broke, whatever its targets did: the archive, the golden set, the reference."""
    decisions: tuple[DecisionRecord, ...] = ()
    """Every decision rule in force."""
    variants: tuple[VariantRecord, ...] = ()
    """Every precision variant beside its float row: what each saving costs."""
    calibration: CalibrationRecord | None = None
    """What variants were calibrated on, where the contract names a set."""
    profile: str = "default"
    """What was asked of every target: ``default`` or ``signoff``."""
    baseline: Comparison | None = None
    """Held against an earlier model, where ``--baseline`` named one."""
    waivers: tuple[WaiverRecord, ...] = ()
    """Every waiver that was given."""
    waivers_sha256: str = ""
    """Of their file; empty where there was none."""
    judged_on: str = ""
    """The day that waivers were held against, ISO 8601, UTC; empty in records from before there were any."""
