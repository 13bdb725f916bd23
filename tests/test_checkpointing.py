"""Checkpoints, the parts that need no Keras: files, cadence, order, what a training is of."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kpipe.cli.checkpoint import run_checkpoint
from kpipe.cli.train import cadence
from kpipe.errors import KpipeError, UsageError
from kpipe_stages.checkpointing import files
from kpipe_stages.checkpointing.keeper import AUTO_FLOOR_S, AUTO_SHARE, is_due
from kpipe_stages.checkpointing.ordered import NotArraysError, as_arrays, epoch_order, leaves
from kpipe_stages.checkpointing.record import CHECKPOINT_VERSION, CheckpointRecord, StoredArray, Witness
from kpipe_stages.checkpointing.subject import changed
from kpipe_stages.protocol import Cadence, Preserved, StageError

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, np.dtype[Any]]


def record(arrays: Sequence[Array], batch: int = 1) -> CheckpointRecord:
    rows = tuple(StoredArray("model", f"v{i}", tuple(a.shape), a.dtype.name) for i, a in enumerate(arrays))
    witness = Witness(2, "a", "b", float("nan"), "")
    return CheckpointRecord(
        CHECKPOINT_VERSION, "2026-03-02T10:15:00+00:00", 0, batch, 9, {"the seed": "1"}, {}, rows, {"python": []}, (), 0.5, witness, ()
    )


DTYPES = st.sampled_from(("float32", "float64", "float16", "int64", "uint32", "bool", "int8"))


@given(st.lists(DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))), max_size=4))
def test_what_is_written_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, arrays: list[Array]) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    files.write(folder, 7, record(arrays), arrays)
    found = files.newest(folder)
    assert found.folder.name == "000000000007"
    assert [(a.dtype, a.shape, a.tobytes()) for a in found.arrays] == [(a.dtype, a.shape, a.tobytes()) for a in arrays]
    assert found.record.arrays == record(arrays).arrays


def test_bfloat16_comes_back(tmp_path: Path) -> None:
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    files.write(tmp_path, 1, record([array]), [array])
    (found,) = files.newest(tmp_path).arrays
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_two_are_kept_and_what_was_left_half_done_goes(tmp_path: Path) -> None:
    (tmp_path / ".5.1.tmp").mkdir()
    (tmp_path / "notes").mkdir()
    for steps in (9, 10, 11):
        files.write(tmp_path, steps, record([]), [])
    assert [place.name for place in files.checkpoints(tmp_path)] == ["000000000011", "000000000010"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000010", "000000000011", "notes"]
    files.remove(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


@given(st.integers(0, 10**6), st.data())
def test_any_single_bit_that_flips_is_found(tmp_path_factory: pytest.TempPathFactory, seed: int, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    array = np.random.default_rng(seed).normal(size=6)
    files.write(folder, 1, record([array]), [array])
    file = folder / "000000000001" / data.draw(st.sampled_from((files.STATE, files.RECORD, files.SUMS)))
    content = bytearray(file.read_bytes())
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(bytes(content))
    with pytest.raises((files.DamagedError, StageError)):
        files.read(folder / "000000000001")


def test_every_bit_of_the_digests_themselves_counts(tmp_path: Path) -> None:
    """A line that ends with ``\\v`` in place of ``\\n`` is still a line to Python's ``splitlines``."""
    files.write(tmp_path, 1, record([]), [])
    file = tmp_path / "000000000001" / files.SUMS
    whole = file.read_bytes()
    for bit in range(len(whole) * 8):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bytes(content))
        with pytest.raises(files.DamagedError):
            files.read_record(file.parent)


def test_the_command_checks_every_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.keras"
    folder = files.folder_of(model)
    folder.mkdir()
    kept = replace(record([]), preserved=(Preserved("weights", "yes", "12 arrays"),), notes=("the processor changed",))
    for steps in (1, 2):
        files.write(folder, steps, kept, [])
    assert run_checkpoint(model, as_json=False) == 0
    said = capsys.readouterr().out
    assert "000000000002: written 2026-03-02T10:15:00+00:00, every byte as it was written" in said
    assert "weights  yes        12 arrays" in said
    assert "not bit for bit an uninterrupted run: the processor changed" in said
    (folder / "000000000002" / files.STATE).write_bytes(b"")
    assert run_checkpoint(folder, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["checkpoint"].endswith("000000000001")
    assert told["damaged"][0].startswith("000000000002: state.npz has SHA-256")
    (folder / "000000000001" / files.STATE).write_bytes(b"")
    with pytest.raises(KpipeError, match=r"every checkpoint in .* is damaged"):
        run_checkpoint(model, as_json=False)
    with pytest.raises(UsageError, match="there is no checkpoint in"):
        run_checkpoint(tmp_path / "other.keras", as_json=False)


def hold(folder: str, ready: Any, done: Any) -> None:
    with files.held(Path(folder)):
        files.write(Path(folder), 1, record([]), [])
        ready.set()
        done.wait(30)


def test_another_training_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOCK_WAIT_S", 0.2)
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=hold, args=(str(tmp_path), ready, done))
    other.start()
    assert ready.wait(60)
    with pytest.raises(StageError, match="another training is at work in it"), files.held(tmp_path):
        raise AssertionError("it was let in")
    done.set()
    other.join(30)
    with files.held(tmp_path):
        assert [place.name for place in files.checkpoints(tmp_path)] == ["000000000001"]


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StageError, match="can't be written to"), files.held(tmp_path / "file" / "checkpoints"):
        raise AssertionError("it was made")


@given(st.floats(0, 1e5), st.floats(0, 100))
def test_auto_costs_a_hundredth_at_most(seconds: float, cost: float) -> None:
    due = is_due(Cadence("auto"), steps=1, epochs=0, seconds=seconds, last_cost_s=cost)
    assert due == (seconds >= AUTO_FLOOR_S and cost <= AUTO_SHARE * seconds * (1 + 1e-12))


def test_the_other_cadences() -> None:
    assert is_due(Cadence("steps", 3), steps=3, epochs=0, seconds=0, last_cost_s=9)
    assert not is_due(Cadence("steps", 3), steps=2, epochs=1, seconds=99, last_cost_s=0)
    assert is_due(Cadence("epochs", 1), steps=1, epochs=1, seconds=0, last_cost_s=9)
    assert not is_due(Cadence("epochs", 2), steps=99, epochs=1, seconds=99, last_cost_s=0)
    assert not is_due(Cadence("off"), steps=99, epochs=9, seconds=99, last_cost_s=0)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("auto", Cadence()),
        ("off", Cadence("off")),
        ("500 steps", Cadence("steps", 500)),
        ("1 epoch", Cadence("epochs", 1)),
        ("2epochs", Cadence("epochs", 2)),
    ],
)
def test_what_the_option_says(words: str, expected: Cadence) -> None:
    assert cadence(words) == expected


@pytest.mark.parametrize("words", ["", "5", "0 steps", "-1 steps", "1 hour", "never", "5 steps please"])
def test_what_the_option_cannot_say(words: str) -> None:
    with pytest.raises(UsageError, match="is not 'auto', 'off', '500 steps' or '2 epochs'"):
        cadence(words)


@given(st.integers(0, 2**32), st.integers(0, 1000), st.integers(1, 200))
def test_an_epoch_has_every_row_once_and_always_in_that_order(seed: int, epoch: int, rows: int) -> None:
    order = epoch_order(seed, epoch, rows)
    assert sorted(order) == list(range(rows))
    assert (order == epoch_order(seed, epoch, rows)).all()


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(epoch_order(seed, epoch, 40)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_data_is_arrays_in_any_nesting() -> None:
    data = {"a": np.zeros((3, 2)), "b": [np.zeros(3, np.int32), (1, 2, 3)], "c": None}
    made = as_arrays(data, "float32")
    assert {name: (str(array.dtype), array.shape) for name, array in leaves(made, "x").items()} == {
        "x[a]": ("float32", (3, 2)),
        "x[b][0]": ("int32", (3,)),
        "x[b][1]": ("int64", (3,)),
    }


@pytest.mark.parametrize("data", [iter(()), np.array(["a"]), np.array([object()]), np.float32(1), lambda: 0, "text"])
def test_what_has_no_known_order_is_said(data: object) -> None:
    with pytest.raises(NotArraysError):
        as_arrays({"x": data}, "float32")


def test_what_changed_is_named() -> None:
    before = {"the seed": "1", "recipe file a.py": "0" * 64, "data x": f"float32 (3,) {'1' * 64}", "gone": "x"}
    now = {"the seed": "2", "recipe file a.py": "0" * 64, "data x": f"float32 (4,) {'2' * 64}", "new": "y"}
    assert changed(before, now) == [
        "data x changed from float32 (3,) 111111111111... to float32 (4,) 222222222222...",
        "gone is gone",
        "new is new",
        "the seed changed from 1 to 2",
    ]
    assert changed(before, before) == []
