"""The fingerprint stage: production's preprocessing, written here with Pillow, NumPy and TensorFlow by themselves, has to be called by its name."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from kpipe_stages import fingerprint
from kpipe_stages.codec import encode
from kpipe_stages.fingerprint import spread
from kpipe_stages.preprocess import Preprocessor
from kpipe_stages.protocol import PROTOCOL, Fingerprint, FingerprintJob, GoldenItem, InputSpec, Job
from kpipe_stages.rows import write_rows
from kpipe_stages.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = np.ndarray[Any, np.dtype[Any]]

RESIZE = {"resize": [12, 10], "method": "bilinear", "antialias": True}
SCALE = {"scale": 1 / 255}
RGB = InputSpec("photo", "image", ({"channels": "rgb"}, RESIZE, SCALE))
GRAY = InputSpec("photo", "image", ({"channels": "gray"}, RESIZE, SCALE))
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NORMAL = InputSpec("photo", "image", ({"channels": "rgb"}, RESIZE, SCALE, {"normalize": {"mean": MEAN, "std": STD}}))
CROPPED = InputSpec("photo", "image", ({"channels": "rgb"}, {"crop": "center", "size": [24, 20]}, RESIZE, SCALE))
SHORTER = InputSpec("photo", "image", ({"channels": "rgb"}, {"shorter": 16}, {"crop": "center", "size": [12, 12]}, SCALE))
ALPHA = InputSpec("photo", "image", ({"alpha": "composite", "background": [255, 255, 255]}, {"channels": "rgb"}, RESIZE, SCALE))
PLAIN = InputSpec("photo", "image", ({"channels": "gray"}, {"resize": [12, 10], "method": "bilinear", "antialias": False}, SCALE))


@dataclass
class Studio:
    """Raw files, and what the reference and the target make of them."""

    folder: Path
    worker: Worker
    files: list[str] = field(default_factory=list)

    def photos(self, count: int = 6, mode: str = "RGB") -> Studio:
        random = np.random.default_rng(7)
        for i in range(count):
            rough = random.integers(0, 256, (5, 6, len(mode)), dtype=np.uint8)
            image = Image.fromarray(rough if len(mode) > 1 else rough[:, :, 0]).resize((33 + i, 29), Image.Resampling.BICUBIC)
            image.save(self.folder / f"{i}.png")
            self.files.append(str(self.folder / f"{i}.png"))
        return self

    def turned(self) -> Studio:
        """A photograph with an orientation tag among upright ones."""
        with Image.open(self.files[0]) as image:
            exif = image.getexif()
            exif[0x0112] = 6
            image.save(self.folder / "turned.png", exif=exif)
        self.files.insert(2, str(self.folder / "turned.png"))
        return self

    def deep(self, count: int = 4) -> Studio:
        """16-bit gray."""
        random = np.random.default_rng(8)
        for i in range(count):
            Image.fromarray(random.integers(0, 65536, (20, 20)).astype(np.uint16)).save(self.folder / f"deep{i}.png")
            self.files.append(str(self.folder / f"deep{i}.png"))
        return self

    def ask(self, spec: InputSpec, production: Callable[[str], Array], **limits: Any) -> Fingerprint:
        """Run the stage; its only answer."""
        (one,) = self.answers(spec, [production(path) for path in self.files], **limits)
        assert one.complete or limits
        return one

    def answers(self, spec: InputSpec, theirs: list[Array], ours: list[Array] | None = None, **limits: Any) -> tuple[Fingerprint, ...]:
        ours = [Preprocessor(spec).from_path(path) for path in self.files] if ours is None else ours
        write_rows(self.folder / "ours" / "0", ours)
        write_rows(self.folder / "theirs" / "0", theirs)
        items = tuple(
            GoldenItem(f"g{i}", {"photo": p}, {"photo": hashlib.sha256(Path(p).read_bytes()).hexdigest()}) for i, p in enumerate(self.files)
        )
        job = FingerprintJob(items, (spec,), str(self.folder / "ours"), ("photo",), str(self.folder / "theirs"), ("photo",), **limits)
        return fingerprint.run(Job(PROTOCOL, "fingerprint", "t", str(self.worker.folder), encode(job)), self.worker).found


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    channel = os.open(os.devnull, os.O_WRONLY)
    (tmp_path / "stage").mkdir()
    yield Studio(tmp_path, Worker("fingerprint", tmp_path / "stage", channel))
    os.close(channel)


# ---------------------------------------------------------------- production, as people write it


def pixels(path: str, mode: str = "RGB", size: tuple[int, int] | None = (10, 12), method: Image.Resampling = Image.Resampling.BILINEAR) -> Array:
    with Image.open(path) as image:
        image.load()
        upright = image.convert(mode)
    small = upright.resize(size, method) if size else upright
    return np.atleast_3d(np.asarray(small)).astype(np.float32)


def by_float(path: str, method: Image.Resampling) -> Array:
    with Image.open(path) as image:
        bands = [np.asarray(band.convert("F").resize((10, 12), method)) for band in image.convert("RGB").split()]
    return np.stack(bands, -1) / 255


def two_points(image: Array, height: int, width: int, *, corner: bool = False, aligned: bool = False) -> Array:
    """Bilinear without antialias, pixel by pixel."""
    rows, columns = image.shape[:2]
    out = np.zeros((height, width, image.shape[2]))
    for i in range(height):
        for j in range(width):
            y, x = (i + 0.5) * rows / height - 0.5, (j + 0.5) * columns / width - 0.5
            y, x = (i * rows / height, j * columns / width) if corner else (y, x)
            y, x = (i * (rows - 1) / (height - 1), j * (columns - 1) / (width - 1)) if aligned else (y, x)
            y, x = min(max(y, 0), rows - 1), min(max(x, 0), columns - 1)
            top, left = int(y), int(x)
            below, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
            fy, fx = y - top, x - left
            upper = image[top, left] * (1 - fx) + image[top, right] * fx
            lower = image[below, left] * (1 - fx) + image[below, right] * fx
            out[i, j] = upper * (1 - fy) + lower * fy
    return out


def raw(path: str) -> Array:
    return pixels(path, size=None).astype(np.float64)


def corner_nearest(path: str) -> Array:
    image = raw(path)
    rows = [int(i * image.shape[0] / 12) for i in range(12)]
    columns = [int(j * image.shape[1] / 10) for j in range(10)]
    return image[rows][:, columns] / 255


def gray_by(*weights: float) -> Callable[[str], Array]:
    def production(path: str) -> Array:
        levels = np.rint(raw(path) @ np.array(weights)).astype(np.uint8)
        return np.asarray(Image.fromarray(levels).resize((10, 12), Image.Resampling.BILINEAR))[:, :, None] / np.float32(255)

    return production


def normalized(mean: list[float], std: list[float]) -> Callable[[str], Array]:
    return lambda path: (pixels(path) / 255 - np.array(mean)) / np.array(std)


def area(path: str) -> Array:
    """The mean over exact areas, through a grid of twelfths and tenths of a pixel."""
    image = raw(path)
    tall = np.repeat(image, 12, 0).reshape(12, image.shape[0], image.shape[1], 3).mean(1)
    return np.repeat(tall, 10, 1).reshape(12, 10, image.shape[1], 3).mean(2) / 255


RESAMPLING = Image.Resampling
RGB_SUSPECTS: list[tuple[str, str, Callable[[str], Array]]] = [
    ("bilinear without antialias", "antialias = false", lambda p: two_points(raw(p), 12, 10) / 255),
    ("bilinear without antialias, rounded to 8 bits", "", lambda p: np.rint(np.round(two_points(raw(p), 12, 10), 6)) / 255),
    ("bilinear without antialias, cut to 8 bits", "", lambda p: np.floor(two_points(raw(p), 12, 10) + 1e-9) / 255),
    ("bilinear from the corner", "", lambda p: two_points(raw(p), 12, 10, corner=True) / 255),
    ("bilinear with aligned corners", "", lambda p: two_points(raw(p), 12, 10, aligned=True) / 255),
    ("nearest", '"nearest"', lambda p: pixels(p, method=RESAMPLING.NEAREST) / 255),
    ("nearest from the corner", "", corner_nearest),
    ("bicubic with antialias", '"bicubic"', lambda p: pixels(p, method=RESAMPLING.BICUBIC) / 255),
    ("lanczos with antialias", '"lanczos"', lambda p: pixels(p, method=RESAMPLING.LANCZOS) / 255),
    ("box with antialias", '"area"', lambda p: pixels(p, method=RESAMPLING.BOX) / 255),
    ("the mean over exact areas", "", area),
    ("bilinear with antialias in floating point, not rounded", "", lambda p: by_float(p, RESAMPLING.BILINEAR)),
    ("bicubic with antialias in floating point, not rounded", "", lambda p: by_float(p, RESAMPLING.BICUBIC)),
    ("BGR for RGB", 'channels = "bgr"', lambda p: pixels(p)[:, :, ::-1] / 255),
    ("gray in all three channels", 'channels = "gray"', lambda p: np.repeat(pixels(p, "L") / 255, 3, 2)),
    ("values from 0 to 255, not scaled", "steps", pixels),
    ("scaled to [-1, 1]", "offset = -1.0", lambda p: pixels(p) / 127.5 - 1),
    ("divided by 256", "scale", lambda p: pixels(p) / 256),
    ("the step { scale = 0.00392156862745098 } done twice", "scale", lambda p: pixels(p) / 255 / 255),
    ("ImageNet's mean and std on [0, 1]", "normalize", normalized(MEAN, STD)),
    ("ImageNet's mean subtracted from 0 to 255 (caffe)", "bgr", lambda p: pixels(p)[:, :, ::-1] - np.array([103.939, 116.779, 123.68])),
    ("values times 0.5 plus 0.25", "offset = 0.25", lambda p: pixels(p) / 255 * 0.5 + 0.25),
    ("a channel each", "", lambda p: pixels(p) / 255 * np.array([1.0, 0.5, 0.25]) + np.array([0.0, 0.5, 1.0])),
    ("inverted", "invert = true", lambda p: (255 - pixels(p)) / 255),
    ("channels first (NCHW)", 'layout = "chw"', lambda p: (pixels(p) / 255).transpose(2, 0, 1)),
    ("reshaped to the shape of NHWC", "", lambda p: (pixels(p) / 255).transpose(2, 0, 1).reshape(12, 10, 3)),
    ("height and width exchanged", "", lambda p: (pixels(p) / 255).transpose(1, 0, 2)),
    ("mirrored left to right", "", lambda p: (pixels(p) / 255)[:, ::-1]),
    ("upside down", "", lambda p: (pixels(p) / 255)[::-1]),
    ("rounded to float16", "", lambda p: (pixels(p) / 255).astype(np.float16).astype(np.float32)),
    ("standardized by each image's own mean", "", lambda p: (pixels(p) - pixels(p).mean()) / pixels(p).std()),
    ("stretched to [0, 1] by each image's own range", "", lambda p: (pixels(p) - pixels(p).min()) / np.ptp(pixels(p))),
]


@pytest.mark.parametrize(("name", "line", "production"), RGB_SUSPECTS, ids=[row[0] for row in RGB_SUSPECTS])
def test_what_production_does_is_named(studio: Studio, name: str, line: str, production: Callable[[str], Array]) -> None:
    found = studio.photos().ask(RGB, lambda path: production(path).astype(np.float32))
    assert found.matched
    assert name in found.suspect or any(name in other for other in found.also), found
    assert (found.explained, found.used, found.differing) == (6, 6, 6)
    assert line in found.steps if line else True
    assert found.residual < found.before


def on_canvas(path: str, level: int) -> Array:
    """Letterboxed to 12 x 10."""
    with Image.open(path) as image:
        ratio = min(12 / image.height, 10 / image.width)
        height, width = int(image.height * ratio + 0.5), int(image.width * ratio + 0.5)
        small = np.asarray(image.convert("RGB").resize((width, height), RESAMPLING.BILINEAR))
    out = np.full((12, 10, 3), level, np.float32)
    top, left = (12 - height) // 2, (10 - width) // 2
    out[top : top + height, left : left + width] = small
    return out / 255


def as_stored(path: str, mode: str = "RGB") -> Array:
    with Image.open(path) as image:
        return np.asarray(image.convert(mode).resize((10, 12), RESAMPLING.BILINEAR)).astype(np.float32) / 255


def on_black(path: str) -> Array:
    with Image.open(path) as image:
        canvas = Image.new("RGBA", image.size, (0, 0, 0, 255))
        return np.asarray(Image.alpha_composite(canvas, image.convert("RGBA")).convert("RGB").resize((10, 12), RESAMPLING.BILINEAR)) / np.float32(255)


def resized_then_cut(path: str) -> Array:
    with Image.open(path) as image:
        small = np.asarray(image.resize((20, 24), RESAMPLING.BILINEAR))
    return small[6:18, 5:15] / np.float32(255)


def deep(path: str, change: Callable[[Array], Array]) -> Array:
    with Image.open(path) as image:
        levels = change(np.asarray(image).astype(np.int64))
    return levels[:, :, None] / np.float32(255)


GRAY_SUSPECTS: list[tuple[str, Callable[[str], Array]]] = [
    ("gray as the mean of red, green and blue, rounded to 8 bits", gray_by(1 / 3, 1 / 3, 1 / 3)),
    ("gray by BT.709 weights, rounded to 8 bits", gray_by(0.2126, 0.7152, 0.0722)),
    ("gray by BT.601 weights of BGR taken for RGB, rounded to 8 bits", gray_by(0.114, 0.587, 0.299)),
    ("the green channel for gray", gray_by(0, 1, 0)),
]


@pytest.mark.parametrize(("name", "production"), GRAY_SUSPECTS, ids=[row[0] for row in GRAY_SUSPECTS])
def test_another_gray_is_named(studio: Studio, name: str, production: Callable[[str], Array]) -> None:
    found = studio.photos().ask(GRAY, production)
    assert found.matched
    assert name in found.suspect


@pytest.mark.parametrize(
    ("name", "spec", "production"),
    [
        ("mean and std swapped", NORMAL, normalized(STD, MEAN)),
        ("the mean not subtracted", NORMAL, normalized([0.0] * 3, STD)),
        ("not divided by std", NORMAL, normalized(MEAN, [1.0] * 3)),
        ("multiplied by std", NORMAL, lambda p: (pixels(p) / 255 - np.array(MEAN)) * np.array(STD)),
        ("mean and std not applied", NORMAL, lambda p: pixels(p) / 255),
        ("mean and std in the order of BGR", NORMAL, normalized(MEAN[::-1], STD[::-1])),
        ("not inverted", InputSpec("photo", "image", (*GRAY.steps[:2], {"invert": True}, SCALE)), lambda p: pixels(p, "L") / 255),
        ("centre crop missing", CROPPED, lambda p: pixels(p) / 255),
        (
            "the top left corner cut out",
            CROPPED,
            lambda p: np.asarray(Image.open(p).crop((0, 0, 20, 24)).resize((10, 12), RESAMPLING.BILINEAR)) / 255,
        ),
        ("resize before crop", InputSpec("photo", "image", ({"crop": "center", "size": [12, 10]}, {"resize": [24, 20]}, SCALE)), resized_then_cut),
        ("centre crop missing: the whole image resized to its size", SHORTER, lambda p: pixels(p, size=(12, 12)) / 255),
        ("proportions kept and padded with 114", RGB, lambda p: on_canvas(p, 114)),
        ("proportions kept and padded with 0", RGB, lambda p: on_canvas(p, 0)),
        ("rounded to 8 bits", PLAIN, lambda p: np.rint(np.round(two_points(pixels(p, "L", None).astype(np.float64), 12, 10), 6)) / 255),
    ],
)
def test_other_steps_are_named(studio: Studio, name: str, spec: InputSpec, production: Callable[[str], Array]) -> None:
    found = studio.photos().ask(spec, lambda path: production(path).astype(np.float32))
    assert found.matched
    assert name in found.suspect, found


def test_an_ignored_orientation_is_named_by_the_only_input_that_has_one(studio: Studio) -> None:
    found = studio.photos().turned().ask(RGB, as_stored)
    assert (found.suspect, found.matched, found.differing, found.used) == ("EXIF orientation ignored", True, 1, 1)


@pytest.mark.parametrize(("name", "production"), [("alpha ignored", as_stored), ("alpha composed on black", on_black)])
def test_another_alpha_is_named(studio: Studio, name: str, production: Callable[[str], Array]) -> None:
    found = studio.photos(mode="RGBA").ask(ALPHA, production)
    assert (found.suspect, found.matched) == (name, True)
    assert found.steps.startswith("steps = [{ alpha = ")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("16-bit levels cut to their upper 8 bits (>> 8)", lambda v: v >> 8),
        ("16-bit levels clipped at 255", lambda v: np.clip(v, 0, 255)),
        ("16-bit levels cut to their lower 8 bits", lambda v: v & 255),
        ("16-bit levels not scaled", lambda v: v),
    ],
)
def test_another_depth_is_named(studio: Studio, name: str, change: Callable[[Array], Array]) -> None:
    found = studio.deep().ask(InputSpec("photo", "image", (SCALE,)), lambda path: deep(path, change).astype(np.float32))
    assert found.matched
    assert name in found.suspect


@pytest.mark.parametrize(
    ("names", "production"),
    [
        (("bilinear without antialias", "BGR for RGB"), lambda p: two_points(raw(p), 12, 10)[:, :, ::-1] / 255),
        (("box with antialias", "scaled to [-1, 1]"), lambda p: pixels(p, method=RESAMPLING.BOX) / 127.5 - 1),
        (("BGR for RGB", "inverted"), lambda p: (255 - pixels(p)[:, :, ::-1]) / 255),
        (("nearest", "rounded to float16"), lambda p: (pixels(p, method=RESAMPLING.NEAREST) / 255).astype(np.float16)),
    ],
)
def test_two_things_at_once_are_named(studio: Studio, names: tuple[str, str], production: Callable[[str], Array]) -> None:
    found = studio.photos().ask(RGB, lambda path: production(path).astype(np.float32))
    assert found.matched
    assert all(name in found.suspect for name in names), found


@pytest.mark.parametrize("method", ["bilinear", "nearest", "area", "bicubic", "lanczos3"])
@pytest.mark.parametrize("antialias", [False, True])
def test_what_tensorflow_does_is_named(studio: Studio, method: str, antialias: bool) -> None:
    tf = pytest.importorskip("tensorflow")

    def production(path: str) -> Array:
        image = tf.io.decode_png(tf.io.read_file(path), channels=3)
        return np.asarray(tf.image.resize(image, (12, 10), method=method, antialias=antialias)) / np.float32(255)

    found = studio.photos().ask(RGB, production)
    assert found.matched, found
    words = {"area": "the mean over exact areas", "nearest": "nearest", "lanczos3": "lanczos", "bicubic": "bicubic", "bilinear": "bilinear"}[method]
    assert words in found.suspect
    if method not in ("area", "nearest"):
        assert ("without antialias" in found.suspect) is not antialias


def test_three_things_at_once_are_named_from_the_nearest_pair(studio: Studio) -> None:
    def production(path: str) -> Array:
        return ((255 - two_points(raw(path), 12, 10)[:, :, ::-1]) / 255).astype(np.float32)

    found = studio.photos().ask(RGB, production)
    assert found.matched
    assert all(name in found.suspect for name in ("bilinear without antialias", "BGR for RGB", "inverted")), found


# ---------------------------------------------------------------- what must not be called a match


def gamma(path: str) -> Array:
    return np.asarray((pixels(path) / 255) ** 2.2, np.float32)


def test_what_is_in_no_list_is_said_to_match_nothing(studio: Studio) -> None:
    found = studio.photos().ask(RGB, gamma)
    assert not found.matched
    assert found.explained == 0
    assert found.steps == ""
    assert found.residual > 0.01
    assert found.tried > 1000


def test_a_suspect_that_explains_some_inputs_is_only_the_closest(studio: Studio) -> None:
    studio.photos()
    found = studio.ask(RGB, lambda path: gamma(path) if path == studio.files[1] else pixels(path)[:, :, ::-1] / np.float32(255))
    assert not found.matched
    assert (found.suspect, found.explained, found.used) == ("BGR for RGB", 5, 6)


def test_a_suspect_that_spoils_equal_inputs_is_no_match(studio: Studio) -> None:
    """BGR in three images and RGB in the others: whatever production does, it isn't BGR."""
    studio.photos()
    found = studio.ask(RGB, lambda path: (pixels(path)[:, :, ::-1] if path in studio.files[:3] else pixels(path)) / np.float32(255))
    assert not found.matched
    assert (found.suspect, found.explained, found.used, found.differing) == ("BGR for RGB", 3, 3, 3)


def test_bounds_hold_and_are_said(studio: Studio) -> None:
    found = studio.photos(9).ask(RGB, lambda path: pixels(path)[:, :, ::-1] / np.float32(255), max_inputs=5)
    assert (found.differing, found.used, found.explained, found.matched) == (9, 5, 5, True)
    late = studio.ask(RGB, gamma, max_seconds=0.0)
    assert (late.matched, late.complete, late.tried, late.suspect) == (False, False, 0, "")


def test_other_shapes_dtypes_and_equal_tensors(studio: Studio) -> None:
    studio.photos()
    ours = [Preprocessor(RGB).from_path(path) for path in studio.files]
    assert studio.answers(RGB, [tensor * np.float32(1 + 1e-6) for tensor in ours]) == ()
    (wide,) = studio.answers(RGB, [tensor.astype(np.float64) for tensor in ours])
    assert (wide.suspect, wide.steps, wide.matched) == ("the same values in float64", 'dtype = "float64"', True)
    (small,) = studio.answers(RGB, [tensor[:2, :2] for tensor in ours])
    assert (small.matched, small.suspect) == (False, "")
    (nan,) = studio.answers(RGB, [tensor * np.float32(np.nan) for tensor in ours])
    assert (nan.matched, nan.suspect) == (False, "")


def test_where_the_reference_is_a_function_its_tensors_are_varied(studio: Studio) -> None:
    studio.photos()
    ours = [pixels(path) / np.float32(255) for path in studio.files]
    spec = InputSpec("photo", "serving:f", files={"/nowhere/serving.py": ""})
    (found,) = studio.answers(spec, [tensor[:, :, ::-1] for tensor in ours], ours)
    assert found.matched
    assert "BGR for RGB" in found.suspect
    assert "function" in found.note


def test_rows_that_are_missing_are_a_fault(studio: Studio) -> None:
    ours = [Preprocessor(RGB).from_path(path) for path in studio.photos().files]
    with pytest.raises(ValueError, match="5 tensors of 'photo' against 6"):
        studio.answers(RGB, ours[:-1], ours)


@pytest.mark.parametrize(("count", "most", "expected"), [(3, 32, (0, 1, 2)), (100, 3, (0, 50, 99)), (33, 32, 32), (1, 8, (0,))])
def test_cases_are_spread(count: int, most: int, expected: tuple[int, ...] | int) -> None:
    chosen = spread(range(count), most)
    assert chosen == expected if isinstance(expected, tuple) else len(chosen) == expected
