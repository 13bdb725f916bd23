"""The contract: every key, and a message with file, key, value and expectation for everything that is off."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from kpipe.contract import Contract, LimitsTable, check_names, load_contract, parse_contract
from kpipe.errors import ContractError, Exit, nearest
from kpipe.rules import DecisionTable
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.decisions.checking import OPTIONAL
from kpipe_stages.protocol import Signature, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = "0f" * 32

EVERY_KEY = f"""
[product]
name = "digit-reader"

[model]
sha256 = "{DIGEST}"
backend = "tensorflow"
custom_objects = ["layers.py"]
allow_modules = ["keras_hub"]
allow_lambda = ["halve"]

[golden]
path = "golden_inputs"
manifest_sha256 = "{DIGEST}"
batches = [2, 5]

[inputs.words]
decode = "text"

[calibration]
path = "calibration.npz"
sha256 = "{DIGEST}"

[inputs.image]
decode = "serving:image"
read = {{}}
source = "words"
pad_batches = {{ at = "end", value = 0 }}
files = ["serving.py"]
steps = [{{ resize = [16, 16], method = "bilinear", antialias = true }}, {{ channels = "gray" }}, {{ scale = 0.0039 }}]
dtype = "float32"

[decision]
rule = "top_k"
output = "digit"
labels = ["a", "b", "c"]
k = 2
ordered = false

[agreement]
tolerance = {{ atol = 0, rtol = 1e-4 }}
max_flips = 1
ties = "count"
confidence = 0.9
prove_flip_rate = 0.05
outputs.digit = {{ atol = 1e-6, rtol = 0.0 }}

[export]
allow_select_tf = true
repairs = false

[timing]
calls = 300
end_to_end_calls = 0
max_seconds = 5
load_seconds = 30
server_rate = 100
server_seconds = 2
offline_batches = [1, 8]

[run]
profile = "signoff"
stage_s = 60
total_s = 600.5

[compare]
max_changed = 0.01
slices = {{ critical = 0.0 }}

[baseline]
time = false
max_seconds = 5
smallest = 0.05

[axes]
time = {{ min = 1, typical = 128, max = 4096, inputs = {{ image = 1 }} }}

[targets.phone]
runtime = "litert"
artifact = "release/model.tflite"
quantize = "int8"
precision = "default"
version = ">=2.0,<3"
python = "venv/bin/python"
required = false
threads = 2
affinity = [0, 1]
memory_mib = 512
tolerance = {{ atol = 1e-3, rtol = 1e-2 }}
outputs.digit = {{ atol = 1e-6, rtol = 0.0 }}
settings = {{ num_threads = 2, xnnpack = true, name = "x", ratio = 0.5 }}
inputs.image = {{ decode = "phone:image", read = {{}}, files = ["phone.py", "means.npy"], steps = [], dtype = "float32" }}
op_profile = "chip"
limits = {{ load_s = 1, p50_ms = 1.5, p90_ms = 2, p95_ms = 3, p99_ms = 4, end_to_end_p50_ms = 5, end_to_end_p90_ms = 6, end_to_end_p95_ms = 7, end_to_end_p99_ms = 8, server_p50_ms = 9, server_p90_ms = 10, server_p95_ms = 11, server_p99_ms = 12, peak_mib = "1.10x baseline", size_mib = 1 }}

[targets.onnxruntime]

[op_profiles.chip]
ops = ["CONV_2D", "ADD"]
versions = {{ CONV_2D = 3 }}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ContractError) as caught:
        parse_contract(text, "some/kpipe.toml")
    assert str(caught.value).startswith("some/kpipe.toml can't be used:")
    assert caught.value.exit_code is Exit.USAGE
    assert all(p in str(caught.value) for p in caught.value.problems)
    return list(caught.value.problems)


def keys(model: type[BaseModel]) -> set[str]:
    return set(model.model_fields)


def test_every_key_is_taken_and_every_key_is_in_the_sample() -> None:
    contract = parse_contract(EVERY_KEY, "kpipe.toml")
    phone = contract.targets["phone"]
    tables: list[tuple[BaseModel, set[str]]] = [
        (contract, {"decisions"}),
        (contract.model, set()),
        (contract.golden, set()),
        (contract.calibration or Contract(), set()),
        (contract.inputs["image"], set()),
        (contract.decision or Contract(), keys(DecisionTable) - {"rule", *OPTIONAL["top_k"]}),
        (contract.agreement, set()),
        (contract.export, set()),
        (contract.timing, set()),
        (contract.run, set()),
        (contract.product or Contract(), set()),
        (contract.compare or Contract(), set()),
        (contract.baseline, set()),
        (contract.axes["time"], set()),
        (phone, set()),
        (phone.limits, set()),
        (contract.op_profiles["chip"], set()),
        (phone.inputs["image"], {"tensors"}),  # it stands alone
    ]
    for table, left_out in tables:
        assert table.model_fields_set == keys(type(table)) - left_out, type(table).__name__
    assert contract.golden.batches == (2, 5)
    assert phone.settings == {"num_threads": 2, "xnnpack": True, "name": "x", "ratio": 0.5}
    assert phone.limits.p50_ms == 1.5
    assert phone.limits.relative == {"peak_mib": 1.1}
    assert set(phone.limits.absolute) == keys(LimitsTable) - {"peak_mib"}


def test_several_rules_each_have_a_table() -> None:
    text = """
[decisions.digit]
rule = "argmax"
output = "digit"

[decisions.width]
rule = "tolerance"
output = "width"
atol = 1
rtol = 0.1
"""
    contract = parse_contract(text, "kpipe.toml")
    assert list(contract.rule_tables) == ["digit", "width"]
    assert contract.rule_tables["width"].atol == 1.0
    assert list(parse_contract("[decision]\nrule = 'argmax'", "kpipe.toml").rule_tables) == [""]
    assert Contract().rule_tables == {}


def test_an_empty_contract_is_one() -> None:
    assert parse_contract("", "kpipe.toml") == Contract()
    assert Contract().golden.batches == (3, 8)
    assert Contract().agreement.max_flips == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle.sha256 = 'x'", "unknown key 'modle' (did you mean 'model'?)"),
        ("[model]\nsha265 = 'x'", "unknown key 'model.sha265' (did you mean 'sha256'?)"),
        ("[golden]\nbatch = [2, 3]", "unknown key 'golden.batch' (did you mean 'batches'?)"),
        ("[inputs.x]\ndecode = 'npy'\nstep = []", "unknown key 'inputs.x.step' (did you mean 'steps'?)"),
        ("[decision]\nrule = 'argmax'\nlabel = []", "unknown key 'decision.label' (did you mean 'labels'?)"),
        ("[agreement]\nmax_flip = 1", "unknown key 'agreement.max_flip' (did you mean 'max_flips'?)"),
        ("[agreement.tolerance]\natol = 0\nrtol = 0\nabs = 1", "unknown key 'agreement.tolerance.abs'"),
        ("[agreement.outputs.y]\natol = 0\nrtoll = 0", "unknown key 'agreement.outputs.y.rtoll' (did you mean 'rtol'?)"),
        ("[export]\nrepair = true", "unknown key 'export.repair' (did you mean 'repairs'?)"),
        ("[timing]\ncall = 1", "unknown key 'timing.call' (did you mean 'calls'?)"),
        ("[run]\nstage = 1", "unknown key 'run.stage' (did you mean 'stage_s'?)"),
        ("[targets.litert]\nartefact = 'x'", "unknown key 'targets.litert.artefact' (did you mean 'artifact'?)"),
        ("[targets.litert.limits]\np50 = 1.0", "unknown key 'targets.litert.limits.p50' (did you mean 'p50_ms'?)"),
        ("[targets.litert.inputs.x]\ndecode = 'npy'\ndtypes = 'x'", "unknown key 'targets.litert.inputs.x.dtypes' (did you mean 'dtype'?)"),
        ("[targets.litert.outputs.y]\natol = 0\nrtol = 0\nfactor = 1", "unknown key 'targets.litert.outputs.y.factor'"),
        ("[targets.litert.tolerance]\natol = 0\nrtl = 0", "unknown key 'targets.litert.tolerance.rtl' (did you mean 'rtol'?)"),
        ("zzz = 1", "unknown key 'zzz'; see"),
    ],
)
def test_an_unknown_key_is_refused_at_every_level_with_the_nearest_one(text: str, message: str) -> None:
    assert any(p.startswith(message) for p in problems(text)), problems(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[model]\nsha256 = 'abc'", ("model.sha256", "'abc'", "pattern")),
        (f"[model]\nsha256 = '{DIGEST.upper()}'", ("model.sha256", "pattern")),
        ("[model]\nbackend = 'torch'", ("model.backend", "'torch'", "'jax' or 'tensorflow'")),
        ("[model]\ncustom_objects = 'layers.py'", ("model.custom_objects", "'layers.py'")),
        ("model = 3", ("model", "3")),
        ("[golden]\nbatches = [3]", ("golden.batches", "[3]", "two different sizes")),
        ("[golden]\nbatches = [3, 3]", ("golden.batches", "[3, 3]", "two different sizes")),
        ("[golden]\nbatches = []", ("golden.batches", "[]", "two different sizes")),
        ("[golden]\nbatches = [1, 3]", ("golden.batches.0", "1", "greater than or equal to 2")),
        ("[golden]\nbatches = [2.0, 3]", ("golden.batches.0", "2.0", "integer")),
        ("[golden]\npath = 3", ("golden.path", "3", "string")),
        ("[inputs.x]\nsteps = []", ("inputs.x.decode", "missing")),
        ("inputs.x.decode = 'a:f'", ("inputs.x.decode", "'a:f'", "no a.py", 'files = ["a.py"]')),
        ("inputs.x = { decode = 'a:f', files = ['b.py'] }", ("no a.py", "['b.py']")),
        ("inputs.x = { decode = 'a b:f', files = ['a b.py'] }", ("inputs.x.decode", "module:function")),
        ("inputs.x = { decode = 'a:f', files = ['a.py', 'old/a.py'] }", ("inputs.x.files", "two modules 'a'")),
        ("inputs.x = { decode = 'json:f', files = ['json.py'] }", ("json.py", "rename")),
        ("inputs.x = { decode = 'npy', files = ['a.py'] }", ("inputs.x.files", "neither decoder nor steps do")),
        ("inputs.x = { decode = 'image', files = ['a.py'] }", ("inputs.x.files", "runs none of them")),
        ("inputs.x = { decode = 'npy', tensors = 't.npz' }", ("unknown key 'inputs.x.tensors'",)),
        ("inputs.x.decode = 'npy'\ntargets.litert.inputs.x = { decode = 'npy', tensors = 't.npz' }", ("targets.litert.inputs.x.tensors", "alone")),
        ("inputs.x.decode = 'npy'\ntargets.litert.inputs.x = { steps = [] }", ("targets.litert.inputs.x.decode is missing", "decode or tensors")),
        (
            "inputs.x = { decode = 'a:f', files = ['a.py'] }\ninputs.y.decode = 'npy'\ntargets.litert.inputs.y = { decode = 'a:f', files = ['b/a.py'] }",
            ("targets.litert.inputs.y.files", "'b/a.py'", "different names"),
        ),
        ("inputs.x = { decode = 'a:f', files = ['a.py'] }\ninputs.y = { decode = 'a:f', files = ['b/a.py'] }", ("inputs.y.files", "different names")),
        ("[inputs.x]\ndecode = 'sound'", ("inputs.x.decode", "'sound'", "image, audio, text, table, npy, npz", "'module:function'")),
        ("[inputs.x]\ndecode = 'npy'\nsteps = [{ resiz = [1, 1] }]", ("inputs.x.steps", "resiz")),
        ("[inputs.x]\ndecode = 'npy'\nsteps = [3]", ("inputs.x.steps.0", "3")),
        ("[targets.litert.inputs.x]\ndecode = 'npy'\nsteps = [{ scale = 'a' }]", ("targets.litert.inputs.x.steps", "scale")),
        ("[decision]\noutput = 'y'", ("decision.rule", "missing")),
        ("[decision]\nrule = 'argmax'\n[decisions.two]\nrule = 'argmax'", ("[decision]", "[decisions.two]", "are both there")),
        ("[decisions.two]\noutput = 'y'", ("decisions.two.rule", "missing")),
        ("[decisions.two]\nrule = 'argmax'\nlabel = []", ("decisions.two.label", "did you mean 'labels'?")),
        ("[decisions.two]\nrule = 'argmax'\nk = 1", ("decisions.two: k means nothing",)),
        ("[decisions.'a b']\nrule = 'argmax'", ("decisions.a b", "letters, digits")),
        ("[decisions]\nrule = 'argmax'", ("decisions.rule", "'argmax'")),
        (
            "[decision]\nrule = 'best'",
            ("decision.rule", "'best'", "expected one of argmax, threshold, multilabel, top_k, ranking, bins, tolerance, detection"),
        ),
        ("[decision]\nrule = 'argmx'", ("decision.rule", "'argmx'", "did you mean 'argmax'?")),
        ("[decision]\nrule = 'decide:main'", ("decision", "'decide:main'", "has no decide.py")),
        ("[decision]\nrule = 'argmax'\nedges = [1.0]", ("decision", "edges means nothing to rule = 'argmax'", "Drop it")),
        ("[decision]\nrule = 'argmax'\nthreshold = 0.5", ("decision", "threshold means nothing")),
        ("[decision]\nrule = 'ranking'\nordered = true", ("decision", "ordered means nothing")),
        ("[decision]\nrule = 'bins'", ("decision", "needs edges")),
        ("[decision]\nrule = 'bins'\nedges = [2.0, 1.0]", ("decision", "[2.0, 1.0]", "rising")),
        ("[decision]\nrule = 'bins'\nedges = []", ("decision", "one finite number or more")),
        ("[decision]\nrule = 'bins'\nedges = [inf]", ("decision.edges.0", "inf", "finite")),
        ("[decision]\nrule = 'bins'\nedges = [1.0]\nlabels = ['low']", ("decision", "1 labels for 1 edges", "expected 2")),
        ("[decision]\nrule = 'tolerance'\natol = 0.1", ("decision", "needs rtol")),
        ("[decision]\nrule = 'detection'\nscores = 's'", ("decision", "needs boxes")),
        ("[decision]\nrule = 'detection'\nscores = 's'\nboxes = 'b'\noutput = 's'", ("decision", "output means nothing")),
        ("[decision]\nrule = 'detection'\nscores = 's'\nboxes = 's'", ("decision", "an output of its own")),
        ("[decision]\nrule = 'detection'\nscores = 's'\nboxes = 'b'\niou = 0", ("decision.iou", "0", "greater than 0")),
        ("[decision]\nrule = 'detection'\nscores = 's'\nboxes = 'b'\nnms = 1.5", ("decision.nms", "1.5", "less than or equal to 1")),
        ("[decision]\nrule = 'detection'\nscores = 's'\nboxes = 'b'\nbox_format = 'yxyx'", ("decision.box_format", "'yxyx'", "'center_xywh'")),
        ("[decision]\nrule = 'detection'\nscores = 's'\nboxes = 'b'\nthreshold = [0.5]", ("decision", "[0.5]", "one number for all boxes")),
        ("[decision]\nrule = 'tolerance'\natol = 0\nrtol = 0", ("decision", "no difference at all")),
        ("[decision]\nrule = 'tolerance'\natol = -1.0\nrtol = 0", ("decision.atol", "-1.0", "greater than or equal to 0")),
        ("[decision]\nrule = 'tolerance'\natol = 1.0\nrtol = 0\nlabels = ['a']", ("decision", "labels means nothing")),
        ("[decision]\nrule = 'multilabel'\nthreshold = []", ("decision.threshold", "[]", "one for each class")),
        ("[decision]\nrule = 'multilabel'\nthreshold = [0.5, true]", ("decision.threshold", "True", "one for each class")),
        ("[decision]\nrule = 'top_k'\nk = 0", ("decision.k", "0", "greater than or equal to 1")),
        ("[decision]\nrule = 'threshold'\nthreshold = nan", ("decision.threshold", "nan", "finite")),
        ("[decision]\nrule = 'threshold'\nthreshold = '0.5'", ("decision.threshold", "'0.5'", "number")),
        ("[decision]\nrule = 'argmax'\nlabels = ['cat', 'dog', 'cat']", ("decision", "'cat'", "twice")),
        ("[decision]\nrule = 'argmax'\nlabels = ['undecided', 'dog']", ("decision", "'undecided'")),
        ("[decision]\nrule = 'top_k'\nlabels = ['a, b', 'dog']", ("decision", "'a, b'")),
        ("[agreement]\ntolerance = 'automatic'", ("agreement.tolerance", "'automatic'")),
        ("[agreement]\ntolerance = 1e-4", ("agreement.tolerance", "0.0001")),
        ("[agreement.tolerance]\natol = -1\nrtol = 0", ("agreement.tolerance.atol", "-1", "greater than or equal to 0")),
        ("[agreement.tolerance]\natol = inf\nrtol = 0", ("agreement.tolerance.atol", "inf", "finite")),
        ("[agreement.tolerance]\natol = nan\nrtol = 0", ("agreement.tolerance.atol", "nan")),
        ("[agreement.tolerance]\natol = 1", ("agreement.tolerance.rtol", "missing")),
        ("[agreement]\nmax_flips = -1", ("agreement.max_flips", "-1")),
        ("[agreement]\nmax_flips = 0.5", ("agreement.max_flips", "0.5")),
        ("[agreement]\nmax_flips = true", ("agreement.max_flips", "True")),
        ("[agreement]\nconfidence = 1.0", ("agreement.confidence", "1.0", "less than 1")),
        ("[agreement]\nprove_flip_rate = 0", ("agreement.prove_flip_rate", "0", "greater than 0")),
        ("[export]\nrepairs = 'no'", ("export.repairs", "'no'", "boolean")),
        ("[export]\nrepairs = 0", ("export.repairs", "0", "boolean")),
        ("[timing]\ncalls = -1", ("timing.calls", "-1")),
        ("[timing]\nserver_rate = 0", ("timing.server_rate", "0", "greater than 0")),
        ("[timing]\noffline_batches = [0]", ("timing.offline_batches", "0")),
        ("[targets.litert.limits]\nserver_p99_ms = 5", ("targets.litert.limits.server_p99_ms", "[timing] server_rate")),
        ("[targets.litert]\naffinity = [1, 1]", ("targets.litert.affinity", "each processor once")),
        ("[targets.litert]\naffinity = [-1]", ("targets.litert.affinity", "-1")),
        ("[targets.litert]\nmemory_mib = 0", ("targets.litert.memory_mib", "0")),
        ("[timing]\nmax_seconds = 0", ("timing.max_seconds", "0", "greater than 0")),
        ("[timing]\nmax_seconds = inf", ("timing.max_seconds", "inf", "finite")),
        ("[run]\ntotal_s = 'long'", ("run.total_s", "'long'", "number")),
        ("[targets.litret]", ("targets.litret", "did you mean 'litert'?", *RUNTIMES)),
        ("[targets.phone]\nruntime = 'onnx'", ("targets.phone.runtime", "'onnx'", "onnxruntime")),
        ("[targets.tensorflow]\nartifact = 'x.keras'", ("targets.tensorflow.artifact", "'x.keras'", "drop the key")),
        ("[targets.litert]\nrequired = 'yes'", ("targets.litert.required", "'yes'", "boolean")),
        ("[targets.litert]\nversion = '2.0'", ("targets.litert.version", "'2.0'", "version specifier")),
        ("[targets.litert]\nthreads = -1", ("targets.litert.threads", "-1")),
        ("[targets.litert]\nprecision = 'f16'", ("targets.litert.precision", "'f16'", "'f32' or 'default'")),
        ("[targets.litert.settings]\nlist = [1]", ("targets.litert.settings.list", "[1]")),
        ("[targets.litert.limits]\np50_ms = 0", ("targets.litert.limits.p50_ms", "0", "greater than 0")),
        ("[targets.litert.limits]\np50_ms = true", ("targets.litert.limits.p50_ms", "True", "greater than 0", "'1.10x baseline'")),
        ("[targets.litert.limits]\np90_ms = '1.1 x baseline'", ("targets.litert.limits.p90_ms", "'1.1 x baseline'", "'1.10x baseline'")),
        ("[targets.litert.limits]\np90_ms = '0x baseline'", ("targets.litert.limits.p90_ms", "'0x baseline'", "greater than 0")),
        ("[targets.litert.limits]\nend_to_end_p90_ms = '1.1x baseline'", ("end_to_end_p90_ms", "expected a number", "in turns")),
        ("[baseline]\nsmallest = 0", ("baseline.smallest", "0", "greater than 0")),
        ("[targets.litert.limits]\nsize_mib = '1'", ("targets.litert.limits.size_mib", "'1'", "number")),
        ("[targets.'../litert']\nruntime = 'litert'", ("targets.../litert", "letters, digits")),
        ("[targets.'a.b']\nruntime = 'litert'", ("targets.a.b", "letters, digits")),
        ("[targets.reference]\nruntime = 'litert'", ("targets.reference", "not 'reference'")),
        ("[targets.'']\nruntime = 'litert'", ("targets.", "letters, digits")),
        ("[model", ("TOML", "Expected ']'")),
        ("a = 1\nb", ("TOML", "Expected '='")),
        ("[targets.litert.settings]\nwhen = 2020-01-01", ("targets.litert.settings.when", "text, a number, true or false")),
        ("[model]\nbackend = 'jax'\nbackend = 'jax'", ("TOML", "overwrite")),
        ("a = " + "[" * 20_000, ("TOML",)),
        ("a = " + "9" * 5_000, ("TOML",)),
    ],
)
def test_a_wrong_value_is_refused_with_key_value_and_expectation(text: str, parts: tuple[str, ...]) -> None:
    found = problems(text)
    assert any(all(part in p for part in parts) for p in found), found


def test_every_problem_is_listed_at_once() -> None:
    assert len(problems("[model]\nbackend = 'torch'\nsha = 'x'\n[timing]\ncalls = -1\n[decision]\n")) == 4


def assert_taken_or_refused(text: str) -> None:
    try:
        contract = parse_contract(text, "kpipe.toml")
    except ContractError as error:
        problems = error.problems
    else:
        assert isinstance(contract, Contract)
        return
    assert problems
    assert all(isinstance(p, str) and p for p in problems)


@given(st.text() | st.text(alphabet="[]{}=.,#'\"\\\n\t abmodeltrgs0123456789-+eEinf_:TZ", max_size=60))
@settings(max_examples=300)
def test_no_text_raises_anything_else(text: str) -> None:
    assert_taken_or_refused(text)


values = st.recursive(
    st.none().map(lambda _: True) | st.booleans() | st.integers(-9, 2**40) | st.floats() | st.text(max_size=5) | st.sampled_from(["argmax", "npy"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["resize", "scale", "rule", "decode", "atol", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Known tables and keys with values of any kind: past TOML and into the models."""
    document: dict[str, Any] = {}
    for name, info in Contract.model_fields.items():
        inner = [a for a in (info.annotation, *typing.get_args(info.annotation)) if isinstance(a, type) and issubclass(a, BaseModel)]
        known = dict.fromkeys(keys(inner[0]), values) if inner else {}
        table = st.fixed_dictionaries({}, optional=known)
        wrapped = st.dictionaries(st.sampled_from(["litert", "image", "é"]), table, max_size=2) if name in {"inputs", "targets"} else table
        if draw(st.booleans()):
            document[name] = draw(wrapped | values)
    return document


@given(documents())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_document_raises_anything_else(document: dict[str, Any]) -> None:
    import tomlkit

    assert_taken_or_refused(tomlkit.dumps(document))


# ---------------------------------------------------------------- files


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"absent.toml.*\n.*can't be read: No such file"):
        load_contract(tmp_path / "absent.toml")
    (tmp_path / "kpipe.toml").write_bytes(b"[model]\n\xff\xfe")
    with pytest.raises(ContractError, match=r"isn't UTF-8 text \(byte 8\)"):
        load_contract(tmp_path / "kpipe.toml")
    with pytest.raises(ContractError, match="can't be read: Is a directory"):
        load_contract(tmp_path)


def test_paths_are_relative_to_the_contract(tmp_path: Path) -> None:
    (tmp_path / "kpipe.toml").write_text("")
    loaded = load_contract(tmp_path / "kpipe.toml")
    assert loaded.resolve("a/../b.tflite") == tmp_path.resolve() / "b.tflite"
    assert loaded.resolve("/elsewhere/b") == (tmp_path / "/elsewhere/b").resolve()
    assert len(loaded.sha256) == 64


# ---------------------------------------------------------------- names

SIGNATURE = Signature(
    inputs=(TensorSpec("image", (None, 8), "float32"), TensorSpec("mask", (None, 8), "float32")),
    outputs=(TensorSpec("digit", (None, 10), "float32"), TensorSpec("width", (None, 1), "float32")),
)
BOTH = "inputs.image.decode = 'npy'\ninputs.mask.decode = 'npy'\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("inputs.imag.decode = 'npy'", ("inputs.imag", "did you mean 'image'?", "image, mask")),
        ("inputs.image.decode = 'npy'", ("'mask'", "[inputs.mask]")),
        (BOTH + "[decision]\nrule = 'argmax'\noutput = 'digits'", ("decision.output", "'digits'", "did you mean 'digit'?", "digit, width")),
        (BOTH + "[decision]\nrule = 'argmax'", ("decision.output is missing", "2 outputs", "digit, width")),
        (BOTH + "[decision]\nrule = 'detection'\nscores = 'digit'\nboxes = 'with'", ("decision.boxes is 'with'", "did you mean 'width'?")),
        (BOTH + "[decision]\nrule = 'detection'\nscores = 'score'\nboxes = 'width'", ("decision.scores is 'score'", "digit, width")),
        (BOTH + "[decisions.one]\nrule = 'argmax'", ("decisions.one.output is missing", "2 outputs", "digit, width")),
        (BOTH + "[decisions.one]\nrule = 'argmax'\noutput = 'digits'", ("decisions.one.output", "'digits'", "did you mean 'digit'?")),
        (BOTH + "[agreement.outputs.wide]\natol = 0\nrtol = 0", ("agreement.outputs.wide", "no output 'wide'", "digit, width")),
        (BOTH + "[targets.litert.outputs.wide]\natol = 0\nrtol = 0", ("targets.litert.outputs.wide", "no output 'wide'")),
        (BOTH + "[targets.litert.inputs.imag]\ndecode = 'npy'", ("targets.litert.inputs.imag", "did you mean 'image'?")),
    ],
)
def test_names_that_the_model_does_not_have_are_refused(text: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(ContractError) as caught:
        check_names(parse_contract(text, "kpipe.toml"), SIGNATURE, "kpipe.toml")
    assert any(all(part in p for part in parts) for p in caught.value.problems), caught.value.problems


def test_names_that_the_model_has_are_taken() -> None:
    text = BOTH + "[decision]\nrule = 'argmax'\noutput = 'digit'\n[targets.litert.inputs.image]\ndecode = 'npy'"
    check_names(parse_contract(text, "kpipe.toml"), SIGNATURE, "kpipe.toml")
    check_names(Contract(), SIGNATURE, "kpipe.toml")


@given(st.text(max_size=10), st.lists(st.text(max_size=10), max_size=5))
def test_nearest_offers_only_what_is_known(word: str, known: list[str]) -> None:
    offered = nearest(word, known)
    assert offered == "" or offered in {f" (did you mean '{k}'?)" for k in known}
    assert word not in known or offered == f" (did you mean '{word}'?)" or not word
