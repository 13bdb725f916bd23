"""Write MobileNetV2 with seeded random weights: ``make_mobilenet.py OUT.keras`` (nothing is downloaded)."""

import sys

import keras

keras.utils.set_random_seed(0)
keras.applications.MobileNetV2(weights=None).save(sys.argv[1])
