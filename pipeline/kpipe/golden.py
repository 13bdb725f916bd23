"""The golden set: the retained raw inputs, what was approved for them, and whether they are still the same bytes."""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kpipe.errors import GoldenError, nearest

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.toml"
MANIFEST_VERSION = 1

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Decision = str | tuple[str, ...]
InputNames = tuple[str, ...] | Mapping[str, tuple[str, bool]]
"""The contract's inputs; or each with the input that names its raw file, and whether it reads a row of a table (`kpipe.contract.raw_inputs`)."""


class Entry(BaseModel):
    """``[[golden]]``: one retained raw input."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Name
    file: str | None = None
    files: dict[str, str] | None = None
    sha256: Digest | dict[str, Digest]
    row: Annotated[int, Field(ge=0)] | None = None
    """Of a table: the row that is the golden input, from 0."""
    label: str | dict[str, str] | None = None
    expected: Decision | dict[str, Decision] | None = None
    slice: str = ""
    chosen: Literal["sampled", "mined"]
    origin: str = ""
    margin: float | None = None
    how: str = ""
    """Why it was chosen, in words."""
    added: str = ""
    """When, and by which kpipe."""


class SetTable(BaseModel):
    """``[set]``: about the set as a whole; free text."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Manifest(BaseModel):
    """``manifest.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Literal[1]
    set: SetTable = SetTable()
    golden: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class GoldenInput:
    """One golden input, whatever it came from."""

    id: str
    files: dict[str, str]
    """Model input name to what a worker opens: an absolute path, ``path#row=N`` of a table, or ``path#member#row`` of an ``.npz``."""
    sha256: dict[str, str]
    """Expected digest per file."""
    shown: str
    """The raw file as the manifest names it (the first one where there are several)."""
    label: str | dict[str, str] | None
    """The truth; by the rule's name where there are several."""
    expected: str | dict[str, str] | None
    """The approved decision; by the rule's name where there are several."""
    slice: str
    chosen: str


@dataclass(frozen=True)
class GoldenSet:
    """All of them."""

    kind: str
    """``raw``, ``arrays`` or ``synthetic``; ``none`` where a run was refused before it had any."""
    path: str
    """Where it lies, absolute."""
    shown: str
    """Where it lies, as the user or the contract named it."""
    manifest_sha256: str
    inputs: tuple[GoldenInput, ...]


NO_GOLDEN_SET = GoldenSet(kind="none", path="", shown="", manifest_sha256="", inputs=())


def load_golden_folder(folder: Path, input_names: InputNames, shown: str = "") -> GoldenSet:
    """Read a golden folder's manifest. File contents are checked by the stage that decodes them.

    Args:
        folder: holds ``manifest.toml`` and the raw files; absolute.
        input_names: the contract's ``[inputs]``; an entry with one ``file`` needs exactly one.
        shown: how reports name the folder.

    Raises:
        GoldenError: no manifest, a malformed one, no entries, duplicate ids, or a file outside the folder.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except OSError as error:
        raise GoldenError(
            f"golden set {folder}: {MANIFEST} can't be read ({error.strerror}). Expected a folder with a manifest; 'kpipe init --raw DIR' makes one."
        ) from error
    manifest = parse_manifest(data, path)
    if not manifest.golden:
        raise GoldenError(f"golden set {folder} is empty: {MANIFEST} has no [[golden]] entry. Nothing can be compared; add inputs.")
    entries = [golden_input(entry, folder, input_names, path) for entry in manifest.golden]
    if duplicates := [name for name, count in Counter(entry.id for entry in entries).items() if count > 1]:
        raise GoldenError(f"{path}: the id '{duplicates[0]}' stands more than once; ids must be unique.")
    return GoldenSet(
        kind="raw", path=str(folder), shown=shown or str(folder), manifest_sha256=hashlib.sha256(data).hexdigest(), inputs=tuple(entries)
    )


def parse_manifest(data: bytes, path: Path) -> Manifest:
    """Read a manifest's bytes; an empty one is a manifest too.

    Raises:
        GoldenError: it isn't TOML, or a key or value is off.
    """
    try:
        return Manifest.model_validate(_tuples(tomllib.loads(data.decode("utf-8"))))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(p) for p in first["loc"])
        raise GoldenError(f"{path}: {place}: {first['msg']} (got {first['input']!r:.120}); {error.error_count()} problem(s) in all.") from error
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError among them
        raise GoldenError(f"{path}: not a TOML file: {error}") from error


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(v) for v in value)
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return value


def golden_input(entry: Entry, folder: Path, input_names: InputNames, source: Path) -> GoldenInput:
    """An entry as it is run.

    Raises:
        GoldenError: its files don't fit the contract's inputs, or one lies outside the folder.
    """
    inputs = input_names if isinstance(input_names, Mapping) else {name: (name, False) for name in input_names}
    files, digests = _files(entry, tuple(name for name, (whose, _) in inputs.items() if whose == name), source)
    for name in files.values():
        if "\0" in name or not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise GoldenError(f"{source}: entry '{entry.id}' names {name!r}, which lies outside the golden folder.")
    return GoldenInput(
        id=entry.id,
        files={name: f"{folder / files[whose]}{_row(entry, source, inputs) if table else ''}" for name, (whose, table) in inputs.items()},
        sha256={name: digests[whose] for name, (whose, _) in inputs.items()},
        shown=next(iter(files.values())) + _row(entry, source, inputs),
        label=entry.label,
        expected=approved_text(entry.expected),
        slice=entry.slice,
        chosen=entry.chosen,
    )


def _row(entry: Entry, source: Path, inputs: Mapping[str, tuple[str, bool]]) -> str:
    """How a worker is told the row of a table; empty where the entry names none."""
    if entry.row is None:
        return ""
    if not any(table for _, table in inputs.values()):
        raise GoldenError(f"{source}: entry '{entry.id}' names row {entry.row}, and no input of the contract has decode = \"table\".")
    return f"#row={entry.row}"


def approved_text(expected: Decision | dict[str, Decision] | None) -> str | dict[str, str] | None:
    """The approved decision as the rules write it; a list names several classes, or none."""
    from kpipe_stages.decisions import value_of

    def text(decision: Decision) -> str:
        return value_of(decision) if isinstance(decision, tuple) else decision

    if isinstance(expected, dict):
        return {rule: text(decision) for rule, decision in expected.items()}
    return text(expected) if expected is not None else None


def approved_by(given: str | dict[str, str] | None, rule: str) -> str | None:
    """What an entry says for one rule; plain text is about the only one."""
    return given.get(rule) if isinstance(given, dict) else given


def rule_problems(golden: GoldenSet, rules: tuple[str, ...]) -> list[str]:
    """Entries that speak of a rule which the contract doesn't have, or leave open which one they mean; a message each.

    Args:
        golden: the set.
        rules: names of the contract's rules, ``("",)`` for one without a name.
    """
    return [problem for entry in golden.inputs for problem in rule_problems_of(entry.id, entry.expected, entry.label, rules)]


def rule_problems_of(name: str, expected: str | dict[str, str] | None, label: str | dict[str, str] | None, rules: tuple[str, ...]) -> list[str]:
    """`rule_problems` of one entry, by its id."""
    problems = []
    for key, given in (("expected", expected), ("label", label)):
        if isinstance(given, str) and len(rules) > 1:
            example = f"{key} = {{ {rules[0]} = ... }}"
            problems.append(f"entry '{name}': {key} is '{given}' and the contract has {len(rules)} rules ({', '.join(rules)}). Write {example}.")
        if isinstance(given, dict):
            known = ", ".join(rule for rule in rules if rule) or "none, so that only text can be given"
            problems += [
                f"entry '{name}': {key} names the rule '{rule}'{nearest(rule, list(rules))}; the contract's [decisions.NAME] are {known}."
                for rule in given
                if rule not in rules or not rule
            ]
    return problems


def _files(entry: Entry, input_names: tuple[str, ...], source: Path) -> tuple[dict[str, str], dict[str, str]]:
    if (entry.file is None) == (entry.files is None):
        raise GoldenError(f"{source}: entry '{entry.id}' needs either 'file' or 'files', and not both.")
    if entry.file is not None:
        if len(input_names) != 1 or not isinstance(entry.sha256, str):
            raise GoldenError(
                f"{source}: entry '{entry.id}' names one file, but the contract has {len(input_names)} inputs ({', '.join(input_names)}); use files = {{ input = path }}."
            )
        return {input_names[0]: entry.file}, {input_names[0]: entry.sha256}
    files = entry.files or {}
    digests = entry.sha256 if isinstance(entry.sha256, dict) else {}
    if set(files) != set(input_names) or set(digests) != set(input_names):
        raise GoldenError(
            f"{source}: entry '{entry.id}' has files for {sorted(files)} and digests for {sorted(digests)}; the contract's inputs are {sorted(input_names)}."
        )
    return files, digests


def array_golden_set(path: Path, header: dict[str, tuple[tuple[int, ...], str]], digest: str, *, kind: str = "arrays") -> GoldenSet:
    """A golden set from an ``.npz``: a row a golden input, arrays named as the model's inputs.

    Args:
        path: the ``.npz``.
        header: array name to shape and dtype, as read from the headers.
        digest: SHA-256 of the file; the stage that reads it holds it to this.
        kind: ``arrays`` or ``synthetic``.

    Raises:
        GoldenError: no array, an array without rows or without a row axis, or arrays that differ in their number of rows.
    """
    if not header:
        raise GoldenError(f"{path} holds no array. Expected arrays named as the model's inputs, a row a golden input.")
    for name, (shape, dtype) in header.items():
        if not shape or shape[0] == 0:
            raise GoldenError(
                f"{path}: '{name}' has shape {shape} ({dtype}): there is no row to compare. An empty golden set proves nothing; add inputs."
            )
    lengths = {name: shape[0] for name, (shape, _) in header.items()}
    if len(set(lengths.values())) != 1:
        raise GoldenError(f"{path}: the arrays differ in their number of rows: {lengths}. Expected one row per golden input in each.")
    count = next(iter(lengths.values()))
    width = len(str(count - 1))
    absolute = path.resolve()
    inputs = tuple(
        GoldenInput(
            id=f"row-{i:0{width}d}",
            files={name: f"{absolute}#{name}#{i}" for name in header},
            sha256=dict.fromkeys(header, digest),
            shown="",
            label=None,
            expected=None,
            slice="",
            chosen="sampled" if kind == "arrays" else "synthetic",
        )
        for i in range(count)
    )
    return GoldenSet(kind=kind, path=str(absolute), shown=str(path), manifest_sha256="", inputs=inputs)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
