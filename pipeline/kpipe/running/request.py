"""What was asked for, resolved and checked before a process is started."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.contract import CONTRACT_NAME, Contract, LoadedContract, input_files, load_contract
from kpipe.errors import GoldenError, UsageError, nearest
from kpipe.golden import GoldenSet, array_golden_set, load_golden_folder, rule_problems, sha256_of
from kpipe.inputs import Input, raw_inputs
from kpipe.profiles import PROFILES, SIGNOFF, Profile
from kpipe.record import CalibrationRecord
from kpipe.rules import place_of_rule
from kpipe_stages.decisions import runs_code
from kpipe_stages.protocol import Observation, Trust

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Request:
    """One validation, as asked for."""

    model: Path
    contract: Path | None = None
    golden: Path | None = None
    targets: tuple[str, ...] = ()
    custom_objects: tuple[Path, ...] = ()
    out: Path | None = None
    jobs: int | None = None
    resume: bool = False
    cache: str | None = None
    profile: str | None = None
    """``--profile``; else the contract's."""
    baseline: Path | None = None
    """``--baseline``: an earlier model's run or bundle."""
    waivers: Path | None = None
    """``--waivers``; else ``waivers.toml`` beside the contract. What a run is judged with, not what it does."""
    reuse: bool = False
    """Take artifacts that an earlier run made of the same things from kpipe's cache, and keep this run's there."""


@dataclass(frozen=True)
class Resolved:
    """The request with its files found."""

    request: Request
    given: Path
    """The model as the user named it."""
    loaded: LoadedContract
    golden: GoldenSet | None
    """None: synthetic inputs, made once the signature is known."""
    trust: Trust
    sha256: str
    size: int
    refusals: tuple[Observation, ...] = field(default=())
    """Found before anything ran."""
    input_files: dict[str, str] = field(default_factory=dict)
    """The code and tensors that inputs name: absolute path to SHA-256. Empty where the golden inputs aren't raw files."""
    calibration: GoldenSet | None = None
    """What precision variants are calibrated on, in the form of a golden set."""
    decision_code: dict[str, dict[str, str]] = field(default_factory=dict)
    """Rule name to the files of the user's own code that decides: absolute path to SHA-256."""

    @property
    def profile(self) -> Profile:
        """How much is asked: the command's word, else the contract's."""
        return PROFILES[self.request.profile or self.loaded.contract.run.profile]

    @property
    def reuses(self) -> bool:
        """Whether artifacts of earlier runs may be used: never in the sign-off profile, whose files are made from the candidate before its eyes."""
        return self.request.reuse and self.profile is not SIGNOFF


def resolve(request: Request, *, golden: bool = True) -> Resolved:
    """Find and check the files of a request.

    Raises:
        UsageError: no such model, custom-object file or profile.
        ContractError: the contract can't be used.
        GoldenError: the golden set can't be used, or is empty.
    """
    if request.profile is not None and request.profile not in PROFILES:
        raise UsageError(f"--profile {request.profile}: no such profile{nearest(request.profile, list(PROFILES))}; there are {', '.join(PROFILES)}.")
    model = _existing(request.model, "model")
    loaded = _contract(request)
    found = _golden(request, loaded) if golden else None
    if found is not None and (problems := rule_problems(found, tuple(loaded.contract.rule_tables) or ("",))):
        more = f" {len(problems)} problems of this kind in all." if len(problems) > 1 else ""
        raise GoldenError(f"golden set {found.shown}: {problems[0]}{more}")
    digest = sha256_of(model)
    calibration = _calibration(loaded) if golden else None
    return Resolved(
        request=replace(request, model=model),
        given=request.model,
        loaded=loaded,
        golden=found,
        trust=_trust(request, loaded),
        sha256=digest,
        size=model.stat().st_size,
        refusals=(*_refusals(loaded.contract, digest, found), *_other_calibration(loaded.contract, calibration)) if golden else (),
        calibration=calibration,
        input_files=_input_files(loaded, found) if golden else {},
        decision_code=_decision_code(loaded) if golden else {},
    )


def _existing(path: Path, what: str) -> Path:
    if path.is_dir():
        raise UsageError(f"{what} {path} is a folder. Expected a file such as model.keras.")
    if not path.exists():
        raise UsageError(f"{what} {path} does not exist. Check the path.")
    try:
        with path.open("rb"):
            return path.resolve()
    except OSError as error:
        raise UsageError(f"{what} {path} can't be read: {error.strerror}.") from error


def _contract(request: Request) -> LoadedContract:
    """The contract named, else the one beside the model, else an empty one."""
    if request.contract is not None:
        return load_contract(request.contract)
    beside = request.model.parent / CONTRACT_NAME
    if beside.is_file():
        return load_contract(beside)
    return LoadedContract(Contract(), "inferred", "", request.model.resolve().parent)


def _golden(request: Request, loaded: LoadedContract) -> GoldenSet | None:
    written = loaded.contract.golden.path
    path = request.golden or (loaded.resolve(written) if written else None)
    if path is None:
        return None
    if path.is_dir():
        if not loaded.contract.inputs:
            raise GoldenError(
                f"golden set {path} holds raw files, and the contract has no [inputs] that say how they become tensors. 'kpipe init' writes them."
            )
        return load_golden_folder(path.resolve(), raw_inputs(loaded.contract.inputs), str(request.golden or written))
    if not path.is_file():
        raise GoldenError(
            f"golden set {path} does not exist. Expected a folder with manifest.toml, or an .npz of arrays named as the model's inputs."
        )
    return load_arrays(path)


def _calibration(loaded: LoadedContract) -> GoldenSet | None:
    """The calibration set that the contract names; it has the form of a golden set."""
    table = loaded.contract.calibration
    if table is None:
        return None
    path = loaded.resolve(table.path)
    try:
        if path.is_dir():
            if not loaded.contract.inputs:
                raise GoldenError("it holds raw files, and the contract has no [inputs] that say how they become tensors.")
            return load_golden_folder(path, tuple(loaded.contract.inputs), table.path)
        if not path.is_file():
            raise GoldenError("it does not exist. Expected a folder with manifest.toml, or an .npz of arrays named as the model's inputs.")
        return load_arrays(path)
    except GoldenError as error:
        raise GoldenError(f"calibration set {table.path}: {error}") from error


def calibration_record(calibration: GoldenSet | None) -> CalibrationRecord | None:
    """What the record keeps of the calibration set."""
    if calibration is None:
        return None
    return CalibrationRecord(calibration.kind, calibration.shown, _digest_of(calibration), len(calibration.inputs))


def _digest_of(calibration: GoldenSet) -> str:
    return calibration.manifest_sha256 or next(iter(calibration.inputs[0].sha256.values()))


def _other_calibration(contract: Contract, calibration: GoldenSet | None) -> list[Observation]:
    wanted = contract.calibration.sha256 if contract.calibration else None
    if wanted is None or calibration is None or _digest_of(calibration) == wanted:
        return []
    cause = f"The calibration set's SHA-256 is {_digest_of(calibration)}; the contract names {wanted}."
    return [Observation("KP223", cause, "Restore the set, or approve the new one in the contract.", "calibration.sha256")]


def load_arrays(path: Path) -> GoldenSet:
    """A golden set from an ``.npz``; only its headers are read here.

    Raises:
        GoldenError: it isn't a sound ``.npz``, or has no rows.
    """
    from kpipe_stages.npz import npz_header
    from kpipe_stages.preprocessing.errors import PreprocessError

    try:
        header = npz_header(path)
    except PreprocessError as error:
        raise GoldenError(f"golden inputs {path} can't be used: {error}") from error
    return array_golden_set(path, {name: (tuple(shape), str(dtype)) for name, (shape, dtype) in header.items()}, sha256_of(path))


def _trust(request: Request, loaded: LoadedContract) -> Trust:
    table = loaded.contract.model
    files: Sequence[Path] = [*(loaded.resolve(name) for name in table.custom_objects), *request.custom_objects]
    return Trust(
        custom_objects=tuple(dict.fromkeys(str(_existing(path, "custom-object file")) for path in files)),
        allow_modules=table.allow_modules,
        allow_lambda=table.allow_lambda,
    )


def _input_files(loaded: LoadedContract, golden: GoldenSet | None) -> dict[str, str]:
    """Digests of what preprocesses the raw files. Tensors of a serving system have rows by the ids of raw files, and say nothing beside others."""
    contract = loaded.contract
    tables: dict[str, Input] = {f"inputs.{name}.files": table for name, table in contract.inputs.items()}
    for target, own in contract.targets.items():
        tables |= {f"targets.{target}.inputs.{name}.{'tensors' if table.tensors else 'files'}": table for name, table in own.inputs.items()}
    if golden is None or golden.kind != "raw":
        if served := [where for where in tables if where.endswith(".tensors")]:
            raise UsageError(
                f"{served[0]} holds tensors that a serving system made of raw golden files, and this run has none: its golden inputs are "
                f"{'arrays' if golden else 'synthetic'}. Give a folder of raw files as [golden] path, or drop the key."
            )
        return {}
    paths = [(where, Path(path)) for where, table in tables.items() for path in input_files(table, loaded)]
    return {str(path): sha256_of(_existing(path, where)) for where, path in paths}


def _decision_code(loaded: LoadedContract) -> dict[str, dict[str, str]]:
    """Digests of the user's own decision rules."""
    rules = {name: table for name, table in loaded.contract.rule_tables.items() if runs_code(table.rule)}
    paths = {name: [_existing(loaded.resolve(file), f"{place_of_rule(name)}.files") for file in table.files] for name, table in rules.items()}
    return {name: {str(path): sha256_of(path) for path in files} for name, files in paths.items()}


def known_code(loaded: LoadedContract) -> dict[str, dict[str, str]]:
    """As `Resolved.decision_code`, of a contract that a finished run is judged by: a file that isn't there has no digest."""
    rules = {name: table for name, table in loaded.contract.rule_tables.items() if runs_code(table.rule)}
    paths = {name: [loaded.resolve(file) for file in table.files] for name, table in rules.items()}
    return {name: {str(path): sha256_of(path) if path.is_file() else "" for path in files} for name, files in paths.items()}


def _refusals(contract: Contract, digest: str, golden: GoldenSet | None) -> list[Observation]:
    refusals = []
    if contract.model.sha256 and contract.model.sha256 != digest:
        refusals.append(Observation("KP011", f"The candidate's SHA-256 is {digest}; the contract names {contract.model.sha256}.", "", "model.sha256"))
    wanted = contract.golden.manifest_sha256
    if wanted and (golden is None or golden.manifest_sha256 != wanted):
        found = golden.manifest_sha256 if golden else "none: there is no golden set"
        refusals.append(Observation("KP105", f"The manifest's SHA-256 is {found}; the contract names {wanted}.", "", "golden.manifest_sha256"))
    return refusals
