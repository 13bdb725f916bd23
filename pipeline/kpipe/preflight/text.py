"""The answer for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.preflight.result import Answer

if TYPE_CHECKING:
    from kpipe.preflight.result import Preflight, Problem, TargetAnswer


def rendered(flight: Preflight) -> str:
    """A line a target, then each problem with three ways out."""
    required = [target for target in flight.targets if target.required]
    good = sum(target.answer is Answer.OK for target in required)
    lines = [
        f"{flight.answer.upper()}: {good} of {len(required)} required targets convert, load and agree.",
        "  Untrained weights, synthetic inputs: no verdict, and nothing is known of decisions. kpipe validate judges the trained model.",
        f"{flight.model}; {flight.parameters:,} parameters; {flight.seconds:.0f} s",
        "",
        *(_target(target) for target in flight.targets),
    ]
    for problem in sorted(flight.problems, key=lambda one: not one.error):
        lines += ["", *_problem(problem)]
    return "\n".join([*lines, "", f"Report: {flight.report}"]) + "\n"


def _target(target: TargetAnswer) -> str:
    drift = "-" if target.drift is None else f"{target.drift:.1e}"
    more = [f"{sum(target.ops.values())} ops of {len(target.ops)} kinds"] if target.ops else []
    more += [f"batches of {target.batch} only"] if target.batch else []
    more += ["not required"] if not target.required else []
    return f"  {target.name:16} {target.answer:24} {drift:>8}  {', '.join(more)}".rstrip()


def _problem(problem: Problem) -> list[str]:
    where = [f"layer '{problem.layer}' ({problem.layer_class})"] if problem.layer else []
    where += [f"op {', '.join(problem.ops[:4])}"] if problem.ops else []
    kind = "" if problem.error else "(warning) "
    head = f"{kind}{problem.target or 'the model'}: {', '.join(where) + ': ' if where else ''}{problem.cause} [{problem.code}]"
    if not problem.error:
        return [head]
    return [head, *(f"  {number}. {way}" for number, way in enumerate(problem.ways, 1))]
