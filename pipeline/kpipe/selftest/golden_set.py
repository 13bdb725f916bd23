"""Faults in the golden set: a copy of the folder is changed, and its manifest where the fault is one of the manifest."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from kpipe.selftest.fault import Family, Fault, FileFault, NotPlantableError, edit

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.selftest.fault import ContractEdit, GoldenEdit, Setup, Table

EDGES = frozenset({"golden", "decode", "decision"})
ALL = frozenset({"swatch"})


def files_of(entry: Table) -> list[str]:
    """The raw files of one entry."""
    return list(entry["files"].values()) if "files" in entry else [entry["file"]]


def digested(folder: Path, manifest: Table) -> None:
    """Write the digests anew, as somebody does who trusts what is there."""
    for entry in manifest["golden"]:
        if "files" in entry:
            entry["sha256"] = {name: _sha256(folder / file) for name, file in entry["files"].items()}
        else:
            entry["sha256"] = _sha256(folder / entry["file"])


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _altered(folder: Path, manifest: Table, _setup: Setup) -> None:
    path = folder / files_of(manifest["golden"][0])[0]
    path.write_bytes(path.read_bytes() + b"\0")


def _missing(folder: Path, manifest: Table, _setup: Setup) -> None:
    (folder / files_of(manifest["golden"][0])[0]).unlink()


def _another(folder: Path, manifest: Table, setup: Setup) -> None:
    """The file of another input with another decision, its digest written anew; where nothing was approved, nothing is promised."""
    decisions = {row.id: row.decision for row in setup.record.golden.rows}
    first = next((e for e in manifest["golden"] if "expected" in e), None)
    other = next((e for e in manifest["golden"] if first is not None and decisions.get(e["id"]) != decisions.get(first["id"])), None)
    if first is None or other is None:
        raise NotPlantableError("no approved decision differs from another input's")
    for mine, theirs in zip(files_of(first), files_of(other), strict=True):
        (folder / mine).write_bytes((folder / theirs).read_bytes())
    digested(folder, manifest)


def _cut(folder: Path, manifest: Table, _setup: Setup) -> None:
    path = folder / files_of(manifest["golden"][0])[0]
    path.write_bytes(path.read_bytes()[:60])
    digested(folder, manifest)


def _empty(_folder: Path, manifest: Table, _setup: Setup) -> None:
    manifest["golden"] = []


def _twice(_folder: Path, manifest: Table, _setup: Setup) -> None:
    manifest["golden"].append(dict(manifest["golden"][0]))


def _shrunk(_folder: Path, manifest: Table, _setup: Setup) -> None:
    manifest["golden"] = manifest["golden"][: len(manifest["golden"]) // 2]


def _expected(_folder: Path, manifest: Table, _setup: Setup) -> None:
    """One approved decision is another input's."""
    approved = [entry for entry in manifest["golden"] if "expected" in entry]
    other = next((entry["expected"] for entry in approved[1:] if entry["expected"] != approved[0]["expected"]), None)
    if other is None:
        raise NotPlantableError("all approved decisions are alike")
    approved[0]["expected"] = other


def _word(_folder: Path, manifest: Table, _setup: Setup) -> None:
    manifest["golden"][0]["chosen"] = "picked"


def _pinned(contract: Table, _target: str, setup: Setup) -> None:
    contract["golden"]["manifest_sha256"] = _sha256(setup.golden / "manifest.toml")


def _elsewhere(contract: Table, _target: str, setup: Setup) -> None:
    contract["golden"]["path"] = str(setup.golden / "nowhere")


def _fault(name: str, golden: GoldenEdit, contract: ContractEdit | None = None) -> Fault:
    return Fault(name, Family.GOLDEN, EDGES, ALL, golden=golden, contract=contract)


def _raw(name: str, kind: str, contract: ContractEdit | None = None) -> Fault:
    """The files themselves were written anew; what was approved stands."""
    return Fault(name, Family.GOLDEN, EDGES, frozenset(), file=FileFault("raw", (edit(kind),)), contract=contract)


FAULTS = (
    _fault("a file altered by a byte", _altered),
    _fault("a file missing", _missing),
    _fault("another input's file, digest renewed", _another),
    _fault("a file cut short, digest renewed", _cut),
    _fault("an approved decision of another input", _expected),
    _fault("an empty manifest", _empty),
    _fault("an id twice", _twice),
    _fault("a manifest with a word that isn't one", _word),
    _fault("half of the inputs gone, manifest pinned", _shrunk, _pinned),
    _raw("photographs unturned, digests renewed", "unturned"),
    _raw("16 bits cut to the lower 8, digests renewed", "low_byte"),
    _raw("16 bits cut to the upper 8, manifest pinned", "high_byte", _pinned),
    Fault("no folder there", Family.GOLDEN, EDGES, ALL, contract=_elsewhere),
)
