"""Names, digests and telling lines of the export: pure functions."""

from __future__ import annotations

import hashlib
import keyword
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe_stages.artifacts.inventory import LEAST_PARAMETERS, Opened, bind, compare_size, identifier, identifiers, match_names
from kpipe_stages.artifacts.litert import _reason
from kpipe_stages.artifacts.op_names import layers_of
from kpipe_stages.digest import digest, size
from kpipe_stages.keras_calling import unique_names
from kpipe_stages.keras_loading import telling_line
from kpipe_stages.protocol import Binding, Signature, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

NAMES = st.lists(st.text(max_size=8), min_size=1, max_size=6, unique=True)
MODEL = Signature(
    inputs=(TensorSpec("b", (None, 3), "float32"), TensorSpec("a", (None, 3), "float32")),
    outputs=(TensorSpec("score", (None, 2), "float32"),),
)


def opened(signature: Signature = MODEL, **changes: object) -> Opened:
    return replace(Opened(signature, {"Add": 1}, (), 10, 40), **changes)  # type: ignore[arg-type]


@given(st.text(max_size=12))
def test_identifiers_are_what_a_signature_can_hold(name: str) -> None:
    safe = identifier(name)
    assert safe.isascii()
    assert safe.isidentifier()
    assert not keyword.iskeyword(safe)
    assert safe[0].isalpha()
    assert identifier(safe) == safe


@given(NAMES)
def test_identifiers_stay_apart_and_good_names_stay(names: list[str]) -> None:
    safe = identifiers(names)
    assert len(set(safe)) == len(names)
    for name, other in zip(names, safe, strict=True):
        if identifier(name) == name:
            assert other == name


@given(st.lists(st.sampled_from(["a", "a_2", "a_3", "b"]), max_size=8))
def test_unique_names_are_unique_and_first_ones_keep_theirs(names: list[str]) -> None:
    unique = unique_names(names)
    assert len(set(unique)) == len(names)
    for name in set(names):
        assert unique[names.index(name)] == name


@given(NAMES, st.randoms())
def test_equal_names_bind_to_themselves_in_any_order(names: list[str], random: object) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert match_names(names, shuffled) == {name: name for name in names}


@given(NAMES, NAMES)
def test_a_binding_never_uses_a_name_twice_nor_one_that_is_not_there(mine: list[str], theirs: list[str]) -> None:
    bound = match_names(mine, theirs)
    assert len(set(bound.values())) == len(bound)
    assert set(bound) <= set(mine)
    assert set(bound.values()) <= set(theirs)


@pytest.mark.parametrize(
    ("mine", "theirs", "bound"),
    [
        (["age (years)", "x"], ["x", "age__years_"], {"age (years)": "age__years_", "x": "x"}),
        (["a", "b"], ["serving_default_b:0", "serving_default_a:0"], {"a": "serving_default_a:0", "b": "serving_default_b:0"}),
        (["Out Put", "z"], ["z", "out_put"], {"Out Put": "out_put", "z": "z"}),
        ([f"h{i}" for i in range(12)], sorted(f"output_{i}" for i in range(12)), {f"h{i}": f"output_{i}" for i in range(12)}),
        (["p", "q"], ["Identity_1:0", "Identity:0"], {"p": "Identity:0", "q": "Identity_1:0"}),
        (["p"], ["StatefulPartitionedCall:0"], {"p": "StatefulPartitionedCall:0"}),
        (["p", "q"], ["StatefulPartitionedCall:0", "StatefulPartitionedCall:1"], {}),
        (["p", "q"], ["output_1", "output_2"], {}),
        (["a b", "a_b"], ["a.b", "a-b"], {}),
    ],
)
def test_looser_forms(mine: list[str], theirs: list[str], bound: dict[str, str]) -> None:
    assert match_names(mine, theirs) == bound


def test_names_that_the_export_wrote_come_first() -> None:
    assert match_names(["a", "b"], ["a", "b"], {"a": "b", "b": "a"}) == {"a": "b", "b": "a"}


def test_an_equal_signature_binds_in_silence() -> None:
    assert bind("onnx", MODEL, opened()) == (Binding({"b": "b", "a": "a"}, {"score": "score"}), [])


def test_another_order_is_told_where_there_is_one() -> None:
    other = replace(MODEL, inputs=MODEL.inputs[::-1])
    binding, seen = bind("onnx", MODEL, opened(other))
    assert binding is not None
    assert [(o.code, o.evidence["order"]) for o in seen] == [("KP204", [1, 0])]
    assert bind("saved_model", MODEL, opened(other, ordered=False))[1] == []


def test_one_more_input_is_never_bound() -> None:
    more = replace(MODEL, inputs=(*MODEL.inputs, TensorSpec("mean", (1,), "float32")))
    binding, seen = bind("onnx", MODEL, opened(more))
    assert binding is None
    assert [o.code for o in seen] == ["KP207"]
    assert seen[0].evidence["artifact"] == ["b", "a", "mean"]


def test_names_that_can_not_be_told_are_never_bound_by_position() -> None:
    other = replace(MODEL, inputs=(TensorSpec("p", (None, 3), "float32"), TensorSpec("q", (None, 3), "float32")))
    binding, seen = bind("onnx", MODEL, opened(other))
    assert binding is None
    assert [(o.code, o.place) for o in seen] == [("KP213", "b")]


def test_a_lost_batch_axis_is_another_matter_than_a_lost_axis() -> None:
    first, second = MODEL.inputs
    batch = replace(MODEL, inputs=(replace(first, shape=(1, 3)), replace(second, shape=(1, 3))))
    assert [(o.code, o.evidence["batch"]) for o in bind("litert", MODEL, opened(batch))[1]] == [("KP212", 1)]
    assert opened(batch).batch == 1
    free = replace(MODEL, inputs=(replace(first, shape=(None, None)), second))
    assert [(o.code, o.place, o.evidence["axes"]) for o in bind("litert", free, opened())[1]] == [("KP206", "b", [1])]


@pytest.mark.parametrize(
    ("found", "parameters", "told"),
    [(0, 0, False), (0, LEAST_PARAMETERS - 1, False), (0, LEAST_PARAMETERS, True), (249, 1000, True), (250, 1000, False), (5000, 1000, False)],
)
def test_lost_weights(found: int, parameters: int, told: bool) -> None:
    assert bool(compare_size("onnx", opened(parameters=found), parameters)) is told


def test_a_files_digest_is_plain_and_a_folders_knows_names(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "b").write_bytes(b"12")
    (tmp_path / "one" / "a").write_bytes(b"3")
    assert digest(tmp_path / "one" / "b") == hashlib.sha256(b"12").hexdigest()
    before = digest(tmp_path / "one")
    assert size(tmp_path / "one") == 3
    (tmp_path / "one" / "a").rename(tmp_path / "one" / "c")
    assert digest(tmp_path / "one") != before
    (tmp_path / "one" / "c").rename(tmp_path / "one" / "a")
    assert digest(tmp_path / "one") == before
    (tmp_path / "one" / "a").write_bytes(b"4")
    assert digest(tmp_path / "one") != before


def test_a_folder_with_a_link_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="plain file"):
        digest(tmp_path / "one")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Cannot do it.\n\nArguments received by Dense.call():\n  x=1", "Cannot do it."),
        ("<class X> could not be deserialized properly.\n\nconfig={'a': 1}.\n\nException encountered: No such thing. Full object config: {}", "No such thing."),
        ("A total of 2 objects could not be loaded. Example error message for object <Dense>:\n\nLayer has 0 variables\n\nList of objects that could not be loaded:\n[]", "Layer has 0 variables"),
        ("", "ValueError"),
    ],
)  # fmt: skip
def test_telling_line(text: str, line: str) -> None:
    assert telling_line(ValueError(text)) == line


@given(st.text(max_size=2000))
def test_telling_line_is_one_short_line(text: str) -> None:
    line = telling_line(ValueError(text))
    assert len(line) <= 400
    assert "\n" not in line


def test_the_converters_reason_is_one_line_with_its_ops() -> None:
    text = """<unknown>:0: error: loc(callsite(fused["Erfinv:", "m/erfinv/Erfinv@f"] at fused["C:", "C"])): 'tf.Erfinv' op is neither a custom op nor a flex op
<unknown>:0: note: loc(fused["C:", "C"]): called from
<unknown>:0: error: failed while converting: 'main':
Details:
\ttf.Erfinv(tensor<?x8xf32>) -> (tensor<?x8xf32>) : {device = ""}
"""
    assert _reason(text) == ("'tf.Erfinv' op is neither a custom op nor a flex op", ["Erfinv"])
    assert _reason("") == ("no reason given", [])


@pytest.mark.parametrize(
    ("kind", "op", "layers"),
    [
        ("openvino_ir", "Convolution", ["conv"]),
        ("openvino_ir", "Swish", ["act"]),
        ("openvino_ir", "Softmax", ["head"]),
        ("openvino_ir", "Add", ["head", "conv"]),
        ("openvino_ir", "Constant", []),
        ("litert", "FULLY_CONNECTED", ["head"]),
        ("litert", "LOGISTIC", ["act"]),
        ("onnx", "Gemm", ["head"]),
        ("onnx", "Transpose", []),
        ("saved_model", "MatMul", ["head"]),
        ("saved_model", "Gemm", []),
    ],
)
def test_an_op_of_a_format_is_led_back_to_its_layers(kind: str, op: str, layers: list[str]) -> None:
    known = {"Conv2D": ["conv"], "Sigmoid": ["act"], "MatMul": ["head"], "BiasAdd": ["head", "conv"], "Softmax": ["head"]}
    assert layers_of(kind, op, known) == layers
