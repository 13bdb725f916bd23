"""A pool of raw files to mine from: digits drawn and rendered by a seed, in sub-folders by kind, and files that are none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits

if TYPE_CHECKING:
    from types import ModuleType

RENDER = Path(__file__).parents[1] / "examples" / "digits" / "render.py"


def rendering() -> ModuleType:
    """The example's own renderer."""
    spec = importlib.util.spec_from_file_location("digits_render", RENDER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def make_pool(folder: Path, count: int, *, seed: int = 5, noise: float = 3.0) -> dict[str, bytes]:
    """Write ``count`` digits below ``folder`` as ``<kind>/<index>-<digit>.<suffix>``; name to bytes. Noise makes some of them hard."""
    render, digits, random = rendering(), load_digits(), np.random.default_rng(seed)
    written: dict[str, bytes] = {}
    for number in range(count):
        index = int(random.integers(len(digits.target)))
        how = render.Rendering(str(random.choice(("gray", "rgb", "jpeg"))), int(random.choice((12, 16, 28))))
        ink: Any = digits.images[index] + random.normal(0.0, noise, (8, 8))
        data = render.render(np.clip(ink, 0, 16), how)
        name = f"{how.kind}/{number:05d}-{digits.target[index]}{how.suffix}"
        (folder / how.kind).mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        written[name] = data
    return written
