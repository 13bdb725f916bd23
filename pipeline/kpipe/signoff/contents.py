"""What a bundle says of itself: ``contents.json`` and ``environment.json``. Paths in them are below the bundle."""

from __future__ import annotations

from dataclasses import dataclass, field

from kpipe.evidence import Installed
from kpipe.record import Environment, Verdict
from kpipe.waivers import WAIVERS_NAME
from kpipe_stages.protocol import Identity, PrepareJob, RunJob

CONTENTS = "contents.json"
ENVIRONMENT = "environment.json"
DECISIONS = "decisions.json"
SBOM = "sbom.cdx.json"
MODEL = "model.keras"
RUN = "run"
WAIVERS = f"{RUN}/{WAIVERS_NAME}"
GOLDEN = "golden"
CONTENTS_VERSION = 1

REFERENCE = "reference"

FULL, HASHES = "full", "hashes"


@dataclass(frozen=True)
class Approval:
    """Who signed off what, and why."""

    by: str
    reason: str
    at: str
    """ISO 8601, UTC."""
    product: str
    channel: str
    kpipe: str
    """The version that sealed it."""


@dataclass(frozen=True)
class SealedTarget:
    """One target, or the reference, with all that it takes to run it again."""

    name: str
    runtime: str
    required: bool
    status: str
    format: str
    """``keras``, ``saved_model``, ``litert``, ``onnx`` or ``openvino_ir``."""
    artifact: str
    """What the runtime loads."""
    companions: tuple[str, ...]
    sha256: str
    """Of the artifact with its companions, as `kpipe_stages.digest` makes it."""
    stage: str
    """Its stage in the run: outputs lie in ``run/stages/<stage>/outputs``."""
    prepare: str
    """The stage that made its tensors."""
    interpreter: str
    """A key of `SealedEnvironment.interpreters`."""
    versions: dict[str, str]
    """Distributions that its worker had imported."""
    job: RunJob
    """What the worker was told, paths below the bundle."""


@dataclass(frozen=True)
class Contents:
    """The index of a bundle."""

    version: int
    approval: Approval
    run_id: str
    verdict: Verdict
    headline: str
    profile: str
    judged_on: str
    """The day that waivers were held against, ISO 8601."""
    candidate_sha256: str
    keras_version: str
    contract_sha256: str
    goldens: str
    """``full``, or ``hashes``: the golden files and the tensors made of them have to be supplied again."""
    golden_sha256: str
    """Of the golden set's manifest."""
    reference: SealedTarget
    targets: tuple[SealedTarget, ...]
    prepares: dict[str, PrepareJob]
    """Stage that made tensors to what it was told, paths below the bundle."""
    sources: dict[str, str]
    """The user's own code, and tensors of a serving system: path as the contract's machine had it, to the path below the bundle."""
    left_out: tuple[str, ...]
    """Targets of the contract that never ran: nothing of them is approved."""


@dataclass(frozen=True)
class SealedEnvironment:
    """Where the run took place."""

    machine: Environment
    interpreters: dict[str, Installed]
    """``python``, ``python-2``, ...: the exact distributions are also in ``requirements/<name>.txt``."""
    paths: dict[str, str]
    """The same to where it lay."""
    worker_settings: dict[str, str]
    """Environment variables that workers were started with."""
    identities: dict[str, Identity] = field(default_factory=dict)
    """Target (and ``reference``) to what its worker said of itself: versions, threads, CPU features."""
