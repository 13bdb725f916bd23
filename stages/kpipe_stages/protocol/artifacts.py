"""Exports, conversions, precision variants, and artifacts that are given."""

from __future__ import annotations

from dataclasses import dataclass, field

from kpipe_stages.protocol.messages import Signature, Trust


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
    calibrates: bool = False
    """A LiteRT variant is to be calibrated: keep what that needs besides."""


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
    """The first few Keras layers that it comes from, by the kind of TensorFlow op that the converter makes it of; empty where that can't be told."""


@dataclass(frozen=True)
class Twin:
    """A SavedModel of the same model that a converter can take where it can't take the model's own."""

    path: str
    repairs: tuple[str, ...]
    """All that were made in it, one sentence each."""


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
    unrolled: Twin | None = None
    """LiteRT: what variants are calibrated on where the file holds loops of recurrent layers, and one is asked for."""
    inventory: tuple[OpUse, ...] = ()
    """``ops`` with version, dtypes and layers."""
    opset: int = 0
    """ONNX only: the opset of ai.onnx that the file declares; 0 elsewhere."""
    reused: str = ""
    """The entry of kpipe's cache that it was taken from; empty where this run made it."""


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
