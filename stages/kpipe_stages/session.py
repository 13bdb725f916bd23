"""What a runtime has to offer so that `kpipe_stages.measure` can run a model on it, and the words every runner shares.

An `Engine` brings a runtime into the process and opens artifacts; a `Session` is one opened artifact that answers by the model's own
names. Binding is by name throughout: nothing here knows a position.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from kpipe_stages.digest import digest
from kpipe_stages.protocol import MEMORY_SIGNS, Binding, Observation, RunJob, Signature, StageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Array = np.ndarray[Any, np.dtype[Any]]
Feeds = Mapping[str, Array]
Answer = dict[str, Array]

_LONGEST = 400


@dataclass(frozen=True)
class Description:
    """What a session says of itself, read back after a first inference."""

    precision: str
    """Effective precision, ``float32``; with `` (declared)`` where the runtime can't be asked."""
    devices: tuple[str, ...]
    facts: dict[str, Any]
    """Plain JSON values."""
    differing: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Settings that the runtime took and didn't follow: what was asked, what is in effect."""


class Session(Protocol):
    """One opened artifact."""

    @property
    def signature(self) -> Signature:
        """The model's own inputs and outputs."""

    @property
    def takes(self) -> Mapping[str, str]:
        """Model input name to the dtype that the artifact declares for it."""

    @property
    def narrows(self) -> Mapping[str, str]:
        """Input dtypes that this runtime silently converts to a smaller one before anything else, and that one: ``int64`` to ``int32``."""

    @property
    def computes_as(self) -> Mapping[str, str]:
        """Input dtypes that it keeps, and silently does its arithmetic in a smaller one."""

    def infer(self, feeds: Feeds, /) -> Answer:
        """Answer batched inputs, by model input name, with arrays that nothing else holds, by model output name."""

    def describe(self) -> Description:
        """Read back what the runtime really does. Called after a first inference."""


@runtime_checkable
class TrainingUnset(Protocol):
    """A session that can also be called as a careless caller would."""

    def infer_training_unset(self, feeds: Feeds, /) -> Answer:
        """Like `Session.infer`, with ``training`` not passed."""


class Engine(Protocol):
    """One runtime."""

    @property
    def distributions(self) -> tuple[str, ...]:
        """Distributions that `bring` imports; the first one's version is the runtime's."""

    def bring(self, order: RunJob, /) -> None:
        """Import the runtime, and set what it reads only once."""

    def open(self, order: RunJob, settings: Mapping[str, Any], /) -> Session:
        """Load the artifact with these settings.

        Raises:
            StageError: KP303 (an unknown setting, or the runtime refuses), KP202 (an op that it doesn't have), KP207, KP407 (names).
        """


def fault(code: str, cause: str, remedy: str, place: str = "", **evidence: Any) -> StageError:
    """The error that ends a stage for a reason it can name."""
    return StageError(Observation(code=code, cause=cause, remedy=remedy, place=place, evidence=evidence))


def telling_line(error: BaseException) -> str:
    """A runtime's message without source locations and padding, in one line of at most 400 characters."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [re.sub(r"Load model from .* failed:\s*", "", line.strip()) for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("Exception from src/", "Check '"))]
    text = " ".join(kept or [line for line in lines if line] or [type(error).__name__])
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def layer_in(error: BaseException) -> str:
    """The innermost Keras layer in whose call an exception was raised; empty where none was."""
    keras, found, walk = sys.modules.get("keras"), "", error.__traceback__
    while keras is not None and walk is not None:
        owner = walk.tb_frame.f_locals.get("self")
        if isinstance(owner, keras.layers.Layer) and not isinstance(owner, keras.Model):
            found = owner.name
        walk = walk.tb_next
    return found


def named_layer(text: str, layers: Iterable[str]) -> str:
    """The innermost of ``layers`` in a path of a runtime's message (``functional_1/hidden_1/MatMul``); empty for none."""
    known = set(layers)
    for path in re.findall(r"[\w.\-]+(?:/[\w.\-]+)+", text):
        for part in reversed(path.split("/")[:-1]):
            if name := next((one for one in (part, re.sub(r"_\d+$", "", part)) if one in known), ""):
                return name
    return ""


def out_of_memory(error: BaseException) -> bool:
    """Whether the machine's memory is what the error is about, not the artifact."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in MEMORY_SIGNS)


def raise_if_out_of_memory(error: BaseException) -> None:
    """Let a want of memory end the stage as what it is: taken for the artifact's refusal it would fail a target that another machine can run.

    Raises:
        MemoryError: ``error`` itself, or one made of what the runtime says in its place.
    """
    if isinstance(error, MemoryError):
        raise error
    if out_of_memory(error):
        raise MemoryError(f"{type(error).__name__}: {telling_line(error)}") from error


def check_artifact(artifact: str, sha256: str, companions: Sequence[str] = ()) -> None:
    """See that a file or folder is there and is the one that was inspected; an empty ``sha256`` asks only that it is there.

    Raises:
        StageError: KP210 or KP211.
    """
    path = Path(artifact)
    if not path.exists():
        raise fault(
            "KP210",
            f"{path.name} isn't there any more.",
            "Run the validation again; leave the model and the run folder as they are while it runs.",
            place=path.name,
        )
    if sha256 and (found := digest(path, companions)) != sha256:
        raise fault(
            "KP211",
            f"{path.name} has SHA-256 {found}; it had {sha256} when it was inspected.",
            "Something changed it after it was inspected: find out what, and run the validation again.",
            place=path.name,
            found=found,
            expected=sha256,
        )


def load_refused(runtime: str, error: BaseException, layers: Mapping[str, Sequence[str]] | None = None) -> StageError:
    """The runtime refused to load the artifact; ``layers`` as in `Artifact.op_layers`, to name the one that its message is about.

    Raises:
        MemoryError: it didn't refuse; there wasn't the memory for it.
    """
    raise_if_out_of_memory(error)
    layer = named_layer(str(error), (name for places in (layers or {}).values() for name in places))
    return fault(
        "KP303",
        f"{runtime} can't load the artifact{f' (layer {layer})' if layer else ''}: {type(error).__name__}: {telling_line(error)}",
        "Export it again with versions that fit this runtime, or take the target out of the contract.",
        place=layer,
        error=type(error).__name__,
    )


def with_layers(ops: Iterable[str], layers: Mapping[str, Sequence[str]]) -> str:
    """Op names, each with the layers that it comes from where that is known: ``LookupTableFindV2 (layer tv)``."""
    return ", ".join(f"{op} (layer {', '.join(layers[op])})" if layers.get(op) else op for op in ops)


def op_missing(runtime: str, ops: Iterable[str], error: BaseException, layers: Mapping[str, Sequence[str]]) -> StageError:
    """The artifact needs ops that the runtime doesn't have; ``layers`` as in `Artifact.op_layers`."""
    names = sorted(set(ops))
    places = [place for name in names for place in layers.get(name, ())]
    return fault(
        "KP202",
        f"{runtime} has no op {with_layers(names, layers)}, which the artifact needs.",
        "Replace the layer that needs it by one made of the runtime's own ops, or take the target out of the contract.",
        place=places[0] if places else names[0],
        ops=names,
        layers=places,
        message=telling_line(error),
    )


def check_settings(runtime: str, settings: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a setting that the runtime doesn't know: most runtimes would ignore it without a word.

    Raises:
        StageError: KP303, with the nearest known setting.
    """
    known = sorted(known)
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name.upper(), [k.upper() for k in known], n=1, cutoff=0.0)
            nearest = next((k for k in known if near and k.upper() == near[0]), None)
            hint = f"Did you mean '{nearest}'? " if nearest else ""
            raise fault(
                "KP303",
                f"{runtime} has no setting '{name}'; it knows {', '.join(known) or 'none'}.",
                f"{hint}Correct or remove the target's setting '{name}'.",
                place=name,
                known=known,
            )


def check_value(runtime: str, name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Return ``value`` if it is one of ``allowed`` (of the same type).

    Raises:
        StageError: KP303 with what is allowed.
    """
    allowed = list(allowed)
    if not any(value == one and type(value) is type(one) for one in allowed):
        raise fault(
            "KP303",
            f"{runtime} can't take {value!r} for '{name}'; it takes {', '.join(map(repr, allowed))}.",
            f"Correct the target's setting '{name}'.",
            place=name,
        )
    return value


def check_count(runtime: str, name: str, value: Any) -> int:
    """Return ``value`` if it is a whole number above zero.

    Raises:
        StageError: KP303.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise fault(
            "KP303",
            f"{runtime} can't take {value!r} for '{name}'; it takes a whole number above 0.",
            f"Correct the target's setting '{name}'.",
            place=name,
        )
    return value


def bound(order: RunJob, inputs: Iterable[str], outputs: Iterable[str]) -> tuple[Signature, Binding]:
    """The model's signature and the binding of the order, checked against the names that the opened artifact really has.

    Raises:
        StageError: KP207 (the artifact asks for inputs that the model doesn't have, or lacks one), KP407 (an output likewise).
        ValueError: the order holds no signature or binding.
    """
    if order.signature is None or order.binding is None:
        raise ValueError(f"a job for {order.runtime} needs the model's signature and a binding")
    _check_names("input", "KP207", [spec.name for spec in order.signature.inputs], order.binding.inputs, set(inputs))
    _check_names("output", "KP407", [spec.name for spec in order.signature.outputs], order.binding.outputs, set(outputs))
    return order.signature, order.binding


def _check_names(kind: str, code: str, model: list[str], binding: Mapping[str, str], artifact: set[str]) -> None:
    values = list(binding.values())
    evidence: dict[str, Any] = {"model": model, "binding": dict(binding), "artifact": sorted(artifact)}
    remedy = "Export the artifact again from this very model: every input and output must be bound to one of its own, by name."
    if set(binding) != set(model):
        raise fault(code, f"The binding names the {kind}s {sorted(binding)}; the model has {sorted(model)}.", remedy, **evidence)
    if len(set(values)) != len(values):
        twice = next(name for name in values if values.count(name) > 1)
        raise fault(code, f"Two {kind}s of the model are bound to '{twice}' of the artifact; each needs its own.", remedy, twice, **evidence)
    if missing := sorted(set(values) - artifact):
        raise fault(code, f"The artifact has no {kind} '{missing[0]}'; it has {sorted(artifact)}.", remedy, missing[0], **evidence)
    if extra := sorted(artifact - set(values)):
        raise fault(code, f"The artifact has the {kind} '{extra[0]}', which the model doesn't have.", remedy, extra[0], **evidence)


def refuse_modules(*names: str) -> None:
    """Refuse to go on where a framework is loaded that production doesn't have: it could lend the runtime its ops.

    Raises:
        StageError: KP310.
    """
    for name in names:
        if name in sys.modules:
            raise fault(
                "KP310",
                f"The process of this target has imported {name}; the runtime must run without it.",
                f"Keep {name} out of this target's preprocessing and interpreter start-up (sitecustomize, .pth files).",
                place=name,
            )


def owned(value: Any) -> Array:
    """``value`` as an array that no runtime will write to again."""
    array = np.asarray(value)
    return array if array.flags.owndata and array.flags.writeable and array is value else np.array(array, copy=True)


def nbytes(answer: Answer) -> int:
    """Bytes that an answer holds."""
    return sum(array.nbytes for array in answer.values())
