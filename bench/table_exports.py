"""MobileNetV2, seeded random weights: all four exports from one load, against one load and four ``model.export`` calls."""

from __future__ import annotations

import sys

from rows import BENCH, Bench, Row, ratio, seconds_in, taken


def exports(bench: Bench) -> list[Row]:
    """Imports are left out on both sides."""
    environment = bench.environment(KERAS_BACKEND="tensorflow")
    model = bench.scratch / "mobilenet.keras"
    taken([sys.executable, str(BENCH / "make_mobilenet.py"), str(model)], environment)

    def ours(number: int) -> float:
        out = bench.scratch / f"kpipe-{number}"
        return seconds_in(taken([sys.executable, str(BENCH / "kpipe_export.py"), str(model), str(out)], environment).printed)

    def theirs(number: int) -> float:
        out = bench.scratch / f"plain-{number}"
        out.mkdir()
        return seconds_in(taken([sys.executable, str(BENCH / "plain_export.py"), str(model), str(out)], environment).printed)

    return [ratio("MobileNetV2: load and four exports / load and four model.export", 0.4, ours, theirs, bench.rounds)]
