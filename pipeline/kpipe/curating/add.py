"""Raw files added to a golden set, with their provenance: all of them or none."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.curating.answering import ask
from kpipe.curating.decoding import decode_files
from kpipe.curating.lookup import candidate, contract_for, only_input, unknown_decision, worker_files
from kpipe.curating.manifest import free_name, plain_name, read_manifest, with_entries
from kpipe.curating.placing import held_set, staging, take_back
from kpipe.errors import GoldenError, UsageError
from kpipe.golden import GoldenInput
from kpipe.inputs import raw_inputs
from kpipe.running.plan import input_specs
from kpipe.running.system import kpipe_version
from kpipe.text import printable
from kpipe_stages.protocol import PrepareJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.contract import Contract, LoadedContract
    from kpipe.curating.decoding import OnEvent
    from kpipe.curating.drifts import FileAnswer
    from kpipe.curating.manifest import ManifestFile
    from kpipe.curating.placing import Staging

MAX_BYTES = PrepareJob((), ()).max_bytes
"""What the stage that decodes them would refuse isn't copied first."""


@dataclass(frozen=True)
class AddRequest:
    """Files to add, and what is said of all of them."""

    folder: Path
    files: tuple[Path, ...]
    contract: Path | None = None
    slice: str = ""
    label: str | None = None
    expected: str | None = None
    chosen: str = "mined"
    """``sampled`` only where they were drawn at random from what the product sees: rates are claimed from those."""
    source: str = ""
    model: Path | None = None
    expected_from_model: bool = False
    custom_objects: tuple[Path, ...] = ()
    rows: tuple[int, ...] = ()
    """Of the one table that is named: a golden input a row, from 0. Without, each file is one golden input."""


@dataclass(frozen=True)
class AddedInput:
    """One entry that was written."""

    id: str
    file: str
    """Relative to the set."""
    sha256: str
    chosen: str
    expected: str | None
    decision: str | None = None
    """The reference's; None where no model was asked."""
    margin: float | None = None
    tied: bool = False


@dataclass(frozen=True)
class AddReport:
    """What was added."""

    folder: str
    manifest_sha256: str
    """The new one, for ``[golden] manifest_sha256``."""
    manifest_named: str
    """The one that the contract names; empty where it names none."""
    added: tuple[AddedInput, ...]
    approved_by: str = ""
    """The SHA-256 of the model that the approved decisions are taken from; empty where a person gave them."""
    taken_back: tuple[str, ...] = ()
    """Files that an earlier addition, which was killed, had left."""
    notes: tuple[str, ...] = ()


def add_files(request: AddRequest, on_event: OnEvent = lambda *_: None) -> AddReport:
    """Add raw files to a set, which is made where there is none.

    Raises:
        KpipeError: a file isn't there, is in the set already, or doesn't decode; the command, the contract or the model is off. Nothing was added.
    """
    _check_words(request)
    loaded = contract_for(request.folder, request.contract, request.model)
    only_input(loaded.contract)
    if request.rows and not any(table for _, table in raw_inputs(loaded.contract.inputs).values()):
        raise UsageError(f'--row {request.rows[0]}: no input of {loaded.source} has decode = "table". Leave --row out.')
    rules = [rule for rule in loaded.contract.rule_tables if rule]
    if rules and (request.expected or request.label or request.expected_from_model):
        raise UsageError(
            f"the contract has the rules {', '.join(rules)}, so an approved decision or a label is a table by rule: expected = {{ {rules[0]} = ... }}. "
            "Add the files without, and write it into the manifest. Nothing was added."
        )
    if wrong := unknown_decision(loaded.contract, request.expected):
        raise UsageError(f"--{wrong}. Nothing was added.")
    with held_set(request.folder.resolve()):
        before = read_manifest(request.folder, new=True)
        gone = take_back(before)
        with staging(before) as shelf:
            staged = _staged(request.files, before, shelf, request.rows)
            notes = _check_decoding(staged, loaded, on_event)
            answers, digest = _asked(request, loaded, staged, on_event)
            entries = [_entry(request, item, answers.get(item.id), digest) for item in staged]
            manifest = shelf.commit(with_entries(before, entries))
    return AddReport(
        folder=str(request.folder),
        manifest_sha256=manifest,
        manifest_named=loaded.contract.golden.manifest_sha256 or "",
        added=tuple(_told(entry, answers.get(entry["id"])) for entry in entries),
        approved_by=digest if request.expected_from_model else "",
        taken_back=tuple(gone),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class StagedFile:
    """A raw file on its way into the set."""

    id: str
    file: str
    """Relative to the set, as it will be."""
    path: Path
    """Where it waits."""
    sha256: str
    shown: str
    """As the user named it."""

    row: int | None = None
    """Of a table."""

    def golden(self, contract: Contract) -> GoldenInput:
        """As the stages take it."""
        files = worker_files(contract, str(self.path), self.row)
        return GoldenInput(self.id, files, dict.fromkeys(files, self.sha256), self.shown, None, None, "", "")


def stage_file(source: Path, shown: str, before: ManifestFile, shelf: Staging, ids: list[str]) -> StagedFile:
    """Copy one file into the staging folder under a free name and a free id."""
    plain = plain_name(source.name)
    taken = [Path(name).name for name in shelf.names]
    taken += [path.name for path in (before.folder / "files").glob("*")] + [Path(name).name for name in before.listed()]
    file = f"files/{free_name(plain, taken)}"
    identity = free_name(Path(plain).stem, [*(entry.id for entry in before.manifest.golden), *ids])
    ids.append(identity)
    return StagedFile(identity, file, shelf.path(file), shelf.take(source, file), shown)


def provenance() -> str:
    """When something was added, and by which kpipe."""
    return f"{datetime.now(UTC).date().isoformat()} by kpipe {kpipe_version()}"


def _check_words(request: AddRequest) -> None:
    if not request.files:
        raise UsageError("no file was named. Name the raw files to add.")
    if request.chosen not in {"sampled", "mined"}:
        raise UsageError(f"--chosen is '{request.chosen}'; expected sampled (drawn at random from what the product sees) or mined (picked).")
    words = {"slice": request.slice, "label": request.label or "", "expected": request.expected or "", "source": request.source}
    if odd := [name for name, text in words.items() if not text.isprintable()]:
        raise UsageError(f"--{odd[0]} is {words[odd[0]]!a}; expected words that can be printed, on one line.")
    if request.expected_from_model and request.model is None:
        raise UsageError("--expected-from-model needs --model: whose decision should it be?")
    if request.expected_from_model and request.expected is not None:
        raise UsageError("--expected and --expected-from-model contradict each other. Give one of them.")


def _staged(files: Sequence[Path], before: ManifestFile, shelf: Staging, rows: Sequence[int]) -> list[StagedFile]:
    """Copies of the files, each with content of its own; of a table whose rows are named the rows.

    Raises:
        UsageError: some can't be taken; all of them are listed.
    """
    problems = [why for path in files if (why := _unusable(path))]
    if problems:
        raise UsageError(_nothing_added(problems))
    if rows:
        return _staged_rows(files, before, shelf, rows)
    owners, seen, ids = before.owners(), dict[str, str](), list[str]()
    staged = []
    for path in files:
        item = stage_file(path, str(path), before, shelf, ids)
        if item.sha256 in owners:
            problems.append(f"{path} is in the set already, as '{owners[item.sha256]}' (SHA-256 {item.sha256}). Leave it out.")
        elif item.sha256 in seen:
            problems.append(f"{path} has the same bytes as {seen[item.sha256]} (SHA-256 {item.sha256}). Name one of the two.")
        seen.setdefault(item.sha256, str(path))
        staged.append(item)
    if problems:
        raise UsageError(_nothing_added(problems))
    return staged


def _staged_rows(files: Sequence[Path], before: ManifestFile, shelf: Staging, rows: Sequence[int]) -> list[StagedFile]:
    """Rows of one table, which is copied once; a copy that the set holds already is used."""
    if len(files) != 1 or len(set(rows)) != len(rows) or min(rows) < 0:
        raise UsageError(
            f"--row {', '.join(map(str, rows))} of {len(files)} files; expected one table, and rows from 0, each once. Nothing was added."
        )
    ids: list[str] = []
    item = stage_file(files[0], str(files[0]), before, shelf, ids)
    held = {entry.row: entry for entry in before.manifest.golden if entry.sha256 == item.sha256 and entry.file}
    if problems := [f"row {row} of {files[0]} is in the set already, as '{held[row].id}'. Leave it out." for row in rows if row in held]:
        raise UsageError(_nothing_added(problems))
    if held:
        known = next(iter(held.values())).file or ""
        shelf.leave(item.file)
        item = replace(item, file=known, path=before.folder / known)
    taken = [entry.id for entry in before.manifest.golden]
    return [replace(item, id=free_name(f"{item.id}-row-{row}", taken), row=row) for row in rows]


def _unusable(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder. Name raw files; 'kpipe golden mine --from {path}' picks from a folder."
    if not path.exists():
        return f"{path} does not exist. Check the path."
    if not path.is_file():
        return f"{path} is neither a file nor a folder. Name raw files."
    if (size := path.stat().st_size) > MAX_BYTES:
        return f"{path} has {size:,} bytes; at most {MAX_BYTES:,} are taken. Name a smaller file."
    return "" if os.access(path, os.R_OK) else f"{path} can't be read. See to its permissions."


def _check_decoding(staged: Sequence[StagedFile], loaded: LoadedContract, on_event: OnEvent) -> list[str]:
    """Refuse what doesn't decode; what else was noticed."""
    found = decode_files(
        [item.golden(loaded.contract) for item in staged], input_specs(loaded.contract.inputs, loaded), loaded.contract.run.stage_s, on_event
    )
    problems = [f"{item.shown} can't be a golden input: {found.bad[item.id]}" for item in staged if item.id in found.bad]
    problems += [found.mixed] if found.mixed else []
    if problems:
        raise UsageError(_nothing_added(problems))
    return found.notes


def _asked(request: AddRequest, loaded: LoadedContract, staged: Sequence[StagedFile], on_event: OnEvent) -> tuple[dict[str, FileAnswer], str]:
    """What the model makes of the files, by id, and its SHA-256; nothing where none was named."""
    if request.model is None:
        return {}, ""
    resolved = candidate(request.model, loaded, request.custom_objects)
    answered = ask(resolved, [item.golden(loaded.contract) for item in staged], (), on_event)
    problems = [f"{item.shown} can't be run: {answered.rejected[item.id]}" for item in staged if item.id in answered.rejected]
    if request.expected_from_model:
        if not answered.rule:
            raise GoldenError(f"{loaded.source} has no decision rule, and none can be inferred, so the model decides nothing. Add [decision].")
        undecided = [item.shown for item in staged if (answer := answered.answers.get(item.id)) and (answer.undecided or answer.tied)]
        problems += [f"the model does not decide on {shown}: its scores are tied, or NaN. Give --expected, or leave it out." for shown in undecided]
    if problems:
        raise UsageError(_nothing_added(problems))
    return answered.answers, resolved.sha256


def _nothing_added(problems: Sequence[str]) -> str:
    return "nothing was added:\n" + "\n".join(f"  - {problem}" for problem in problems)


def _entry(request: AddRequest, item: StagedFile, answer: FileAnswer | None, digest: str) -> dict[str, Any]:
    """The manifest's entry; keys without a value are left out."""
    expected = answer.decision if request.expected_from_model and answer is not None else request.expected
    how = f"expected is what the model {digest[:12]} decided when this was added; a person has to approve it" if request.expected_from_model else ""
    margin = answer.margin if answer is not None and answer.margin is not None and not answer.undecided else None
    values: dict[str, Any] = {
        "id": item.id,
        "file": item.file,
        "sha256": item.sha256,
        "row": item.row,
        "label": request.label,
        "expected": expected,
        "slice": request.slice or None,
        "chosen": request.chosen,
        "how": how or None,
        "origin": request.source or printable(Path(item.shown).name),
        "added": provenance(),
        "margin": float(f"{margin:.6g}") if margin is not None else None,
    }
    return {key: value for key, value in values.items() if value is not None}


def _told(entry: dict[str, Any], answer: FileAnswer | None) -> AddedInput:
    known = AddedInput(entry["id"], entry["file"], entry["sha256"], entry["chosen"], entry.get("expected"))
    return replace(known, decision=answer.decision, margin=answer.margin, tied=answer.tied) if answer is not None else known
