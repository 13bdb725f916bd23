"""From a contract to a list of targets. Pure: what is installed is handed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from kpipe.contract import Contract, LoadedContract, TargetTable, input_files, runtime_of
from kpipe.errors import UsageError, nearest
from kpipe.evidence import TargetPlan
from kpipe_stages.catalog import RUNTIMES, Runtime
from kpipe_stages.protocol import InputSpec, Observation

if TYPE_CHECKING:
    from kpipe.inputs import Input


NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Interpreter:
    """A Python and the distributions that it holds."""

    path: str
    versions: Mapping[str, str]
    """Distribution name to version, of the ones in the catalog."""
    problem: str = ""
    """Why it can't be used at all."""


def default_targets(here: Interpreter) -> dict[str, TargetTable]:
    """Every installed runtime, where the contract names no target."""
    return {
        name: TargetTable(required=row.required_by_default)
        for name, row in RUNTIMES.items()
        if row.default_target and not missing_distributions(row, here)
    }


def plan_targets(
    loaded: LoadedContract, here: Interpreter, others: Mapping[str, Interpreter], only: tuple[str, ...], digests: Mapping[str, str] = NONE
) -> tuple[TargetPlan, ...]:
    """Resolve every target of the contract.

    Args:
        loaded: the contract.
        here: the interpreter that runs kpipe.
        others: the interpreters that targets name, by the path as written.
        only: ``--target``; empty for all.
        digests: SHA-256 by absolute path, of the files that inputs name.

    Raises:
        UsageError: ``--target`` names one that isn't there, or no target is left.
    """
    tables = loaded.contract.targets or default_targets(here)
    if unknown := [name for name in only if name not in tables]:
        raise UsageError(f"--target {unknown[0]}: no such target{nearest(unknown[0], list(tables))}; there are {', '.join(tables) or 'none'}.")
    if not tables:
        raise UsageError(
            "no runtime is installed, so there is no target to check. Install one, e.g. pip install 'keras-kpipe[all]'; 'kpipe targets' lists them."
        )
    return tuple(_plan(name, table, loaded, others[table.python] if table.python else here, only, digests) for name, table in tables.items())


def plan_reference(contract: Contract, here: Interpreter, inputs: tuple[InputSpec, ...] = ()) -> TargetPlan:
    """The candidate on the backend that trained it, and the preprocessing that all share."""
    row = RUNTIMES[contract.model.backend]
    missing = missing_distributions(row, here)
    return TargetPlan(
        name="reference",
        runtime=row.name,
        required=True,
        settings={},
        chosen={},
        precision="f32",
        threads=0,
        python=here.path,
        provided="",
        inputs=inputs,
        quiet_load=False,
        absent=_not_installed(row, missing, here) if missing else None,
    )


def input_specs(tables: Mapping[str, Input], loaded: LoadedContract | None = None, digests: Mapping[str, str] = NONE) -> tuple[InputSpec, ...]:
    """Input tables as workers read them.

    Args:
        tables: input name to table.
        loaded: the contract, whose folder relative paths begin at; not needed where no table names a file.
        digests: SHA-256 by absolute path.
    """
    return tuple(_spec(name, table, loaded, digests) for name, table in tables.items())


def _spec(name: str, table: Input, loaded: LoadedContract | None, digests: Mapping[str, str]) -> InputSpec:
    paths = input_files(table, loaded) if loaded else ()
    return InputSpec(
        name=name,
        decode=table.decode or "tensors",
        read=_plain(table.read),
        steps=tuple(_plain(step) for step in table.steps),
        dtype=table.dtype,
        files={path: digests.get(path, "") for path in paths},
    )


def _plain(value: Any) -> Any:
    """The contract's tuples as the lists that JSON has."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def _plan(
    name: str, table: TargetTable, loaded: LoadedContract, interpreter: Interpreter, only: tuple[str, ...], digests: Mapping[str, str]
) -> TargetPlan:
    row = RUNTIMES[runtime_of(name, table)]
    chosen = {key: value for key, value in row.float32_settings if table.precision == "f32" and key not in table.settings}
    required = row.required_by_default if table.required is None else table.required
    own: dict[str, Input] = {**loaded.contract.inputs, **table.inputs} if table.inputs else {}
    return TargetPlan(
        name=name,
        runtime=row.name,
        required=required,
        settings=dict(table.settings),
        chosen=chosen,
        precision=table.precision,
        threads=table.threads,
        python=interpreter.path,
        provided=str(loaded.resolve(table.artifact)) if table.artifact else "",
        inputs=input_specs(own, loaded, digests),
        quiet_load="load_s" in table.limits.absolute,
        quantize=table.quantize or "",
        affinity=table.affinity,
        memory_mib=table.memory_mib or 0,
        absent=_absent(name, row, table, interpreter, only),
    )


def missing_distributions(row: Runtime, interpreter: Interpreter) -> list[str]:
    """What the runtime needs and the interpreter lacks."""
    return [name for name in row.distributions if name not in interpreter.versions]


def _absent(name: str, row: Runtime, table: TargetTable, interpreter: Interpreter, only: tuple[str, ...]) -> Observation | None:
    if only and name not in only:
        return Observation("KP312", f"Target '{name}' was left out by --target.", "Run without --target before release.", name)
    if interpreter.problem:
        return Observation(
            "KP301",
            f"The interpreter {interpreter.path} of target '{name}' can't be used: {interpreter.problem}.",
            "Correct the target's python.",
            name,
        )
    if missing := missing_distributions(row, interpreter):
        return _not_installed(row, missing, interpreter)
    version = interpreter.versions[row.distributions[0]]
    if table.version and not SpecifierSet(table.version).contains(version, prereleases=True):
        return Observation(
            "KP302",
            f"Target '{name}' asks for {row.distributions[0]} {table.version}, and {interpreter.path} holds {version}.",
            f'Install {row.distributions[0]}{table.version}, or name an interpreter that has it (python = "...").',
            name,
            {"wanted": table.version, "found": version},
        )
    return None


def _not_installed(row: Runtime, missing: list[str], interpreter: Interpreter) -> Observation:
    return Observation(
        "KP301",
        f"{row.title} needs {' and '.join(missing)}, which {interpreter.path} does not have.",
        f"Install it: pip install 'keras-kpipe[{row.extra}]'.",
        row.name,
        {"missing": missing, "extra": row.extra},
    )
