"""Resizing, cropping and augmentation. In inference an augmentation leaves its input alone, and that is what is checked."""

from __future__ import annotations

from kpipe_stages.zoo.case import BYTES, FREE_IMAGE, IMAGE, PIXELS, Case, Unit, config, layer, made

AUGMENTATIONS: dict[str, dict[str, object]] = {
    "AugMix": {"value_range": (0, 255)},
    "AutoContrast": {"value_range": (0, 255)},
    "ContrastLimitedAdaptiveHistogramEqualization": {"value_range": (0, 255)},
    "CutMix": {},
    "Equalization": {"value_range": (0, 255)},
    "MixUp": {},
    "RandAugment": {"value_range": (0, 255)},
    "RandomBrightness": {"factor": 0.2},
    "RandomColorDegeneration": {"factor": 0.2},
    "RandomColorJitter": {"value_range": (0, 255), "brightness_factor": 0.2, "contrast_factor": 0.2, "saturation_factor": 0.2, "hue_factor": 0.2},
    "RandomContrast": {"factor": 0.2},
    "RandomElasticTransform": {},
    "RandomErasing": {},
    "RandomFlip": {},
    "RandomGaussianBlur": {},
    "RandomGrayscale": {},
    "RandomHue": {"factor": 0.2},
    "RandomInvert": {},
    "RandomPerspective": {},
    "RandomPosterization": {"factor": 4},
    "RandomRotation": {"factor": 0.2},
    "RandomSaturation": {"factor": 0.2},
    "RandomSharpness": {"factor": 0.2},
    "RandomShear": {"x_factor": 0.2, "y_factor": 0.2},
    "RandomTranslation": {"height_factor": 0.2, "width_factor": 0.2},
    "RandomZoom": {"height_factor": 0.2},
    "Solarization": {"addition_factor": 0.2, "value_range": (0, 255)},
}


UNITS: tuple[Unit, ...] = (
    layer(
        "Resizing",
        config("bilinear", lambda k, x: k.layers.Resizing(5, 6)(x), PIXELS),
        config("nearest", lambda k, x: k.layers.Resizing(5, 6, interpolation="nearest")(x), PIXELS),
        config("bicubic", lambda k, x: k.layers.Resizing(5, 6, interpolation="bicubic")(x), PIXELS),
        config("lanczos3", lambda k, x: k.layers.Resizing(5, 6, interpolation="lanczos3")(x), PIXELS),
        config("bilinear, antialiased", lambda k, x: k.layers.Resizing(5, 6, antialias=True)(x), PIXELS),
        config("crop to aspect ratio", lambda k, x: k.layers.Resizing(4, 6, crop_to_aspect_ratio=True)(x), PIXELS),
        config("pad to aspect ratio", lambda k, x: k.layers.Resizing(4, 6, pad_to_aspect_ratio=True)(x), PIXELS),
        config("enlarging", lambda k, x: k.layers.Resizing(16, 12)(x), PIXELS),
        config("free size", lambda k, x: k.layers.Resizing(5, 6)(x), FREE_IMAGE),
        config("uint8", lambda k, x: k.layers.Resizing(5, 6)(x), BYTES),
    ),
    layer(
        "CenterCrop",
        config("smaller", lambda k, x: k.layers.CenterCrop(4, 5)(x), IMAGE),
        config("larger", lambda k, x: k.layers.CenterCrop(10, 12)(x), IMAGE),
        config("free size", lambda k, x: k.layers.CenterCrop(4, 5)(x), FREE_IMAGE),
    ),
    layer(
        "RandomCrop",
        config("smaller", lambda k, x: k.layers.RandomCrop(4, 5)(x), IMAGE),
        config("larger", lambda k, x: k.layers.RandomCrop(10, 12)(x), IMAGE),
    ),
    *(made(name, PIXELS, plain=arguments) for name, arguments in AUGMENTATIONS.items()),
)
UNITS = tuple(
    Unit(u.name, u.group, u.names, (*u.cases, Case(u.name, "free size", (FREE_IMAGE,), u.cases[0].call)) if u.name in AUGMENTATIONS else u.cases)
    for u in UNITS
)
