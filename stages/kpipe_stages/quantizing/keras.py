"""Keras' own variants: ``model.quantize`` on the candidate, saved as a ``.keras`` file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe_stages.quantizing.made import Made, NotMadeError

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe_stages.protocol import QuantizeJob
    from kpipe_stages.quantizing.samples import Samples

DISTRIBUTIONS = ("tensorflow", "keras", "h5py", "numpy")
FILE = "model.keras"


def bring() -> None:
    """Import Keras on TensorFlow."""
    import keras  # noqa: F401 - its import is what is timed


def make(params: QuantizeJob, path: Path, _samples: Samples) -> Made:
    """Write ``path``.

    Raises:
        NotMadeError: Keras can't quantise the model, or not one of its layers has an int8 form.
        StageError: what `kpipe_stages.keras_loading` raises.
    """
    from kpipe_stages.keras_loading import load_model, telling_line

    model = load_model(params.source.path, params.trust)
    try:
        model.quantize(params.variant)
        model.save(str(path))
    except MemoryError:
        raise
    except Exception as error:  # Keras raises anything; each becomes one finding with its reason
        raise NotMadeError(f"{type(error).__name__}: {telling_line(error)}") from error
    return Made()
