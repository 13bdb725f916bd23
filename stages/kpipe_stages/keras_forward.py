"""How a loaded Keras model is called on each backend: compiled as a product would, and meaning exactly ``model(x, training=False)``.

JAX: ``jax.jit`` of a stateless call, once per shape of the inputs. Operator by operator the same call compiles hundreds of small programs and
takes longer from a cold cache. Weights are arguments, so that they aren't compiled in; the state that a call leaves (random seeds, the memory of
a stateful layer) is handed to the next call, as in ``model(x)``: dropping it would make a random model look repeatable.

TensorFlow: ``tf.function`` of the call, traced once per shape. ``model.predict`` differs twice: it compiles with XLA, and from its second
shape on it traces with unknown sizes, which changes what layers that read their input's size compute.

OpenVINO: ``model.predict_on_batch``, the compiled model of ``model.predict`` without its data adapter. ``model(x)`` would be another
computation: one always in float32, compiled anew at each call.

Where a model can't be traced, JAX and TensorFlow call it operator by operator instead, on a model loaded anew, and say so.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kpipe_stages.session import Description, owned, telling_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kpipe_stages.keras_calling import KerasCaller
    from kpipe_stages.session import Answer, Feeds

    Load = Callable[[], KerasCaller]


class Forward(Protocol):
    """One way to call one loaded model."""

    caller: KerasCaller

    def __call__(self, feeds: Feeds) -> Answer:
        """Answer a batch, computed to the end."""

    def facts(self) -> dict[str, Any]:
        """How the calls are made."""


class _Traced:
    """Calls a compiled function; falls back to plain calls, on a fresh model, when tracing fails at the first call."""

    def __init__(self, load: Load, *, compiled: bool) -> None:
        self._load = load
        self.caller = load()
        self._function: Callable[[Feeds], Mapping[str, Any]] | None = self.make() if compiled else None
        self.execution = self.compiled_words if compiled else "operator by operator (asked for)"
        self._proved = False

    compiled_words = ""

    def make(self) -> Callable[[Feeds], Mapping[str, Any]]:
        raise NotImplementedError

    def untraceable(self) -> tuple[type[BaseException], ...]:
        raise NotImplementedError

    def numpy(self, tensor: Any) -> Any:
        raise NotImplementedError

    def tensors(self, feeds: Feeds) -> Mapping[str, Any]:
        return feeds

    def __call__(self, feeds: Feeds) -> Answer:
        given = self.tensors(feeds)
        outputs = self.caller(given) if self._function is None else self._compiled(self._function, given)
        return {name: owned(self.numpy(tensor)) for name, tensor in outputs.items()}

    def _compiled(self, function: Callable[[Feeds], Mapping[str, Any]], given: Any) -> Mapping[str, Any]:
        if self._proved:
            return function(given)
        try:
            outputs = function(given)
        except self.untraceable() as error:
            reason = telling_line(error).split(" The error occurred while tracing", maxsplit=1)[0]
            self.execution = f"operator by operator (can't be traced: {reason})"
            self._function = None
            self.caller = self._load()  # a failed trace leaves its tracers in the model
            return self.caller(given)
        self._proved = True
        return outputs

    def facts(self) -> dict[str, Any]:
        return {"execution": self.execution}


class JaxForward(_Traced):
    """See the module's text."""

    compiled_words = "jax.jit of a stateless call, per input shape"

    def make(self) -> Callable[[Feeds], Mapping[str, Any]]:
        """Compile lazily; the state goes from call to call."""
        import jax
        import keras

        caller, variables = self.caller, list(self.caller.model.variables)
        state = [variable.value for variable in variables]

        def pure(values: list[Any], feeds: Any) -> tuple[dict[str, Any], list[Any]]:
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))) as scope:
                outputs = caller(feeds)
            after = [scope.get_current_value(variable) for variable in variables]
            return outputs, [old if new is None else new for old, new in zip(values, after, strict=True)]

        step = jax.jit(pure)

        def forward(feeds: Feeds) -> Mapping[str, Any]:
            outputs: dict[str, Any]
            outputs, state[:] = step(list(state), dict(feeds))
            return outputs

        return forward

    def untraceable(self) -> tuple[type[BaseException], ...]:
        """Errors of a Python branch, a numpy call or a size on a traced value."""
        import jax

        return (jax.errors.JAXTypeError, jax.errors.JAXIndexError)

    def numpy(self, tensor: Any) -> Any:
        """Wait, and copy to the host."""
        return np.array(tensor)


class TensorFlowForward(_Traced):
    """See the module's text."""

    compiled_words = "tf.function of the call, per input shape, no XLA"

    def __init__(self, load: Load, *, compiled: bool, xla: bool) -> None:
        self._xla = xla
        super().__init__(load, compiled=compiled)
        if xla and compiled:
            self.execution = "tf.function of the call, per input shape, XLA"

    def make(self) -> Callable[[Feeds], Mapping[str, Any]]:
        """One function; numpy feeds are turned into tensors first, so that shapes, not values, key its traces."""
        import tensorflow as tf

        caller = self.caller
        function: Callable[[Feeds], Mapping[str, Any]] = tf.function(caller.__call__, autograph=False, jit_compile=self._xla or None)
        return function

    def untraceable(self) -> tuple[type[BaseException], ...]:
        """Anything in a trace's own errors; a runtime's error comes as an OpError."""
        import tensorflow as tf

        return (tf.errors.OperatorNotAllowedInGraphError, NotImplementedError, AttributeError, TypeError)

    def tensors(self, feeds: Feeds) -> Mapping[str, Any]:
        """Feeds as tensors."""
        import tensorflow as tf

        return {name: tf.constant(array) for name, array in feeds.items()}

    def numpy(self, tensor: Any) -> Any:
        """Copy to the host."""
        return tensor.numpy()


class OpenVINOForward:
    """See the module's text."""

    def __init__(self, load: Load, settings: Mapping[str, Any]) -> None:
        from kpipe_stages.keras_calling import KerasCaller

        self._settings = dict(settings)
        self.caller = load()
        self.model = self.caller.model
        self._predict = KerasCaller(self.model)
        self._predict.model = self._batch
        self.compiled: Any = None

    def _batch(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            raise ValueError(f"predict() takes one argument; this model's call() takes {len(args) + len(kwargs)}")
        return self.model.predict_on_batch(args[0])

    def __call__(self, feeds: Feeds) -> Answer:
        """Predict on one batch, compiled with the settings where Keras compiles."""
        with compiled_with(self._settings):
            outputs = self._predict(feeds, training=None)
        self.compiled = self.model.ov_compiled_model
        return {name: owned(np.asarray(value)) for name, value in outputs.items()}

    def facts(self) -> dict[str, Any]:
        """Whether predict compiled at all: models with layers that can't be compiled are called operator by operator, in float32."""
        if self.compiled is None:
            return {"execution": "model(x) (Keras doesn't compile this model for predict)"}
        return {"execution": "model.predict_on_batch, compiled per input shape"}

    def describe(self) -> Description | None:
        """The compiled model's own account; None where there is none."""
        from kpipe_stages.openvino_facts import describe_compiled

        return None if self.compiled is None else describe_compiled([self.compiled], self._settings)


@contextlib.contextmanager
def compiled_with(settings: Mapping[str, Any]) -> Iterator[None]:
    """Have ``openvino.compile_model`` compile with ``settings``: Keras' predict gives it none and offers no way to."""
    import openvino

    original = openvino.compile_model

    def compile_model(model: Any, device_name: str = "CPU", config: Mapping[str, Any] | None = None) -> Any:
        return original(model, device_name, {**(config or {}), **settings})

    openvino.compile_model = compile_model
    try:
        yield
    finally:
        openvino.compile_model = original
