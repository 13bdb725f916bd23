"""The environments to run sealed artifacts in: one column of the table each. Pure.

A worker needs the runtime's distributions, numpy, and what decodes raw files. Those are asked for by name at the versions that were sealed;
every other sealed version is a constraint, for what they depend on. A change replaces the version of one of them.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from kpipe.errors import UsageError, nearest
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kpipe.evidence import Installed
    from kpipe.signoff.contents import SealedTarget

DECODERS = ("pillow", "soundfile", "soxr", "tokenizers", "pyarrow", "h5py")
"""What workers import to read raw files and archives, where it was installed when the run was made."""

OWN = frozenset({"keras-kpipe"})
"""Never installed there: workers run from a copy."""


class Kind(enum.StrEnum):
    """Where a column's versions come from."""

    SIGNED = "signed off"
    HERE = "here"
    WITH = "with"
    NAMED = "named"


@dataclass(frozen=True)
class Column:
    """One environment."""

    title: str
    kind: Kind
    changes: tuple[Requirement, ...] = ()
    python: Path | None = None
    """An interpreter that was named."""


@dataclass(frozen=True)
class Recipe:
    """What to install."""

    requirements: tuple[str, ...]
    """Asked for by name; sorted."""
    constraints: tuple[str, ...]
    """Versions of whatever else comes with them; sorted."""


def columns_of(changes: Sequence[str], pythons: Sequence[Path]) -> tuple[Column, ...]:
    """The signed-off environment, then one for each ``--with`` and each interpreter; with neither, this one.

    Raises:
        UsageError: a change names no version.
    """
    asked = [Column(text, Kind.WITH, changes_of(text)) for text in dict.fromkeys(changes)]
    asked += [Column(str(path), Kind.NAMED, python=path) for path in dict.fromkeys(pythons)]
    return (Column(str(Kind.SIGNED), Kind.SIGNED), *(asked or [Column(str(Kind.HERE), Kind.HERE)]))


def changes_of(text: str) -> tuple[Requirement, ...]:
    """``openvino==2026.4.1`` or several, with blanks or commas between them.

    Raises:
        UsageError: one of them is no requirement, or says no version, or is there twice.
    """
    found = []
    for word in re.split(r"\s*,\s*(?=[A-Za-z])|\s+(?=[A-Za-z])", text.strip()):
        try:
            requirement = Requirement(word)
        except InvalidRequirement as error:
            raise UsageError(
                f"--with {text!r}: {word!r} is no requirement ({error}). Expected a name and a version, such as openvino==2026.4.1."
            ) from error
        if not requirement.specifier:
            raise UsageError(f"--with {text!r} says no version of {requirement.name}. Write {requirement.name}==VERSION.")
        found.append(requirement)
    names = [canonicalize_name(r.name) for r in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--with {text!r} names {twice} twice. Write one --with for each environment.")
    return tuple(found)


def pins_of(held: Installed) -> dict[str, str]:
    """Canonical name to version, of all that an interpreter held."""
    pairs = (line.split("==", 1) for line in (*held.requirements, *held.local))
    return {str(canonicalize_name(name)): version for name, version in pairs}


def needs(target: SealedTarget, pins: Mapping[str, str]) -> frozenset[str]:
    """Distributions that a target's worker asks for, canonical names.

    Args:
        target: the target.
        pins: canonical name to version, of the interpreter that it ran in.
    """
    names = {*RUNTIMES[target.runtime].distributions, *target.versions, "numpy", *(name for name in DECODERS if name in pins)}
    if own_code(target):
        names |= set(pins)
    return frozenset(canonicalize_name(name) for name in names) - OWN


def own_code(target: SealedTarget) -> bool:
    """Whether its worker runs code of the user's, which may import anything."""
    job = target.job
    registered = target.format == "keras" and (job.trust.custom_objects or job.trust.allow_modules)
    return bool(registered or any(spec.files or ":" in spec.decode for spec in job.inputs))


def affected(target: SealedTarget, changes: Iterable[Requirement], pins: Mapping[str, str]) -> bool:
    """Whether a change may reach a target: it names what its worker asks for, or nothing that any runtime is known to ask for."""
    changed = {canonicalize_name(r.name) for r in changes}
    runtimes = {canonicalize_name(d) for row in RUNTIMES.values() for d in row.distributions}
    return not changed or bool(changed & needs(target, pins)) or bool(changed - runtimes - {canonicalize_name(d) for d in DECODERS})


def recipe(wanted: Iterable[str], pins: Mapping[str, str], changes: Sequence[Requirement] = (), *, strict: bool = True) -> Recipe:
    """What to install for some targets.

    Args:
        wanted: distributions that they ask for, canonical names.
        pins: canonical name to version, as sealed.
        changes: what replaces a pin.
        strict: hold what comes along to its sealed version; a change may need it otherwise.

    Raises:
        UsageError: a change names what was not there when the run was made.
    """
    changed = {str(canonicalize_name(r.name)): str(r) for r in changes}
    for name in changed:
        if name not in pins:
            raise UsageError(f"--with names {name}, which the signed-off environment doesn't have{nearest(name, tuple(pins))}.")
    names = {name for name in wanted if name in pins} | set(changed)
    kept = {name: f"{name}=={version}" for name, version in pins.items() if name not in changed and name not in OWN}
    requirements = {changed.get(name) or kept[name] for name in names if name in changed or name in kept}
    constraints = {line for name, line in kept.items() if strict and name not in names}
    return Recipe(tuple(sorted(requirements)), tuple(sorted(constraints)))
