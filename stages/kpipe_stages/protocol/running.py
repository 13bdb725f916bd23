"""The golden inputs on one runtime, and the shapes that the contract promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kpipe_stages.protocol.artifacts import Binding
from kpipe_stages.protocol.inputs import DecisionSpec, GoldenItem, InputSpec
from kpipe_stages.protocol.messages import Signature, Trust
from kpipe_stages.protocol.timing import LoadTimes, TimingPlan


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
    affinity: tuple[int, ...] = ()
    """Processors that the target may use, by their numbers; empty for all that this process has."""
    memory_mib: int = 0
    """Private memory that the process may ask the system for; 0 for as much as there is."""
    items: tuple[GoldenItem, ...] = ()
    """Raw files for the end-to-end calls; empty where there are none."""
    inputs: tuple[InputSpec, ...] = ()
    decisions: tuple[DecisionSpec, ...] = ()
    timing: TimingPlan = field(default_factory=TimingPlan)
    load_only: bool = False
    """Import, load, first inferences, and nothing else (a quiet cold load)."""
    drop_pages: bool = False
    """Drop the artifact's pages from the system's file cache before it is loaded."""
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
