"""The contracts of the selftest's own models, as tables; golden folder, tolerance and targets are set where they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kpipe.selftest.fault import Table

COMMON: Table = {"model": {"backend": "tensorflow"}, "golden": {"batches": [2, 5]}}

OWN: dict[str, Table] = {
    "swatch": {
        **COMMON,
        "inputs": {
            "photo": {
                "decode": "image",
                "dtype": "float32",
                "steps": [
                    {"channels": "rgb"},
                    {"resize": [12, 12], "method": "bilinear", "antialias": True},
                    {"scale": 1.0 / 255.0},
                    {"normalize": {"mean": [0.5, 0.45, 0.4], "std": [0.25, 0.22, 0.2]}},
                ],
            }
        },
        "decision": {"rule": "threshold", "output": "score", "threshold": 0.5, "labels": ["dull", "bright"]},
    },
    "pair": {
        **COMMON,
        "inputs": {name: {"decode": "npy", "steps": [{"normalize": {"mean": 10.0, "std": 3.0}}]} for name in ("left", "right")},
        "decisions": {
            "risk": {"rule": "bins", "output": "risk", "edges": [0.25, 0.75], "labels": ["low", "middle", "high"]},
            "price": {"rule": "tolerance", "output": "price", "atol": 0.01, "rtol": 0.01},
        },
    },
    "tokens": {
        **COMMON,
        "inputs": {"ids": {"decode": "npy", "steps": []}},
        "decision": {"rule": "argmax", "output": "topic", "labels": ["weather", "sport", "arts", "money"]},
    },
}
"""The contracts of `kpipe_stages.planting.models`: models that faults are planted into."""


def _arrays(name: str, rule: str, output: str, **keys: Any) -> Table:
    """One array a golden input, used as it is, and one decision."""
    return {**COMMON, "inputs": {name: {"decode": "npy", "steps": []}}, "decision": {"rule": rule, "output": output, **keys}}


FURTHER: dict[str, Table] = {
    "waves": _arrays("series", "multilabel", "labels", labels=["swell", "wind", "tide"]),
    "gait": _arrays("steps", "threshold", "fall", threshold=0.35, labels=["steady", "fall"]),
    "gates": _arrays("steps", "argmax", "phase", labels=["rest", "rise", "hold", "drop"]),
    "ladder": _arrays("vector", "top_k", "best", k=3, ordered=False),
    "ledger": _arrays("columns", "tolerance", "amount", atol=0.01, rtol=0.01),
    "patches": _arrays("patch", "ranking", "items", k=2),
    "outline": _arrays("plane", "bins", "grade", edges=[0.25, 0.5, 0.75], labels=["poor", "fair", "good", "fine"]),
}
"""The contracts of `kpipe_stages.planting.further`: models that are only validated, healthy."""

HEALTHY: dict[str, Table] = {**OWN, **FURTHER}
