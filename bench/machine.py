"""What the bench ran on."""

from __future__ import annotations

import os
import platform

from kpipe.running.system import environment

SHOWN = ("tensorflow", "keras", "jax", "ai-edge-litert", "onnxruntime", "openvino", "onnx", "tf2onnx", "numpy", "pillow", "typer")


def machine() -> dict[str, str]:
    """Processor, memory and versions."""
    here = environment()
    return {
        "processor": f"{here.cpu}, {here.cores} cores usable",
        "features": ", ".join(here.cpu_features) or "none that change numbers",
        "memory": f"{here.memory_bytes / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}, {platform.machine()}",
        "python": here.python,
        "versions": ", ".join(f"{name} {here.versions[name]}" for name in SHOWN if name in here.versions),
        "kpipe": here.kpipe,
    }


def load() -> str:
    """The system's load averages over 1, 5 and 15 minutes: programs that wanted to run, this one's among them."""
    return ", ".join(f"{value:.2f}" for value in os.getloadavg())
