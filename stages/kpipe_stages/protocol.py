"""What the orchestrator and a worker say to each other: ``job.json`` in, ``result.json`` out, events and commands in between.

Standard library only. Every document carries `PROTOCOL`; an unknown field is refused (`kpipe_stages.codec`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

PROTOCOL = 1


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of one input or output."""

    name: str
    """The model's own name for it."""
    shape: tuple[int | None, ...] | None
    """None where an axis is free; the whole is None where even the rank isn't known."""
    dtype: str
    """A numpy dtype name, ``bfloat16`` or ``string``."""


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model or of an artifact, in order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_structure: str = field(default="", compare=False)
    """How the model itself takes its inputs, as JSON with names for leaves: ``{"pair": ["left", "right"]}``. Empty where nobody said."""
    output_structure: str = field(default="", compare=False)
    """How it gives its outputs, likewise."""


@dataclass(frozen=True)
class Observation:
    """A fact that a worker found worth a finding. The worker names it; severity and verdict are the orchestrator's."""

    code: str
    """Finding code, ``KP201``."""
    cause: str
    """One sentence: what happened, with values."""
    remedy: str
    """One sentence: what to do."""
    place: str = ""
    """Layer, archive member, input, output or op."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Numbers and names, plain JSON values."""


class StageError(Exception):
    """A stage can't go on for a reason that it can name."""

    def __init__(self, observation: Observation) -> None:
        super().__init__(observation.cause)
        self.observation = observation


class Status(enum.StrEnum):
    """How a stage ended, by its own account."""

    OK = "ok"
    FAILED = "failed"


@dataclass(frozen=True)
class Failure:
    """An exception that ended a stage."""

    phase: str
    """``import``, ``load``, ``run``, ``time`` or a stage's own step."""
    type: str
    message: str
    traceback: str


@dataclass(frozen=True)
class Identity:
    """Who did the work: read from the running process, never from the job."""

    stage: str
    pid: int
    python: str
    versions: dict[str, str]
    """Distribution name to version, of what the stage imported."""
    backend: str | None
    """``keras.backend.backend()`` where Keras is loaded."""
    threads: int
    cpu: str
    cpu_features: tuple[str, ...]
    """The ones that change numerics: avx2, avx512f, avx512_bf16, amx_bf16, ..."""
    inherited: dict[str, float] = field(default_factory=dict)
    """Module to the seconds of its import, of what this process got by being forked (`kpipe_stages.fork_server`)."""


@dataclass(frozen=True)
class Job:
    """One order. ``params`` is the stage's own dataclass, encoded."""

    protocol: int
    stage: str
    attempt: str
    """A fresh token per attempt; the result repeats it, so an old result can't be taken for a new one."""
    folder: str
    """Absolute; everything the stage writes lies below it."""
    params: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """One answer: ``result.json`` (and ``timing.json`` for the timed phase)."""

    protocol: int
    stage: str
    attempt: str
    status: Status
    identity: Identity | None
    observations: tuple[Observation, ...]
    failure: Failure | None
    data: dict[str, Any]
    """The stage's own result dataclass, encoded; empty after a failure."""
    seconds: float
    peak_rss_bytes: int


# ---------------------------------------------------------------- parts of jobs


@dataclass(frozen=True)
class Trust:
    """Which code a model may bring: nothing but Keras unless the contract says so."""

    custom_objects: tuple[str, ...] = ()
    """Absolute paths of Python files that register custom objects."""
    allow_modules: tuple[str, ...] = ()
    """Installed packages whose registered objects may be loaded."""
    allow_lambda: tuple[str, ...] = ()
    """Names of the Lambda layers that the contract allows."""


@dataclass(frozen=True)
class InputSpec:
    """How a raw file becomes one input tensor (`kpipe_stages.preprocess`)."""

    name: str
    """Model input name."""
    decode: str
    """One of `kpipe_stages.preprocessing.decoders.DECODER_KINDS`, ``array`` (an already preprocessed row of an .npz), ``module:function`` of
    ``files``, or ``tensors`` (a row, by golden id, of the one .npz in ``files``: the prepare stage's only)."""
    steps: tuple[dict[str, Any], ...] = ()
    dtype: str | None = None
    """Cast at the end; None keeps what the steps give."""
    files: dict[str, str] = field(default_factory=dict)
    """The user's code or tensors, or what decoder and steps read beside the raw file: absolute path to the SHA-256 that the file must have;
    empty for any (training)."""
    read: dict[str, Any] = field(default_factory=dict)
    """The decoder's options (`kpipe_stages.preprocessing.decoders`)."""


@dataclass(frozen=True)
class GoldenItem:
    """One golden input as a worker sees it."""

    id: str
    files: dict[str, str]
    """Model input name to absolute path."""
    sha256: dict[str, str]


@dataclass(frozen=True)
class DecisionSpec:
    """A decision rule on one output (`kpipe_stages.decisions`)."""

    rule: str
    """One of `kpipe_stages.decisions.RULES`, or ``module:function`` of ``files``."""
    output: str
    threshold: float | tuple[float, ...] = 0.5
    """One for all classes, or one for each."""
    k: int = 1
    """``top_k``, ``ranking``: so many of the best; 0 ranks all."""
    labels: tuple[str, ...] = ()
    ordered: bool = True
    """``top_k``: the order of the best counts too."""
    edges: tuple[float, ...] = ()
    """``bins``: rising."""
    atol: float = 0.0
    """``tolerance``: in output units."""
    rtol: float = 0.0
    name: str = ""
    """Of ``[decisions.NAME]``; empty for the only rule."""
    boxes: str = ""
    """``detection``: the output of boxes; ``output`` is the one of scores."""
    classes: str = ""
    """``detection``: the output of classes; empty where scores have a column a class."""
    box_format: str = "xyxy"
    iou: float = 0.5
    """``detection``: boxes that overlap by as much are the same."""
    nms: float | None = None
    """``detection``: of boxes of one class that overlap by more, the best is kept; None keeps all."""
    reads: tuple[str, ...] = ()
    """``module:function``: every output of the model, all of which it is given."""
    files: dict[str, str] = field(default_factory=dict)
    """``module:function``: absolute path to the SHA-256 that the file must have; only for the stage that runs it."""


# ---------------------------------------------------------------- inspect


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds that hold before anything is read."""

    max_members: int = 100_000
    max_config_bytes: int = 64 * 2**20
    max_total_bytes: int = 64 * 2**30
    max_ratio: float = 200.0
    """Declared inflated size over stored size, for members above 1 MiB."""
    max_json_depth: int = 200


@dataclass(frozen=True)
class InspectJob:
    """Read a ``.keras`` archive without running any of it."""

    model: str
    trust: Trust
    limits: ArchiveLimits = ArchiveLimits()


@dataclass(frozen=True)
class LayerRow:
    """A layer as ``config.json`` declares it."""

    name: str
    class_name: str
    module: str
    registered_name: str | None
    dtype: str
    """Dtype or policy name; empty where none is declared."""
    parameters: int | None
    """Numbers stored for it; None where the weights file can't tell."""
    forced_training: bool
    """A call in the config passes ``training=True``."""


@dataclass(frozen=True)
class InspectResult:
    """What lies in the archive. Problems are observations of the result."""

    sha256: str
    size: int
    keras_version: str
    saved_at: str
    model_class: str
    model_name: str
    layers: tuple[LayerRow, ...]
    parameters: int
    weight_bytes: int
    """Bytes of the model's own weights (no optimizer state)."""
    signature: Signature | None
    """Inputs with dtypes as declared; outputs have names only where the config has them. None for a subclassed model."""
    members: dict[str, int]
    has_optimizer: bool
    activations: dict[str, str] = field(default_factory=dict)
    """Output name to the activation of the layer that makes it, where the config tells."""
    integer_ranges: dict[str, int] = field(default_factory=dict)
    """Input name to the number of ids that the smallest Embedding behind it knows."""


# ---------------------------------------------------------------- prepare


@dataclass(frozen=True)
class PrepareJob:
    """Decode and preprocess every golden input once."""

    items: tuple[GoldenItem, ...]
    inputs: tuple[InputSpec, ...]
    max_pixels: int = 64_000_000
    max_bytes: int = 512 * 2**20
    what: str = "golden input"
    """What an item is called in messages."""


@dataclass(frozen=True)
class PrepareResult:
    """Tensors lie in ``<folder>/tensors/<position of the input>`` (`kpipe_stages.rows`)."""

    names: tuple[str, ...]
    rows: int
    dtypes: dict[str, str]
    shapes: dict[str, tuple[tuple[int, ...], ...]]
    """The distinct shapes of each input's rows, without a batch axis."""
    nonfinite_rows: dict[str, tuple[int, ...]]
    bad_rows: tuple[int, ...] = ()
    """Rows that could not be decoded (each an observation); their tensors are absent."""


# ---------------------------------------------------------------- fingerprint


@dataclass(frozen=True)
class FingerprintJob:
    """Say what a target's own preprocessing does otherwise than the reference's, from both's tensors and the raw files."""

    items: tuple[GoldenItem, ...]
    inputs: tuple[InputSpec, ...]
    """The reference's: the search starts from these steps."""
    reference: str
    """The reference's ``tensors`` folder."""
    reference_names: tuple[str, ...]
    """Input names in the order of that folder."""
    target: str
    """The target's ``tensors`` folder."""
    target_names: tuple[str, ...]
    reference_sha256: str = ""
    """Digest of the folder: an answer about other tensors is never taken for this one's. Empty where it isn't known."""
    target_sha256: str = ""
    max_inputs: int = 32
    """Of the golden inputs on which the two differ, how many are used."""
    max_equal: int = 8
    """Of those on which they agree, how many a suspect must leave alone."""
    max_seconds: float = 60.0
    """For one model input."""
    rtol: float = 1e-4
    atol: float = 1e-5
    """Two tensors are equal where ``|a - b| <= atol * scale + rtol * |b|`` everywhere, b the target's and scale its largest magnitude."""


@dataclass(frozen=True)
class Fingerprint:
    """What the search found for one model input."""

    input: str
    differing: int
    """Golden inputs on which the tensors differ."""
    used: int
    """How many of them were used."""
    suspect: str
    """What the target does, in words; empty where nothing comes near."""
    instead: str
    """What the reference does there, in words."""
    steps: str
    """The steps that do the same, as a contract writes them; empty where steps can't."""
    also: tuple[str, ...]
    """Other suspects that these inputs can't tell from it."""
    matched: bool
    """Equal on every input that was used; otherwise the suspect is only the closest."""
    explained: int
    """Of the used ones, how many the suspect makes equal."""
    residual: float
    """The largest absolute difference that is left on any used input."""
    before: float
    """The same without any suspect."""
    tried: int
    """Suspects and pairs that were tried."""
    complete: bool
    """False where time ran out before all of them were."""
    note: str = ""
    """What narrowed the search."""


@dataclass(frozen=True)
class FingerprintResult:
    """One for each model input whose tensors differ."""

    found: tuple[Fingerprint, ...]


# ---------------------------------------------------------------- export


@dataclass(frozen=True)
class ExportJob:
    """Reload on TensorFlow, trace once with ``training=False``, write every format asked for from that trace."""

    model: str
    trust: Trust
    formats: tuple[str, ...]
    """Of ``saved_model``, ``litert``, ``onnx`` (OpenVINO IR is converted from the SavedModel in a process of its own)."""
    out: str
    """Folder for the artifacts."""
    allow_select_tf: bool = False
    repairs: bool = True
    sha256: str = ""
    """Digest that ``model`` must have when it is loaded; empty for none."""


@dataclass(frozen=True)
class Binding:
    """Model names to an artifact's names, proved by the export stage."""

    inputs: dict[str, str]
    outputs: dict[str, str]


@dataclass(frozen=True)
class OpUse:
    """One op of an artifact, in one version."""

    op: str
    version: str
    """The file's own: a LiteRT op's number, the ONNX opset that last changed the op, OpenVINO's opset; empty for a TensorFlow op, which has none."""
    count: int
    dtypes: tuple[str, ...]
    """Of what it gives, as far as the file declares it."""
    layers: tuple[str, ...] = ()
    """The first few Keras layers that it comes from, as far as kpipe's own trace tells."""


@dataclass(frozen=True)
class Artifact:
    """One deployable thing, opened again after it was written."""

    format: str
    """``saved_model``, ``litert``, ``onnx`` or ``openvino_ir``."""
    path: str
    sha256: str
    size: int
    signature: Signature
    """As the artifact itself declares it: its names, its order."""
    binding: Binding
    ops: dict[str, int]
    """Op or operator name to count, sub-graphs included."""
    foreign_ops: tuple[str, ...]
    """Ops outside the target runtime's own set (Select TF, custom, unknown domain)."""
    parameters_bytes: int
    """Bytes of constants found inside."""
    repairs: tuple[str, ...] = ()
    """One sentence each."""
    versions: dict[str, str] = field(default_factory=dict)
    """Converter versions."""
    batch: int | None = None
    """The fixed batch size, None where the batch axis is free."""
    companions: tuple[str, ...] = ()
    """Files that belong to ``path`` and are in ``sha256`` and ``size`` too: the IR's ``.bin``, ONNX external data. Absolute."""
    op_layers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Op name to the first few layers that it comes from, as far as kpipe's own trace tells."""
    variant: str = ""
    """The precision variant that was made of the float artifact; empty for that one itself."""
    source: str = ""
    """LiteRT: the SavedModel that it was converted from, where that isn't the one of the run (a trace at batch 1)."""
    inventory: tuple[OpUse, ...] = ()
    """``ops`` with version, dtypes and layers."""
    opset: int = 0
    """ONNX only: the opset of ai.onnx that the file declares; 0 elsewhere."""


@dataclass(frozen=True)
class ExportResult:
    """What came of each format; a format that failed has an observation naming it and no entry here."""

    signature: Signature
    """The model's own, as reloaded on TensorFlow."""
    artifacts: tuple[Artifact, ...]
    seconds: dict[str, float]
    """Per step: import, load, trace, saved_model, litert, onnx."""


@dataclass(frozen=True)
class ExportOpenvinoJob:
    """Convert a SavedModel to OpenVINO IR."""

    saved_model: str
    signature: Signature
    saved_model_binding: Binding
    out: str
    parameters: int = 0
    """Numbers in the model, to compare the artifact's size with; 0 for unknown."""
    repairs: tuple[str, ...] = ()
    """The SavedModel's: they are in the IR too."""
    op_layers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The SavedModel's."""


@dataclass(frozen=True)
class QuantizeJob:
    """Make a precision variant of a float artifact."""

    variant: str
    """A name of `kpipe_stages.catalog.VARIANTS` for the source's format."""
    source: Artifact
    """The float artifact; for Keras' own variants the candidate, as format ``keras``."""
    saved_model: Artifact | None
    """LiteRT is converted from it; None for other formats."""
    signature: Signature
    """The model's own."""
    out: str
    """Folder for the artifacts."""
    trust: Trust
    tensors: str = ""
    """A prepare stage's ``tensors`` folder with the calibration set; empty where none is needed."""
    names: tuple[str, ...] = ()
    """Model input names in the order of that folder."""
    rows: int = 0
    parameters: int = 0
    """Numbers in the model, to compare the artifact's size with; 0 for unknown."""
    repairs: bool = True
    """Ops that the variant has no integer form of may stay in float32."""


@dataclass(frozen=True)
class OpenArtifactJob:
    """Open a file that was handed in (``artifact = "path"``): inventory and signature, nothing exported."""

    format: str
    path: str
    signature: Signature
    parameters: int = 0
    """Numbers in the model, to compare the artifact's size with; 0 for unknown."""


@dataclass(frozen=True)
class ArtifactResult:
    """The answer to `ExportOpenvinoJob`, `QuantizeJob` and `OpenArtifactJob`."""

    artifact: Artifact
    seconds: dict[str, float]


# ---------------------------------------------------------------- run a target


@dataclass(frozen=True)
class TimingPlan:
    """How much to time. Nothing is timed when ``calls`` is 0."""

    calls: int = 200
    """Single-stream model-only calls after the warm-up."""
    end_to_end_calls: int = 200
    """Calls from the raw file to the decision; 0 where no raw file is there."""
    max_warmup: int = 200
    max_seconds: float = 20.0


@dataclass(frozen=True)
class BatchPadding:
    """How rows of unequal length on their first axis become one batch: filled up to the longest among them."""

    at: str
    """``start`` or ``end``."""
    value: float | int = 0


@dataclass(frozen=True)
class AxisSize:
    """The size of one axis of one input."""

    input: str
    axis: int
    """Of the model's own shape: 0 is the batch."""
    size: int


@dataclass(frozen=True)
class ShapeCase:
    """One shape of the inputs to try."""

    name: str
    """For people: ``batch 1``, ``time 4096``, ``empty batch``."""
    batch: int
    """Rows of the call; 0 for the empty batch."""
    axes: tuple[AxisSize, ...] = ()
    """Axes whose size the case sets; the others keep the golden inputs' own."""
    owed: bool = True
    """The model or the contract promises it; False for an empty batch that the contract doesn't speak of."""


@dataclass(frozen=True)
class RunJob:
    """Run every golden input on one runtime: alone, repeated, in batches; then, when told, the timed phase."""

    runtime: str
    """A catalog row."""
    artifact: str
    """What the runtime loads: the ``.keras`` file, a SavedModel version folder, a ``.tflite``, ``.onnx`` or ``.xml`` file."""
    trust: Trust
    signature: Signature | None
    """The model's own; None for a Keras worker, which states it."""
    binding: Binding | None
    """Names in the artifact; None for a Keras worker."""
    tensors: str
    """The prepare stage's ``tensors`` folder."""
    names: tuple[str, ...]
    """Model input names in the order of that folder."""
    rows: int
    batches: tuple[int, ...]
    """Sizes to run besides alone."""
    fixed_batch: int | None = None
    """The artifact's only batch size: 1 runs one by one and offers no batch mode."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The runtime's own settings."""
    chosen: dict[str, Any] = field(default_factory=dict)
    """Settings that kpipe added because the contract states none: float32 where that can be asked for."""
    probe_default: bool = False
    """Also run alone without ``chosen``: what this machine would do by itself."""
    probe_training_unset: bool = False
    """Keras reference only: also call the model twice with ``training`` unset."""
    repeat: int = 1
    """How many extra times the alone pass is run, bit for bit compared."""
    arranged: tuple[int, ...] = ()
    """Sizes of batches in which every input is also run at other positions, and beside others (`kpipe_stages.arrangement`); empty for none."""
    threads: int = 0
    """0: as many as the machine has."""
    items: tuple[GoldenItem, ...] = ()
    """Raw files for the end-to-end calls; empty where there are none."""
    inputs: tuple[InputSpec, ...] = ()
    decisions: tuple[DecisionSpec, ...] = ()
    timing: TimingPlan = TimingPlan()
    load_only: bool = False
    """Import, load, first inference, and nothing else (a quiet cold load)."""
    lean_import: bool = True
    """Import Keras without the libraries that it only takes along (`kpipe_stages.lean`); False where a limit is held against the load or the
    memory, and where the interpreter is the target's own: there all that is installed counts."""
    cache: str = ""
    """A folder for compile caches that kpipe owns (JAX)."""
    sha256: str = ""
    """Digest that ``artifact`` must have when it is opened; empty for none."""
    companions: tuple[str, ...] = ()
    """The artifact's companions, which are in the digest."""
    op_layers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The artifact's."""
    padding: dict[str, BatchPadding] = field(default_factory=dict)
    """Input to how its rows are padded in a batch; rows of other inputs share a batch only where their shapes are equal."""
    shapes: tuple[ShapeCase, ...] = ()
    """Shapes to try once all else is done (`kpipe_stages.shapes`); empty for none."""
    common: str = ""
    """The reference's ``tensors`` folder, which shapes and the permutation probe are made of; empty for ``tensors`` itself."""
    common_names: tuple[str, ...] = ()
    """Model input names in the order of that folder."""
    probe_binding: bool = False
    """Run the permutation probe (`kpipe_stages.permuting`), where inputs or outputs of one shape and dtype could be exchanged."""
    exchange: bool = False
    """Reference only: also answer the probe with its inputs exchanged, pair by pair."""
    query_device: str = ""
    """OpenVINO only: ask which ops this device doesn't take; empty for none."""


@dataclass(frozen=True)
class LoadTimes:
    """Seconds in a fresh process."""

    import_s: float
    """With the seconds of `Identity.inherited`."""
    load_s: float
    first_s: float
    lean: bool
    """Keras was imported without what it only takes along (`kpipe_stages.lean`): less than its import costs where that is installed."""


@dataclass(frozen=True)
class ProbeResult:
    """Seeded rows in which every input that could be another has values of its own, answered one by one.

    Outputs lie in ``<folder>/outputs/<mode>`` as those of any mode, but a row is a row of the probe.
    """

    rows: int
    inputs_sha256: str
    """Digest of what was fed: two answers are only compared where it is the same."""
    groups: tuple[tuple[str, ...], ...]
    """Inputs of one shape and dtype: those that could be exchanged."""
    same: tuple[tuple[str, str], ...]
    """Pairs that could not be given other values than each other: the golden inputs hold nothing but one."""
    left: int
    """Pairs beyond the bound, which were not tried."""
    digests: dict[str, str]
    """Mode to the digest of its outputs: ``probe``, and for the reference ``exchanged_<i>_<j>``, positions in the model's inputs."""
    failed: dict[str, str]
    """Mode to the runtime's message."""


@dataclass(frozen=True)
class RunResult:
    """Outputs lie in ``<folder>/outputs/<mode>/<position of the output>`` (`kpipe_stages.rows`)."""

    signature: Signature
    """The model's own names, in the model's order."""
    modes: tuple[str, ...]
    """``alone``, ``batch_3``, ..., ``position_1_of_3``, ``shuffled_3`` and ``machine_default`` where they were asked for."""
    digests: dict[str, str]
    """Mode to the SHA-256 of its folder of outputs."""
    not_offered: tuple[str, ...]
    """Modes outside the artifact's declared signature."""
    unbatched: dict[str, tuple[str, ...]]
    """Mode to the outputs that have no batch axis: each row holds the whole output."""
    failed: dict[str, str]
    """Mode to the runtime's message: the mode was tried and the runtime refused."""
    lonely_rows: dict[str, tuple[int, ...]]
    """For every ``batch_<k>``, position and shuffled mode of ``modes``: rows whose answer came from a batch of nothing but copies of that row's own tensors (equal bytes
    in every input). Answers that are swapped or mixed between rows can't show there."""
    fixed_batch: int | None
    """The only number of rows that a call could have, by the artifact or by the model itself; None where it was free."""
    repeats_equal: bool | None
    """Every repeated pass gave the same bits; None where none was asked for."""
    repeat_difference: float
    """The largest absolute difference between repeated passes."""
    training_unset_repeats: bool | None
    """Two calls with ``training`` unset gave the same bits."""
    load: LoadTimes
    effective_precision: str
    """``float32``, ``bfloat16``, ... as read back from the runtime, or ``float32 (declared)`` where it can't be read."""
    devices: tuple[str, ...]
    facts: dict[str, Any]
    """Whatever else the runtime says of itself: execution provider, delegate, effective settings."""
    decoded_here: bool | None
    """Whether this process made its own tensors of the raw files: False where its interpreter can't decode them, None where the job has no raw
    files or asks for nothing but a load."""
    tensor_mismatches: tuple[str, ...]
    """Golden inputs whose tensor in this process differs from the prepared one, or whose raw file gives none here."""
    repeats: int = 1
    """How many extra times every input was asked for, of which `repeats_equal` speaks; means nothing where that is None."""
    repeat_differences: dict[str, float] = field(default_factory=dict)
    """Output to the largest absolute difference between its repeated passes; empty where none was asked for, or not kept."""
    padded_rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Mode to the rows whose answer came from a batch in which they were padded."""
    probe: ProbeResult | None = None
    """The permutation probe; None where it wasn't asked for, or nothing can be exchanged."""
    takes: dict[str, str] = field(default_factory=dict)
    """Input name to the dtype that the runtime computes with, where that isn't the model's own."""


@dataclass(frozen=True)
class Latency:
    """A latency sample. Seconds, every call kept."""

    seconds: tuple[float, ...]
    warmup_calls: int
    stable: bool
    """The warm-up rule was met before its bound."""
    worst_difference: float
    """Largest absolute difference between a timed call's output and the same input's alone output."""
    worst_relative: float
    """The same over the largest magnitude of that output on that input; infinite where an output that isn't floating point differs at all."""
    decision_changes: int
    """Timed calls one of whose decisions isn't the one that the same input's alone output gives; 0 where nothing is decided: model only, or no
    rule."""
    compared: int
    """Timed outputs compared; equal to the number of calls, or the timing is void."""


@dataclass(frozen=True)
class TimingResult:
    """``timing.json``."""

    model_only: Latency | None
    """None where nothing was to be timed."""
    end_to_end: Latency | None
    """None where nothing was to be timed, or the raw files give no tensors here that the artifact takes."""


# ---------------------------------------------------------------- shapes


@dataclass(frozen=True)
class ShapeOutcome:
    """What became of one case. Outputs lie in ``<folder>/shapes/<position of the case>/<position of the output>.npy``."""

    case: ShapeCase
    offered: bool
    """False where the artifact or the model declares another size: it wasn't tried."""
    refused: str
    """The runtime's message; empty where it answered."""
    source: str
    """What was fed: ``golden`` inputs, or such ``cut`` or ``tiled`` to the size."""
    first_s: float = 0.0
    """The first call at this shape."""
    again_s: float = 0.0
    """The fastest of the following ones."""
    known: bool = False
    """The session had run this shape before, so its first call says nothing."""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Output name to the shape it came in, the batch axis included."""
    inputs_sha256: str = ""
    """Digest of what was fed."""
    digest: str = ""
    """Of the outputs; empty where there are none."""


@dataclass(frozen=True)
class ShapesResult:
    """``shapes.json``, written anew after each case: what is there when a process dies is what it got done."""

    done: tuple[ShapeOutcome, ...]
    trying: str
    """The case under way; empty at the end."""


# ---------------------------------------------------------------- decide


@dataclass(frozen=True)
class SavedAnswers:
    """One worker's outputs that have to be decided."""

    stage: str
    """``reference``, ``run.litert``, ..."""
    folder: str
    """Its outputs lie in ``<folder>/outputs/<mode>/<position of the output>``."""
    outputs: tuple[str, ...]
    """Output names in that order."""
    modes: tuple[str, ...]
    digests: dict[str, str]
    """Mode to the digest that its folder must have."""


@dataclass(frozen=True)
class DecideJob:
    """Take decisions by the user's own code."""

    rules: tuple[DecisionSpec, ...]
    """Each ``module:function``, with its files."""
    answers: tuple[SavedAnswers, ...]
    ids: tuple[str, ...]
    """Golden ids, a row each."""


@dataclass(frozen=True)
class DecidedMode:
    """What one rule made of one worker's answers in one way of running: a decision for every input, or none and why."""

    rule: str
    """Its name; empty for the only one."""
    function: str
    """``module:function``."""
    stage: str
    mode: str
    outputs_sha256: str
    """Digest of the outputs that were decided on."""
    file: str
    """Below ``<folder>/decisions``: a list of text and margin (written as a text, ``inf`` too), an input each. Empty where there are none."""
    sha256: str
    """Digest of that file."""
    failure: str
    """Why there are none; empty where there are."""


@dataclass(frozen=True)
class DecideResult:
    """All of them."""

    decided: tuple[DecidedMode, ...]


# ---------------------------------------------------------------- train


@dataclass(frozen=True)
class Cadence:
    """How often a training writes a checkpoint."""

    kind: str = "auto"
    """``auto``: as often as costs a hundredth of the time; ``steps``, ``epochs``: every ``count``; ``off``."""
    count: int = 0


@dataclass(frozen=True)
class TrainJob:
    """Run a recipe."""

    recipe: str
    """Folder or file of the recipe."""
    out: str
    """The ``.keras`` file to write."""
    seed: int
    backend: str
    epochs: int | None = None
    checkpoint: Cadence = Cadence()
    """Checkpoints lie in ``<out>.checkpoints`` until the model is written."""
    resume: bool = False
    """Go on from the newest one that is whole."""
    calibration: int = 0
    """Training inputs to leave beside the model, for precision variants to be calibrated on; 0 for none."""


@dataclass(frozen=True)
class Epoch:
    """Loss and metrics of one epoch."""

    epoch: int
    metrics: dict[str, float]
    seconds: float
    """With those before an interruption."""


@dataclass(frozen=True)
class Preserved:
    """One row of the table of what a checkpoint preserves."""

    what: str
    preserved: str
    """``yes``, ``no``, or ``by digest``: not kept, and refused where it changed."""
    detail: str


@dataclass(frozen=True)
class Resumption:
    """Where a training was taken up again."""

    checkpoint: str
    """Name of its folder: the number of steps."""
    epoch: int
    """Epochs that were finished."""
    batch: int
    """Batches of the next one that were done."""
    written: str
    """When the checkpoint was: ISO 8601, UTC."""
    damaged: tuple[str, ...]
    """Newer checkpoints that could not be used, and why."""
    notes: tuple[str, ...]
    """Why what comes of it isn't bit for bit what an uninterrupted run gives; empty where it is."""


@dataclass(frozen=True)
class CheckpointCost:
    """What checkpoints cost."""

    written: int = 0
    seconds: float = 0.0
    replay_s: float = 0.0
    """Taking the first steps twice, to see that a checkpoint holds all that decides."""
    bytes: int = 0
    """Of the last one."""


@dataclass(frozen=True)
class TrainResult:
    """What the run was. Also beside the model as ``<model>.train.json``."""

    model_sha256: str
    seed: int
    epochs: tuple[Epoch, ...]
    compile_s: float
    steps_s: float
    save_s: float
    total_s: float
    """Of the last process, where the training was resumed."""
    checkpoints: CheckpointCost = CheckpointCost()
    no_checkpoints: str = ""
    """Why there were none; empty where there were, or none were due."""
    notes: tuple[str, ...] = ()
    """Why a resumed run isn't, or wouldn't be, bit for bit an uninterrupted one; empty where nothing is known against it."""
    resumed: tuple[Resumption, ...] = ()
    preserved: tuple[Preserved, ...] = ()
    calibration: str = ""
    """The ``.npz`` of training inputs beside the model; empty where none was asked for."""
    calibration_sha256: str = ""
