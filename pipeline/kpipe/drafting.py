"""A first contract from a model's own signature, and a first manifest from a folder of raw files. Pure text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import tomlkit

from kpipe.drafting_axes import Shapes, add_comments, draft_axes, draft_lengths
from kpipe.golden import MANIFEST_VERSION
from kpipe.infer import RULE_OF_ACTIVATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kpipe_stages.protocol import InspectResult, Signature, TensorSpec

IMAGE_RANK = 4
CHANNELS = {1: "gray", 3: "rgb", 4: "rgba"}
VECTOR_RANK = 2
MOST_COLUMNS = 256
"""A longer vector is hardly a row of a table."""


@dataclass(frozen=True)
class RawFiles:
    """What the raw files are, as far as their names and the first header tell."""

    kind: str = ""
    """``image``, ``audio``, ``text``, ``table`` or ``npy``; empty where there are none, or several kinds."""
    format: str = ""
    """Of a table."""
    columns: tuple[str, ...] = ()
    """Of a CSV table."""
    shapes: Shapes = ()
    """Of arrays."""


NO_FILES = RawFiles()
NO_ROWS: Mapping[str, int] = MappingProxyType({})


def draft_contract(
    signature: Signature,
    inspected: InspectResult,
    *,
    custom_objects: Sequence[str],
    golden: str | None,
    runtimes: Mapping[str, bool],
    raw: RawFiles = NO_FILES,
) -> str:
    """The text of a contract that validates as it stands; what has to be looked at says so in a comment.

    Args:
        signature: the model's inputs and outputs.
        inspected: digest and activations.
        custom_objects: paths relative to the contract.
        golden: path of the golden folder relative to the contract, None where there is none yet.
        runtimes: installed runtime to whether it is required.
        raw: what the raw files are.
    """
    document = tomlkit.document()
    document.add(tomlkit.comment("What this model promises. Every key is described in docs/contract.md."))
    document["model"] = _model(inspected, custom_objects)
    add_comments(document, _product(inspected))
    document["golden"] = _golden(golden)
    document["inputs"] = _table({spec.name: _input(spec, raw) for spec in signature.inputs})
    axes, proposed = draft_axes(signature, raw.shapes)
    if axes is not None:
        document["axes"] = axes
    add_comments(document, proposed)
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


def _product(inspected: InspectResult) -> list[str]:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", inspected.model_name).strip("-")[:64] or "model"
    told = "What the model is released as: sign-off keeps a line of releases for each product (docs/signoff.md)."
    return [told, "[product]", f'name = "{name}"']


def _golden(path: str | None) -> Any:
    table = tomlkit.table()
    if path is None:
        table.add(tomlkit.comment('path = "golden_inputs"    # make it: kpipe init MODEL --raw DIR'))
    else:
        table["path"] = path
    table["batches"] = [3, 8]
    return table


def _input(spec: TensorSpec, raw: RawFiles) -> Any:
    """What the raw files are, else what the signature tells."""
    drafts = {"table": _table_input, "text": _text_input, "audio": _audio_input, "image": _image_input}
    fits = _fitting(spec)
    by_signature = "text" if spec.dtype == "string" else "image" if fits["image"] else "table" if _is_vector(spec) and "float" in spec.dtype else ""
    kind = (raw.kind if fits.get(raw.kind) else "") if raw.kind else by_signature
    if kind in drafts:
        return drafts[kind](spec, raw)
    table = _table({"decode": "npy", "dtype": spec.dtype})
    hint = '; for text files see decode = "text" in docs/inputs.md' if "int" in spec.dtype and len(spec.shape or ()) == VECTOR_RANK else ""
    table["decode"].comment(f"a file a golden input, without the batch axis{hint}")
    steps, padding = draft_lengths(spec, raw.shapes)
    if steps:
        table["steps"] = _steps(steps)
        table["steps"].comment("LOOK AT THIS: the files are of other lengths than the model takes; cut and fill where training did")
    if padding is not None:
        table["pad_batches"] = _inline(padding)
        table["pad_batches"].comment("LOOK AT THIS: the files are of unequal lengths; how does production batch them?")
    return table


def _fitting(spec: TensorSpec) -> dict[str, bool]:
    """Which kinds of raw files can become this input."""
    return {
        "table": _is_vector(spec),
        "text": spec.dtype in ("string", "int32", "int64"),
        "audio": "float" in spec.dtype,
        "image": _channels(spec) in CHANNELS,
        "npy": True,
    }


def kind_for(spec: TensorSpec, kinds: Mapping[str, int]) -> str:
    """The kind of raw files that the input is most likely made of: of those that fit, the most frequent one.

    Args:
        spec: the model's input.
        kinds: kinds of raw files, at least one, to their number.
    """
    fits = _fitting(spec)
    return max(kinds, key=lambda kind: (fits.get(kind, False), kinds[kind], kind))


def _channels(spec: TensorSpec) -> int | None:
    return spec.shape[-1] if spec.shape and len(spec.shape) == IMAGE_RANK else None


def _is_vector(spec: TensorSpec) -> bool:
    """Whether it is a row of numbers, of a length that can be a table's."""
    return spec.shape is not None and len(spec.shape) == VECTOR_RANK and 0 < (spec.shape[1] or 0) <= MOST_COLUMNS and spec.dtype != "bool"


def _table_input(spec: TensorSpec, raw: RawFiles) -> Any:
    width = spec.shape[1] if spec.shape else 0
    names = raw.columns or [f"column {number}" for number in range(1, (width or 0) + 1)]
    columns = tomlkit.array()
    for name in names:
        inline = tomlkit.inline_table()
        inline["name"] = name
        columns.append(inline)
    read = _table({"format": raw.format or "csv", "columns": columns.multiline(multiline=True)})
    read["columns"].comment(f"LOOK AT THIS: the {width} numbers in training's order, with their statistics and categories; see docs/inputs.md")
    table = _table({"decode": "table", "dtype": spec.dtype})
    table["read"] = read
    return table


def _text_input(spec: TensorSpec, _: RawFiles) -> Any:
    axes = list(spec.shape or ())[1:]
    if spec.dtype == "string":
        return _table({"decode": "text", "steps": _steps([{"reshape": [1] * len(axes)}])}) if axes else _table({"decode": "text"})
    steps: list[dict[str, Any]] = [{"tokenize": "vocabulary.txt", "unknown": "[UNK]"}]
    if axes and axes[0]:
        steps.append({"length": axes[0], "truncation": "end", "padding": "end", "value": 0})
    table = _table({"decode": "text", "files": ["vocabulary.txt"], "steps": _steps(steps), "dtype": spec.dtype})
    table["files"].comment("a token a line, or the .json file of a tokenizer")
    free = ' { length = N, truncation = "end" or "start", padding = ... } where it cut' if axes and axes[0] is None else ""
    told = "LOOK AT THIS: it has to be what training did (case, punctuation, side of truncation and padding)"
    table["steps"].comment(f"{told}{';' if free else ''}{free}")
    return table


def _audio_input(spec: TensorSpec, _: RawFiles) -> Any:
    axes = list(spec.shape or ())[1:]
    steps: list[dict[str, Any]] = []
    if len(axes) == 1 and axes[0]:
        steps.append({"length": axes[0], "truncation": "end", "padding": "end"})
    if len(axes) == VECTOR_RANK and axes[1]:
        steps += [{"mel": axes[1]}, {"decibels": "power"}]
        steps += [{"length": axes[0], "truncation": "end", "padding": "end"}] if axes[0] else []
    table = _table({"decode": "audio", "read": _inline({"rate": 16000}), "steps": _steps(steps), "dtype": spec.dtype})
    table["steps"].comment("LOOK AT THIS, and at rate: they have to be what training did")
    return table


def _inline(values: Mapping[str, Any]) -> Any:
    inline = tomlkit.inline_table()
    inline.update(values)
    return inline


def _image_input(spec: TensorSpec, _: RawFiles) -> Any:
    word = CHANNELS[_channels(spec) or 0]
    height, width = spec.shape[1:3] if spec.shape else (None, None)
    steps: list[dict[str, Any]] = [{"channels": word}]
    if word != "rgba":
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


def draft_manifest(entries: Iterable[tuple[str, str, str | None]], source: str, rows: Mapping[str, int] = NO_ROWS) -> str:
    """The text of a manifest.

    Args:
        entries: file relative to the golden folder, its SHA-256, its label if the folder it came from names one.
        source: where the files came from, in words.
        rows: file of a table to the number of its rows, where it has several: each becomes an entry.
    """
    document = tomlkit.document()
    document["version"] = MANIFEST_VERSION
    document["set"] = _table({"source": source})
    golden = tomlkit.aot()
    listed = [(file, digest, label, row) for file, digest, label in entries for row in (range(rows[file]) if file in rows else (None,))]
    for number, (file, digest, label, at) in enumerate(listed, start=1):
        row = _table({"id": f"{number:04d}-{file.rsplit('/', 1)[-1]}", "file": file, "sha256": digest, "chosen": "sampled", "origin": source})
        if label is not None:
            row["label"] = label
        if at is not None:
            row["row"] = at
        golden.append(row)
    document["golden"] = golden
    return tomlkit.dumps(document)
