"""The contract's ``[compare]`` held against what was compared. Pure.

A rule holds only where it would hold whatever the inputs that were not compared had shown; it is broken only where it would be broken all the
same. Anything between is unchecked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.comparison import Answer, Check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kpipe.comparison import Changed, Tally
    from kpipe.contract import CompareTable


def check(rule: str, allowed: float, changed: int, inputs: int, unchecked: int) -> Check:
    """One rule.

    Args:
        rule: its place in the contract.
        allowed: share of the inputs that may be decided otherwise, 0 to 1.
        changed: inputs that are.
        inputs: compared ones.
        unchecked: ones that belong to it and were not compared.
    """
    everything = inputs + unchecked
    if inputs and changed > allowed * everything:
        answer, why = Answer.BROKEN, f"{changed} of {inputs} are decided otherwise"
    elif not inputs:
        answer, why = Answer.UNCHECKED, "no input of it was compared"
    elif changed + unchecked > allowed * everything:
        answer, why = Answer.UNCHECKED, f"{changed} of {inputs} are decided otherwise, and {unchecked} more were not compared"
    else:
        answer, why = Answer.HOLDS, f"{changed} of {inputs} are decided otherwise" + (f", and {unchecked} not compared" if unchecked else "")
    return Check(rule, allowed, changed, inputs, unchecked, answer, why)


def check_policy(
    table: CompareTable | None, lines: Sequence[Changed], tallies: Sequence[Tally], alone: int, slices_alone: Mapping[str, int], undecided: int
) -> tuple[Check, ...]:
    """Every rule of the policy, over all decision rules together: an input is decided otherwise where any rule does.

    Args:
        table: ``[compare]``; None where the contract has none.
        lines: the inputs that are decided otherwise.
        tallies: of all rules and slices.
        alone: inputs that only one side has.
        slices_alone: the same by slice.
        undecided: decision rules by which one side or both took no decisions: then no input is compared as a whole.
    """
    if table is None:
        return ()
    asked = [("max_changed", table.max_changed, "")] if table.max_changed is not None else []
    asked += [(f"slices.{name}", allowed, name) for name, allowed in table.slices.items()]
    found = []
    for rule, allowed, name in asked:
        compared = max((t.inputs for t in tallies if t.slice == name), default=0)
        changed = len({line.input for line in lines if not name or name in line.slices})
        left = alone if not name else slices_alone.get(name, 0)
        one = check(rule, allowed, changed, compared, left)
        if undecided and one.answer is Answer.HOLDS:
            one = Check(rule, allowed, changed, compared, left, Answer.UNCHECKED, f"{undecided} decision rules could not be compared")
        found.append(one)
    return tuple(found)
