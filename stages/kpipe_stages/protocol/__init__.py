"""What the orchestrator and a worker say to each other: ``job.json`` in, ``result.json`` out, events and commands in between.

Standard library only. Every document carries `PROTOCOL`; an unknown field is refused (`kpipe_stages.codec`). One module for each kind of
work; `kpipe_stages.protocol.messages` is what they share.
"""

from kpipe_stages.protocol.artifacts import (
    Artifact,
    ArtifactResult,
    Binding,
    ExportJob,
    ExportOpenvinoJob,
    ExportResult,
    OpenArtifactJob,
    OpUse,
    QuantizeJob,
    Twin,
)
from kpipe_stages.protocol.deciding import DecidedMode, DecideJob, DecideResult, SavedAnswers
from kpipe_stages.protocol.inputs import (
    DecisionSpec,
    Fingerprint,
    FingerprintJob,
    FingerprintResult,
    GoldenItem,
    InputSpec,
    PrepareJob,
    PrepareResult,
)
from kpipe_stages.protocol.inspecting import ArchiveLimits, InspectJob, InspectResult, LayerRow
from kpipe_stages.protocol.messages import PROTOCOL, Failure, Identity, Job, Observation, Result, Signature, StageError, Status, TensorSpec, Trust
from kpipe_stages.protocol.racing import RaceJob, RaceResult, RaceRound
from kpipe_stages.protocol.running import AxisSize, BatchPadding, ProbeResult, RunJob, RunResult, ShapeCase, ShapeOutcome, ShapesResult
from kpipe_stages.protocol.timing import BatchTimes, Freshness, Latency, LoadTimes, Served, TimingPlan, TimingResult, Window
from kpipe_stages.protocol.training import Cadence, CheckpointCost, Epoch, Preserved, Resumption, TrainJob, TrainResult

__all__ = [
    "PROTOCOL",
    "ArchiveLimits",
    "Artifact",
    "ArtifactResult",
    "AxisSize",
    "BatchPadding",
    "BatchTimes",
    "Binding",
    "Cadence",
    "CheckpointCost",
    "DecideJob",
    "DecideResult",
    "DecidedMode",
    "DecisionSpec",
    "Epoch",
    "ExportJob",
    "ExportOpenvinoJob",
    "ExportResult",
    "Failure",
    "Fingerprint",
    "FingerprintJob",
    "FingerprintResult",
    "Freshness",
    "GoldenItem",
    "Identity",
    "InputSpec",
    "InspectJob",
    "InspectResult",
    "Job",
    "Latency",
    "LayerRow",
    "LoadTimes",
    "Observation",
    "OpUse",
    "OpenArtifactJob",
    "PrepareJob",
    "PrepareResult",
    "Preserved",
    "ProbeResult",
    "QuantizeJob",
    "RaceJob",
    "RaceResult",
    "RaceRound",
    "Result",
    "Resumption",
    "RunJob",
    "RunResult",
    "SavedAnswers",
    "Served",
    "ShapeCase",
    "ShapeOutcome",
    "ShapesResult",
    "Signature",
    "StageError",
    "Status",
    "TensorSpec",
    "TimingPlan",
    "TimingResult",
    "TrainJob",
    "TrainResult",
    "Trust",
    "Twin",
    "Window",
]
