"""``kpipe recheck``: sealed artifacts, run again in other environments. Nothing is exported, nothing of a bundle is changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from kpipe import signals
from kpipe.errors import UsageError, nearest
from kpipe.recheck.columns import OWN, Column, Kind, affected, columns_of, needs, pins_of, recipe
from kpipe.recheck.environments import Environment, build, named_environment, satisfies, this_environment
from kpipe.recheck.exporting import EXPORTERS, exportable
from kpipe.recheck.outcome import Outcome, outcome, unbuilt
from kpipe.recheck.trial import Trial, perform
from kpipe.record import CellStatus, Verdict
from kpipe.signoff.bundle import Bundle
from kpipe.signoff.contents import REFERENCE, WAIVERS
from kpipe.waivers import WaiverSet, load_waivers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kpipe.recheck.columns import Recipe

    Say = Callable[[str], None]


@dataclass(frozen=True)
class RecheckRequest:
    """What is asked for."""

    bundles: tuple[Bundle, ...]
    changes: tuple[str, ...] = ()
    pythons: tuple[Path, ...] = ()
    targets: tuple[str, ...] = ()
    """Only these; empty for all that the columns may change."""
    goldens: Path | None = None
    times: bool = True
    cache: Path = field(default_factory=Path)
    """Where environments are kept."""
    anew: bool = False
    """Export the sealed ``.keras`` file anew in every environment, too, and run what comes of it."""


@dataclass(frozen=True)
class Rechecked:
    """The whole table."""

    columns: tuple[str, ...]
    environments: dict[str, dict[str, Environment]]
    """Bundle id to column title to the environment."""
    changed: dict[str, dict[str, dict[str, tuple[str, str]]]]
    """Bundle id to column title to distribution to the sealed version and the one there, of those that its targets ask for."""
    outcomes: tuple[Outcome, ...]
    at: str
    machine: dict[str, str]
    """Bundle id to how this machine differs from the one that was signed off on; empty where it doesn't."""
    times: bool
    """Whether latency was measured; without it the contract's limits are not checked."""
    relative: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Bundle id to its contract's limits that are relative to a baseline: they are about two artifacts, and are not checked here."""

    @property
    def verdict(self) -> Verdict:
        """FAIL where a required target fails anywhere, INCOMPLETE where one is unchecked or there is none, else PASS."""
        required = [o.status for o in self.outcomes if o.required]
        if CellStatus.FAIL in required:
            return Verdict.FAIL
        return Verdict.PASS if required and set(required) == {CellStatus.PASS} else Verdict.INCOMPLETE


def recheck(request: RecheckRequest, out: Path, say: Say) -> Rechecked:
    """Run every bundle in every environment.

    Args:
        request: what is asked for.
        out: where workers write; new.
        say: hears what is going on.

    Raises:
        UsageError: a word of the request is off; nothing was run.
        BundleError: a bundle can't be read.
    """
    columns = columns_of(request.changes, request.pythons)
    chosen = {bundle.id: _chosen(bundle, columns, request) for bundle in request.bundles}
    for column in columns:
        if not any(chosen[bundle.id][column.title] for bundle in request.bundles):
            raise UsageError(
                f"'{column.title}' reaches none of the targets that are asked for, so nothing would be checked there. Drop it, or --target."
            )
    recipes = {bundle.id: _recipes(bundle, columns, chosen[bundle.id], anew=request.anew) for bundle in request.bundles}
    outcomes: list[Outcome] = []
    environments: dict[str, dict[str, Environment]] = {}
    for bundle in request.bundles:
        places = environments.setdefault(bundle.id, {})
        for position, column in enumerate(columns):
            names = chosen[bundle.id][column.title]
            if not names:
                continue
            say(f"{bundle.id[:12]}, {column.title}: environment")
            places[column.title] = _environment(bundle, column, names, recipes[bundle.id][column.title], request)
            outcomes += _tried(request, bundle, column, names, places[column.title], out / bundle.id[:12] / str(position), say)
    return Rechecked(
        columns=tuple(column.title for column in columns),
        environments=environments,
        changed={
            b.id: {title: _changes(b, chosen[b.id][title], place, anew=request.anew) for title, place in environments[b.id].items()}
            for b in request.bundles
        },
        outcomes=tuple(outcomes),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine={bundle.id: _machine(bundle) for bundle in request.bundles},
        times=request.times,
        relative={bundle.id: _relative(bundle) for bundle in request.bundles},
    )


def _relative(bundle: Bundle) -> tuple[str, ...]:
    """The contract's limits that are relative to a baseline."""
    tables = bundle.contract.contract.targets.items()
    return tuple(f"{name} {key} = {factor:g}x baseline" for name, table in tables for key, factor in table.limits.relative.items())


def _chosen(bundle: Bundle, columns: Sequence[Column], request: RecheckRequest) -> dict[str, tuple[str, ...]]:
    """Column to the targets that are run there, the reference among them where the frameworks that run it are concerned."""
    known, wanted = [REFERENCE, *(t.name for t in bundle.contents.targets)], request.targets
    exported = set(exportable(bundle, known)) if request.anew else set()
    for name in wanted:
        if name not in known:
            raise UsageError(f"bundle {bundle.id[:12]} has no target '{name}'{nearest(name, known)}; it has {', '.join(known)}.")
    concerned: dict[str, tuple[str, ...]] = {}
    for column in columns:
        exporting = {canonicalize_name(r.name) for r in column.changes} & set(EXPORTERS)
        reached = [n for n in known if affected(bundle.target(n), column.changes, _pins(bundle, n)) or (exporting and n in exported)]
        concerned[column.title] = tuple(n for n in reached if not wanted or n in wanted)
    asked = {n for column in columns if column.kind is not Kind.SIGNED for n in concerned[column.title]}
    signed = next(column.title for column in columns if column.kind is Kind.SIGNED)
    return concerned | {signed: tuple(n for n in concerned[signed] if n in asked)}


def _pins(bundle: Bundle, name: str) -> dict[str, str]:
    return pins_of(bundle.environment.interpreters[bundle.target(name).interpreter])


def _local(bundle: Bundle, names: Sequence[str]) -> list[str]:
    """Distributions that targets ask for and no index has: they came from a folder, a file or a repository."""
    found = set()
    for name in names:
        held = bundle.environment.interpreters[bundle.target(name).interpreter]
        local = {str(canonicalize_name(line.split("==", 1)[0])) for line in held.local}
        found |= local & needs(bundle.target(name), _pins(bundle, name))
    return sorted(found)


def _wanted(bundle: Bundle, names: Sequence[str], *, anew: bool) -> set[str]:
    """Distributions that targets ask for; those of the exporters, and all where the model has code of its own, where they are exported anew."""
    found = {need for target in names for need in needs(bundle.target(target), _pins(bundle, target))}
    if anew and exportable(bundle, names):
        trust, pins = bundle.target(REFERENCE).job.trust, _pins(bundle, REFERENCE)
        found |= set(EXPORTERS) | (set(pins) - OWN if trust.custom_objects or trust.allow_modules else set())
    return found


def _recipes(bundle: Bundle, columns: Sequence[Column], chosen: Mapping[str, tuple[str, ...]], *, anew: bool) -> dict[str, tuple[Recipe, Recipe]]:
    """Column to what to install, and the same with nothing held that merely comes along."""
    found = {}
    for column in columns:
        names = chosen[column.title]
        pins = {name: version for target in names for name, version in _pins(bundle, target).items()}
        wanted = _wanted(bundle, names, anew=anew)
        changes = column.changes if names else ()
        found[column.title] = (recipe(wanted, pins, changes), recipe(wanted, pins, changes, strict=False))
    return found


def _environment(bundle: Bundle, column: Column, names: Sequence[str], recipes: tuple[Recipe, Recipe], request: RecheckRequest) -> Environment:
    here, anew = this_environment(), request.anew
    if column.kind is Kind.NAMED and column.python is not None:
        return named_environment(column.python)
    if column.kind is Kind.HERE:
        return here
    python = bundle.environment.machine.python
    pins = {name: version for target in names for name, version in _pins(bundle, target).items()}
    wanted = frozenset(name for name in _wanted(bundle, names, anew=anew) if name in pins)
    if column.kind is Kind.SIGNED and satisfies(here, pins, wanted, python):
        return here
    changed = {str(canonicalize_name(r.name)) for r in column.changes}
    if lost := [name for name in _local(bundle, names) if name not in changed]:
        return Environment(
            "", python, {}, "built", f"{', '.join(lost)} came from a folder or a repository, and no index has it. Name an interpreter with --python."
        )
    strict, loose = recipes
    made = build(strict, python, request.cache)
    return build(loose, python, request.cache) if made.problem and column.changes and loose != strict else made


def _tried(
    request: RecheckRequest, bundle: Bundle, column: Column, names: tuple[str, ...], place: Environment, folder: Path, say: Say
) -> list[Outcome]:
    if place.problem:
        anew = exportable(bundle, names) if request.anew else ()
        return [unbuilt(bundle, name, column.title, f"no environment: {place.problem}") for name in names] + [
            unbuilt(bundle, name, column.title, f"no environment: {place.problem}", anew=True) for name in anew
        ]
    trial = Trial(bundle, place, names, folder / "sealed", request.goldens, request.times)
    trials = [trial]
    if request.anew and (exported := exportable(bundle, names)):
        trials.append(replace(trial, targets=exported, folder=folder / "anew", anew=True))
    found = []
    for one in trials:
        tried = signals.run(perform(one, _waivers(bundle), lambda name: say(f"{bundle.id[:12]}, {column.title}: {name}")))
        found += [outcome(bundle, tried, name, column.title, anew=one.anew) for name in one.targets]
    return found


def _waivers(bundle: Bundle) -> WaiverSet:
    """The sealed waivers, held against today: they may have run out."""
    today = datetime.now(UTC).date()
    path = bundle.path / WAIVERS
    return load_waivers(path, today) if path.is_file() else WaiverSet(today=today)


def _changes(bundle: Bundle, names: Sequence[str], place: Environment, *, anew: bool) -> dict[str, tuple[str, str]]:
    """Distribution to the sealed version and the one there, where they differ."""
    pins = {name: version for target in names for name, version in _pins(bundle, target).items()}
    wanted = _wanted(bundle, names, anew=anew)
    found = {name: (pins[name], place.held.get(name, "none")) for name in sorted(wanted & set(pins))}
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]} if not place.problem else {}


def _machine(bundle: Bundle) -> str:
    """How this machine's processor differs from the sealed one, in words."""
    from kpipe.running import system

    sealed, here = bundle.environment.machine, system.environment()
    if sealed.cpu == here.cpu and sealed.cpu_features == here.cpu_features:
        return ""
    gone, more = sorted(set(sealed.cpu_features) - set(here.cpu_features)), sorted(set(here.cpu_features) - set(sealed.cpu_features))
    parts = [f"signed off on {sealed.cpu}, now {here.cpu}"] if sealed.cpu != here.cpu else []
    parts += [f"without {', '.join(gone)}"] if gone else []
    parts += [f"with {', '.join(more)}"] if more else []
    return "; ".join(parts)
