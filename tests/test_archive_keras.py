"""The inspect stage against Keras itself: real saved models pass, its view of layers, weights and names is the one Keras has.

Run as a program, this file makes the models and Keras' own answers; the tests start that once, in a process of its own.
"""

from __future__ import annotations

import inspect as python_inspect
import io
import json
import os
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from kpipe_stages.archive.keras_names import CODE_CLASSES, FUNCTION_MODULES, is_modelling_class, is_modelling_function
from kpipe_stages.archive.layers import _TRAINING_BY_DEFAULT, read_layers, walk
from kpipe_stages.archive.shapes import _RULES, WEIGHTLESS, expected_weights
from kpipe_stages.codec import encode
from kpipe_stages.inspect_archive import run
from kpipe_stages.protocol import InspectJob, InspectResult, Job, Observation, StageError, Trust
from kpipe_stages.worker import Worker

RELOADED = ("large_mixed_bfloat16", "constants", "custom", "dicts", "fitted", "functions", "shared_inside", "single_dense", "single_embedding")
POLICIES = ("float32", "float16", "bfloat16", "mixed_bfloat16", "float64")


def inspect(path: Path, **trust: tuple[str, ...]) -> tuple[InspectResult | None, list[Observation]]:
    """Run the stage as a worker would; the raised observation comes first."""
    folder = path.with_name(f"{path.name}.work")
    folder.mkdir(exist_ok=True)
    channel = os.open(os.devnull, os.O_WRONLY)
    worker = Worker("inspect", folder, channel)
    try:
        result = run(Job(1, "inspect", "x", str(folder), encode(InspectJob(str(path), Trust(**trust)))), worker)
    except StageError as error:
        return None, [error.observation, *worker.observations]
    finally:
        os.close(channel)
    return result, worker.observations


# ---------------------------------------------------------------- the process with Keras


CUSTOM = """
import keras

@keras.saving.register_keras_serializable(package="zoo")
class Scale(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Dense(3)

    def build(self, shape):
        self.inner.build(shape)
        self.w = self.add_weight(shape=(shape[-1],), name="w")

    def call(self, x):
        return self.inner(x * self.w)

@keras.saving.register_keras_serializable(package="zoo")
def squash(x):
    return keras.ops.tanh(x) * 0.5

@keras.saving.register_keras_serializable(package="zoo")
class Sub(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.d = keras.layers.Dense(4)

    def build(self, shape):
        self.d.build(shape)
        self.built = True

    def call(self, x):
        return self.d(x)
"""


def singles() -> dict[str, tuple[Any, tuple[int, ...]]]:
    """One layer of every class that has a rule, built on an input of its kind."""
    from keras import layers as kl

    image, line, volume = (6, 6, 4), (6, 4), (4, 4, 4, 2)
    return {
        "batch_norm": (kl.BatchNormalization(scale=False), image),
        "conv1d": (kl.Conv1D(3, 2), line),
        "conv2d": (kl.Conv2D(6, (3, 2), groups=2, use_bias=False), image),
        "conv2d_first": (kl.Conv2D(2, (2, 1), data_format="channels_first"), image),
        "conv3d": (kl.Conv3D(3, 2), volume),
        "conv1d_t": (kl.Conv1DTranspose(3, 2), line),
        "conv2d_t": (kl.Conv2DTranspose(3, (2, 3)), image),
        "conv3d_t": (kl.Conv3DTranspose(3, 2), volume),
        "depthwise1d": (kl.DepthwiseConv1D(2, depth_multiplier=2), line),
        "depthwise2d": (kl.DepthwiseConv2D(2), image),
        "separable1d": (kl.SeparableConv1D(3, 2), line),
        "separable2d": (kl.SeparableConv2D(3, 2, depth_multiplier=3), image),
        "dense": (kl.Dense(3, use_bias=False), line),
        "embedding": (kl.Embedding(9, 2), (5,)),
        "gru": (kl.GRU(3, reset_after=False), line),
        "gru_after": (kl.GRU(3, use_bias=False), line),
        "lstm": (kl.LSTM(3), line),
        "simple_rnn": (kl.SimpleRNN(3), line),
        "rnn_gru": (kl.RNN(kl.GRUCell(3)), line),
        "rnn_lstm": (kl.RNN(kl.LSTMCell(3)), line),
        "rnn_simple": (kl.RNN(kl.SimpleRNNCell(3)), line),
        "group_norm": (kl.GroupNormalization(2), image),
        "layer_norm": (kl.LayerNormalization(axis=[-1, -2], center=False), image),
        "rms_norm": (kl.RMSNormalization(), image),
        "prelu": (kl.PReLU(shared_axes=[1, 2]), image),
        "bidirectional": (kl.Bidirectional(kl.LSTM(2)), line),
        "time_distributed": (kl.TimeDistributed(kl.Dense(2)), line),
        "spectral": (kl.SpectralNormalization(kl.Dense(2)), line),
    }


def large(policy: str) -> Any:
    """A functional model with many kinds of layers, under a dtype policy."""
    import keras
    from keras import layers as kl

    keras.config.set_dtype_policy(policy)
    start = {"recurrent_initializer": "glorot_uniform"}
    image, ids, line = keras.Input((12, 12, 4), name="img"), keras.Input((7,), dtype="int32", name="ids"), keras.Input((5, 3), name="seq")
    x = kl.RandomFlip()(kl.BatchNormalization()(kl.Conv2D(6, 3, groups=2)(image)))
    x = kl.GlobalAveragePooling2D()(kl.PReLU(shared_axes=[1, 2])(x))
    e = kl.Embedding(20, 4)(ids)
    e = kl.Bidirectional(kl.LSTM(4, dropout=0.1, **start))(kl.MultiHeadAttention(2, 3)(e, e))
    g = kl.GRU(3, **start)(line)
    g = keras.Sequential([keras.Input((3,)), kl.Dense(3, name="dense"), kl.Dropout(0.5)], name="sq")(g)
    inner_input = keras.Input((3,))
    g = keras.Model(inner_input, kl.Dense(2)(kl.Dense(5)(inner_input)), name="inner")(g)
    n = kl.EinsumDense("ab,bc->ac", output_shape=4, bias_axes="c")(kl.Normalization()(x))
    y = keras.ops.clip(kl.Concatenate()([e, g, n]), -5, 5)
    y = kl.Dense(4, activation="relu")(kl.Dropout(0.3)(y, training=True))
    return keras.Model([image, ids, line], {"b": y, "a": kl.Dense(1, activation="sigmoid", name="last")(y)})


def models(folder: Path) -> dict[str, Any]:
    """Every model by its file's name."""
    import keras
    from keras import layers as kl

    names = runpy.run_path(str(folder / "custom.py"))
    made = {f"large_{policy}": large(policy) for policy in POLICIES}
    keras.config.set_dtype_policy("float32")
    made |= {f"single_{name}": keras.Sequential([keras.Input(shape), layer]) for name, (layer, shape) in singles().items()}
    x = keras.Input((4,), name="x")
    made["custom"] = keras.Model(x, kl.Dense(2, activation=names["squash"])(names["Scale"]()(x)))
    made["subclassed"] = names["Sub"]()
    made["subclassed"].build((None, 4))
    made["lambda"] = keras.Model(x, kl.Lambda(lambda t: t * 2, output_shape=(4,), name="twice")(x))
    made["constants"] = keras.Model(x, kl.Softmax()(x * 2 + keras.ops.ones((4,))) + np.ones(4, "float32"))
    p, q = keras.Input((2,), name="p"), keras.Input((3,), name="q")
    made["dicts"] = keras.Model({"q": q, "p": p}, [q, p, q])
    shared = kl.Dense(4)
    made["shared"] = keras.Model(x, shared(shared(x)))
    base = keras.Model(x, kl.Dense(3)(shared(x)), name="base")
    made["shared_inside"] = keras.Model(x, [shared(x), base(x)])
    made["shared_lost"] = keras.Model(x, [base(x), shared(x)])
    made["functions"] = keras.Model(x, [kl.Activation(name)(x) for name in sorted(FUNCTION_MODULES["keras.activations"] - {"glu"})])
    made["int8"] = keras.Sequential([keras.Input((4,)), kl.Dense(8), kl.Dense(1)])
    made["int8"].quantize("int8")
    made["lora"] = keras.Sequential([keras.Input((4,)), kl.Dense(8)])
    made["lora"].layers[0].enable_lora(2)
    made["fitted"] = keras.Sequential([keras.Input((4,)), kl.Dense(8), kl.BatchNormalization(), kl.Dense(2, activation="softmax")])
    made["fitted"].compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    made["fitted"].optimizer.build(made["fitted"].trainable_variables)
    for name, model in made.items():
        model.save(folder / f"{name}.keras")
    return made


def answers(folder: Path, made: dict[str, Any]) -> dict[str, Any]:
    """What Keras itself says, to compare with."""
    import keras
    from keras.src.api_export import REGISTERED_NAMES_TO_OBJS
    from keras.src.saving.keras_saveable import KerasSaveable

    from kpipe_stages.keras_calling import model_signature

    def below(cls: Any) -> set[Any]:
        return {cls}.union(*(below(inner) for inner in cls.__subclasses__()))

    default = [
        cls.__name__
        for cls in below(keras.layers.Layer)
        if "training" in (parameters := python_inspect.signature(cls.call).parameters) and parameters["training"].default is True
    ]
    return {
        "signatures": {name: encode(model_signature(keras.models.load_model(folder / f"{name}.keras"))) for name in RELOADED},
        "parameters": {name: model.count_params() for name, model in made.items()},
        "symbols": {name: isinstance(symbol, type) for name, symbol in REGISTERED_NAMES_TO_OBJS.items()},
        "saveable": sorted(f"{cls.__module__}.{cls.__name__}" for cls in below(KerasSaveable)),
        "layers": sorted(name for name, s in REGISTERED_NAMES_TO_OBJS.items() if isinstance(s, type) and issubclass(s, keras.layers.Layer)),
        "training_by_default": sorted(set(default)),
    }


def main(folder: Path) -> None:
    """Make everything."""
    made = models(folder)
    (folder / "answers.json").write_text(json.dumps(answers(folder, made)), encoding="utf-8")


# ---------------------------------------------------------------- the tests


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    (folder / "custom.py").write_text(CUSTOM, encoding="utf-8")
    environment = {**os.environ, "KERAS_BACKEND": "numpy", "KERAS_HOME": str(folder / "home")}
    done = subprocess.run([sys.executable, "-W", "ignore", __file__, str(folder)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def keras_says(zoo: Path) -> dict[str, Any]:
    return dict(json.loads((zoo / "answers.json").read_text(encoding="utf-8")))


def trust(zoo: Path) -> dict[str, tuple[str, ...]]:
    return {"custom_objects": (str(zoo / "custom.py"),), "allow_lambda": ("twice",)}


EXPECTED_CODES = {"large_float64": {"KP013", "KP015"}, **{f"large_{policy}": {"KP013"} for policy in POLICIES if policy != "float64"}}
EXPECTED_CODES["shared_lost"] = {"KP008"}  # Keras itself can't load what it saved here: the layer's second place lost its weights


def test_every_real_model_passes_with_the_findings_it_deserves(zoo: Path) -> None:
    files = sorted(zoo.glob("*.keras"))
    assert len(files) > 40
    found = {path.stem: {o.code for o in inspect(path, **trust(zoo))[1]} for path in files}
    assert found == {path.stem: EXPECTED_CODES.get(path.stem, set()) for path in files}


def test_signatures_are_keras_own(zoo: Path, keras_says: dict[str, Any]) -> None:
    compared = 0
    for name, theirs in keras_says["signatures"].items():
        result = inspect(zoo / f"{name}.keras", **trust(zoo))[0]
        assert result is not None
        assert result.signature is not None
        ours = encode(result.signature)
        assert ours["inputs"] == theirs["inputs"], name
        for mine, real in zip(ours["outputs"], theirs["outputs"], strict=True):
            assert mine["name"] == real["name"], name
            assert mine["shape"] in (None, real["shape"]), name
            assert mine["dtype"] in ("", real["dtype"]), name
            compared += mine["shape"] is not None
    assert compared > 10


def test_parameters_are_counted_as_keras_counts_them(zoo: Path, keras_says: dict[str, Any]) -> None:
    for name, count in keras_says["parameters"].items():
        if name in {"lora", "shared_lost", "single_spectral"}:  # merged when saved; refused; its kernel is stored twice
            continue
        result = inspect(zoo / f"{name}.keras", **trust(zoo))[0]
        assert result is not None
        assert result.parameters == count, name


def test_every_rule_is_met_by_a_real_layer(zoo: Path) -> None:
    met = set()
    for path in [*zoo.glob("single_*.keras"), zoo / "large_float32.keras"]:
        with zipfile.ZipFile(path) as archive:
            layers = read_layers(json.loads(archive.read("config.json")))
            weights = h5py.File(io.BytesIO(archive.read("model.weights.h5")))
        for layer in walk(layers):
            for item in expected_weights(layer) or ():
                assert weights[item.path].shape == item.shape, (path, item)
                met.add(layer.class_name)
    assert met == set(_RULES)


def test_shared_layers_are_counted_once(zoo: Path) -> None:
    result = inspect(zoo / "shared_inside.keras")[0]
    assert result is not None
    rows = [row for row in result.layers if row.class_name == "Dense"]
    assert [row.name for row in rows if row.parameters is None] == [f"base/{rows[0].name}"]
    assert sorted((row.parameters is None, row.parameters or 0) for row in rows) == [(False, 15), (False, 20), (True, 0)]


def test_forced_training_is_the_authors_not_a_default(zoo: Path, keras_says: dict[str, Any]) -> None:
    result = inspect(zoo / "large_float32.keras")[0]
    assert result is not None
    assert [row.class_name for row in result.layers if row.forced_training] == ["Dropout"]
    assert set(keras_says["training_by_default"]) - {"BaseImagePreprocessingLayer"} == _TRAINING_BY_DEFAULT


def test_the_fitted_model_has_an_optimizer_that_does_not_count(zoo: Path) -> None:
    result = inspect(zoo / "fitted.keras")[0]
    assert result is not None
    assert result.has_optimizer
    assert result.parameters == 8 * 5 + 4 * 8 + 2 * 9


def test_exactly_the_modelling_names_of_keras_are_let_through(keras_says: dict[str, Any]) -> None:
    split = {name: name.rsplit(".", 1) for name in keras_says["symbols"]}
    through = {name for name, (module, last) in split.items() if is_modelling_class(module, last) and last not in CODE_CLASSES}
    assert {name for name in keras_says["layers"] if split[name][1] not in CODE_CLASSES | {"Layer": ""}} <= through
    assert [name for name in through if not keras_says["symbols"][name]] == []
    parts = {name.split(".")[1] for name in through if name.count(".") > 1}
    kinds = {"constraints", "distillation", "dtype_policies", "initializers", "layers", "_legacy", "losses", "metrics", "optimizers"}
    assert parts == kinds | {"quantizers", "random", "regularizers", "utils"}
    functions = {name for name, (module, last) in split.items() if is_modelling_function(module, last)}
    assert {name for name, (module, last) in split.items() if module in FUNCTION_MODULES and last.islower() and not keras_says["symbols"][name]} - {
        f"{module}.{last}" for module in FUNCTION_MODULES for last in ("get", "serialize", "deserialize")
    } == functions


def test_private_classes_of_keras_that_models_may_hold_are_let_through(keras_says: dict[str, Any]) -> None:
    refused = [name for name in keras_says["saveable"] if name.startswith("keras.") and not is_modelling_class(*name.rsplit(".", 1))]
    kept_out = ("backend.", "export.tfsm_layer.", "saving.", "trainers.compile_utils.", "utils.torch_utils.")
    assert [name for name in refused if not name.startswith(tuple(f"keras.src.{part}" for part in kept_out))] == []


def test_weightless_layers_exist(keras_says: dict[str, Any]) -> None:
    assert {f"keras.layers.{name}" for name in WEIGHTLESS} - {"keras.layers.Softmax"} <= set(keras_says["layers"])


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10) | st.floats() | st.sampled_from(["Dense", "LSTM", "relu", "keras.layers", "channels_first"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["class_name", "config", "module", "name", "layers", "units"]), inner)
    ),
    max_leaves=8,
)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.data())
def test_real_configs_with_junk_anywhere_never_crash(zoo: Path, data: st.DataObject) -> None:
    with zipfile.ZipFile(zoo / "large_float32.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = node = json.loads(members["config.json"])
    for _ in range(data.draw(st.integers(2, 9))):
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], dict | list) or not node[key]:
            break
        node = node[key]
    node[data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))] = data.draw(JUNK)
    members["config.json"] = json.dumps(config).encode()
    path = zoo / "junk.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    result, observations = inspect(path)
    assert result is not None or observations
    json.dumps(encode(result), allow_nan=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
