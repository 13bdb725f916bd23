"""The prepare stage: digests of the bytes that are decoded, bad rows kept apart, nothing lost."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from kpipe_stages import prepare
from kpipe_stages.codec import decode, encode, read_json, write_json
from kpipe_stages.protocol import PROTOCOL, GoldenItem, InputSpec, Job, PrepareJob, PrepareResult, Result, StageError, Status
from kpipe_stages.rows import AbsentRowError, Rows, RowsWriter, write_rows
from kpipe_stages.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = InputSpec("image", "image", ({"channels": "gray"}, {"scale": 1 / 255}))


def png(path: Path, seed: int, side: int = 4) -> str:
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side), dtype=np.uint8)).save(path)
    return str(path)


def item(name: str, **files: str) -> GoldenItem:
    digests = {key: sha256(path.split(".npz#")[0] + ".npz" if ".npz#" in path else path) for key, path in files.items()}
    return GoldenItem(name, files, digests)


def sha256(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if Path(path).is_file() else "0" * 64


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    channel = os.open(os.devnull, os.O_WRONLY)
    folder = tmp_path / "stage"
    folder.mkdir()
    yield Worker("prepare", folder, channel)
    os.close(channel)


def run(worker: Worker, items: list[GoldenItem], *inputs: InputSpec, **limits: int) -> PrepareResult:
    params = PrepareJob(tuple(items), inputs, **limits)
    return prepare.run(Job(PROTOCOL, "prepare", "t", str(worker.folder), encode(params)), worker)


def codes(worker: Worker) -> list[tuple[str, str]]:
    return [(found.code, found.place) for found in worker.observations]


def test_rows_hold_what_the_files_say(worker: Worker, tmp_path: Path) -> None:
    items = [item(f"g{i}", image=png(tmp_path / f"{i}.png", i, 4 + i % 2)) for i in range(5)]
    result = run(worker, items, IMAGE)
    rows = Rows(worker.folder / "tensors" / "0")
    for position, golden in enumerate(items):
        pixels = np.asarray(Image.open(golden.files["image"])).astype(np.float32) * np.float32(1 / 255)
        assert np.array_equal(rows[position][:, :, 0], pixels)
    assert (result.rows, result.names, result.dtypes, result.bad_rows) == (5, ("image",), {"image": "float32"}, ())
    assert set(result.shapes["image"]) == {(4, 4, 1), (5, 5, 1)}
    assert worker.observations == []


def test_bad_rows_are_named_absent_and_the_others_go_on(worker: Worker, tmp_path: Path) -> None:
    good = item("good", image=png(tmp_path / "good.png", 1))
    altered = item("altered", image=png(tmp_path / "altered.png", 2))
    png(tmp_path / "altered.png", 3)
    missing = item("missing", image=str(tmp_path / "missing.png"))
    (tmp_path / "text.png").write_text("no picture")
    large = item("large", image=png(tmp_path / "large.png", 4, 40))
    items = [altered, good, missing, item("text", image=str(tmp_path / "text.png")), large, GoldenItem("bare", {}, {})]
    result = run(worker, items, IMAGE, max_pixels=400)
    assert codes(worker) == [("KP102", "altered"), ("KP101", "missing"), ("KP103", "text"), ("KP103", "large"), ("KP105", "bare")]
    assert all(found.cause and found.remedy for found in worker.observations)
    assert (result.rows, result.bad_rows) == (6, (0, 2, 3, 4, 5))
    rows = Rows(worker.folder / "tensors" / "0")
    assert len(rows) == 6
    assert rows.absent == {0, 2, 3, 4, 5}
    assert rows[1].shape == (4, 4, 1)
    for bad in result.bad_rows:
        with pytest.raises(AbsentRowError, match="did not decode"):
            rows[bad]
    with pytest.raises(AbsentRowError):
        list(rows)


def test_a_row_is_absent_in_every_input_when_one_of_them_is_bad(worker: Worker, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1.0], np.float32))
    np.save(tmp_path / "o.npy", np.array([{}]))
    first = item("first", image=png(tmp_path / "1.png", 1), extra=str(tmp_path / "o.npy"))
    second = item("second", image=png(tmp_path / "2.png", 2), extra=str(tmp_path / "a.npy"))
    result = run(worker, [first, second], IMAGE, InputSpec("extra", "npy"))
    assert result.bad_rows == (0,)
    assert [Rows(worker.folder / "tensors" / str(i)).absent for i in range(2)] == [{0}, {0}]
    assert Rows(worker.folder / "tensors" / "1")[1].tolist() == [1.0]


def test_nothing_decoded_is_a_failure_and_leaves_no_rows(worker: Worker, tmp_path: Path) -> None:
    items = [item(name, image=str(tmp_path / name)) for name in ("a.png", "b.png")]
    with pytest.raises(StageError) as failure:
        run(worker, items, IMAGE)
    assert failure.value.observation.place == "b.png"
    assert codes(worker) == [("KP101", "a.png")]
    with pytest.raises(OSError, match="dtype"):
        Rows(worker.folder / "tensors" / "0")


def test_no_golden_inputs_and_wrong_steps_are_failures(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="0 golden inputs"):
        run(worker, [], IMAGE)
    with pytest.raises(StageError, match="Did you mean 'scale'"):
        run(worker, [item("a", image=png(tmp_path / "a.png", 1))], InputSpec("image", "image", ({"scal": 2},)))


def test_nan_is_stated_and_value_changing_casts_are_observed_once_an_input(worker: Worker, tmp_path: Path) -> None:
    values = {"a": [1.0, 2.0], "b": [np.nan, 0.0], "c": [2.5, 300.0], "d": [np.inf, 1e9]}
    for name, row in values.items():
        np.save(tmp_path / f"{name}.npy", np.array(row))
    items = [item(name, x=str(tmp_path / f"{name}.npy"), y=str(tmp_path / f"{name}.npy")) for name in "abcd"]
    result = run(worker, items, InputSpec("x", "npy"), InputSpec("y", "npy", (), "uint8"))
    assert codes(worker) == [("KP108", "y")]
    assert result.nonfinite_rows == {"x": (1, 3), "y": ()}
    assert worker.observations[0].evidence["ids"] == ["b", "c", "d"]


def test_rows_of_an_npz(worker: Worker, tmp_path: Path) -> None:
    x, names = np.arange(12, dtype=">f4").reshape(4, 3), np.array(["a", "bcd", "", "é"])
    np.savez_compressed(tmp_path / "in.npz", x=np.asfortranarray(x), names=names)
    items = [item(f"r{i}", x=f"{tmp_path}/in.npz#x#{i}", text=f"{tmp_path}/in.npz#names#{i}") for i in (2, 0, 3, 1, 4)]
    result = run(worker, items, InputSpec("x", "array"), InputSpec("text", "array"))
    assert result.dtypes == {"x": "float32", "text": "string"}
    assert result.bad_rows == (4,)
    assert codes(worker) == [("KP103", "r4")]
    rows, texts = (Rows(worker.folder / "tensors" / str(i)) for i in range(2))
    for position, index in enumerate((2, 0, 3, 1)):
        assert np.array_equal(rows[position], x[index])
        assert rows[position].dtype.isnative
        assert texts[position].item() == names[index]


def test_an_altered_npz_is_bad_in_all_its_rows(worker: Worker, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 1)))
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 1)))
    items = [item(f"{n}{i}", x=f"{tmp_path}/{n}.npz#x#{i}") for n in "ab" for i in range(2)]
    np.savez(tmp_path / "a.npz", x=np.ones((2, 1)))
    assert run(worker, items, InputSpec("x", "array")).bad_rows == (0, 1)
    assert codes(worker) == [("KP102", "a0"), ("KP102", "a1")]


def test_rows_of_another_dtype_or_rank_are_bad(worker: Worker, tmp_path: Path) -> None:
    for name, value in {"a": np.zeros(2, "f4"), "b": np.zeros(2, "f8"), "c": np.zeros((1, 2), "f4"), "d": np.array(["x", "y"])}.items():
        np.save(tmp_path / f"{name}.npy", value)
    result = run(worker, [item(n, x=str(tmp_path / f"{n}.npy")) for n in "abcd"], InputSpec("x", "npy"))
    assert result.bad_rows == (1, 2, 3)
    assert codes(worker) == [("KP104", n) for n in "bcd"]


def test_the_stage_as_a_process(tmp_path: Path) -> None:
    folder = tmp_path / "stage"
    folder.mkdir()
    params = PrepareJob((item("a", image=png(tmp_path / "a.png", 1)), item("b", image=str(tmp_path / "none.png"))), (IMAGE,))
    write_json(folder / "job.json", Job(PROTOCOL, "prepare", "token", str(folder), encode(params)))
    command = [sys.executable, "-P", "-m", "kpipe_stages", "prepare", str(folder / "job.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        events = [json.loads(line) for line in process.stdout]
        assert process.wait() == 0
    result = read_json(Result, folder / "result.json")
    assert result.status is Status.OK
    assert result.attempt == "token"
    assert [found.code for found in result.observations] == ["KP101"]
    assert decode(PrepareResult, result.data).bad_rows == (1,)
    assert result.identity is not None
    assert {"numpy", "pillow"} <= set(result.identity.versions)
    assert [event["event"] for event in events][:3] == ["started", "phase", "progress"]


# ---------------------------------------------------------------- rows


@settings(deadline=None)
@given(st.data(), st.sampled_from(["float32", ">f8", "int64", "bool", "<U4", "uint16"]), st.integers(0, 3))
def test_rows_written_one_by_one_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, dtype: str, rank: int) -> None:
    shapes = hnp.array_shapes(min_dims=rank, max_dims=rank, min_side=0, max_side=3) if rank else st.just(())
    rows: list[Any] = data.draw(
        st.lists(st.one_of(st.none(), hnp.arrays(dtype, shapes)), min_size=1, max_size=5).filter(lambda r: any(v is not None for v in r))
    )
    prefix = tmp_path_factory.mktemp("rows") / "0"
    with RowsWriter(prefix) as writer:
        for row in rows:
            writer.append_absent() if row is None else writer.append(row)
    read = Rows(prefix)
    assert len(read) == len(rows)
    assert read.absent == {i for i, row in enumerate(rows) if row is None}
    for i, row in enumerate(rows):
        if row is not None:
            assert read[i].shape == row.shape
            assert np.array_equal(read[i], row, equal_nan=row.dtype.kind == "f")


def test_a_writer_that_fails_leaves_nothing_to_read(tmp_path: Path) -> None:
    write_rows(tmp_path / "0", [np.zeros(2)])
    with pytest.raises(ValueError, match="differ in dtype or rank"):
        write_rows(tmp_path / "0", [np.zeros(2), np.zeros((2, 2))])
    with pytest.raises(OSError, match="dtype"):
        Rows(tmp_path / "0")
    with pytest.raises(ValueError, match="no rows"):
        write_rows(tmp_path / "1", [])


def test_rows_are_streamed(tmp_path: Path) -> None:
    """What is on disk after each row is what was appended: memory holds one row, not all."""
    with RowsWriter(tmp_path / "0") as writer:
        for _ in range(3):
            writer.append(np.zeros(100_000))
        assert (tmp_path / "0.values.npy").stat().st_size >= 2 * 800_000
    assert np.load(io.BytesIO((tmp_path / "0.values.npy").read_bytes())).shape == (300_000,)


def test_a_library_that_is_missing_ends_the_stage_before_any_file_and_fails_nothing(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kpipe.codes import UNCHECKED_CODES

    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(StageError) as caught:
        run(worker, [item("a", sound=png(tmp_path / "a.png", 0))], InputSpec("sound", "audio", read={"rate": 8000}))
    assert caught.value.observation.code == "KP113"
    assert "pip install 'keras-kpipe[audio]'" in caught.value.observation.remedy
    assert "KP113" in UNCHECKED_CODES


def test_a_row_of_a_table_is_held_to_the_digest_of_its_file(worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("b,a\n1,2\n3,4\n", encoding="utf-8")
    digest = sha256(str(path))
    items = [GoldenItem(f"g{row}", {"x": f"{path}#row={row}"}, {"x": digest}) for row in (1, 0, 5)]
    result = run(
        worker, [*items, GoldenItem("other", {"x": f"{path}#row=0"}, {"x": "0" * 64})], InputSpec("x", "table", read={"columns": [{"name": "a"}]})
    )
    rows = Rows(worker.folder / "tensors" / "0")
    assert [rows[at].tolist() for at in (0, 1)] == [[4.0], [2.0]]
    assert result.bad_rows == (2, 3)
    assert codes(worker) == [("KP103", "g5"), ("KP102", "other")]
