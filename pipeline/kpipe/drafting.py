"""A first contract from a model's own signature, and a first manifest from a folder of raw files. Pure text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomlkit

from kpipe.golden import MANIFEST_VERSION
from kpipe.infer import RULE_OF_ACTIVATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kpipe_stages.protocol import InspectResult, Signature, TensorSpec

IMAGE_RANK = 4
CHANNELS = {1: "gray", 3: "rgb", 4: "rgba"}


def draft_contract(
    signature: Signature, inspected: InspectResult, *, custom_objects: Sequence[str], golden: str | None, runtimes: Mapping[str, bool]
) -> str:
    """The text of a contract that validates as it stands; what has to be looked at says so in a comment.

    Args:
        signature: the model's inputs and outputs.
        inspected: digest and activations.
        custom_objects: paths relative to the contract.
        golden: path of the golden folder relative to the contract, None where there is none yet.
        runtimes: installed runtime to whether it is required.
    """
    document = tomlkit.document()
    document.add(tomlkit.comment("What this model promises. Every key is described in docs/contract.md."))
    document["model"] = _model(inspected, custom_objects)
    document["golden"] = _golden(golden)
    document["inputs"] = _table({spec.name: _input(spec) for spec in signature.inputs})
    if decision := _decision(signature, inspected):
        document["decision"] = decision
    document["agreement"] = _table({"tolerance": "auto", "max_flips": 0})
    document["targets"] = _table({name: _target(name, required=required) for name, required in runtimes.items()})
    return tomlkit.dumps(document)


def _table(values: Mapping[str, Any]) -> Any:
    table = tomlkit.table()
    for key, value in values.items():
        table[key] = value
    return table


def _model(inspected: InspectResult, custom_objects: Sequence[str]) -> Any:
    table = _table({"sha256": inspected.sha256, "backend": "jax"})
    table["sha256"].comment("this very file; drop the line to gate every build of the model")
    table["backend"].comment("the backend that trained it: the reference")
    if custom_objects:
        table["custom_objects"] = list(custom_objects)
    return table


def _golden(path: str | None) -> Any:
    table = tomlkit.table()
    if path is None:
        table.add(tomlkit.comment('path = "golden_inputs"    # make it: kpipe init MODEL --raw DIR'))
    else:
        table["path"] = path
    table["batches"] = [3, 8]
    return table


def _input(spec: TensorSpec) -> Any:
    channels = spec.shape[-1] if spec.shape and len(spec.shape) == IMAGE_RANK else None
    if channels not in CHANNELS:
        table = _table({"decode": "npy", "dtype": spec.dtype})
        table["decode"].comment("a file a golden input, without the batch axis")
        return table
    height, width = spec.shape[1:3] if spec.shape else (None, None)
    steps: list[dict[str, Any]] = [{"channels": CHANNELS[channels]}]
    if CHANNELS[channels] != "rgba":
        steps.insert(0, {"alpha": "composite"})
    if height and width:
        steps.append({"resize": [height, width], "method": "bilinear", "antialias": True})
    if "float" in spec.dtype:
        steps.append({"scale": 1 / 255})
    table = _table({"decode": "image", "steps": _steps(steps), "dtype": spec.dtype})
    table["steps"].comment("LOOK AT THIS: it has to be what training did (resize method, channel order, scale)")
    return table


def _steps(steps: Iterable[dict[str, Any]]) -> Any:
    array = tomlkit.array()
    for step in steps:
        inline = tomlkit.inline_table()
        inline.update(step)
        array.append(inline)
    return array.multiline(multiline=True)


def _decision(signature: Signature, inspected: InspectResult) -> Any:
    telling = [(name, RULE_OF_ACTIVATION[a]) for name, a in inspected.activations.items() if a in RULE_OF_ACTIVATION]
    if len(telling) != 1 or telling[0][0] not in {spec.name for spec in signature.outputs}:
        return None
    output, rule = telling[0]
    table = _table({"rule": rule, "output": output} | ({"threshold": 0.5} if rule == "threshold" else {}))
    table["rule"].comment("inferred from that output's activation")
    return table


def _target(name: str, *, required: bool) -> Any:
    table = tomlkit.table()
    if "openvino" in name:
        inline = tomlkit.inline_table()
        inline["INFERENCE_PRECISION_HINT"] = "f32"
        table["settings"] = inline
        table["settings"].comment("production has to set it too: on newer CPUs the default is bfloat16")
    if not required:
        table["required"] = False
    return table


def draft_manifest(entries: Iterable[tuple[str, str, str | None]], source: str) -> str:
    """The text of a manifest.

    Args:
        entries: file relative to the golden folder, its SHA-256, its label if the folder it came from names one.
        source: where the files came from, in words.
    """
    document = tomlkit.document()
    document["version"] = MANIFEST_VERSION
    document["set"] = _table({"source": source})
    golden = tomlkit.aot()
    for number, (file, digest, label) in enumerate(entries, start=1):
        row = _table({"id": f"{number:04d}-{file.rsplit('/', 1)[-1]}", "file": file, "sha256": digest, "chosen": "sampled", "origin": source})
        if label is not None:
            row["label"] = label
        golden.append(row)
    document["golden"] = golden
    return tomlkit.dumps(document)
