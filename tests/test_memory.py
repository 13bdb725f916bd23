"""What conversions take: measured on a model whose weights outweigh everything else, each in a process of its own.

Run as a program, this file measures; the tests read what it found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest

from kpipe_stages.memory import LARGE_BYTES, give_back

pytestmark = pytest.mark.runtimes

WIDE = 2048
"""Two kernels of this size squared: 32 MiB of weights."""
MOST_COPIES = 16
"""Copies of the weights that the conversion to ONNX may hold at its peak; tf2onnx by itself holds more than 50."""


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """The most that this process takes while it is open."""

    def __enter__(self) -> Self:
        self.before = self.peak = resident()
        self.open = True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while self.open:
            self.peak = max(self.peak, resident())
            time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        self.open = False
        self.thread.join()


def said(model: Any) -> list[Any]:
    """Ops and constants, without the names that tf2onnx counts up from one conversion to the next, which order them too."""
    constants = sorted([list(one.dims), one.raw_data.hex()] for one in model.graph.initializer)
    return [sorted(node.op_type for node in model.graph.node), constants]


def measure() -> dict[str, Any]:
    """Convert the wide model, then a small one whose optimizer fails."""
    import keras
    from tf2onnx import optimizer

    from kpipe_stages.artifacts import onnx_model
    from kpipe_stages.artifacts.tracing import trace, weight_bytes
    from kpipe_stages.keras_loading import KerasCaller

    keras.utils.set_random_seed(1)

    def model(wide: int) -> Any:
        # a transpose that is folded into a kernel, and layers enough that the optimizers go round more than once
        x = image = keras.Input((8, 8, 4), name="image")
        x = keras.layers.Conv2D(16, 3, activation="gelu")(x)
        x = keras.layers.Flatten()(keras.layers.MaxPooling2D()(x))
        x = keras.layers.Dense(wide)(keras.layers.Dense(wide, activation="relu")(keras.layers.Dense(wide)(x)))
        return keras.Model(image, keras.layers.Dense(3, activation="softmax")(x))

    wide = model(WIDE)
    traced = trace(KerasCaller(wide))
    small = trace(KerasCaller(model(4)))
    onnx_model.convert(small, repairs=True)  # imports are no part of what is measured
    with Peak() as peak:
        converted = onnx_model.convert(traced, repairs=True)
    found: dict[str, Any] = {"weights": weight_bytes(wide), "conversion": peak.peak - peak.before, "nodes": len(converted.model.graph.node)}
    del converted
    held = resident()
    give_back(LARGE_BYTES - 1)
    found["small"] = held - resident()
    give_back(LARGE_BYTES)
    found["given_back"] = held - resident()
    found["plain"] = said(onnx_model.convert(small, repairs=True).model)

    class Failing:
        """A pass that refuses every graph."""

        graph_been_opt = False

        def optimize(self, _graph: Any, _iteration: int) -> Any:
            raise ValueError("this pass fails")

    optimizer._optimizers["failing"] = Failing
    found["behind_a_failure"] = said(onnx_model.convert(small, repairs=True).model)
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-P", __file__], capture_output=True, text=True, env={**os.environ, "KERAS_BACKEND": "tensorflow"}, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


def test_the_conversion_to_onnx_holds_few_copies_of_the_weights(found: dict[str, Any]) -> None:
    assert found["weights"] > LARGE_BYTES
    assert found["conversion"] < MOST_COPIES * found["weights"]


def test_what_is_free_goes_back_where_the_model_is_large(found: dict[str, Any]) -> None:
    assert found["given_back"] > found["weights"]
    assert found["small"] < found["weights"] / 4


def test_a_pass_that_fails_costs_the_conversion_nothing_but_that_pass(found: dict[str, Any]) -> None:
    assert found["behind_a_failure"] == found["plain"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure()))
