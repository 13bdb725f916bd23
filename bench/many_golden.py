"""A seeded golden set of many small PNGs: ``many_golden.py COUNT OUT``. Digit-like strokes on white, 16 to 28 pixels wide; no file is like another."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw


def picture(random: np.random.Generator) -> Image.Image:
    """A bent stroke, as thick as a pen's, with a little noise."""
    size = int(random.integers(16, 29))
    drawn = Image.new("L", (4 * size, 4 * size), 255)
    points = random.uniform(0.15, 0.85, (int(random.integers(3, 7)), 2)) * 4 * size
    ImageDraw.Draw(drawn).line([tuple(point) for point in points], fill=int(random.integers(0, 80)), width=int(random.integers(4, 12)), joint="curve")
    small = np.asarray(drawn.resize((size, size), Image.Resampling.BOX), dtype=np.int16)
    return Image.fromarray(np.clip(small + random.integers(-6, 7, small.shape), 0, 255).astype(np.uint8))


def main() -> None:
    """Write the files and their manifest."""
    count, out = int(sys.argv[1]), Path(sys.argv[2])
    (out / "files").mkdir(parents=True)
    random = np.random.default_rng(0)
    lines = [
        "version = 1",
        "",
        "[set]",
        'name = "strokes"',
        'source = "bench/many_golden.py"',
        'licence = "CC0-1.0"',
        'how = "drawn at random, seed 0"',
    ]
    for number in range(count):
        name = f"files/s{number:05d}.png"
        picture(random).save(out / name)
        digest = hashlib.sha256((out / name).read_bytes()).hexdigest()
        lines += ["", "[[golden]]", f'id = "s{number:05d}"', f'file = "{name}"', f'sha256 = "{digest}"', 'chosen = "sampled"']
    (out / "manifest.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
