"""``[inputs.NAME]``: the tables that say how raw files become tensors, and what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from kpipe.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


STRICT = ConfigDict(extra="forbid", frozen=True, strict=True)


def _decoder(value: str) -> str:
    from kpipe_stages.preprocessing.decoders import DECODER_KINDS

    if value not in DECODER_KINDS and ":" not in value:
        raise ValueError(f"expected one of {', '.join(DECODER_KINDS)}{nearest(value, list(DECODER_KINDS))}, or 'module:function'")
    return value


Decoder = Annotated[str, AfterValidator(_decoder)]


class PadTable(BaseModel):
    """``pad_batches``: rows of unequal length in one batch."""

    model_config = STRICT

    at: Literal["start", "end"]
    value: Annotated[float | int, Field(allow_inf_nan=False)] = 0


class InputTable(BaseModel):
    """``[inputs.NAME]``: from a raw file to one input tensor."""

    model_config = STRICT

    decode: Decoder
    read: dict[str, Any] = {}
    """The decoder's options."""
    files: tuple[str, ...] = ()
    """The user's own code, where ``decode`` names a function of it; what decoder and steps read beside the raw file."""
    steps: tuple[dict[str, Any], ...] = ()
    dtype: str | None = None
    source: str | None = None
    """Another input whose raw file is this one's too."""
    pad_batches: PadTable | None = None


class TargetInputTable(BaseModel):
    """``[targets.NAME.inputs.NAME]``: as `InputTable`, or the tensors that the serving system itself made."""

    model_config = STRICT

    decode: Decoder | None = None
    read: dict[str, Any] = {}
    files: tuple[str, ...] = ()
    steps: tuple[dict[str, Any], ...] = ()
    dtype: str | None = None
    tensors: str | None = None


Input = InputTable | TargetInputTable


def raw_inputs(inputs: Mapping[str, InputTable]) -> dict[str, tuple[str, bool]]:
    """Input name to the input that its raw file is named by (itself, or its ``source``), and whether it reads a row of a table."""
    return {name: (table.source or name, table.decode == "table") for name, table in inputs.items()}


def input_problems(inputs: Mapping[str, InputTable], targets: Mapping[str, Mapping[str, TargetInputTable]]) -> list[str]:
    """What is wrong with the contract's input tables.

    Args:
        inputs: ``[inputs]``.
        targets: each target's own, by target.
    """
    tables: dict[str, Input] = {f"inputs.{name}": table for name, table in inputs.items()}
    for target, own in targets.items():
        tables |= {f"targets.{target}.inputs.{name}": table for name, table in own.items()}
    found = [f"{where}.{problem}" for where, table in tables.items() for problem in _reading(table)]
    found += _source_problems(inputs)
    for target, own in targets.items():
        found += _two_modules(f"targets.{target}.inputs", {**inputs, **own})
    if not targets:
        found += _two_modules("inputs", dict(inputs))
    return found + [f"{where}.steps: {problem}" for where, table in tables.items() for problem in _wrong_steps(table)]


def _wrong_steps(table: Input) -> list[str]:
    from kpipe_stages.preprocess import check_steps

    return check_steps(table.steps, table.decode or "", table.read)


def _source_problems(inputs: Mapping[str, InputTable]) -> list[str]:
    found = []
    for name, table in inputs.items():
        if table.source is None:
            continue
        if table.source not in inputs:
            found.append(f"inputs.{name}.source is {table.source!r}{nearest(table.source, list(inputs))}; expected another input's name")
        elif table.source == name or inputs[table.source].source is not None:
            found.append(f"inputs.{name}.source is {table.source!r}; expected an input that has raw files of its own")
    return found


def _reading(table: Input) -> list[str]:
    from kpipe_stages.preprocessing.decoders import check_read
    from kpipe_stages.preprocessing.function import check_function

    if isinstance(table, TargetInputTable) and table.tensors is not None:
        beside = [key for key in ("decode", "read", "files", "steps", "dtype") if key in table.model_fields_set]
        return [f"tensors is {table.tensors!r} beside {beside[0]}; expected it alone: such tensors are taken as they are"] if beside else []
    if table.decode is None:
        return ["decode is missing; expected decode or tensors"]
    if ":" in table.decode:
        problem = check_function(table.decode, table.files)
        return [problem] if problem else [*check_read(table.decode, table.read)]
    return [*check_read(table.decode, table.read), *_file_problems(table, table.decode)]


def _file_problems(table: Input, decode: str) -> list[str]:
    """Files that decoder and steps name have to be among ``files``, and nothing else: what isn't named isn't hashed."""
    from kpipe_stages.preprocessing.assets import twice_named
    from kpipe_stages.preprocessing.decoders import DECODER_KINDS, named_files

    named = named_files(decode, table.read, table.steps)
    last = {name.rpartition("/")[2] for name in named}
    if table.files and not DECODER_KINDS[decode].takes_files:
        return [f"files is {list(table.files)}, and decode = {decode!r} runs none of them; expected decode = 'module:function'"]
    if twice := twice_named(table.files):
        return [f"files names two files {twice!r}; expected a name for each"]
    stems = {file.replace("\\", "/").rpartition("/")[2]: file for file in table.files}
    lacking = [
        f"files has no {name!r}, which decoder or steps name; expected it there, relative to the contract" for name in sorted(last - set(stems))
    ]
    return lacking + [f"files names {file!r}, and neither decoder nor steps do; drop it" for name, file in stems.items() if name not in last]


def _two_modules(where: str, tables: Mapping[str, Input]) -> list[str]:
    """Two files of one module name would be one module in the process that prepares all inputs."""
    known: dict[str, str] = {}
    for name, table in tables.items():
        for file in table.files:
            stem = file.replace("\\", "/").rpartition("/")[2]
            if stem.endswith(".py") and known.setdefault(stem, file) != file:
                return [f"{where}.{name}.files names {file!r}, and another input {known[stem]!r}; expected different names for different files"]
    return []
