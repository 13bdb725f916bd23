"""Which contract a golden set is read by, and what of it a raw file needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.contract import CONTRACT_NAME, LoadedContract, load_contract
from kpipe.errors import GoldenError, UsageError
from kpipe.inputs import raw_inputs
from kpipe.running.request import Request, resolve

if TYPE_CHECKING:
    from kpipe.contract import Contract
    from kpipe.running.request import Resolved


def contract_for(folder: Path, contract: Path | None, model: Path | None = None) -> LoadedContract:
    """The contract that says how raw files become tensors: the one named, else ``kpipe.toml`` beside the model, in the set, beside the set, or here.

    Raises:
        UsageError: there is none.
        GoldenError: it has no ``[inputs]``.
        ContractError: it can't be used.
    """
    places = [*([model.parent] if model else []), folder, folder.resolve().parent, Path.cwd()]
    found = contract or next((place / CONTRACT_NAME for place in places if (place / CONTRACT_NAME).is_file()), None)
    if found is None:
        where = ", ".join(str(place) for place in dict.fromkeys(places))
        raise UsageError(
            f"no {CONTRACT_NAME} in {where}. It says how raw files become tensors; name it with --contract, or let 'kpipe init' write one."
        )
    loaded = load_contract(found)
    if not loaded.contract.inputs:
        raise GoldenError(f"{loaded.source} has no [inputs] that say how raw files become tensors, so none can be checked. 'kpipe init' writes them.")
    return loaded


def candidate(model: Path, loaded: LoadedContract, custom_objects: tuple[Path, ...]) -> Resolved:
    """The model whose reference is asked, by this contract.

    Raises:
        UsageError: it isn't there, or isn't the one that the contract names.
    """
    resolved = resolve(Request(model, Path(loaded.source), custom_objects=custom_objects), golden=False)
    wanted = resolved.loaded.contract.model.sha256
    if wanted and wanted != resolved.sha256:
        raise UsageError(f"{model} has SHA-256 {resolved.sha256}; the contract names {wanted}. Give that model, or correct [model] sha256.")
    return resolved


def only_input(contract: Contract) -> str:
    """The name of the contract's one input that has raw files of its own: a raw file is one golden input only where there is one.

    Raises:
        GoldenError: there are several.
    """
    names = [name for name, (whose, _) in raw_inputs(contract.inputs).items() if name == whose]
    if len(names) != 1:
        raise GoldenError(
            f"the contract has {len(names)} inputs ({', '.join(names)}), and one raw file is a golden input only where there is one. "
            "Write the entries by hand, with files = { input = path }; see docs/golden.md. 'kpipe golden verify' checks them."
        )
    return names[0]


def worker_files(contract: Contract, path: str, row: int | None = None) -> dict[str, str]:
    """Every input of the contract to the one raw file, as workers read it."""
    return {name: f"{path}#row={row}" if table and row is not None else path for name, (_, table) in raw_inputs(contract.inputs).items()}


def unknown_decision(contract: Contract, expected: str | None) -> str:
    """Say that an approved decision is none that the rule can give; empty where it can, or where that can't be told."""
    decision = contract.decision
    if expected is None or decision is None or decision.rule != "argmax" or not decision.labels or expected in decision.labels:
        return ""
    return f"expected is '{expected}', and the contract's labels are {', '.join(decision.labels)}; no answer could ever be that"
