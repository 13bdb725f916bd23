"""Is a golden set what its manifest says? Digests, decoding, files that nobody lists, contents that stand twice."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.curating.decoding import decode_files
from kpipe.curating.lookup import contract_for, unknown_decision
from kpipe.curating.manifest import STAGING, ManifestFile, digests_of, files_of, read_manifest, walk
from kpipe.errors import GoldenError
from kpipe.golden import MANIFEST, approved_text, golden_input, rule_problems_of
from kpipe.inputs import raw_inputs
from kpipe.running.plan import input_specs
from kpipe.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe.contract import LoadedContract
    from kpipe.curating.decoding import OnEvent
    from kpipe.golden import GoldenInput, InputNames
    from kpipe_stages.protocol import InputSpec

BESIDE = ("readme", "license", "licence", "notice")
"""Names of files that may lie beside golden inputs without being any; hidden ones may too."""


@dataclass(frozen=True)
class SetProblem:
    """Something that is wrong with the set."""

    id: str
    """The golden input; ``-`` where it is about the set."""
    what: str
    """What happened with values, and what to do."""


@dataclass(frozen=True)
class SetReport:
    """What was found."""

    folder: str
    contract: str
    """Whose preprocessing was used."""
    manifest_sha256: str
    """For ``[golden] manifest_sha256``."""
    inputs: int
    decoded: int
    """Inputs whose digest is the manifest's and that became tensors."""
    chosen: dict[str, int]
    """``sampled`` and ``mined`` to their number."""
    expected: dict[str, int]
    """Approved decision to its number."""
    labels: dict[str, int]
    slices: dict[str, int]
    problems: tuple[SetProblem, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """Worth a look, and no fault of the set."""

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problems


def verify_set(folder: str | os.PathLike[str], contract: str | os.PathLike[str] | None = None, on_event: OnEvent = lambda *_: None) -> SetReport:
    """Check a golden set: nothing is changed, and no model is run.

    Raises:
        KpipeError: there is no manifest that can be read, no contract, or the files could not be checked at all.
    """
    before = read_manifest(Path(folder))
    loaded = contract_for(Path(folder), Path(contract) if contract is not None else None)
    problems = [*_of_manifest(before, loaded), *_unlisted(before)]
    inputs, misfits = _inputs(before, raw_inputs(loaded.contract.inputs))
    bad, notes, more = _decoded(inputs, loaded, on_event)
    problems += [*misfits, *(SetProblem(inputs[row][0], why) for row, why in bad.items()), *more]
    entries = before.manifest.golden
    return SetReport(
        folder=str(folder),
        contract=loaded.source,
        manifest_sha256=before.sha256,
        inputs=len(entries),
        decoded=len(inputs) - len(bad),
        chosen=_counted(entry.chosen for entry in entries),
        expected=_counted(text for _, g in inputs for text in _texts(g.expected)),
        labels=_counted(text for entry in entries for text in _texts(entry.label)),
        slices=_counted(entry.slice for entry in entries if entry.slice),
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _texts(given: str | dict[str, str] | None) -> Iterator[str]:
    """What an entry says: one text, or one a rule."""
    if isinstance(given, dict):
        yield from (f"{rule}: {text}" for rule, text in given.items())
    elif given is not None:
        yield given


def _counted(values: Iterator[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _of_manifest(before: ManifestFile, loaded: LoadedContract) -> Iterator[SetProblem]:
    """What the manifest alone tells."""
    entries = before.manifest.golden
    rules = tuple(loaded.contract.rule_tables)
    if rules:
        yield from (
            SetProblem("-", problem) for entry in entries for problem in rule_problems_of(entry.id, approved_text(entry.expected), entry.label, rules)
        )
    if not entries:
        yield SetProblem("-", f"{MANIFEST} has no [[golden]] entry: nothing can be compared. Add inputs with 'kpipe golden add'.")
    for name, count in Counter(entry.id for entry in entries).items():
        if count > 1:
            yield SetProblem(name, f"the id stands {count} times; ids must be unique. Rename all but one.")
    first: dict[tuple[str, ...], str] = {}
    for entry in entries:
        digests = digests_of(entry)
        content = (*digests, "" if entry.row is None else f"row {entry.row}")
        if content in first:
            rows = "" if entry.row is None else f", row {entry.row}"
            yield SetProblem(
                entry.id, f"its bytes are those of '{first[content]}' (SHA-256 {digests[0]}{rows}): it counts twice. Remove one of the two."
            )
        first.setdefault(content, entry.id)
        if isinstance(entry.expected, str) and (wrong := unknown_decision(loaded.contract, entry.expected)):
            yield SetProblem(entry.id, f"{wrong}. Correct it.")
    wanted, path = loaded.contract.golden.manifest_sha256, loaded.contract.golden.path
    if wanted and path and loaded.resolve(path) == before.folder and wanted != before.sha256:
        yield SetProblem(
            "-",
            f"the manifest's SHA-256 is {before.sha256}; {loaded.source} names {wanted}. Restore the manifest, or update [golden] manifest_sha256 on purpose.",
        )


def _unlisted(before: ManifestFile) -> Iterator[SetProblem]:
    """Files in the folder that no entry names, and what an interrupted addition left."""
    if (before.folder / STAGING).exists():
        yield SetProblem("-", f"an addition was interrupted and left {STAGING}. The next 'kpipe golden add' takes it back.")
    listed = {os.path.normpath(name) for name in before.listed()} | {MANIFEST}
    for path in walk(before.folder):
        name = path.relative_to(before.folder).as_posix()
        if name not in listed and path.stem.lower() not in BESIDE:
            what = f"{printable(name)} is in the folder and no entry lists it: it is not checked. Add it with 'kpipe golden add', or remove it."
            yield SetProblem("-", what)


def _inputs(before: ManifestFile, names: InputNames) -> tuple[list[tuple[str, GoldenInput]], list[SetProblem]]:
    """Every entry as it is run, with its id; what can't be run is a problem."""
    found, problems = [], []
    for entry in before.manifest.golden:
        try:
            found.append((entry.id, golden_input(entry, before.folder, names, before.path)))
        except GoldenError as error:
            problems.append(SetProblem(entry.id, f"it can't be run: {error}"))
            continue
        shown = [name for name in files_of(entry) if Path(before.folder / name).is_symlink()]
        problems += [SetProblem(entry.id, f"{name} is a link: the set doesn't hold the bytes. Put the file in its place.") for name in shown]
    return found, problems


def _decoded(inputs: list[tuple[str, GoldenInput]], loaded: LoadedContract, on_event: OnEvent) -> tuple[dict[int, str], list[str], list[SetProblem]]:
    """Row to why it has no tensor, by the reference's preprocessing or a target's own; notes; what is wrong with the whole."""
    if not inputs:
        return {}, [], []
    bad: dict[int, str] = {}
    notes: list[str] = []
    problems: list[SetProblem] = []
    # ids may stand twice in a set that is off, so rows are told apart by their number
    numbered = [replace(golden, id=f"{row}:{name}") for row, (name, golden) in enumerate(inputs)]
    for who, specs in _preprocessings(loaded).items():
        about = f"for target '{who}': " if who else ""
        found = decode_files(numbered, specs, loaded.contract.run.stage_s, on_event)
        for row, golden in enumerate(numbered):
            if golden.id in found.bad:
                bad.setdefault(row, about + found.bad[golden.id])
        notes += [about + note for note in found.notes]
        problems += [SetProblem("-", about + found.mixed)] if found.mixed else []
    return bad, notes, problems


def _preprocessings(loaded: LoadedContract) -> dict[str, tuple[InputSpec, ...]]:
    """The contract's preprocessing, and each target's that has its own; equal ones once."""
    common = loaded.contract.inputs
    found = {"": input_specs(common, loaded)}
    for name, table in loaded.contract.targets.items():
        specs = input_specs({**common, **table.inputs}, loaded)
        if specs not in found.values():
            found[name] = specs
    return found
