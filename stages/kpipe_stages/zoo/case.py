"""What a unit is, and how its models are written: a line a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

Call = Callable[..., Any]
"""``call(keras, *inputs)`` gives the outputs: a tensor, or a list or dict of them."""


@dataclass(frozen=True)
class Given:
    """One input of a unit's model."""

    shape: tuple[int | None, ...]
    """Without the batch axis; None is a free axis."""
    dtype: str = "float32"
    draw: str = "normal"
    """How its values are drawn: a key of `kpipe_stages.zoo.values.DRAWS`, with an argument behind a colon."""

    def of(self, dtype: str) -> Given:
        """The same of another dtype."""
        return replace(self, dtype=dtype)


VECTOR = Given((8,))
POSITIVE = Given((8,), draw="positive")
UNIT = Given((8,), draw="unit")
WHOLE = Given((8,), "int32", "whole")
NATURAL = Given((8,), "int32", "ids:10")
TRUTH = Given((8,), "bool", "bool")
MATRIX = Given((4, 5))
SQUARE = Given((4, 4))
DEFINITE = Given((4, 4), draw="definite")
STEPS = Given((6, 4))
FREE_STEPS = Given((None, 4))
IMAGE = Given((8, 8, 3))
FREE_IMAGE = Given((None, None, 3))
PIXELS = Given((8, 8, 3), draw="pixels")
BYTES = Given((8, 8, 3), "uint8", "ids:256")
VOLUME = Given((4, 4, 4, 2))
IDS = Given((6,), "int32", "ids:10")
FREE_IDS = Given((None,), "int32", "ids:10")
WORDS = Given((4,), "string", "words")
SENTENCE = Given((), "string", "sentences")


@dataclass(frozen=True)
class Case:
    """One model."""

    unit: str
    config: str
    """What it is in words: ``strides 2``."""
    given: tuple[Given, ...]
    call: Call
    policy: str = "float32"
    """Keras dtype policy that its layers are built with."""
    finish: Callable[[Any, Any], None] | None = None
    """``finish(keras, model)`` changes the built model: quantises it, adapts it."""

    @property
    def name(self) -> str:
        """``Conv2D: strides 2``."""
        return f"{self.unit}: {self.config}"


@dataclass(frozen=True)
class Unit:
    """A row of the table."""

    name: str
    group: str
    """``layers``, ``activations`` or ``ops``."""
    names: tuple[str, ...]
    """Public names of that group's module that it is about, aliases aside."""
    cases: tuple[Case, ...]


Config = tuple[str, Call, tuple[Given, ...]]


def config(title: str, call: Call, *given: Given) -> Config:
    """A line of a unit."""
    return title, call, given


def layer(name: str, *configs: Config, policies: tuple[str, ...] = ("mixed_float16",), also: tuple[str, ...] = ()) -> Unit:
    """A layer's unit: its configurations, and the first one again under each of the policies."""
    cases = [Case(name, title, given, call) for title, call, given in configs]
    first = cases[0]
    cases += [replace(first, config=f"{first.config}, {policy}", policy=policy) for policy in policies]
    return Unit(name, "layers", (name, *also), tuple(cases))


def made(name: str, given: Given | tuple[Given, ...], **variants: Mapping[str, Any]) -> Unit:
    """A layer's unit whose configurations differ in the arguments alone; ``plain`` among them are those that it needs anyhow."""
    needed = variants.pop("needed", {})
    inputs = given if isinstance(given, tuple) else (given,)
    lines = [config(title.replace("_", " "), _maker(name, {**needed, **arguments}), *inputs) for title, arguments in variants.items()]
    return layer(name, *lines)


def _maker(name: str, arguments: Mapping[str, Any]) -> Call:
    def call(keras: Any, *inputs: Any) -> Any:
        return getattr(keras.layers, name)(**arguments)(inputs[0] if len(inputs) == 1 else list(inputs))

    return call


def family(title: str, *configs: Config, names: tuple[str, ...] = (), dtypes: tuple[str, ...] = ("float16",)) -> Unit:
    """A unit of ops: a configuration an op, named as the op (and what follows a comma), the first one again in each of the dtypes."""
    cases = [Case(f"ops, {title}", name, given, call) for name, call, given in configs]
    first = cases[0]
    cases += [replace(first, config=f"{first.config}, {dtype}", given=tuple(one.of(dtype) for one in first.given)) for dtype in dtypes]
    covered = dict.fromkeys([name.partition(",")[0] for name, _, _ in configs])
    return Unit(f"ops, {title}", "ops", (*covered, *names), tuple(cases))


def op(name: str, *given: Given, title: str = "", **arguments: Any) -> Config:
    """An op on its inputs, in that order."""

    def call(keras: Any, *inputs: Any) -> Any:
        return op_of(keras, name)(*inputs, **arguments)

    return f"{name}, {title}" if title else name, call, given or (VECTOR,)


def op_of(keras: Any, name: str) -> Any:
    """``keras.ops.name``, ``image.resize`` too."""
    found = keras.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found
