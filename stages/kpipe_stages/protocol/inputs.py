"""From raw golden files to tensors, and what is decided on answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
