"""Faults in a target's own preprocessing: the contract says what production does, and it isn't what training did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe.selftest.fault import Family, Fault, NotPlantableError
from kpipe.selftest.steps import (
    altered,
    appended,
    before,
    blue_first,
    cropped,
    exchanged_normalisation,
    letterboxed,
    on_target,
    other_mean,
    replaced,
    reversed_normalisation,
    rounded_scale,
    without,
)

if TYPE_CHECKING:
    from kpipe.selftest.steps import Change, Steps

EDGES = frozenset({"preprocess", "decode"})


def _fault(name: str, change: Change, *subjects: str, image: bool = True, **options: Any) -> Fault:
    return Fault(name, Family.PREPROCESSING, EDGES, frozenset(subjects), contract=on_target(change, image=image, **options))


def _resized(name: str, *subjects: str, **options: Any) -> Fault:
    return _fault(name, altered("resize", **options), *subjects)


def before_scale(*new: dict[str, Any]) -> Change:
    """More steps where levels become numbers: before ``scale`` or ``normalize``, whichever comes first."""

    def change(steps: Steps) -> Steps:
        for step in steps:
            for name in ("scale", "normalize"):
                if name in step:
                    return before(name, *new)(steps)
        raise NotPlantableError("no step that scales")

    return change


FAULTS = (
    _resized("resize by nearest", "swatch", method="nearest"),
    _resized("resize by bicubic", "swatch", method="bicubic"),
    _resized("resize by area", "swatch", method="area"),
    _resized("resize by lanczos", "swatch", method="lanczos"),
    _resized("resize without antialiasing", "swatch", antialias=False),
    _fault("letterbox for stretch", letterboxed),
    _fault("centre crop for resize", cropped, "swatch"),
    _fault("levels rounded after the resize", before_scale({"cast": "uint8"}, {"cast": "float32"}), "swatch"),
    _fault("BGR for RGB", blue_first, "swatch"),
    _fault("gray for colour", altered("channels", value="gray"), "swatch"),
    _fault("inverted", before_scale({"scale": -1.0}, {"offset": 255.0}), "swatch"),
    _fault("not inverted", without("invert")),
    _fault("0 to 255 for 0 to 1", without("scale"), "swatch"),
    _fault("-1 to 1 for 0 to 1", replaced("scale", {"scale": 2.0 / 255.0}, {"offset": -1.0}), "swatch"),
    _fault("scale by 1/256 for 1/255", replaced("scale", {"scale": 1.0 / 256.0}), "swatch"),
    _fault("scale written with three digits", rounded_scale, "swatch"),
    _fault("scaled twice", before("scale", {"scale": 1.0 / 255.0}), "swatch"),
    _fault("mean and deviation exchanged", exchanged_normalisation, "swatch"),
    _fault("mean in the other colour order", reversed_normalisation, "swatch"),
    _fault("mean a hundredth off", other_mean, "swatch"),
    _fault("not normalised", without("normalize"), "pair", image=False),
    _fault("channels first", appended({"layout": "chw"}), "swatch"),
    _fault("flattened", appended({"flatten": True})),
    _fault("transparency dropped", replaced("alpha", {"alpha": "drop"})),
    _fault("transparency on black", altered("alpha", background=[0, 0, 0])),
    _fault("tensor as float16", appended({"cast": "float16"}), "swatch", "pair", image=False),
    _fault("values cut to whole numbers", before_scale({"cast": "int32"}, {"cast": "float32"}), "pair", image=False),
    _fault("half a level off", before_scale({"offset": 0.5}), "swatch"),
    _fault("ids one too high", appended({"offset": 1.0}, {"cast": "int32"}), "tokens", image=False),
    _fault("ids as float16", appended({"scale": 33.37}, {"cast": "float16"}, {"scale": 1.0 / 33.37}, {"cast": "int32"}), "tokens", image=False),
)
