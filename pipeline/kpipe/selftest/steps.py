"""Preprocessing as production gets it wrong: lists of steps from lists of steps. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kpipe.selftest.fault import ContractEdit, NotPlantableError, Setup, Table

Steps = list[dict[str, Any]]
Change = Callable[[Steps], Steps]

RESIZES = ("resize", "fit", "shorter")


def index_of(steps: Steps, name: str) -> int:
    """Where a step stands.

    Raises:
        NotPlantableError: there is none.
    """
    for i, step in enumerate(steps):
        if name in step:
            return i
    raise NotPlantableError(f"no step '{name}'")


def without(name: str) -> Change:
    """The step is left out."""

    def change(steps: Steps) -> Steps:
        at = index_of(steps, name)
        return steps[:at] + steps[at + 1 :]

    return change


def altered(name: str, **options: Any) -> Change:
    """The step has other options, or another value where the option is called ``value``."""

    def change(steps: Steps) -> Steps:
        at = index_of(steps, name)
        new = {**steps[at], **{key: value for key, value in options.items() if key != "value"}}
        if "value" in options:
            new[name] = options["value"]
        if new == steps[at]:
            raise NotPlantableError(f"the step '{name}' is so already")
        return [*steps[:at], new, *steps[at + 1 :]]

    return change


def replaced(name: str, *new: dict[str, Any]) -> Change:
    """Other steps stand in its place."""

    def change(steps: Steps) -> Steps:
        at = index_of(steps, name)
        return [*steps[:at], *new, *steps[at + 1 :]]

    return change


def before(name: str, *new: dict[str, Any]) -> Change:
    """More steps before it."""

    def change(steps: Steps) -> Steps:
        at = index_of(steps, name)
        return [*steps[:at], *new, *steps[at:]]

    return change


def appended(*new: dict[str, Any]) -> Change:
    """More steps at the end."""
    return lambda steps: [*steps, *new]


def blue_first(steps: Steps) -> Steps:
    """Blue, green, red for red, green, blue.

    Raises:
        NotPlantableError: the model takes no colour.
    """
    if steps[index_of(steps, "channels")]["channels"] != "rgb":
        raise NotPlantableError("the model takes no colour")
    return altered("channels", value="bgr")(steps)


def letterboxed(steps: Steps) -> Steps:
    """Proportions are kept and the rest is padded, where training stretched."""
    at = index_of(steps, "resize")
    size = steps[at]["resize"]
    return [*steps[:at], {**{k: v for k, v in steps[at].items() if k != "resize"}, "fit": size}, {"pad": size}, *steps[at + 1 :]]


def cropped(steps: Steps) -> Steps:
    """The middle is cut out, where training took the whole picture."""
    at = index_of(steps, "resize")
    height, width = steps[at]["resize"]
    options = {k: v for k, v in steps[at].items() if k != "resize"}
    bigger = [height * 8 // 7, width * 8 // 7]
    return [*steps[:at], {**options, "resize": bigger}, {"crop": "center", "size": [height, width]}, *steps[at + 1 :]]


def exchanged_normalisation(steps: Steps) -> Steps:
    """Mean and standard deviation have changed places."""
    at = index_of(steps, "normalize")
    table = steps[at]["normalize"]
    return [*steps[:at], {"normalize": {"mean": table["std"], "std": table["mean"]}}, *steps[at + 1 :]]


def reversed_normalisation(steps: Steps) -> Steps:
    """Mean and standard deviation are in the order of the other colour convention."""
    at = index_of(steps, "normalize")
    table = steps[at]["normalize"]
    if not isinstance(table["mean"], list) or table["mean"] == table["mean"][::-1]:
        raise NotPlantableError("the normalisation has no order")
    return [*steps[:at], {"normalize": {"mean": table["mean"][::-1], "std": table["std"][::-1]}}, *steps[at + 1 :]]


def other_mean(steps: Steps) -> Steps:
    """The mean of another data set: a hundredth off."""
    at = index_of(steps, "normalize")
    table = steps[at]["normalize"]
    mean = [m + 0.01 * (abs(m) or 1.0) for m in table["mean"]] if isinstance(table["mean"], list) else table["mean"] * 1.01 + 0.001
    return [*steps[:at], {"normalize": {"mean": mean, "std": table["std"]}}, *steps[at + 1 :]]


def rounded_scale(steps: Steps) -> Steps:
    """The scale is written with four digits."""
    at = index_of(steps, "scale")
    return [*steps[:at], {"scale": float(f"{steps[at]['scale']:.3g}")}, *steps[at + 1 :]]


def on_target(change: Change, *, image: bool = False, dtype: str | None = None) -> ContractEdit:
    """The first input's steps are changed, for the target alone.

    Args:
        change: the steps' change.
        image: only where the input is an image.
        dtype: another last cast.
    """

    def plant(contract: Table, target: str, _setup: Setup) -> None:
        name, table = next(iter(contract["inputs"].items()))
        if image and table["decode"] != "image":
            raise NotPlantableError("the input is no image")
        own = {key: value for key, value in table.items() if key != "steps"} | {"steps": change(list(table.get("steps", [])))}
        if dtype is not None:
            own["dtype"] = dtype
        if own == table:
            raise NotPlantableError("it changes nothing")
        contract["targets"][target]["inputs"] = {key: own if key == name else dict(other) for key, other in contract["inputs"].items()}

    return plant
