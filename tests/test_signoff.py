"""The sign-off profile: more repeats, more batch sizes, every position of a batch; and what of it was not run is unchecked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpipe
from kpipe.contract import Contract, parse_contract
from kpipe.errors import UsageError
from kpipe.judging.again import adapt
from kpipe.judging.company import position_sentence
from kpipe.judging.judge import judge
from kpipe.profiles import DEFAULT, SIGNOFF
from kpipe.record import CellStatus, Verdict
from kpipe_stages.arrangement import ALL_POSITIONS, Arrangement, arrangements, batches_of, lonely, place_of, positions, shuffled

from .sample_gate import codes as codes_of
from .sample_gate import findings, states
from .sample_run import CONTRACT, SCORES, Bench, answers, codes, found, row
from .sample_worker import python

if TYPE_CHECKING:
    from pathlib import Path

N = len(SCORES)
SIGNED = CONTRACT + "run.profile = 'signoff'\n[targets.litert]\n"
MODES = SIGNOFF.modes(Contract())

kinds_of_rows = st.lists(st.sampled_from("abc"), min_size=1, max_size=30)
sizes = st.lists(st.integers(2, 40), min_size=1, max_size=4)

# ---------------------------------------------------------------- planning


@given(kinds_of_rows, st.integers(2, 12), st.data())
def test_every_row_counts_once_at_the_position_beside_its_kind(kinds: list[str], size: int, data: Any) -> None:
    rows = {3 * index + 1: kind for index, kind in enumerate(kinds)}
    position = data.draw(st.integers(0, size - 1))
    batches = batches_of(Arrangement("", size, position), rows)
    assert all(counted == (position,) and len(batch) == size for batch, counted in batches)
    assert Counter(batch[position] for batch, _ in batches) == Counter(list(rows))
    assert all(len({rows[row] for row in batch}) == 1 for batch, _ in batches)
    for batch, _ in batches:  # company is as different as the kind allows
        assert len(set(batch)) == min(size, kinds.count(rows[batch[0]]))


@given(kinds_of_rows, st.integers(2, 12))
def test_shuffled_batches_hold_every_row_once_in_another_order(kinds: list[str], size: int) -> None:
    rows = dict(enumerate(kinds))
    batches = batches_of(Arrangement("", size, None), rows)
    assert all(len(batch) == size and len({rows[row] for row in batch}) == 1 for batch, _ in batches)
    counted = [batch[at] for batch, which in batches for at in which]
    assert Counter(counted) == Counter(list(rows))
    for kind in set(kinds):
        plain, other = [row for row in rows if rows[row] == kind], [row for row in counted if rows[row] == kind]
        assert (plain == other) == (len(plain) == 1)


@given(st.lists(st.integers(), unique=True, max_size=20))
def test_another_order_is_the_same_each_time(rows: list[int]) -> None:
    assert shuffled(rows) == shuffled(rows)
    assert sorted(shuffled(rows)) == sorted(rows)


@given(sizes, st.none() | st.integers(1, 40))
def test_the_arrangements_that_are_owed(sizes: list[int], fixed: int | None) -> None:
    found = arrangements(sizes, fixed)
    usable = sizes if fixed is None else [fixed]
    if max(usable) == 1:
        assert found == ()
        return
    assert {a.size for a in found if a.position is not None} == {min(usable)}
    assert [a.position for a in found if a.position is not None] == list(positions(min(usable)))
    assert {a.size for a in found if a.position is None} == {min(usable), max(usable)}
    assert len({a.mode for a in found}) == len(found)
    for a in found:
        assert place_of(a.mode) == (None if a.position is None else (a.position + 1, a.size))


def test_small_batches_are_tried_at_every_position_and_large_ones_at_three() -> None:
    assert positions(3) == (0, 1, 2)
    assert positions(ALL_POSITIONS) == tuple(range(ALL_POSITIONS))
    assert positions(16) == (0, 8, 15)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(2, 5), st.none() | st.just(1))
def test_a_row_is_lonely_where_nothing_else_stood_beside_it(contents: list[int], size: int, position: int | None) -> None:
    tensors = dict(enumerate(contents))
    batches = batches_of(Arrangement("", size, position), dict.fromkeys(tensors, "one shape"))
    alone = lonely(batches, tensors)
    for batch, counted in batches:
        for at in counted:
            assert (batch[at] in alone) == (len({tensors[mate] for mate in batch}) == 1)


def test_what_the_profiles_owe() -> None:
    assert DEFAULT.modes(Contract()) == ("alone", "batch_3", "batch_8")
    assert DEFAULT.modes(Contract(), 1) == ("alone",)
    assert SIGNOFF.modes(Contract(), 1) == ("alone",)
    positions_of_3 = ("position_1_of_3", "position_2_of_3", "position_3_of_3")
    assert ("alone", "batch_3", "batch_8", "batch_2", "batch_5", "batch_16", *positions_of_3, "shuffled_3", "shuffled_8") == MODES
    assert SIGNOFF.modes(Contract(), 2) == ("alone", "batch_2", "position_1_of_2", "position_2_of_2", "shuffled_2")


# ---------------------------------------------------------------- judging


def signed(folder: Path, text: str = SIGNED, **targets: Any) -> Bench:
    """A run that did all that sign-off asks."""
    full = {"modes": MODES, "repeats": SIGNOFF.repeats}
    return Bench(folder, text=text, reference=answers(**full), targets={"litert": answers(**full)} | targets)


def test_a_run_that_did_all_of_it_passes(tmp_path: Path) -> None:
    record = signed(tmp_path).judge()
    assert (record.verdict, record.profile) == (Verdict.PASS, "signoff")
    assert row(record).cells.passed == len(MODES) * N


def test_a_default_run_judged_by_a_sign_off_contract_is_unchecked(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.judge().verdict is Verdict.PASS
    loaded = bench.loaded(SIGNED)
    record = judge(tmp_path, loaded, adapt(bench.evidence(), bench.loaded(), loaded))
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).status is CellStatus.UNCHECKED
    assert row(record).cells.unchecked == (len(MODES) - 3) * N
    assert {f.target for f in record.findings if f.code == "KP314"} == {"reference", "litert"}


def test_a_run_made_for_sign_off_is_never_judged_by_less(tmp_path: Path) -> None:
    bench = Bench(tmp_path, changes={"profile": "signoff"})
    record = bench.judge(CONTRACT + "[targets.litert]\n")
    assert (record.verdict, record.profile) == (Verdict.INCOMPLETE, "signoff")


@pytest.mark.parametrize("left_out", [mode for mode in MODES if mode != "alone"])
def test_one_way_of_running_that_is_missing_is_unchecked(tmp_path: Path, left_out: str) -> None:
    some = tuple(mode for mode in MODES if mode != left_out)
    record = signed(tmp_path, litert=answers(modes=some, repeats=SIGNOFF.repeats)).judge()
    assert (record.verdict, row(record).cells.unchecked) == (Verdict.INCOMPLETE, N)


def test_fewer_repeats_than_the_profile_asks_for_are_unchecked(tmp_path: Path) -> None:
    record = signed(tmp_path, litert=answers(modes=MODES, repeats=SIGNOFF.repeats - 1)).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert "4 more times; the profile 'signoff' asks for 5" in found(record, "KP314").cause


@pytest.mark.parametrize(("profile", "verdict"), [("default", Verdict.PASS), ("signoff", Verdict.FAIL)])
def test_another_bit_in_a_repeat_fails_in_sign_off_only(tmp_path: Path, profile: str, verdict: Verdict) -> None:
    noisy = answers(modes=MODES, repeats=SIGNOFF.repeats, repeats_equal=False, repeat_difference=1e-9)
    record = signed(tmp_path, SIGNED.replace("signoff", profile), litert=noisy).judge()
    assert record.verdict is verdict
    assert ("KP416" in codes(record)) == (verdict is Verdict.FAIL)


def test_a_target_wrong_at_two_positions_is_told_where(tmp_path: Path) -> None:
    wrong = answers(modes=MODES, repeats=SIGNOFF.repeats)
    for mode in ("position_2_of_3", "position_3_of_3"):
        wrong.modes[mode]["y"][4] = wrong.modes[mode]["y"][4] + np.float32(0.01)
    record = signed(tmp_path, litert=wrong).judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).cells.failed == 2
    cause = found(record, "KP408").cause
    assert "there are other ones at positions 2, 3 of a batch of 3, and the right ones at 1." in cause
    assert row(record).edge is not None
    assert row(record).edge.name == "batch"  # type: ignore[union-attr]


def test_a_decision_that_depends_on_the_position_fails_though_the_flip_is_allowed(tmp_path: Path) -> None:
    """Within a wide tolerance and an allowed flip the numbers pass; the same input still gets two decisions."""
    text = "[agreement]\nmax_flips = 2\ntolerance = { atol = 0.5, rtol = 0.0 }\n[run]\nprofile = '{profile}'\n[decision]\nrule = 'argmax'\noutput = 'y'\n[targets.litert]\n"
    wrong = answers(modes=MODES, repeats=SIGNOFF.repeats)
    wrong.modes["position_2_of_3"]["y"][3] = np.array([0.4, 0.5, 0.1], np.float32)
    record = signed(tmp_path, text.replace("{profile}", "default"), litert=wrong).judge()
    assert record.verdict is Verdict.PASS
    record = signed(tmp_path, text.replace("{profile}", "signoff"), litert=wrong).judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).cells.failed == 1
    assert "1 of 6 inputs are decided otherwise in company than alone (in-3; in position_2_of_3)" in found(record, "KP408").cause


def test_a_reference_that_depends_on_the_position_is_told(tmp_path: Path) -> None:
    bench = signed(tmp_path)
    assert bench.reference is not None
    bench.reference.modes["position_3_of_3"]["y"][0] = SCORES[1]
    record = bench.judge()
    assert record.verdict is Verdict.FAIL
    causes = [f.cause for f in record.findings if f.code == "KP413"]
    assert any("otherwise in position_3_of_3 than alone" in cause for cause in causes)
    assert any("decided otherwise in company than alone (in-0; in position_3_of_3)" in cause for cause in causes)


def test_an_artifact_for_one_row_owes_no_positions(tmp_path: Path) -> None:
    lone = answers(modes=("alone",), fixed_batch=1, repeats=SIGNOFF.repeats)
    bench = signed(tmp_path, litert=lone)
    bench.artifacts = {"litert": {"batch": 1}}
    assert bench.judge().verdict is Verdict.PASS


def test_positions_in_words() -> None:
    assert position_sentence(["batch_3", "shuffled_8"], MODES) == ""
    assert "at position 2 of a batch of 3, and the right ones at 1, 3." in position_sentence(["position_2_of_3"], MODES)
    assert "which are all that were tried." in position_sentence(["position_1_of_1"], ["position_1_of_1"])


def test_profiles_are_known_by_name(tmp_path: Path) -> None:
    with pytest.raises(kpipe.KpipeError, match=r"run\.profile is 'strict'"):
        parse_contract("run.profile = 'strict'", "kpipe.toml")
    with pytest.raises(UsageError, match=r"--profile signof: no such profile \(did you mean 'signoff'\?\)"):
        kpipe.validate(tmp_path / "m.keras", profile="signof")


# ---------------------------------------------------------------- real runtimes


MAKE = """
import sys, numpy as np, keras, onnx
from onnx import TensorProto as T, helper as h, numpy_helper
folder = sys.argv[1]
rng = np.random.default_rng(0)
x = keras.Input((2,), name="x")
model = keras.Model(x, keras.layers.Dense(3, name="scores")(x))
weights, bias = rng.normal(size=(2, 3)).astype("float32"), rng.normal(size=3).astype("float32")
model.set_weights([weights, bias])
model.save(f"{folder}/model.keras")
golden = rng.normal(size=(6, 2)).astype("float32")
golden[0, 0] = 7.0
np.savez(f"{folder}/golden.npz", x=golden)

def save(name, extra, constants):
    nodes = [h.make_node("MatMul", ["x", "w"], ["product"]), h.make_node("Add", ["product", "b"], ["right"]), *extra]
    known = {"w": weights, "b": bias, **constants}
    graph = h.make_graph(
        nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["n", 2])], [h.make_tensor_value_info("scores", T.FLOAT, ["n", 3])],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in known.items()],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), f"{folder}/{name}.onnx")

save("right", [h.make_node("Identity", ["right"], ["scores"])], {})
save("first", [h.make_node("CumSum", ["right", "zero"], ["scores"])], {"zero": np.int64(0)})  # each row gets all rows before it
seven_elsewhere = [  # an input whose first number is above 5 gets another answer anywhere but in the first row
    h.make_node("Gather", ["x", "index"], ["first"], axis=1),
    h.make_node("Sub", ["first", "five"], ["above"]),
    h.make_node("Relu", ["above"], ["bump"]),
    h.make_node("Mul", ["first", "none"], ["zeros"]),
    h.make_node("Add", ["zeros", "one"], ["ones"]),
    h.make_node("CumSum", ["ones", "zero"], ["at"], exclusive=1),
    h.make_node("Mul", ["bump", "at"], ["wrong"]),
    h.make_node("Add", ["right", "wrong"], ["scores"]),
]
float32 = np.float32
save("elsewhere", seven_elsewhere, {"index": np.array([0]), "five": float32(5), "none": float32(0), "one": float32(1), "zero": np.int64(0)})
five = [
    h.make_node("Shape", ["x"], ["n"], end=1),
    h.make_node("Equal", ["n", "size"], ["is"]),
    h.make_node("Cast", ["is"], ["wrong"], to=T.FLOAT),
    h.make_node("Add", ["right", "wrong"], ["scores"]),
]
save("five", five, {"size": np.array([5])})
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    python(MAKE, folder, "tensorflow")
    return folder


def validated(made: Path, out: Path, profile: str) -> kpipe.Run:
    """Four artifacts handed in for one model, each a target."""
    names = ("right", "first", "elsewhere", "five")
    targets = "".join(f'[targets.{name}]\nruntime = "onnxruntime"\nartifact = "{made / name}.onnx"\n' for name in names)
    contract = out.with_suffix(".toml")
    contract.write_text(
        f"[model]\nbackend = 'tensorflow'\n[decision]\nrule = 'argmax'\n[timing]\ncalls = 0\nend_to_end_calls = 0\n{targets}", encoding="utf-8"
    )
    return kpipe.validate(made / "model.keras", contract=contract, golden=made / "golden.npz", out=out, profile=profile)


@pytest.mark.runtimes
def test_sign_off_says_where_the_default_profile_sees_at_most_that(made: Path, tmp_path: Path) -> None:
    usual = validated(made, tmp_path / "usual", "default").record
    assert states(usual) == {"right": "pass", "first": "fail", "elsewhere": "fail", "five": "fail"}
    for name in ("elsewhere", "five"):  # a batch of 5 is one of the sizes that are tried; which inputs it is about is not said
        assert {f.code for f in usual.findings if f.target == name and f.severity == "error"} == {"KP241"}
    assert usual.profile == "default"
    run = validated(made, tmp_path / "signoff", "signoff")
    record = run.record
    assert states(record) == {"right": "pass", "first": "fail", "elsewhere": "fail", "five": "fail"}
    assert (record.profile, row(record, "right").modes) == ("signoff", MODES)
    assert not {"KP409", "KP413", "KP314"} & codes_of(record)
    (first,) = [f for f in findings(record, "KP408", "first") if "differs" in f.cause]
    assert "other ones at positions 2, 3 of a batch of 3, and the right ones at 1." in first.cause
    (elsewhere,) = [f for f in findings(record, "KP408", "elsewhere") if "differs" in f.cause]
    assert set(elsewhere.evidence["modes"]) >= {"position_2_of_3", "position_3_of_3"}
    assert "batch_3" not in elsewhere.evidence["modes"]
    (five,) = [f for f in findings(record, "KP408", "five") if "differs" in f.cause]
    assert set(five.evidence["modes"]) == {"batch_5"}
    again = kpipe.judge(run.folder, write=False).record
    assert (again.verdict, again.profile, again.targets) == (record.verdict, "signoff", tuple(record.targets))
    assert replace(again, findings=()) == replace(record, findings=())
