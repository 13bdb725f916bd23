"""Faults in a model's graph: the healthy model is wrapped, so that every name stays and something before or after it is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe_stages.planting import ImpossibleError

if TYPE_CHECKING:
    from collections.abc import Callable

SQUARE_IMAGE = 4


def wrap(
    model: Any, *, before: Callable[[list[Any]], list[Any]] | None = None, after: Callable[[list[Any]], list[Any]] | None = None, batch: Any = None
) -> Any:
    """A model of the same input and output names around ``model``.

    Args:
        model: a functional model.
        before: what happens to its inputs, in order.
        after: what happens to its outputs, in order.
        batch: the batch axis; None leaves it free.
    """
    import keras

    names = list(model.output_names)
    inputs = [keras.Input(batch_shape=(batch, *tensor.shape[1:]), dtype=tensor.dtype, name=tensor.name) for tensor in model.inputs]
    inner = keras.Model(model.inputs, list(model.outputs), name="inner")
    fed = before(list(inputs)) if before else list(inputs)
    outputs = inner(fed if len(fed) > 1 else fed[0])
    outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    changed = after(outputs) if after else outputs
    return keras.Model(inputs, [keras.layers.Identity(name=name)(value) for name, value in zip(names, changed, strict=True)], name=model.name)


def _one(model: Any) -> None:
    if len(model.outputs) != 1:
        raise ImpossibleError("the model has several outputs")


def _scores(model: Any, classes: int = 2) -> None:
    _one(model)
    if model.outputs[0].shape[-1] is None or model.outputs[0].shape[-1] < classes:
        raise ImpossibleError("the output is no row of class scores")


def softmax_twice(model: Any) -> Any:
    """A serving layer applies softmax to what is softmax already: the decision stays, every probability is wrong."""
    import keras

    _scores(model)
    return wrap(model, after=lambda ys: [keras.ops.softmax(ys[0])])


def sigmoid_for_softmax(model: Any) -> Any:
    """The last activation is sigmoid."""
    return _last_activation(model, "softmax", "sigmoid")


def logits(model: Any) -> Any:
    """The last activation is lost."""
    return _last_activation(model, None, "linear")


def _last_activation(model: Any, needed: str | None, wanted: str) -> Any:
    import keras

    _one(model)
    layer = model.layers[-1]
    found = getattr(getattr(layer, "activation", None), "__name__", "linear")
    if found == "linear" or (needed is not None and found != needed):
        raise ImpossibleError(f"the last activation is {found}")
    layer.activation = keras.activations.get(wanted)
    return model


def swap_outputs(model: Any) -> Any:
    """The first two outputs carry each other's names."""
    if len(model.outputs) < 2 or model.outputs[0].shape != model.outputs[1].shape:  # noqa: PLR2004 - two
        raise ImpossibleError("no two outputs of the same shape")
    return wrap(model, after=lambda ys: [ys[1], ys[0], *ys[2:]])


def swap_inputs(model: Any) -> Any:
    """The first two inputs carry each other's names."""
    if len(model.inputs) < 2 or model.inputs[0].shape != model.inputs[1].shape:  # noqa: PLR2004 - two
        raise ImpossibleError("no two inputs of the same shape")
    return wrap(model, before=lambda xs: [xs[1], xs[0], *xs[2:]])


def freeze_batch(model: Any, *, size: int) -> Any:
    """The batch axis takes one size only."""
    return wrap(model, batch=size)


def roll_batch(model: Any) -> Any:
    """Each row gets its neighbour's answer: right alone, wrong in company."""
    import keras

    return wrap(model, after=lambda ys: [keras.ops.roll(y, 1, axis=0) for y in ys])


def batch_statistics(model: Any) -> Any:
    """Outputs are moved by a hundredth of their distance from the batch's mean, as a layer left in training mode does."""
    import keras

    return wrap(model, after=lambda ys: [y + 0.01 * (y - keras.ops.mean(y, axis=0, keepdims=True)) for y in ys])


def fewer_classes(model: Any) -> Any:
    """The last class is cut off."""
    _scores(model, 3)
    return wrap(model, after=lambda ys: [ys[0][..., :-1]])


def last_class_zero(model: Any) -> Any:
    """The last class is always 0: a buffer was one short."""
    import keras

    _scores(model, 3)
    return wrap(model, after=lambda ys: [keras.ops.concatenate([ys[0][..., :-1], keras.ops.zeros_like(ys[0][..., -1:])], axis=-1)])


def classes_shifted(model: Any) -> Any:
    """Scores are one class further: a background class that one side knows."""
    import keras

    _scores(model, 3)
    return wrap(model, after=lambda ys: [keras.ops.roll(ys[0], 1, axis=-1)])


def width_for_height(model: Any) -> Any:
    """Rows are read as columns."""
    import keras

    _image(model)
    return wrap(model, before=lambda xs: [keras.layers.Permute((2, 1, 3))(xs[0])])


def channels_first(model: Any) -> Any:
    """Bytes of height, width, channels are read as channels, height, width."""
    import keras

    _, height, width, channels = _image(model)
    if channels == 1:
        raise ImpossibleError("with one channel both orders are the same bytes")
    return wrap(model, before=lambda xs: [keras.layers.Permute((2, 3, 1))(keras.layers.Reshape((channels, height, width))(xs[0]))])


def flip(model: Any, *, axis: int) -> Any:
    """The image is upside down (axis 1), mirrored (axis 2), or has its colours the other way round (axis 3)."""
    import keras

    shape = _image(model)
    if shape[axis] == 1:
        raise ImpossibleError("that axis has one element")
    return wrap(model, before=lambda xs: [keras.ops.flip(xs[0], axis=axis)])


def rescaled(model: Any, *, scale: float, offset: float = 0.0) -> Any:
    """A Rescaling that the training pipeline had too was baked into the artifact: it happens twice."""
    import keras

    if any("float" not in str(tensor.dtype) for tensor in model.inputs):
        raise ImpossibleError("the inputs aren't floating point")
    return wrap(model, before=lambda xs: [keras.layers.Rescaling(scale, offset)(x) for x in xs])


def _image(model: Any) -> tuple[Any, ...]:
    shape = tuple(model.inputs[0].shape)
    if len(model.inputs) != 1 or len(shape) != SQUARE_IMAGE or shape[1] is None or shape[1] != shape[2]:
        raise ImpossibleError("the input is no square image")
    return shape


EDITS: dict[str, Callable[..., Any]] = {
    "softmax_twice": softmax_twice,
    "sigmoid_for_softmax": sigmoid_for_softmax,
    "logits": logits,
    "swap_outputs": swap_outputs,
    "swap_inputs": swap_inputs,
    "freeze_batch": freeze_batch,
    "roll_batch": roll_batch,
    "batch_statistics": batch_statistics,
    "fewer_classes": fewer_classes,
    "last_class_zero": last_class_zero,
    "classes_shifted": classes_shifted,
    "width_for_height": width_for_height,
    "channels_first": channels_first,
    "flip": flip,
    "rescaled": rescaled,
}
