"""Every model case, built in one TensorFlow process: ``python -m tests.cases.build_models FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}

from .kit import Case, seeded, write
from .models_code import CODE
from .models_numerics import NUMERICS
from .models_shape import SHAPE
from .models_siblings import SIBLINGS
from .models_zoo import ZOO_LAYERS
from .models_zoo_shapes import ZOO_SHAPES

ZOO = {**ZOO_LAYERS, **ZOO_SHAPES}
IN_TESTS = (
    "attention", "bent", "categories", "free_time", "keras_float8", "keras_int8", "loops", "nested_structures", "no_batch", "random_crop",
    "return_state", "scalars", "sequential_unbuilt", "shear", "subclassed", "symmetric", "twins", "weightless", "words_out",
)  # fmt: skip
"""Of the zoo, what tests run; the others are built by name."""
MODELS = {**NUMERICS, **SHAPE, **CODE, **SIBLINGS, **{name: ZOO[name] for name in IN_TESTS}}


def main(out: Path, names: list[str]) -> None:
    """Build the cases named, of the zoo too, or all that tests run."""
    import keras

    for name in names or list(MODELS):
        keras.backend.clear_session()
        keras.config.set_dtype_policy("float32")
        case: Case = {**MODELS, **ZOO}[name](seeded(name))
        write(case, out / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
