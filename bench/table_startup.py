"""Commands that decide nothing about a model start at once, and import no framework."""

from __future__ import annotations

import sys
from pathlib import Path

from rows import Bench, Row, at_most, ratio, taken

FRAMEWORKS = ("keras", "tensorflow", "jax", "torch", "openvino", "onnxruntime", "onnx", "tf2onnx", "ai_edge_litert")
PROBE = """
import json, sys
sys.argv = ["kpipe", *sys.argv[1:]]
from kpipe.__main__ import main
try:
    main()
except SystemExit:
    pass
print("modules", json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def startup(bench: Bench, run: Path | None) -> list[Row]:
    """``kpipe --help`` against ``import typer``, and the frameworks that commands import.

    Args:
        bench: where to work.
        run: a finished run, to be judged and reported again; None where no table made one.
    """
    environment = bench.environment()
    command, plain = [sys.executable, "-m", "kpipe", "--help"], [sys.executable, "-c", "import typer"]
    rows = [
        ratio(
            "kpipe --help / python -c 'import typer'",
            3.0,
            lambda _: taken(command, environment).wall_s,
            lambda _: taken(plain, environment).wall_s,
            bench.rounds * 5,
        )
    ]
    asked = {"--help": ["--help"]} | ({"judge": ["judge", str(run)], "report": ["report", str(run)]} if run else {})
    found = {}
    for name, words in asked.items():
        printed = taken([sys.executable, "-c", PROBE, *words], environment, accept=(0, 1)).printed
        line = next(line for line in printed.splitlines() if line.startswith("modules "))
        found[name] = [framework for framework in FRAMEWORKS if f'"{framework}"' in line]
    told = "; ".join(f"kpipe {name}: {', '.join(held) or 'none'}" for name, held in found.items())
    return [*rows, at_most("frameworks imported by " + ", ".join(asked), sum(map(len, found.values())), 0, "frameworks", told)]
