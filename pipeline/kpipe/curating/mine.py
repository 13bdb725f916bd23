"""Hard or missing inputs picked from a folder of raw files, and added to a golden set as mined."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.curating.add import MAX_BYTES, StagedFile, provenance, stage_file
from kpipe.curating.answering import Answered, ask
from kpipe.curating.lookup import candidate, contract_for, only_input, worker_files
from kpipe.curating.manifest import ManifestFile, read_manifest, walk, with_entries
from kpipe.curating.placing import held_set, staging, take_back
from kpipe.curating.selection import By, Candidate, Pick, select, shares
from kpipe.errors import GoldenError, UsageError
from kpipe.golden import GoldenInput, golden_input, sha256_of
from kpipe.inputs import raw_inputs
from kpipe.text import printable

if TYPE_CHECKING:
    from kpipe.contract import Contract, LoadedContract
    from kpipe.curating.decoding import OnEvent
    from kpipe.curating.drifts import FileAnswer

SETS = "set:"
POOLS = "pool:"
"""Ids of the set's own inputs and of the pool's can't be mixed up."""


@dataclass(frozen=True)
class MineRequest:
    """What to pick, from where, and by what."""

    folder: Path
    pool: Path
    count: int
    model: Path
    contract: Path | None = None
    by: tuple[By, ...] = ()
    """Empty: half by margin, a quarter by disagreement where targets are named, the rest by coverage."""
    targets: tuple[str, ...] = ()
    seed: int = 0
    custom_objects: tuple[Path, ...] = ()


@dataclass(frozen=True)
class MinedInput:
    """One entry that was written."""

    id: str
    file: str
    """Relative to the set."""
    origin: str
    by: By
    how: str
    margin: float | None
    decision: str | None
    """The reference's; nothing is approved by it."""
    slice: str


@dataclass(frozen=True)
class MineReport:
    """What was picked from how many."""

    folder: str
    manifest_sha256: str
    """For ``[golden] manifest_sha256``."""
    manifest_named: str
    """The one that the contract names; empty where it names none."""
    wanted: int
    shares: dict[str, int]
    """Strategy to the number that it was to choose."""
    pool: int
    """Files in the pool."""
    in_set: int
    """Of these, contents that the set holds already."""
    twice: int
    """Files whose content another file of the pool has."""
    rejected: dict[str, str]
    """File to why it can't be an input."""
    unusable: int
    """Undecided, or with tied scores."""
    added: tuple[MinedInput, ...]
    missing: tuple[str, ...] = ()
    """Classes by the contract's labels that neither the set nor the choice holds."""
    taken_back: tuple[str, ...] = field(default=())
    """Files that an earlier addition, which was killed, had left."""


def mine_pool(request: MineRequest, on_event: OnEvent = lambda *_: None) -> MineReport:
    """Pick inputs from a pool and add them as ``mined``, without approving any decision.

    Deterministic for the same set, pool, model and seed.

    Raises:
        KpipeError: the command, the contract, the model or the set is off, a target gives no answers, or there is nothing to pick from.
            Nothing was added.
    """
    strategies, mixed = _strategies(request)
    loaded = contract_for(request.folder, request.contract, request.model)
    only_input(loaded.contract)
    resolved = candidate(request.model, loaded, request.custom_objects)
    with held_set(request.folder.resolve()):
        before = read_manifest(request.folder, new=True)
        gone = take_back(before)
        pool = _look(request, before)
        answered = ask(resolved, _inputs(request, before, pool, loaded), request.targets, on_event)
        _check_set(answered, before)
        _check_rule(answered, strategies, loaded.source)
        candidates = [_candidate(file, answered.answers[key]) for file in pool.files if (key := f"{POOLS}{file.name}") in answered.answers]
        classes, slices = _held_classes(before, answered), Counter(entry.slice for entry in before.manifest.golden)
        wanted = shares(request.count, strategies, mixed=mixed)
        picks = select(candidates, wanted, seed=request.seed, pool=request.pool.resolve().name, classes=classes, slices=slices)
        if not picks:
            raise GoldenError(_nothing_left(request, pool, answered, len(candidates)))
        manifest, added = _commit(request, before, picks)
    found = classes + Counter(pick.candidate.decision or "" for pick in picks)
    return MineReport(
        folder=str(request.folder),
        manifest_sha256=manifest,
        manifest_named=loaded.contract.golden.manifest_sha256 or "",
        wanted=request.count,
        shares={str(by): share for by, share in wanted.items()},
        pool=pool.count,
        in_set=pool.in_set,
        twice=pool.twice,
        rejected=_rejected(pool, answered),
        unusable=sum(not c.usable for c in candidates),
        added=added,
        missing=tuple(label for label in answered.labels if not found[label]) if answered.rule == "argmax" else (),
        taken_back=tuple(gone),
    )


def _inputs(request: MineRequest, before: ManifestFile, pool: _Pool, loaded: LoadedContract) -> list[GoldenInput]:
    """The set's own inputs and the pool's files, as the stages take them."""
    listed = [golden_input(entry, before.folder, raw_inputs(loaded.contract.inputs), before.path) for entry in before.manifest.golden]
    inputs = [replace(g, id=f"{SETS}{g.id}") for g in listed]
    inputs += [_as_input(f"{POOLS}{file.name}", loaded.contract, request.pool / file.name, file.sha256) for file in pool.files]
    if len({item.id for item in inputs}) != len(inputs):
        raise GoldenError(f"{before.path}: an id stands more than once; ids must be unique. 'kpipe golden verify' names it.")
    return inputs


def _rejected(pool: _Pool, answered: Answered) -> dict[str, str]:
    """File of the pool to why it can't be an input."""
    return dict(sorted((pool.rejected | {key.removeprefix(POOLS): why for key, why in answered.rejected.items()}).items()))


@dataclass(frozen=True)
class _PoolFile:
    name: str
    """Relative to the pool."""
    sha256: str


@dataclass(frozen=True)
class _Pool:
    """What lies in the pool."""

    files: tuple[_PoolFile, ...]
    """To be asked about: contents that the set doesn't hold, each once."""
    count: int
    in_set: int
    twice: int
    rejected: dict[str, str]


def _strategies(request: MineRequest) -> tuple[tuple[By, ...], bool]:
    """The strategies in the order they choose in, and whether they are the default mix."""
    if request.count < 1:
        raise UsageError(f"-n is {request.count}; expected 1 or more.")
    chosen = tuple(dict.fromkeys(request.by))
    if By.DISAGREEMENT in chosen and not request.targets:
        raise UsageError("--by disagreement needs --target: with what should the reference disagree? 'kpipe targets' lists what is installed.")
    if chosen:
        return chosen, False
    return (By.MARGIN, By.DISAGREEMENT, By.COVERAGE) if request.targets else (By.MARGIN, By.COVERAGE), True


def _look(request: MineRequest, before: ManifestFile) -> _Pool:
    """Every file of the pool, hidden ones left out, by name; contents are known by their SHA-256."""
    top = request.pool.resolve()
    if not top.is_dir():
        raise UsageError(f"--from {request.pool} is no folder. Expected a directory of raw files.")
    if top.is_relative_to(before.folder):
        raise UsageError(f"--from {request.pool} lies in the golden set itself. Expected a folder of other raw files.")
    owners, rejected, files = before.owners(), dict[str, str](), dict[str, _PoolFile]()
    count = in_set = twice = 0
    for path in sorted(walk(top, leave_out=before.folder), key=lambda path: path.relative_to(top).as_posix()):
        name = path.relative_to(top).as_posix()
        count += 1
        try:
            if why := _unfit(path):
                rejected[printable(name)] = why
                continue
            digest = sha256_of(path)
        except OSError as error:
            rejected[printable(name)] = f"it can't be read: {error.strerror}"
            continue
        in_set += digest in owners
        twice += digest in files
        if digest not in owners:
            files.setdefault(digest, _PoolFile(name, digest))
    if not count:
        raise UsageError(f"--from {request.pool} holds no file. Expected a directory of raw files.")
    return _Pool(tuple(files.values()), count, in_set, twice, rejected)


def _unfit(path: Path) -> str:
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return "its path is not UTF-8. Rename it."
    if path.is_dir():
        return "it is a link to a folder, which is not followed. Name that folder with --from"
    if not path.is_file():
        return "it is not a regular file"
    size = path.stat().st_size
    return f"it has {size:,} bytes; at most {MAX_BYTES:,} are taken" if size > MAX_BYTES else ""


def _as_input(identity: str, contract: Contract, path: Path, digest: str) -> GoldenInput:
    files = worker_files(contract, str(path.resolve()))
    return GoldenInput(identity, files, dict.fromkeys(files, digest), path.name, None, None, "", "")


def _check_set(answered: Answered, before: ManifestFile) -> None:
    """The set itself has to be sound: what it covers is counted by its own inputs."""
    bad = [(key.removeprefix(SETS), why) for key, why in answered.rejected.items() if key.startswith(SETS)]
    if bad:
        raise GoldenError(
            f"golden set {before.folder}: {len(bad)} of its own inputs can't be used, '{bad[0][0]}' first: {bad[0][1]} Nothing was added; 'kpipe golden verify' lists them."
        )


def _check_rule(answered: Answered, strategies: tuple[By, ...], source: str) -> None:
    if not answered.rule and By.MARGIN in strategies and answered.answers:
        raise UsageError(
            f"{source} has no decision rule, and none can be inferred, so there are no margins. Add [decision], or choose with --by coverage or --by disagreement."
        )


def _candidate(file: _PoolFile, answer: FileAnswer) -> Candidate:
    parent = Path(file.name).parent.as_posix()
    return Candidate(
        name=file.name,
        sha256=file.sha256,
        slice="" if parent == "." else parent,
        decision=answer.decision,
        margin=answer.margin,
        usable=not answer.undecided and not answer.tied,
        flipped=answer.flipped,
        drift=answer.drift,
        drift_on=answer.drift_on,
    )


def _held_classes(before: ManifestFile, answered: Answered) -> Counter[str]:
    """What the reference decides on the set's own inputs."""
    decided = (answered.answers[f"{SETS}{entry.id}"].decision for entry in before.manifest.golden)
    return Counter(decision for decision in decided if decision is not None)


def _nothing_left(request: MineRequest, pool: _Pool, answered: Answered, candidates: int) -> str:
    return (
        f"--from {request.pool} has nothing to add: of {pool.count} files {pool.in_set} are in the set already, {pool.twice} stand twice, {len(_rejected(pool, answered))} can't be "
        f"inputs, and of the {candidates} others none is decided and untied, or disagrees. Give another pool."
    )


def _commit(request: MineRequest, before: ManifestFile, picks: list[Pick]) -> tuple[str, tuple[MinedInput, ...]]:
    pool = request.pool.resolve()
    ids: list[str] = []
    entries: list[dict[str, Any]] = []
    added = []
    with staging(before) as shelf:
        for pick in picks:
            item = stage_file(pool / pick.candidate.name, pick.candidate.name, before, shelf, ids)
            if item.sha256 != pick.candidate.sha256:
                raise GoldenError(f"{pool / pick.candidate.name} changed while the pool was mined. Nothing was added; run the command again.")
            origin = printable(f"{pool.name}/{pick.candidate.name}")
            entries.append(_entry(item, pick, origin))
            margin = pick.candidate.margin
            added.append(MinedInput(item.id, item.file, origin, pick.by, pick.why, margin, pick.candidate.decision, pick.candidate.slice))
        manifest = shelf.commit(with_entries(before, entries))
    return manifest, tuple(added)


def _entry(item: StagedFile, pick: Pick, origin: str) -> dict[str, Any]:
    """The manifest's entry: always mined, and never with an approved decision."""
    margin = pick.candidate.margin
    values: dict[str, Any] = {"id": item.id, "file": item.file, "sha256": item.sha256}
    values |= {"slice": pick.candidate.slice} if pick.candidate.slice else {}
    values |= {"chosen": "mined", "how": pick.why, "origin": origin, "added": provenance()}
    return values | ({"margin": float(f"{margin:.6g}")} if margin is not None else {})
