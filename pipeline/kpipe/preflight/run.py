"""Build the untrained model in a worker, then run the gate itself on it, with synthetic inputs and without timed calls."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit

from kpipe.api import validate
from kpipe.contract import load_contract
from kpipe.errors import UsageError
from kpipe.evidence import Ending
from kpipe.judging.judge import inspection
from kpipe.judging.stages import stage_findings
from kpipe.preflight.conclude import conclude
from kpipe.running.single import run_stage
from kpipe.store import load_evidence, new_run_path
from kpipe_stages.build_orders import BuildJob, BuildResult
from kpipe_stages.codec import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.preflight.result import Preflight

BUILD_LIMIT_S = 600.0
KEPT = ("model", "export", "run", "targets", "agreement")
"""Tables of a contract that say something about an untrained model."""
DROPPED = {"model": ("sha256",), "targets": ("artifact", "inputs", "limits")}
"""Keys of these (of each target) that don't."""


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    source: str
    """``module:function``, ``file.py:function`` or a ``.keras`` file."""
    targets: tuple[str, ...] = ()
    contract: Path | None = None
    custom_objects: tuple[Path, ...] = ()
    out: Path | None = None
    jobs: int | None = None
    seed: int = 0


def preflight(order: Order, on_event: Callable[[str, dict[str, Any]], None] | None = None) -> Preflight:
    """Would it convert, load and agree?

    Raises:
        UsageError: the source is off, or the model can't be built.
        KpipeError: the contract can't be used.
    """
    loaded = load_contract(order.contract) if order.contract else None
    folder = (order.out or new_run_path(Path(_stem(order.source)))).resolve()
    _check_free(folder)
    workshop = folder.with_name(f"{folder.name}.preflight")
    workshop.mkdir(parents=True, exist_ok=True)
    model, built = _model(order, workshop, on_event)
    contract = workshop / "kpipe.toml"
    contract.write_text(_contract(loaded.text if loaded else "", loaded.folder if loaded else workshop), encoding="utf-8")
    own = tuple(path for path in (built.registered if built else ()) if "site-packages" not in path)
    run = validate(
        model, contract=contract, targets=order.targets, custom_objects=(*order.custom_objects, *own), out=folder, jobs=order.jobs, on_event=on_event
    )
    inspected = inspection(next(stage for stage in load_evidence(run.folder).stages if stage.name == "inspect"))
    layers = built.layers if built else {row.name: row.class_name for row in (inspected.layers if inspected else ())}
    parameters = built.parameters if built else inspected.parameters if inspected else 0
    return conclude(run.record, order.source, parameters, layers, str(run.report), order.targets)


def _stem(source: str) -> str:
    module, _, function = source.rpartition(":")
    return function if module else Path(source).name


def _check_free(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"--out {folder} is not empty. Name a new folder; nothing was changed.")


def _model(order: Order, workshop: Path, on_event: Callable[[str, dict[str, Any]], None] | None) -> tuple[Path, BuildResult | None]:
    module, _, function = order.source.rpartition(":")
    if not module:
        path = Path(order.source)
        if path.suffix != ".keras" or not path.is_file():
            what = f"'{order.source}' is no .keras file" if path.suffix != ".keras" else f"{path} does not exist"
            raise UsageError(f"{what}. Expected module:function (architecture:build_model, arch.py:build_model) or a .keras file.")
        return path, None
    if not function.isidentifier():
        raise UsageError(f"'{order.source}': '{function}' is no function's name. Expected module:function, such as arch.py:build_model.")
    if module.endswith(".py") and not Path(module).is_file():
        raise UsageError(f"{module} does not exist. Expected module:function, module being a Python file or an importable module.")
    out = workshop / f"{function}.keras"
    job = BuildJob(module, function, str(Path.cwd()), str(out), order.seed)
    stage = run_stage("build", job, backend="tensorflow", time_limit_s=BUILD_LIMIT_S, on_event=on_event)
    if stage.ending is not Ending.OK or stage.result is None:
        raise UsageError("The model can't be built: " + "; ".join(f"{finding.cause} {finding.remedy}" for finding in stage_findings(stage)))
    return out, decode(BuildResult, stage.result.data)


def _contract(text: str, folder: Path) -> str:
    """The part of a contract that an untrained model can be held to; nothing is timed."""
    tables = {name: dict(table) for name, table in tomllib.loads(text).items() if name in KEPT}
    for key in DROPPED["model"]:
        tables.get("model", {}).pop(key, None)
    if files := tables.get("model", {}).get("custom_objects"):
        tables["model"]["custom_objects"] = [str((folder / file).resolve()) for file in files]
    for target in tables.get("targets", {}).values():
        for key in DROPPED["targets"]:
            target.pop(key, None)
        if "python" in target:
            target["python"] = str(folder / target["python"])
    return tomlkit.dumps({**tables, "timing": {"calls": 0, "end_to_end_calls": 0}})
