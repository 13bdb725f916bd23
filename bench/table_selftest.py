"""Planted faults that kpipe misses, beside what ``numpy.allclose`` catches of the same ones."""

from __future__ import annotations

import json
import sys

from rows import Bench, Row, taken


def selftest(bench: Bench) -> list[Row]:
    """Equivalent faults are left out, and those below the tolerance."""
    out = bench.scratch / "selftest"
    done = taken([sys.executable, "-m", "kpipe", "selftest", "--json", "--out", str(out)], bench.environment(), accept=(0, 1))
    faults = json.loads((out / "selftest.json").read_text(encoding="utf-8"))
    real = [fault for fault in faults["rows"] if not fault["equivalent"]]
    caught = {name: sum(fault[name] is True for fault in real) for name in ("caught", "random", "golden")}
    edges = sum(fault["caught"] and fault["right_edge"] for fault in real)
    detail = (
        f"of {len(real)}: kpipe {caught['caught']} (right edge {edges}), allclose on random inputs {caught['random']}, "
        f"on golden inputs {caught['golden']}; {done.wall_s:.0f} s"
    )
    missed = sum(not fault["caught"] and not fault["small"] for fault in real)
    return [Row("selftest: planted faults missed", missed, 0, "faults", bool(real) and missed == 0, detail)]
