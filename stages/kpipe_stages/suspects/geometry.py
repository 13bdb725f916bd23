"""Suspects of where pixels come from: orientation, resizing, cropping, padding, the order of steps, the layout of the tensor."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.resample import METHODS, resize
from kpipe_stages.preprocessing.steps import KINDS, image_of, wanted_size
from kpipe_stages.suspects.resampling import KERNELS, Kernel, apply_taps, opencv_bilinear_8bit
from kpipe_stages.suspects.suspect import Suspect, exchanged, finished_by, moved, named
from kpipe_stages.suspects.variation import Special, Step, Variation, name_of, toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = np.ndarray[Any, np.dtype[Any]]
RESIZERS = ("resize", "fit", "shorter")
WORDS = {"area": "box"}
"""Methods whose word in the contract isn't the filter's usual one."""
LETTERBOX = (0, 114, 255)
"""Levels that letterboxes are filled with."""
RANK = 3
DIGITS = 4
"""Of a level, when it is rounded: which side of a half, or of a whole number, a sum of float weights falls on is chance."""


def geometry(base: Variation) -> Iterator[Suspect]:
    """All of them, for the reference's own steps."""
    yield from _resizing(base)
    yield from _cropping(base)
    yield from _order(base)
    yield from _layout(base)


# ---------------------------------------------------------------- resizing


def described(step: dict[str, Any]) -> str:
    """``bilinear with antialias``, of a step that resizes."""
    method = step.get("method", "bilinear")
    if method == "nearest":
        return "nearest"
    return f"{WORDS.get(method, method)} {'with' if step.get('antialias', True) else 'without'} antialias"


def _resizing(base: Variation) -> Iterator[Suspect]:
    """Every resize in every other way; where there are several, each is called by its step."""
    steps = named(base.steps, *RESIZERS)
    for step in steps:
        called = f"{name_of(step)}: " if len(steps) > 1 else ""
        for suspect in _resized(step):
            yield replace(suspect, does=f"{called}{suspect.does}", instead=f"{called}{suspect.instead}")


def _resized(step: dict[str, Any]) -> Iterator[Suspect]:
    here = described(step)
    for method in METHODS:
        for antialias in (True, False) if method == "bilinear" else (True,):
            other = {**step, "method": method, "antialias": antialias}
            if described(other) != here:
                yield Suspect("resize", described(other), here, exchanged(step, other))
    yield Suspect("resize", "bilinear without antialias in OpenCV's arithmetic", here, exchanged(step, _special(step, "opencv", _opencv)))
    for kernel in KERNELS:
        yield from _by_kernel(step, kernel, here)
    for method in METHODS[1:]:
        yield from _by_pillow(step, method, here)


ROUNDINGS: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("not rounded", lambda v: v.astype(np.float32)),
    ("rounded to 8 bits", lambda v: np.clip(np.rint(np.round(v, DIGITS)), 0, 255).astype(np.uint8)),
    ("rounded half up to 8 bits", lambda v: np.clip(np.floor(np.round(v, DIGITS) + 0.5), 0, 255).astype(np.uint8)),
    ("cut to 8 bits", lambda v: np.clip(np.round(v, DIGITS), 0, 255).astype(np.uint8)),
)


def _by_kernel(step: dict[str, Any], kernel: Kernel, here: str) -> Iterator[Suspect]:
    for words, rounding in ROUNDINGS:
        if kernel is KERNELS[0] and words == "not rounded":
            continue  # the contract's own: `resize` with antialias = false
        special = _special(step, f"{kernel.words} {words}", _then(partial(_tapped, kernel), rounding))
        yield Suspect("resize", f"{kernel.words}, {words}", here, exchanged(step, special))


def _by_pillow(step: dict[str, Any], method: str, here: str) -> Iterator[Suspect]:
    """Filters that widen, on floats: what TensorFlow calls antialiasing, and what rounds later or never."""
    said = described({"resize": 0, "method": method})
    for words, rounding in ROUNDINGS:
        special = _special(step, f"float {method} {words}", _then(partial(_widened, method), rounding))
        yield Suspect("resize", f"{said} in floating point, {words}", f"{here}, on 8-bit levels where the file has them", exchanged(step, special))


def _special(step: dict[str, Any], name: str, work: Callable[[Array, int, int], Array]) -> Special:
    """A step that makes the size that ``step`` makes, in another way; an image that has it already is left alone, as all libraries do."""
    kind = name_of(step)

    def apply(array: Array) -> Array:
        image = image_of(array, kind)
        height, width = wanted_size(kind, step[kind], image.shape[0], image.shape[1])
        return image if image.shape[:2] == (height, width) else work(image, height, width)

    return Special(f"{toml(step)} as {name}", apply)


def _then(work: Callable[[Array, int, int], Array], rounding: Callable[[Array], Array]) -> Callable[[Array, int, int], Array]:
    return lambda image, height, width: rounding(work(image, height, width))


def _widened(method: str, image: Array, height: int, width: int) -> Array:
    return resize(image.astype(np.float32), height, width, method, antialias=True)


def _tapped(kernel: Kernel, image: Array, height: int, width: int) -> Array:
    return apply_taps(image, kernel.taps(image.shape[0], height), kernel.taps(image.shape[1], width))


def _opencv(image: Array, height: int, width: int) -> Array:
    """Whole numbers on 8-bit levels, and two points in floating point on others."""
    if image.dtype != np.uint8:
        return _tapped(KERNELS[0], image, height, width).astype(np.float32)
    return opencv_bilinear_8bit(image, height, width)


# ---------------------------------------------------------------- cropping and padding


def _cropping(base: Variation) -> Iterator[Suspect]:
    for step in named(base.steps, "crop"):
        size = step["size"]
        yield Suspect("crop", "the top left corner cut out", "the middle cut out", exchanged(step, Special(f"corner {size}", _corner(size))))
        yield Suspect(
            "crop", "the middle cut out, odd rests rounded up", "rounded down", exchanged(step, Special(f"upper {size}", _rounded_up(size)))
        )
        for before in named(base.steps[: base.steps.index(step)], *RESIZERS):
            whole = {"resize": list(size), **{key: value for key, value in before.items() if key in ("method", "antialias")}}
            yield Suspect("crop", "centre crop missing: the whole image resized to its size", "a centre crop", _both(before, step, whole))
    for step in named(base.steps, "pad"):
        for level in LETTERBOX:
            if level != step.get("value", 0):
                yield Suspect("pad", f"padded with {level}", f"padded with {step.get('value', 0)}", exchanged(step, {**step, "value": level}))
        for before in named(base.steps, "fit"):
            whole = {"resize": list(step["pad"]), **{key: value for key, value in before.items() if key in ("method", "antialias")}}
            yield Suspect("pad", "stretched to the size", "proportions kept and padded", _both(before, step, whole))
    for step in named(base.steps, "resize"):
        options = {key: value for key, value in step.items() if key in ("method", "antialias")}
        for level in LETTERBOX:
            pair = ({"fit": list(step["resize"]), **options}, {"pad": list(step["resize"]), "value": level})
            yield Suspect("pad", f"proportions kept and padded with {level}", "stretched to the size", exchanged(step, *pair))
        cut = ({"shorter": max(step["resize"]), **options}, {"crop": "center", "size": list(step["resize"])})
        yield Suspect("crop", "the shorter side resized and the middle cut out", "the whole image resized", exchanged(step, *cut))


def _both(first: Step, second: Step, new: Step) -> Callable[[Variation], Variation | None]:
    """Take two steps out and put one in the place of the first."""

    def edit(variation: Variation) -> Variation | None:
        if first not in variation.steps or second not in variation.steps:
            return None
        changed = exchanged(first, new)(variation)
        return exchanged(second)(changed) if changed else None

    return edit


def _corner(size: list[int]) -> Callable[[Array], Array]:
    return lambda image: image[: size[0], : size[1]]


def _rounded_up(size: list[int]) -> Callable[[Array], Array]:
    def apply(image: Array) -> Array:
        top, left = -(-(image.shape[0] - size[0]) // 2), -(-(image.shape[1] - size[1]) // 2)
        return image[top : top + size[0], left : left + size[1]]

    return apply


# ---------------------------------------------------------------- order and layout


_MISSING = {"crop": "centre crop missing", "invert": "not inverted", "normalize": "mean and std not applied", "alpha": "alpha left in"}


def _order(base: Variation) -> Iterator[Suspect]:
    """Every step at every other place, and every step left out."""
    steps = [step for step in base.steps if isinstance(step, dict)]
    for position, step in enumerate(steps):
        name = name_of(step)
        for place in range(len(steps)):
            if abs(place - position) > 1 or place == position + 1:  # one place up is the neighbour's one place down
                passed = " and ".join(name_of(other) for other in (steps[position + 1 : place + 1] if place > position else steps[place:position]))
                first, second = (passed, name) if place > position else (name, passed)
                yield Suspect("order", f"{first} before {second}", f"{second} before {first}", moved(step, place))
        if name not in RESIZERS:
            yield Suspect("omission", _MISSING.get(name, f"the step {toml(step)} missing"), f"the step {toml(step)}", exchanged(step))
        if KINDS[name].changes_scale and name != "cast":
            yield Suspect("omission", f"the step {toml(step)} done twice", f"the step {toml(step)} once", exchanged(step, step, step))


def _layout(base: Variation) -> Iterator[Suspect]:
    here = "the image as it is"
    if not named(base.steps, "layout", "flatten"):
        yield Suspect("layout", "channels first (NCHW)", "channels last (NHWC)", lambda v: replace(v, steps=(*v.steps, {"layout": "chw"})))
    for step in named(base.steps, "layout"):
        if step["layout"] == "chw":
            yield Suspect("layout", "channels last (NHWC)", "channels first (NCHW)", exchanged(step))
    for words, apply in (
        ("channels first (NCHW), reshaped to the shape of NHWC", lambda t: _three(t).transpose(2, 0, 1).reshape(t.shape)),
        ("height and width exchanged", lambda t: np.swapaxes(_three(t), *_sides(t))),
        ("mirrored left to right", lambda t: np.flip(_three(t), _sides(t)[1])),
        ("upside down", lambda t: np.flip(_three(t), _sides(t)[0])),
        ("turned by 180 degrees", lambda t: np.flip(_three(t), _sides(t))),
        ("turned by 90 degrees to the left", lambda t: np.rot90(_three(t), 1, _sides(t))),
        ("turned by 90 degrees to the right", lambda t: np.rot90(_three(t), -1, _sides(t))),
    ):
        yield Suspect("layout", words, here, finished_by(Special(words, apply)))


def _three(tensor: Array) -> Array:
    if tensor.ndim != RANK:
        raise ValueError(f"rank {tensor.ndim}")
    return tensor


def _sides(tensor: Array) -> tuple[int, int]:
    """The axes of height and width: channels are the last axis if it is short, else the first."""
    return (0, 1) if tensor.shape[-1] <= tensor.shape[0] else (1, 2)
