"""``deploy.toml`` beside each artifact: what was judged is exactly what this file describes. Pure text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomlkit

from kpipe_stages.catalog import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kpipe.record import RunRecord, TargetRecord


def deployments(record: RunRecord) -> dict[str, str]:
    """Folder below ``artifacts/`` to the text of its ``deploy.toml``.

    Targets on one artifact share a file. A ``.keras`` file or an artifact that was handed in is described below ``artifacts/keras`` and
    ``artifacts/provided/<target>``: nothing is written beside files that aren't kpipe's.
    """
    groups: dict[str, list[TargetRecord]] = {}
    for target in record.targets:
        if target.modes:
            groups.setdefault(_folder(target), []).append(target)
    return {folder: _document(record, targets) for folder, targets in groups.items()}


def _folder(target: TargetRecord) -> str:
    artifact = target.artifact
    if artifact is None:
        return "keras"
    made = f"{artifact.format}_{artifact.variant}" if artifact.variant else artifact.format
    return f"provided/{target.name}" if artifact.provided else made


def _document(record: RunRecord, targets: list[TargetRecord]) -> str:
    document = tomlkit.document()
    document.add(tomlkit.comment("What kpipe judged. The verdict holds for exactly this artifact, these settings and these versions."))
    document["run"] = _table(
        {
            "id": record.run_id,
            "verdict": str(record.verdict),
            "candidate_sha256": record.candidate.sha256,
            "contract_sha256": record.contract.sha256,
            "profile": record.profile,
        }
    )
    if code := {path: sha256 for rule in record.decisions for path, sha256 in rule.files.items()}:
        document["decision_code"] = _table(code)
    artifact = targets[0].artifact
    facts: dict[str, Any] = {"format": "keras", "path": record.candidate.path, "sha256": record.candidate.sha256, "size": record.candidate.size}
    if artifact is not None:
        facts = {
            "format": artifact.format,
            "variant": artifact.variant or "none",
            "path": artifact.path,
            "companions": list(artifact.companions),
            "sha256": artifact.sha256,
            "size": artifact.size,
        }
        facts |= {"repairs": list(artifact.repairs), "fixed_batch": artifact.fixed_batch or "any", "converters": artifact.versions}
        if artifact.reused:
            facts["reused"] = artifact.reused
    document["artifact"] = _table(facts)
    document["signature"] = _table(_signature(record, targets[0]))
    variant = VARIANTS.get(artifact.format, {}).get(artifact.variant) if artifact is not None and not artifact.provided else None
    if variant is not None and variant.calibrates and (used := record.calibration) is not None:
        document["calibration"] = _table({"path": used.path, "sha256": used.sha256, "inputs": used.count})
    document["targets"] = _table({t.name: _target(t) for t in targets})
    return tomlkit.dumps(document)


def _signature(record: RunRecord, target: TargetRecord) -> dict[str, Any]:
    """The model's names, to the artifact's, in the model's order; and the structure in which the model itself takes and gives them."""
    signature = record.candidate.signature
    inputs, outputs = ([spec.name for spec in side] for side in ((signature.inputs, signature.outputs) if signature else ((), ())))
    return {
        "inputs": target.inputs or {name: name for name in inputs},
        "outputs": target.outputs or {name: name for name in outputs},
        "input_structure": signature.input_structure if signature else "",
        "output_structure": signature.output_structure if signature else "",
    }


def _target(target: TargetRecord) -> dict[str, Any]:
    return {
        "runtime": target.runtime,
        "status": str(target.status),
        "required": target.required,
        "settings": {**target.chosen_settings, **target.settings},
        "settings_chosen_by_kpipe": sorted(target.chosen_settings),
        "held_to": dict(target.confined),
        "precision": target.effective_precision,
        "versions": target.identity.versions if target.identity else {},
        "cpu": target.identity.cpu if target.identity else "",
        "preprocessing": dict(target.preprocessing),
        "shapes": {row.name: row.status.value for row in target.shapes},
        "binding": target.binding,
    }


def _table(values: Iterable[tuple[str, Any]] | dict[str, Any]) -> Any:
    table = tomlkit.table()
    for key, value in dict(values).items():
        table[key] = _table(value) if isinstance(value, dict) else value
    return table
