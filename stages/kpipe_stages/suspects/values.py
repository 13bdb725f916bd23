"""Suspects of what is done to the numbers: scales, means, inversion, rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.cast import cast
from kpipe_stages.preprocessing.steps import KINDS
from kpipe_stages.suspects.suspect import Suspect, changes_scale, exchanged, finished_by, inserted, named
from kpipe_stages.suspects.variation import Special, Step, Variation, name_of, toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = np.ndarray[Any, np.dtype[Any]]

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
CAFFE = {"mean": [103.939, 116.779, 123.68], "std": [1.0, 1.0, 1.0]}
"""The statistics of `keras.applications.imagenet_utils.preprocess_input`, modes ``torch`` and ``caffe`` (of BGR)."""
SCALES: tuple[tuple[str, list[dict[str, Any]]], ...] = (
    ("values from 0 to 255, not scaled", []),
    ("scaled to [0, 1]", [{"scale": 1 / 255}]),
    ("scaled to [-1, 1]", [{"scale": 1 / 127.5}, {"offset": -1.0}]),
    ("scaled by (v - 128) / 128", [{"offset": -128.0}, {"scale": 1 / 128}]),
    ("divided by 256", [{"scale": 1 / 256}]),
    ("scaled to [-0.5, 0.5]", [{"scale": 1 / 255}, {"offset": -0.5}]),
    ("ImageNet's mean and std on [0, 1]", [{"scale": 1 / 255}, {"normalize": IMAGENET}]),
    ("ImageNet's mean subtracted from 0 to 255 (caffe)", [{"normalize": CAFFE}]),
)


def values(base: Variation) -> Iterator[Suspect]:
    """All of them, for the reference's own steps."""
    yield from _scales(base)
    yield from _statistics(base)
    if not named(base.steps, "invert"):
        yield Suspect("invert", "inverted", "not inverted", inserted({"invert": True}, changes_scale))
    yield from _roundings()


def _scales(base: Variation) -> Iterator[Suspect]:
    own = [step for step in base.steps if isinstance(step, dict) and KINDS[name_of(step)].changes_scale]
    here = " and ".join(toml(step) for step in own) or "values as decoded"
    for words, steps in SCALES:
        if steps != own:
            yield Suspect("scale", words, here, _rescaled(steps))


def _rescaled(steps: list[dict[str, Any]]) -> Callable[[Variation], Variation]:
    """Other steps of scale in the place of all that are there."""

    def edit(variation: Variation) -> Variation:
        kept: tuple[Step, ...] = tuple(
            step for step in variation.steps if isinstance(step, Special) or not KINDS[name_of(step)].changes_scale or name_of(step) == "cast"
        )
        first = next((i for i, step in enumerate(variation.steps) if changes_scale(step)), len(variation.steps))
        return replace(variation, steps=(*kept[:first], *steps, *kept[first:]))

    return edit


def _statistics(base: Variation) -> Iterator[Suspect]:
    for step in named(base.steps, "normalize"):
        mean, std = (np.atleast_1d(step["normalize"][key]).tolist() for key in ("mean", "std"))
        here = f"mean {step['normalize']['mean']} and std {step['normalize']['std']}"
        for words, other in (
            ("mean and std swapped", {"mean": std, "std": mean}),
            ("the mean not subtracted", {"mean": [0.0] * len(mean), "std": std}),
            ("not divided by std", {"mean": mean, "std": [1.0] * len(std)}),
            ("multiplied by std", {"mean": mean, "std": [1 / n for n in std]}),
            ("the mean added", {"mean": [-n for n in mean], "std": std}),
            ("mean and std in the order of BGR", {"mean": mean[::-1], "std": std[::-1]}),
            ("ImageNet's mean and std", IMAGENET),
        ):
            if other != {"mean": mean, "std": std} and all(n > 0 for n in other["std"]):
                yield Suspect("statistics", words, here, exchanged(step, {"normalize": other}))
        divided = {"normalize": {"mean": [n / 255 for n in mean], "std": [n / 255 for n in std]}}
        yield Suspect("statistics", "mean and std divided by 255", here, exchanged(step, divided))
    for words, apply in (
        ("standardized by each image's own mean and std", _standardized),
        ("stretched to [0, 1] by each image's own range", _stretched),
    ):
        yield Suspect("statistics", words, "the same numbers for all images", finished_by(Special(words, apply)))


def _standardized(tensor: Array) -> Array:
    """``(v - mean) / max(std, 1 / sqrt(n))``, as ``tf.image.per_image_standardization`` is documented."""
    wide = tensor.astype(np.float64)
    return np.asarray((wide - wide.mean()) / max(float(wide.std()), 1 / np.sqrt(wide.size)))


def _stretched(tensor: Array) -> Array:
    wide = tensor.astype(np.float64)
    return np.asarray((wide - wide.min()) / (wide.max() - wide.min()))


def _roundings() -> Iterator[Suspect]:
    level: tuple[tuple[str, Callable[[Array], Array]], ...] = (
        ("levels rounded to 8 bits before they are scaled", lambda v: np.clip(np.rint(np.round(v, 4)), 0, 255).astype(np.uint8)),
        ("levels cut to 8 bits before they are scaled", lambda v: np.clip(np.round(v, 4), 0, 255).astype(np.uint8)),
    )
    for words, apply in level:
        yield Suspect("rounding", words, "not rounded", inserted(Special(words, apply), changes_scale))
    finished: tuple[tuple[str, Callable[[Array], Array]], ...] = (
        ("rounded to float16", lambda t: cast(t, "float16").astype(np.float32)),
        ("rounded to bfloat16", _bfloat16),
        ("cut to whole numbers", np.trunc),
        ("rounded to whole numbers", np.rint),
    )
    for words, apply in finished:
        yield Suspect("rounding", words, "not rounded", finished_by(Special(words, apply)))


def _bfloat16(tensor: Array) -> Array:
    """To the nearest bfloat16, ties to even: the upper half of the float32's bits."""
    bits = tensor.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
