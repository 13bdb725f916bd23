"""One load and four ``model.export`` calls in one process: ``plain_export.py MODEL OUT``. Prints the seconds without imports."""

import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf  # noqa: F401 - imported before the clock starts, as keras would later

model_path, out = sys.argv[1], Path(sys.argv[2])
start = time.perf_counter()
model = keras.models.load_model(model_path, compile=False)
model(np.zeros((1, *model.input_shape[1:]), "float32"))  # model.export(format="onnx") refuses a model that was never called
model.export(str(out / "saved_model"), format="tf_saved_model", verbose=False)
model.export(str(out / "model.tflite"), format="litert", verbose=False)
model.export(str(out / "model.onnx"), format="onnx", verbose=False)
model.export(str(out / "model.xml"), format="openvino", verbose=False)
print(f"seconds {time.perf_counter() - start:.3f}")
