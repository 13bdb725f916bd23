"""What a run left behind, before anyone judged it: ``evidence.json`` beside the stages' own answers.

`kpipe.judging.judge` reads nothing else, so ``kpipe judge RUN --contract stricter.toml`` gives the verdict that the run would have given.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from kpipe.golden import GoldenSet
from kpipe.record import CalibrationRecord, Environment
from kpipe_stages.protocol import Artifact, InputSpec, Observation, Result

EVIDENCE_VERSION = 1

CALIBRATE_STAGE = "calibrate"
"""The stage that prepares the calibration set."""


def race_stage(target: str) -> str:
    """The stage in which a target is timed in turns with the baseline's."""
    return f"race.{target}"


class Ending(enum.StrEnum):
    """How a worker process ended."""

    OK = "ok"
    FAILED = "failed"
    """The stage answered that it could not do its work."""
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NOT_STARTED = "not started"
    """Something it needs failed, or the run's time was up."""


@dataclass(frozen=True)
class StageEvidence:
    """One worker process and its answer."""

    name: str
    """``inspect``, ``prepare``, ``run.litert``, ``load.litert``, ...: the folder below ``stages/``."""
    ending: Ending
    detail: str
    """One line; for a crash the last line of the log that says something."""
    begin_s: float
    end_s: float
    result: Result | None
    timing: Result | None = None
    reused: bool = False
    timing_due: bool = False
    """A timed phase was asked for."""
    timing_lost: str = ""
    """Why the timed phase that was asked for gave no answer; empty where it did, or none was asked for."""
    shapes: Result | None = None
    """What came of the shapes to try, as far as it got; its data are a `ShapesResult`."""
    shapes_due: bool = False
    """Shapes were to be tried."""
    shapes_lost: str = ""
    """Why they weren't all tried; empty where they were."""
    shared: bool = False
    """Another worker ran at the same time, so its load time is not a quiet one."""


@dataclass(frozen=True)
class TargetPlan:
    """One target, resolved: what to run, with which interpreter, and how."""

    name: str
    runtime: str
    required: bool
    settings: dict[str, Any]
    chosen: dict[str, Any]
    """Settings that kpipe adds because the contract states no precision."""
    precision: str
    threads: int
    python: str
    """Absolute path of the interpreter."""
    provided: str
    """Absolute path of an artifact that was handed in; empty where it is exported or the ``.keras`` itself."""
    inputs: tuple[InputSpec, ...]
    """Its own preprocessing; empty where it shares the reference's."""
    quiet_load: bool
    """A load limit is set: measured alone, in a process of its own."""
    absent: Observation | None = None
    """Why it can't be run at all."""
    quantize: str = ""
    """The precision variant that it runs; empty for the artifact as exported."""
    affinity: tuple[int, ...] = ()
    """Processors that it may use; empty for all."""
    memory_mib: int = 0
    """Private memory that its process may ask for; 0 for no limit."""


@dataclass(frozen=True)
class TargetEvidence:
    """One target and what came of it."""

    plan: TargetPlan
    artifact: Artifact | None
    problems: tuple[Observation, ...] = ()
    """Found by the orchestrator: a missing or altered artifact, a conversion that never ran."""


@dataclass(frozen=True)
class Opponent:
    """The baseline's side of a target."""

    sha256: str = ""
    """Of its artifact."""
    size: int | None = None
    """Bytes of it, as its run recorded them."""
    peak_bytes: int | None = None
    """Peak memory of its worker, as its run recorded it; None where that wasn't the whole of it."""
    problem: str = ""
    """Why the two were not timed in turns; empty where a stage ``race.<target>`` was to."""
    shared: bool = True
    """Both sides have the target, and times were asked for: that they couldn't be taken is worth a finding."""


@dataclass(frozen=True)
class Installed:
    """What one interpreter held when it worked."""

    python: str
    """Version."""
    requirements: tuple[str, ...]
    """``name==version`` of every distribution that came from an index, sorted."""
    local: tuple[str, ...] = ()
    """The same of those that were installed from a folder, a file or a repository: no index has them."""
    problem: str = ""
    """Why nothing is known of it."""


@dataclass(frozen=True)
class Evidence:
    """The whole of a run."""

    version: int
    run_id: str
    started: str
    wall_s: float
    candidate_path: str
    candidate_sha256: str
    candidate_size: int
    contract_source: str
    contract_sha256: str
    """Of the contract that the run was made with; its text lies in the run folder."""
    contract_folder: str
    """Where that contract's relative paths begin."""
    golden: GoldenSet
    refusals: tuple[Observation, ...]
    """Reasons to refuse before anything ran: another file than named, a stale manifest, an archive that is unsafe."""
    reference: TargetPlan
    targets: tuple[TargetEvidence, ...]
    stages: tuple[StageEvidence, ...]
    environment: Environment
    notes: tuple[Observation, ...] = ()
    """What kpipe inferred or was told on the command line."""
    incomplete: str = ""
    """Why the run stopped early; empty where it went to its end."""
    folders: dict[str, str] = field(default_factory=dict)
    """Stage name to its folder, relative to the run folder."""
    folder: str = ""
    """The run folder when it was made, absolute: it may be judged elsewhere."""
    decision_code: dict[str, dict[str, str]] = field(default_factory=dict)
    """Rule name to its files, absolute path to SHA-256: of the rules that are the user's own code."""
    calibration: CalibrationRecord | None = None
    """What precision variants were calibrated on, where the contract names a set."""
    profile: str = "default"
    """What was asked of every target: a name of `kpipe.profiles.PROFILES`."""
    installed: dict[str, Installed] = field(default_factory=dict)
    """Interpreter to what it held, for every one that a worker ran in; only in the sign-off profile."""
    custom_objects: dict[str, str] = field(default_factory=dict)
    """Files that register custom objects, absolute path to SHA-256."""
    worker_settings: dict[str, str] = field(default_factory=dict)
    """Environment variables that every worker was started with, without paths; only in the sign-off profile."""
    opponents: dict[str, Opponent] = field(default_factory=dict)
    """Target to what it was held against, for every target of a run with ``--baseline``; empty without."""
