"""``kpipe inventory``: what a team needs to carry on with a model, or to move it elsewhere, and what of it is tied to which framework. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kpipe.signoff.contents import GOLDEN, MODEL, SBOM, WAIVERS
from kpipe.text import printable
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from kpipe.record import DecisionRecord, TargetRecord
    from kpipe.signoff.bundle import Bundle
    from kpipe.signoff.contents import SealedTarget
    from kpipe_stages.protocol import InputSpec

TIES = {
    "keras": "Keras, and the custom objects below; training can go on from it",
    "saved_model": "TensorFlow, or what else loads a SavedModel",
    "litert": "LiteRT, or another runtime of .tflite files that has these operators",
    "onnx": "no framework: any ONNX runtime that has these operators",
    "openvino_ir": "OpenVINO",
}


@dataclass(frozen=True)
class Item:
    """One thing that the bundle holds."""

    what: str
    path: str
    """Below the bundle; empty where it is no file."""
    detail: str
    tied_to: str
    """The framework or library that it is of use with; empty for none."""


@dataclass(frozen=True)
class Part:
    """Items of one kind."""

    title: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Inventory:
    """All of it."""

    bundle: str
    product: str
    parts: tuple[Part, ...]


def inventory(bundle: Bundle) -> Inventory:
    """Take the inventory of a bundle."""
    parts = (
        Part("Weights", (_candidate(bundle),)),
        Part("Sources", tuple(_sources(bundle))),
        Part("Preprocessing", tuple(_input(spec) for spec in _reference_inputs(bundle))),
        Part("Decisions", tuple(_rule(rule) for rule in bundle.record.decisions)),
        Part("Artifacts and settings", tuple(_target(bundle, target) for target in bundle.contents.targets)),
        Part("Golden inputs", (_goldens(bundle),)),
        Part("Versions", tuple(_interpreters(bundle))),
        Part("Evidence", tuple(_evidence(bundle))),
    )
    return Inventory(bundle.id, bundle.contents.approval.product, parts)


def render(found: Inventory) -> str:
    """As text."""
    lines = [f"{found.product}: bundle {found.bundle}"]
    for part in found.parts:
        lines += ["", part.title]
        for item in part.items:
            where = f"  ({item.path})" if item.path else ""
            lines.append(f"  {printable(item.what)}{printable(where)}: {printable(item.detail)}")
            lines += [f"      tied to: {printable(item.tied_to)}"] if item.tied_to else []
        lines += [] if part.items else ["  none"]
    return "\n".join(lines) + "\n"


def _candidate(bundle: Bundle) -> Item:
    candidate = bundle.record.candidate
    detail = (
        f"{candidate.model_class or 'model'} '{candidate.model_name}', {candidate.parameters:,} parameters in {candidate.layers} layers, "
        f"written by Keras {candidate.keras_version}, trained on {bundle.contents.reference.runtime}; SHA-256 {candidate.sha256}"
    )
    return Item("the trained model", MODEL, detail, TIES["keras"])


def _sources(bundle: Bundle) -> list[Item]:
    custom = bundle.evidence.custom_objects
    deciding = {path for files in bundle.evidence.decision_code.values() for path in files}
    items = []
    for path, sealed in bundle.contents.sources.items():
        kind = "custom objects" if path in custom else "decision code" if path in deciding else "preprocessing"
        tie = f"Keras {bundle.contents.keras_version}" if path in custom else "Python and what it imports"
        items.append(Item(kind, sealed, f"was {path}; SHA-256 {bundle.manifest.files[sealed].sha256}", tie))
    return items


def _reference_inputs(bundle: Bundle) -> tuple[InputSpec, ...]:
    return bundle.contents.prepares[bundle.contents.reference.prepare].inputs


def _input(spec: InputSpec) -> Item:
    steps = "; ".join(_plain(step) for step in spec.steps) or "no steps"
    code = ":" in spec.decode
    detail = f"decode {spec.decode}, then {steps}{f', as {spec.dtype}' if spec.dtype else ''}"
    return Item(
        f"input '{spec.name}'",
        ", ".join(spec.files),
        detail,
        "your own Python code" if code else "NumPy and Pillow, as kpipe uses them; described by the contract",
    )


def _plain(step: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in step.items())


def _rule(rule: DecisionRecord) -> Item:
    return Item(rule.name or "decision", "", rule.detail or f"{rule.rule} of {rule.output}", "your own Python code" if rule.files else "")


def _target(bundle: Bundle, target: SealedTarget) -> Item:
    record = next(t for t in bundle.record.targets if t.name == target.name)
    versions = ", ".join(f"{name} {target.versions[name]}" for name in RUNTIMES[target.runtime].distributions if name in target.versions)
    settings = {**target.job.chosen, **target.job.settings}
    told = ", ".join(f"{key} = {value}" for key, value in settings.items()) or "the runtime's own settings"
    approved = target.status if target.required else f"{target.status}, not required"
    detail = f"{approved}; {RUNTIMES[target.runtime].title}, {versions}; {told}; {record.effective_precision}; {_converters(record)}SHA-256 {target.sha256}"
    return Item(f"target '{target.name}'", target.artifact, detail, TIES[target.format])


def _converters(record: TargetRecord) -> str:
    if record.artifact is None:
        return ""
    made = ", ".join(f"{name} {version}" for name, version in record.artifact.versions.items())
    repairs = f"{len(record.artifact.repairs)} repairs at export; " if record.artifact.repairs else ""
    return f"converted by {made}; {repairs}" if made else ("handed in; " if record.artifact.provided else repairs)


def _goldens(bundle: Bundle) -> Item:
    golden = bundle.record.golden
    kept = "with their files" if bundle.full else "as digests only: keep the files, they are supplied again at re-check"
    chosen = f"{golden.sampled} sampled, {golden.mined} mined"
    slices = ", ".join(f"{name or 'no slice'} {count}" for name, count in golden.slices.items())
    return Item(f"{golden.count} raw inputs", GOLDEN, f"{kept}; {chosen}; {slices}; manifest SHA-256 {bundle.contents.golden_sha256}", "")


def _interpreters(bundle: Bundle) -> list[Item]:
    users = Counter(target.interpreter for target in (bundle.contents.reference, *bundle.contents.targets))
    items = []
    for name, held in bundle.environment.interpreters.items():
        detail = (
            f"Python {held.python}, {len(held.requirements)} distributions with exact versions; ran {users[name]} of the targets and the reference"
        )
        items.append(Item(f"interpreter '{name}'", f"requirements/{name}.txt", detail, ""))
    machine = bundle.environment.machine
    features = ", ".join(machine.cpu_features) or "none that change numerics"
    return [*items, Item("machine", "environment.json", f"{machine.platform}, {machine.cpu}, {machine.cores} cores; CPU features: {features}", "")]


def _evidence(bundle: Bundle) -> list[Item]:
    approval = bundle.contents.approval
    items = [
        Item("approval", "contents.json", f"{approval.by} at {approval.at} for {approval.product}@{approval.channel}: {approval.reason}", ""),
        Item("verdict", "run/run.json", f"{bundle.contents.verdict}: {bundle.contents.headline}", ""),
        Item("contract", "run/contract.toml", f"SHA-256 {bundle.contents.contract_sha256}", ""),
        Item("decisions", "decisions.json", "of the reference and of every target, by golden input", ""),
        Item("outputs", "run/stages", f"of the reference and of {len(bundle.contents.targets)} targets, in every way of running, as .npy", "NumPy"),
        Item("bill of materials", SBOM, "CycloneDX 1.6", ""),
    ]
    if WAIVERS in bundle.manifest.files:
        items.append(Item("waivers", WAIVERS, "findings that somebody answers for", ""))
    return [*items, *(Item(f"target '{name}'", "", "never ran: nothing of it is approved", "") for name in bundle.contents.left_out)]
