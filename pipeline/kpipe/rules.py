"""``[decision]``: the table of one decision rule, and the rule as workers and judging read it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator

from kpipe.errors import nearest
from kpipe_stages.protocol import DecisionSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kpipe_stages.protocol import Signature


def _rule(value: str) -> str:
    from kpipe_stages.decisions import RULES, runs_code

    if value not in RULES and not runs_code(value):
        raise ValueError(f"expected one of {', '.join(RULES)}{nearest(value, list(RULES))}, or 'module:function'")
    return value


def _thresholds(value: object) -> float | tuple[float, ...]:
    numbers = value if isinstance(value, tuple) else (value,)
    usable = [float(n) for n in numbers if isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n)]
    if not usable or len(usable) != len(numbers):
        raise ValueError("expected a finite number, or a list of them, one for each class")
    return tuple(usable) if isinstance(value, tuple) else usable[0]


Finite = Annotated[float, Field(allow_inf_nan=False)]
Overlap = Annotated[float, Field(gt=0, le=1)]
Allowance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class DecisionTable(BaseModel):
    """``[decision]``: how outputs become the product's answer."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rule: Annotated[str, AfterValidator(_rule)]
    files: tuple[str, ...] = ()
    """The user's own code, where ``rule`` names a function of it."""
    output: str | None = None
    labels: tuple[str, ...] = ()
    threshold: Annotated[float | tuple[float, ...], PlainValidator(_thresholds)] = 0.5
    k: Annotated[int, Field(ge=1)] = 1
    ordered: bool = True
    edges: tuple[Finite, ...] = ()
    atol: Allowance = 0.0
    rtol: Allowance = 0.0
    boxes: str | None = None
    scores: str | None = None
    classes: str | None = None
    box_format: Literal["xyxy", "xywh", "center_xywh"] = "xyxy"
    iou: Overlap = 0.5
    nms: Overlap | None = None


def rule_of(table: DecisionTable, outputs: Sequence[str], name: str = "") -> DecisionSpec | None:
    """The rule of a table; a ranking that names no ``k`` is about all items.

    Args:
        table: the table.
        outputs: the model's; none where they aren't known. A table that names no output of several is no rule, unless it is code, which reads all.
        name: the rule's.
    """
    if ":" in table.rule:
        return DecisionSpec(name=name, rule=table.rule, output=table.output or outputs[0], reads=tuple(outputs)) if outputs else None
    only = outputs[0] if len(outputs) == 1 else None
    output = table.scores if table.rule == "detection" else table.output or only
    if output is None:
        return None
    return DecisionSpec(
        name=name,
        rule=table.rule,
        output=output,
        threshold=table.threshold,
        k=0 if table.rule == "ranking" and "k" not in table.model_fields_set else table.k,
        labels=table.labels,
        ordered=table.ordered,
        edges=table.edges,
        atol=table.atol,
        rtol=table.rtol,
        boxes=table.boxes or "",
        classes=table.classes or "",
        box_format=table.box_format,
        iou=table.iou,
        nms=table.nms,
    )


def place_of_rule(name: str) -> str:
    """Where a rule stands in the contract."""
    return f"decisions.{name}" if name else "decision"


def rule_problems(where: str, table: DecisionTable) -> list[str]:
    """What a table says that its rule can't mean: a key of another rule, a key that is missing, two classes of one label."""
    from kpipe_stages.decisions import check_decision, check_keys, runs_code

    if runs_code(table.rule):
        return [f"{where}: {problem}" for problem in _code_problems(table)]
    spec = rule_of(table, ("",))
    problems = check_keys(table.rule, sorted(table.model_fields_set)) or (check_decision(spec) if spec else [])
    return [f"{where}: {problem}" for problem in problems]


def _code_problems(table: DecisionTable) -> list[str]:
    from kpipe_stages.preprocessing.function import check_function

    known = ("rule", "files", "output")
    problems = [
        f"{key} means nothing to a rule of your own code (it knows files, output). Drop it."
        for key in sorted(table.model_fields_set)
        if key not in known
    ]
    problem = check_function(table.rule, table.files, "rule", "a rule's name or ")
    return [*problems, *([problem] if problem else [])]


def output_problems(where: str, table: DecisionTable, outputs: list[str]) -> list[str]:
    """Hold the outputs that a table names, or doesn't, against the model's own."""
    if table.rule == "detection":
        roles = [(key, name) for key in ("boxes", "scores", "classes") if (name := getattr(table, key)) and name not in outputs]
        return [f"{where}.{key} is '{name}'{nearest(name, outputs)}; the model's outputs are {', '.join(outputs)}" for key, name in roles]
    if table.output and table.output not in outputs:
        return [f"{where}.output is '{table.output}'{nearest(table.output, outputs)}; the model's outputs are {', '.join(outputs)}"]
    if not table.output and len(outputs) > 1 and ":" not in table.rule:
        return [f"{where}.output is missing and the model has {len(outputs)} outputs ({', '.join(outputs)}); name one"]
    return []


def output_names(signature: Signature | None) -> tuple[str, ...]:
    """The model's outputs; none where they aren't known."""
    return tuple(spec.name for spec in signature.outputs) if signature else ()


def in_words(spec: DecisionSpec) -> str:
    """The rule as reports say it."""
    return f"what {spec.rule} returns" if ":" in spec.rule else _WORDS[spec.rule](spec)


def _limit(spec: DecisionSpec) -> str:
    numbers = spec.threshold if isinstance(spec.threshold, tuple) else (spec.threshold,)
    return ", ".join(f"{number:g}" for number in numbers)


def _suppression(spec: DecisionSpec) -> str:
    return "" if spec.nms is None else f", the best of those that overlap by more than {spec.nms:g}"


_WORDS: dict[str, Callable[[DecisionSpec], str]] = {
    "argmax": lambda _: "the highest score",
    "threshold": lambda spec: f"score >= {_limit(spec)}",
    "multilabel": lambda spec: f"every class with score >= {_limit(spec)}",
    "top_k": lambda spec: f"the best {spec.k}, {'in order' if spec.ordered else 'in any order'}",
    "ranking": lambda spec: f"the order of the best {spec.k}" if spec.k else "the order of all",
    "bins": lambda spec: f"bins with edges {', '.join(f'{edge:g}' for edge in spec.edges)}",
    "detection": lambda spec: f"boxes of {spec.boxes} with score >= {_limit(spec)}{_suppression(spec)}, the same at an overlap of {spec.iou:g}",
    "tolerance": lambda spec: f"within {spec.atol:g} + {spec.rtol:g} * |reference|",
}
