"""The contract, ``kpipe.toml``: what the product promises, validated as a whole before anything runs.

Every message names file, key, value and expectation; an unknown key is refused with the nearest known one.
"""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, model_validator

from kpipe.errors import ContractError, nearest
from kpipe.inputs import STRICT, Input, InputTable, TargetInputTable, input_problems
from kpipe.opsets import NAMES, named_profile
from kpipe.rules import DecisionTable, output_problems, place_of_rule, rule_problems
from kpipe_stages.catalog import RUNTIMES, VARIANTS

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from kpipe_stages.catalog import Runtime
    from kpipe_stages.protocol import Signature

CONTRACT_NAME = "kpipe.toml"

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _setting(value: object) -> object:
    if not isinstance(value, str | bool | int | float):
        raise ValueError("expected a text, a number, true or false")  # noqa: TRY004 - the one that pydantic collects
    return value


Setting = Annotated[str | bool | int | float, BeforeValidator(_setting)]


def _specifier(value: str) -> str:
    try:
        SpecifierSet(value)
    except InvalidSpecifier as error:
        raise ValueError("expected a version specifier such as '==2026.4.1' or '>=2.0,<3'") from error
    return value


def _distinct(value: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(value)) != len(value):
        raise ValueError("expected each processor once")
    return value


class Table(BaseModel):
    """A table of the file: frozen, unknown keys refused, no silent conversions."""

    model_config = STRICT


class ProductTable(Table):
    """``[product]``: what the model is released as."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class ModelTable(Table):
    """``[model]``: which file, trained where, and which code it may bring."""

    sha256: Digest | None = None
    backend: Literal["jax", "tensorflow"] = "jax"
    custom_objects: tuple[str, ...] = ()
    allow_modules: tuple[str, ...] = ()
    allow_lambda: tuple[str, ...] = ()


class GoldenTable(Table):
    """``[golden]``: where the retained inputs lie and how they are grouped."""

    path: str | None = None
    manifest_sha256: Digest | None = None
    batches: tuple[Annotated[int, Field(ge=2, le=4096)], ...] = (3, 8)

    @model_validator(mode="after")
    def _two_sizes(self) -> GoldenTable:
        if len(set(self.batches)) == 1 or not self.batches:
            raise ValueError(f"golden.batches is {list(self.batches)}; expected at least two different sizes of 2 or more")
        return self


class CalibrationTable(Table):
    """``[calibration]``: inputs from the training side, which precision variants are made with; never golden ones."""

    path: str
    sha256: Digest | None = None
    """Of the ``.npz``, or of the folder's manifest."""


class ToleranceTable(Table):
    """``{ atol, rtol }``: ``|target - reference| <= atol * scale + rtol * |reference|``."""

    atol: NotNegative
    rtol: NotNegative


class AgreementTable(Table):
    """``[agreement]``: how far a target may be from the reference."""

    tolerance: Literal["default", "auto"] | ToleranceTable = "default"
    max_flips: Annotated[int, Field(ge=0)] = 0
    ties: Literal["report", "count"] = "report"
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    prove_flip_rate: Annotated[float, Field(gt=0, lt=1)] | None = None
    outputs: dict[str, ToleranceTable] = {}


class ExportTable(Table):
    """``[export]``: what conversion may do."""

    allow_select_tf: bool = False
    repairs: bool = True


class TimingTable(Table):
    """``[timing]``: how many calls are timed, per target."""

    calls: Annotated[int, Field(ge=0, le=200_000)] = 200
    end_to_end_calls: Annotated[int, Field(ge=0, le=200_000)] = 100
    max_seconds: Positive = 20.0
    """For the calls of each target; those that leave a limit open go on until then."""
    load_seconds: Positive = 20.0
    """For loading each target again in fresh processes, where a limit or the profile asks for it."""
    server_rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    """Requests a second at random moments, each counted from when it was meant to come; no such phase where it isn't set."""
    server_seconds: Positive = 5.0
    offline_batches: tuple[Annotated[int, Field(ge=1, le=65536)], ...] = ()
    """Batch sizes whose throughput is measured."""


class RunTable(Table):
    """``[run]``: how much is asked (`kpipe.profiles`), and time limits, seconds."""

    profile: Literal["default", "signoff"] = "default"
    stage_s: Positive = 600.0
    total_s: Positive = 1800.0


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class CompareTable(Table):
    """``[compare]``: how much may change against an earlier model, in shares of the golden inputs."""

    max_changed: Share | None = None
    slices: dict[str, Share] = {}

    @model_validator(mode="after")
    def _asks_something(self) -> CompareTable:
        if self.max_changed is None and not self.slices:
            raise ValueError("compare is empty; expected max_changed or slices, or no such table: it promises nothing")
        return self


class BaselineTable(Table):
    """``[baseline]``: how a candidate is timed in turns with the version that ``--baseline`` names (`kpipe_stages.race`)."""

    time: bool = True
    max_seconds: Positive = 20.0
    """Per target; less where the answer is found sooner."""
    smallest: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """The smallest difference that counts, as a share: within it the two are called the same."""


class AxisTable(Table):
    """``[axes] NAME``: the sizes that a free axis is promised to take; ``batch`` is the batch axis (`kpipe.axes`)."""

    min: Annotated[int, Field(ge=0, le=2**31 - 1)]
    typical: Annotated[int, Field(ge=1, le=2**31 - 1)]
    max: Annotated[int, Field(ge=1, le=2**31 - 1)]
    inputs: dict[str, Annotated[int, Field(ge=1)]] = {}
    """Input name to the axis of its shape, the batch axis being 0; empty where the model leaves no doubt."""

    @model_validator(mode="after")
    def _in_order(self) -> AxisTable:
        if not self.min <= self.typical <= self.max:
            raise ValueError(f"axes: min, typical and max are {self.min}, {self.typical} and {self.max}; expected none larger than the next")
        return self


@dataclass(frozen=True)
class Relative:
    """A limit in terms of the approved version: ``"1.10x baseline"``."""

    factor: float
    """So many times what the baseline takes."""

    def __str__(self) -> str:
        return f"{self.factor:g}x baseline"


RELATIVE = re.compile(r"(\d+(?:\.\d+)?)x baseline")


ONLY_THE_CALL = (
    "expected a number of milliseconds: only the model's own call is timed in turns with the baseline's, so only its limits can be relative"
)


def _limit(value: object) -> object:
    """A number above 0, or `Relative` made of its text."""
    if isinstance(value, str):
        found = RELATIVE.fullmatch(value)
        if found is None or not 0 < float(found[1]) < math.inf:
            raise ValueError(
                "expected a finite number greater than 0, or a text such as '1.10x baseline': at most so many times what the baseline takes"
            )
        return Relative(float(found[1]))
    if isinstance(value, Relative):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError("expected a finite number greater than 0, or a text such as '1.10x baseline'")
    return float(value)


def _absolute(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(ONLY_THE_CALL)  # noqa: TRY004 - the one that pydantic collects
    return value


Limit = Annotated[float | Relative, BeforeValidator(_limit)]
WholeLimit = Annotated[Positive, BeforeValidator(_absolute)]


class LimitsTable(Table):
    """``limits``: seconds, milliseconds, MiB; or `Relative` to the baseline's."""

    load_s: Limit | None = None
    """Import, load or compile, and first inference together, cold. Relative: load or compile and first inference, in turns with the baseline's."""
    p50_ms: Limit | None = None
    p90_ms: Limit | None = None
    p95_ms: Limit | None = None
    p99_ms: Limit | None = None
    end_to_end_p50_ms: WholeLimit | None = None
    end_to_end_p90_ms: WholeLimit | None = None
    end_to_end_p95_ms: WholeLimit | None = None
    end_to_end_p99_ms: WholeLimit | None = None
    server_p50_ms: WholeLimit | None = None
    server_p90_ms: WholeLimit | None = None
    server_p95_ms: WholeLimit | None = None
    server_p99_ms: WholeLimit | None = None
    peak_mib: Limit | None = None
    size_mib: Limit | None = None

    @property
    def absolute(self) -> dict[str, float]:
        """The limits that are numbers, by key."""
        return {name: limit for name in type(self).model_fields if isinstance(limit := getattr(self, name), float)}

    @property
    def relative(self) -> dict[str, float]:
        """Key to factor of the limits that are relative to the baseline."""
        return {name: limit.factor for name in type(self).model_fields if isinstance(limit := getattr(self, name), Relative)}


class OpProfileTable(Table):
    """``[op_profiles.NAME]``: the ops that a place of the user's own has."""

    ops: Annotated[tuple[str, ...], Field(min_length=1)]
    versions: dict[str, Annotated[int, Field(ge=1)]] = {}


class TargetTable(Table):
    """``[targets.NAME]``: artifact, runtime, settings, limits."""

    runtime: str | None = None
    artifact: str | None = None
    quantize: str | None = None
    """A precision variant of the runtime's artifact (`kpipe_stages.catalog.VARIANTS`); beside ``artifact``: what that file is."""
    settings: dict[str, Setting] = {}
    precision: Literal["f32", "default"] = "f32"
    version: Annotated[str, AfterValidator(_specifier)] | None = None
    python: str | None = None
    required: bool | None = None
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    affinity: Annotated[tuple[Annotated[int, Field(ge=0, le=65535)], ...], AfterValidator(_distinct)] = ()
    """Processors, by the system's numbers."""
    memory_mib: Annotated[int, Field(ge=1)] | None = None
    """Private memory that its process may ask for."""
    tolerance: ToleranceTable | None = None
    outputs: dict[str, ToleranceTable] = {}
    inputs: dict[str, TargetInputTable] = {}
    op_profile: str | None = None
    limits: LimitsTable = LimitsTable()


class Contract(Table):
    """A whole contract. Paths are as written; `Contract.resolve` makes them absolute."""

    product: ProductTable | None = None
    model: ModelTable = ModelTable()
    golden: GoldenTable = GoldenTable()
    calibration: CalibrationTable | None = None
    inputs: dict[str, InputTable] = {}
    decision: DecisionTable | None = None
    decisions: dict[str, DecisionTable] = {}
    agreement: AgreementTable = AgreementTable()
    export: ExportTable = ExportTable()
    timing: TimingTable = TimingTable()
    run: RunTable = RunTable()
    compare: CompareTable | None = None
    baseline: BaselineTable = BaselineTable()
    axes: dict[str, AxisTable] = {}
    targets: dict[str, TargetTable] = {}
    op_profiles: dict[str, OpProfileTable] = {}

    @model_validator(mode="after")
    def _profiles_known(self) -> Contract:
        for name in self.op_profiles:
            if not NAME.fullmatch(name) or named_profile(name) is not None:
                raise ValueError(
                    f"op_profiles.{name}: a name is up to 64 letters, digits, '_' and '-', and not one of kpipe's own ({', '.join(NAMES)})"
                )
        for name, target in self.targets.items():
            if target.op_profile is not None and (problem := self._profile_problem(target.op_profile, target.runtime or name)):
                raise ValueError(f"targets.{name}.op_profile is {target.op_profile!r}; {problem}")
        return self

    def _profile_problem(self, profile: str, runtime: str) -> str:
        """What is wrong with a target's profile; empty when nothing is."""
        named, row = named_profile(profile), RUNTIMES.get(runtime)
        if named is None and profile not in self.op_profiles:
            return f"expected one of {', '.join((*NAMES, *self.op_profiles))}{nearest(profile, [*NAMES, *self.op_profiles])}"
        if row is not None and row.artifact == "keras":
            return f"{runtime} runs the .keras file itself, which has layers and no ops; drop the key"
        takes = {"litert": row.artifact == "litert", "onnx": row.artifact == "onnx", "openvino": row.module == "run_openvino"} if row else {}
        if named is not None and takes and not takes[named.format]:
            return f"it is about {named.format}, and {runtime} runs a file of another format; expected a profile of that one, or [op_profiles.NAME]"
        return ""

    @model_validator(mode="after")
    def _runtimes_known(self) -> Contract:
        for name, target in self.targets.items():
            if not NAME.fullmatch(name) or name == "reference":
                raise ValueError(
                    f"targets.{name}: a target's name is up to 64 letters, digits, '_' and '-', and not 'reference': it names folders and findings"
                )
            runtime = runtime_of(name, target)
            if runtime not in RUNTIMES:
                where = (
                    f"targets.{name}.runtime is {target.runtime!r}" if target.runtime else f"targets.{name} names no runtime and '{name}' isn't one"
                )
                raise ValueError(f"{where}{nearest(runtime, list(RUNTIMES))}; expected one of {', '.join(RUNTIMES)}")
            if target.quantize is not None and (problem := _variant_problem(name, target, RUNTIMES[runtime], calibration=self.calibration)):
                raise ValueError(problem)
            if target.artifact and RUNTIMES[runtime].artifact == "keras":
                raise ValueError(f"targets.{name}.artifact is {target.artifact!r}, but {runtime} runs the .keras file itself; drop the key")
        return self

    @model_validator(mode="after")
    def _rates_given(self) -> Contract:
        for name, target in self.targets.items():
            asked = [key for key in target.limits.absolute if key.startswith("server_")]
            if asked and self.timing.server_rate is None:
                raise ValueError(f"targets.{name}.limits.{asked[0]}: no requests are made; expected [timing] server_rate, requests a second")
        return self

    @model_validator(mode="after")
    def _rules_named(self) -> Contract:
        if self.decision and self.decisions:
            raise ValueError(
                f"[decision] and [decisions.{next(iter(self.decisions))}] are both there; a contract has one rule in [decision], or each in a table [decisions.NAME]"
            )
        for name in self.decisions:
            if not NAME.fullmatch(name):
                raise ValueError(f"decisions.{name}: a rule's name is up to 64 letters, digits, '_' and '-'")
        return self

    @model_validator(mode="after")
    def _axes_told_apart(self) -> Contract:
        for name, axis in self.axes.items():
            if name == "batch" and axis.inputs:
                raise ValueError("axes.batch.inputs: the batch axis is axis 0 of every input; drop the key")
        unplaced = [name for name, axis in self.axes.items() if name != "batch" and not axis.inputs]
        if len(unplaced) > 1:
            raise ValueError(f"axes.{unplaced[1]} and axes.{unplaced[0]} both name no inputs; say which is which: inputs = {{ NAME = AXIS }}")
        return self

    @property
    def rule_tables(self) -> dict[str, DecisionTable]:
        """The decision rules by name; the name of ``[decision]`` is empty."""
        return {"": self.decision} if self.decision else dict(self.decisions)


def runtime_of(name: str, target: TargetTable) -> str:
    """The runtime that a target names, or that its name is; a variant's name may begin with it (``litert_int8``)."""
    if target.runtime or name in RUNTIMES or target.quantize is None:
        return target.runtime or name
    return max((runtime for runtime in RUNTIMES if name.startswith(f"{runtime}_")), key=len, default=name)


def _variant_problem(name: str, target: TargetTable, row: Runtime, *, calibration: CalibrationTable | None) -> str:
    """Why a target's ``quantize`` can't be meant; empty where it can."""
    where, known = f"targets.{name}.quantize is {target.quantize!r}", VARIANTS.get(row.artifact, {})
    if target.quantize not in known:
        have = {runtime: VARIANTS[other.artifact] for runtime, other in RUNTIMES.items() if other.artifact in VARIANTS}
        if not known:
            there = "; ".join(f"{runtime}: {', '.join(variants)}" for runtime, variants in have.items())
            return f"{where}, and {row.name} runs the {row.artifact}, of which there are no variants. Runtimes that have some are {there}"
        return f"{where}{nearest(str(target.quantize), list(known))}; expected one of {', '.join(known)} for {row.name}"
    if known[target.quantize].calibrates and calibration is None and not target.artifact:
        return (
            f"{where}, which is made with a calibration set, and the contract has none. Add [calibration] with path = a folder of raw files with a "
            "manifest, or an .npz of arrays by input name, taken from the training data (never from the golden set)"
        )
    return ""


class LoadedContract:
    """A contract, where it came from, and its text."""

    def __init__(self, contract: Contract, source: str, text: str, folder: Path) -> None:
        self.contract = contract
        self.source = source
        self.text = text
        self.folder = folder
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()

    def resolve(self, path: str) -> Path:
        """A path of the contract, relative to the contract's own folder."""
        return (self.folder / path).resolve()


def input_files(table: Input, loaded: LoadedContract) -> tuple[str, ...]:
    """The files that an input table names, absolute: its code, or its tensors."""
    names = (table.tensors,) if isinstance(table, TargetInputTable) and table.tensors else table.files
    return tuple(str(loaded.resolve(name)) for name in names)


def load_contract(path: Path) -> LoadedContract:
    """Read and validate a contract file.

    Raises:
        ContractError: it can't be read, isn't TOML, or a key or value is off; every problem is listed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ContractError(str(path), [f"it can't be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ContractError(str(path), [f"it isn't UTF-8 text (byte {error.start}); a contract is a TOML file"]) from error
    return LoadedContract(parse_contract(text, str(path)), str(path), text, path.resolve().parent)


def parse_contract(text: str, source: str) -> Contract:
    """Validate a contract's text; raise `ContractError` with every problem."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError among them; numbers and nesting beyond Python's own limits
        raise ContractError(source, [f"it isn't valid TOML: {error}"]) from error
    try:
        contract = Contract.model_validate(_tuples(data))
    except ValidationError as error:
        raise ContractError(source, _messages(error)) from error
    own = {name: target.inputs for name, target in contract.targets.items()}
    if problems := [*input_problems(contract.inputs, own), *_decision_problems(contract)]:
        raise ContractError(source, problems)
    return contract


def _tuples(value: Any) -> Any:
    """TOML arrays as tuples, which strict mode wants; arrays inside free-form tables stay lists."""
    if isinstance(value, list):
        return tuple(v if isinstance(v, dict) else _tuples(v) for v in value)
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return value


def _decision_problems(contract: Contract) -> list[str]:
    return [problem for name, table in contract.rule_tables.items() for problem in rule_problems(place_of_rule(name), table)]


def _messages(error: ValidationError) -> list[str]:
    return list(dict.fromkeys(_message(detail) for detail in error.errors()))


def _message(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    location = tuple(part for part in detail["loc"] if not _is_union_tag(part))
    key = ".".join(str(part) for part in location)
    if kind == "extra_forbidden":
        return f"unknown key '{key}'{nearest(str(location[-1]), _known_keys(location[:-1]))}; see docs/contract.md for the keys"
    if kind == "missing":
        return f"'{key}' is missing; it has to be given"
    if kind == "value_error" and isinstance(detail["input"], dict):
        return str(context["error"])  # of a whole table: it names the key itself
    found = list(detail["input"]) if isinstance(detail["input"], tuple) else detail["input"]
    if kind == "value_error":
        return f"{key} is {found!r}: {context['error']}"
    if location[-1:] == ("tolerance",):
        return f'{key} is {found!r}: expected "auto", "default" or a table {{ atol = 1e-5, rtol = 1e-4 }}'
    return f"{key} is {found!r}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _is_union_tag(part: str | int) -> bool:
    return isinstance(part, str) and (part in {"ToleranceTable", "Relative"} or part.startswith(("literal[", "constrained-")))


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    """The keys that the table at ``location`` knows."""
    annotation: Any = Contract
    for part in location:
        annotation = _inside(annotation, str(part))
    return [key for table in _tables_of(annotation) for key in table.model_fields]


def _inside(annotation: Any, key: str) -> Any:
    """What stands at ``key`` of a table, or at any name of a ``dict[str, X]``."""
    for table in _tables_of(annotation):
        if key in table.model_fields:
            return table.model_fields[key].annotation
    return get_args(annotation)[-1] if get_origin(annotation) is dict else None


def _tables_of(annotation: Any) -> list[type[BaseModel]]:
    """The table class that an annotation is, or has in its union."""
    members = () if get_origin(annotation) is dict else (annotation, *get_args(annotation))
    return [one for one in members if isinstance(one, type) and issubclass(one, BaseModel)]


def check_names(contract: Contract, signature: Signature, source: str) -> None:
    """Hold the contract's input and output names against the model's own.

    Raises:
        ContractError: a name that the model doesn't have (the nearest is offered), or an input that no table describes.
    """
    inputs = [spec.name for spec in signature.inputs]
    outputs = [spec.name for spec in signature.outputs]
    problems = []
    tables = {"inputs": list(contract.inputs)} | {f"targets.{name}.inputs": list(t.inputs) for name, t in contract.targets.items()}
    for where, names in tables.items():
        problems += [_unknown(where, name, "input", inputs) for name in names if name not in inputs]
    if contract.inputs:
        problems += [
            f"the model's input '{name}' has no table [inputs.{name}]; say how its raw files become a tensor"
            for name in inputs
            if name not in contract.inputs
        ]
    if outputs:
        problems += _output_problems(contract, outputs)
    if problems:
        raise ContractError(source, problems)


def _output_problems(contract: Contract, outputs: list[str]) -> list[str]:
    problems = [problem for name, table in contract.rule_tables.items() for problem in output_problems(place_of_rule(name), table, outputs)]
    tables = {"agreement.outputs": contract.agreement.outputs} | {f"targets.{name}.outputs": t.outputs for name, t in contract.targets.items()}
    for where, table in tables.items():
        problems += [_unknown(where, name, "output", outputs) for name in table if name not in outputs]
    return problems


def _unknown(where: str, name: str, kind: str, known: list[str]) -> str:
    return f"{where}.{name}: the model has no {kind} '{name}'{nearest(name, known)}; its {kind}s are {', '.join(known)}"
