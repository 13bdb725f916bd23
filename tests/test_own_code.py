"""``decode = "module:function"`` and ``tensors = "file.npz"``: the user's own code and tensors, with every way in which they can be wrong."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe_stages import prepare
from kpipe_stages.codec import encode
from kpipe_stages.preprocess import PreprocessError, Preprocessor
from kpipe_stages.preprocessing.function import check_function
from kpipe_stages.protocol import PROTOCOL, GoldenItem, InputSpec, Job, PrepareJob, PrepareResult, StageError
from kpipe_stages.recipe import contract_inputs
from kpipe_stages.rows import Rows
from kpipe_stages.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_module_stays() -> Iterator[None]:
    """Each test loads files of the same names."""
    modules, finders = set(sys.modules), list(sys.meta_path)
    yield
    for name in set(sys.modules) - modules:
        if hasattr(sys.modules[name], "__kpipe_sha256__"):
            del sys.modules[name]
    sys.meta_path[:] = finders


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    channel = os.open(os.devnull, os.O_WRONLY)
    (tmp_path / "stage").mkdir()
    yield Worker("prepare", tmp_path / "stage", channel)
    os.close(channel)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def code(folder: Path, text: str, decode: str = "own_serving:load", steps: tuple[dict[str, Any], ...] = (), **others: str) -> InputSpec:
    """A spec with its files written."""
    files = {}
    for name, content in {f"{decode.partition(':')[0]}.py": text, **others}.items():
        path = folder / name.replace("__", ".")
        path.write_text(content, encoding="utf-8")
        files[str(path)] = sha256(path)
    return InputSpec("x", decode, steps, files=files)


def raw(folder: Path, count: int = 3) -> tuple[GoldenItem, ...]:
    items = []
    for i in range(count):
        path = folder / f"g{i}.bin"
        path.write_bytes(bytes([i, i + 1]))
        items.append(GoldenItem(f"g{i}", {"x": str(path)}, {"x": sha256(path)}))
    return tuple(items)


def run(worker: Worker, items: tuple[GoldenItem, ...], spec: InputSpec) -> PrepareResult:
    return prepare.run(Job(PROTOCOL, "prepare", "t", str(worker.folder), encode(PrepareJob(items, (spec,)))), worker)


def refusal(worker: Worker, items: tuple[GoldenItem, ...], spec: InputSpec) -> str:
    """What is said where nothing could be prepared."""
    with pytest.raises(StageError) as caught:
        run(worker, items, spec)
    found = caught.value.observation
    assert found.code == "KP112"
    assert found.remedy
    return found.cause


READS = (
    "import numpy as np\nfrom pathlib import Path\ndef load(path):\n    return np.frombuffer(Path(path).read_bytes(), np.uint8).astype(np.float32)\n"
)


def test_the_function_gets_the_file_and_its_array_is_the_tensor(worker: Worker, tmp_path: Path) -> None:
    result = run(worker, raw(tmp_path), code(tmp_path, READS))
    assert (result.bad_rows, result.dtypes, result.shapes) == ((), {"x": "float32"}, {"x": ((2,),)})
    assert [row.tolist() for row in Rows(worker.folder / "tensors" / "0")] == [[0, 1], [1, 2], [2, 3]]


def test_steps_and_dtype_come_after_the_function(worker: Worker, tmp_path: Path) -> None:
    run(worker, raw(tmp_path), code(tmp_path, READS, steps=({"scale": 0.5}, {"offset": 1})))
    assert Rows(worker.folder / "tensors" / "0")[2].tolist() == [2.0, 2.5]


def test_named_files_import_one_another_and_others_are_not_found(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 2\n", encoding="utf-8")
    helped = code(tmp_path, "from own_helper import twice\n" + READS.replace("return ", "return twice * "), **{"own_helper.py": "twice = 2\n"})
    run(worker, raw(tmp_path), helped)
    assert Rows(worker.folder / "tensors" / "0")[1].tolist() == [2, 4]
    alone = code(tmp_path, "from beside import VALUE\n" + READS, decode="own_other:load")
    cause = refusal(worker, raw(tmp_path), alone)
    assert "own_other.py:1" in cause
    assert "No module named 'beside'" in cause


def test_bytes_in_memory_become_a_file_for_the_call(tmp_path: Path) -> None:
    preprocess = Preprocessor(code(tmp_path, READS))
    assert preprocess.from_bytes(b"\x05\x06", "photo.bin").tolist() == [5, 6]


def test_a_buffer_that_is_filled_anew_is_not_shared(tmp_path: Path) -> None:
    text = "import numpy as np\nheld = np.zeros(1)\ndef load(path):\n    held[0] = ord(path[-5])\n    return held\n"
    preprocess = Preprocessor(code(tmp_path, text))
    items = raw(tmp_path)
    rows = [preprocess.from_path(item.files["x"]) for item in items]
    assert [float(row[0]) for row in rows] == [48.0, 49.0, 50.0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return [1.0, 2.0]", ("load() of", "returned a list", "a NumPy array")),
        ("return None", ("returned a NoneType",)),
        ("return np.array([object()])", ("returned values of dtype object",)),
        ("return np.array([1j])", ("values of dtype complex128",)),
        ("return np.zeros((0, 3))", ("an empty array of shape (0, 3)",)),
        ("raise ValueError('mode I;16')", ("own_serving.py:3", "load('", "raised ValueError: mode I;16")),
        ("raise SystemExit(0)", ("raised SystemExit",)),
        ("return load(path)", ("raised RecursionError",)),
        ("import not_installed_anywhere", ("raised ModuleNotFoundError", "not_installed_anywhere")),
    ],
)
def test_what_the_function_does_wrong_is_said_with_place_and_golden_input(worker: Worker, tmp_path: Path, body: str, words: tuple[str, ...]) -> None:
    items = raw(tmp_path)
    cause = refusal(worker, items, code(tmp_path, f"import numpy as np\ndef load(path):\n    {body}\n"))
    assert "golden input 'g2'" in cause
    assert "'x'" in cause
    assert items[2].files["x"] in cause
    assert all(word in cause for word in words), cause
    assert [o.place for o in worker.observations] == ["g0", "g1"]


def test_one_bad_file_leaves_the_others(worker: Worker, tmp_path: Path) -> None:
    text = READS.replace("    return", "    if '1' in path[-5:]: raise OSError('torn')\n    return")
    result = run(worker, raw(tmp_path), code(tmp_path, text))
    assert result.bad_rows == (1,)
    ((only),) = worker.observations
    assert (only.code, only.place) == ("KP112", "g1")
    assert "OSError: torn" in only.cause


def test_rows_of_another_rank_are_refused(worker: Worker, tmp_path: Path) -> None:
    text = "import numpy as np\ndef load(path):\n    return np.ones(2) if '1' in path[-5:] else np.ones((1, 2))\n"
    result = run(worker, raw(tmp_path), code(tmp_path, text))
    assert result.bad_rows == (1,)
    assert worker.observations[0].code == "KP104"


def test_a_raw_file_that_the_function_changes_is_altered(worker: Worker, tmp_path: Path) -> None:
    text = READS.replace("    return", "    Path(path).write_bytes(b'xy')\n    return")
    with pytest.raises(StageError) as caught:
        run(worker, raw(tmp_path), code(tmp_path, text))
    assert caught.value.observation.code == "KP102"


@pytest.mark.parametrize("fault", ["changed", "gone", "syntax", "import", "function", "value", "helper"])
def test_code_that_is_not_what_was_named_is_refused_before_it_runs(worker: Worker, tmp_path: Path, fault: str) -> None:
    ran = tmp_path / "ran"
    text = {
        "syntax": "def load(path:\n",
        "import": "raise RuntimeError('no license')\n",
        "function": READS.replace("def load", "def lod"),
        "value": READS + "load = 3\n",
    }.get(fault, f"open({str(ran)!r}, 'w')\n" + READS)
    spec = code(tmp_path, text, **{"own_helper.py": "x = 1\n"})
    if fault in ("changed", "helper"):
        (tmp_path / ("own_serving.py" if fault == "changed" else "own_helper.py")).write_text("x = 2\n", encoding="utf-8")
    if fault == "gone":
        (tmp_path / "own_serving.py").unlink()
    cause = refusal(worker, raw(tmp_path), spec)
    assert ("own_helper.py" if fault == "helper" else "own_serving.py") in cause
    assert not ran.exists()
    expected = {"changed": "SHA-256", "helper": "SHA-256", "gone": "does not exist", "syntax": "SyntaxError", "import": "no license"}
    assert expected.get(fault, "has no function 'load'") in cause


def test_a_name_that_an_installed_module_has_is_refused(worker: Worker, tmp_path: Path) -> None:
    assert "another module 'hypothesis'" in refusal(worker, raw(tmp_path), code(tmp_path, READS, decode="hypothesis:load"))


def test_a_function_needs_sound_words() -> None:
    assert check_function("a:f", ["x/a.py"]) == ""
    for decode, files in (("a.b:f", ["a.py"]), ("a:f.g", ["a.py"]), ("a:", ["a.py"]), ("a:class", ["a.py"]), (":f", [])):
        assert "module:function" in check_function(decode, files)
    assert "no a.py" in check_function("a:f", ["a.txt"])


def test_training_gets_the_same_function(tmp_path: Path) -> None:
    code(tmp_path, READS)
    (tmp_path / "kpipe.toml").write_text(
        '[inputs.x]\ndecode = "own_serving:load"\nfiles = ["own_serving.py"]\nsteps = [{ scale = 2 }]\n', encoding="utf-8"
    )
    (item, *_) = raw(tmp_path)
    assert contract_inputs(tmp_path / "kpipe.toml")["x"].from_path(item.files["x"]).tolist() == [0, 2]
    (tmp_path / "kpipe.toml").write_text('[inputs.x]\ndecode = "own_serving:load"\nfiles = ["gone.py"]\n', encoding="utf-8")
    with pytest.raises(StageError, match="own_serving"):
        contract_inputs(tmp_path / "kpipe.toml")


# ---------------------------------------------------------------- tensors of a serving system


def served(folder: Path, **arrays: Any) -> InputSpec:
    np.savez(folder / "served.npz", **arrays)
    return InputSpec("x", "tensors", files={str(folder / "served.npz"): sha256(folder / "served.npz")})


def test_rows_are_found_by_id_and_not_by_position(worker: Worker, tmp_path: Path) -> None:
    spec = served(tmp_path, ids=["g2", "g0", "g1"], x=np.array([[2.0], [0.0], [1.0]], np.float32))
    run(worker, raw(tmp_path), spec)
    assert [row.tolist() for row in Rows(worker.folder / "tensors" / "0")] == [[0.0], [1.0], [2.0]]


X = np.zeros((3, 1), np.float32)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"ids": ["g0", "g1"], "x": X[:2]}, ("1 golden inputs have no row (g2)", "the 3 golden ids")),
        ({"ids": ["g0", "g1", "g2", "g3"], "x": np.zeros((4, 1))}, ("1 rows no golden input (g3)",)),
        ({"ids": ["g0", "g1", "g1"], "x": X}, ("'g1' stands more than once",)),
        ({"ids": ["g0", "g1", "g2"], "x": X[:2]}, ("shape (2, 1)", "as many rows")),
        ({"ids": [0, 1, 2], "x": X}, ("'ids' is int64",)),
        ({"ids": [["g0", "g1", "g2"]], "x": X}, ("shape (1, 3)",)),
        ({"ids": ["g0", "g1", "g2"], "y": X}, ("no member 'x'",)),
        ({"x": X}, ("no member 'ids'",)),
        ({"ids": ["g0", "g1", "g2"], "x": np.array([{}, {}, {}])}, ("dtype object",)),
        ({"ids": ["g0", "g1", "g2"], "x": np.float32(1)}, ("shape ()",)),
    ],
)
def test_tensors_of_other_inputs_are_refused(worker: Worker, tmp_path: Path, arrays: dict[str, Any], words: tuple[str, ...]) -> None:
    cause = refusal(worker, raw(tmp_path), served(tmp_path, **arrays))
    assert "tensors of input 'x'" in cause
    assert "served.npz" in cause
    assert all(word in cause for word in words), cause


def test_tensors_that_are_another_file_are_refused(worker: Worker, tmp_path: Path) -> None:
    spec = served(tmp_path, ids=["g0", "g1", "g2"], x=X)
    served(tmp_path, ids=["g0", "g1", "g2"], x=X + 1)
    assert "SHA-256" in refusal(worker, raw(tmp_path), spec)
    (tmp_path / "served.npz").write_bytes(b"no zip")
    assert "an .npz with the arrays 'ids' and 'x'" in refusal(
        worker, raw(tmp_path), InputSpec("x", "tensors", files={str(tmp_path / "served.npz"): ""})
    )


def test_no_preprocessor_takes_tensors() -> None:
    with pytest.raises(PreprocessError, match="tensors"):
        Preprocessor(InputSpec("x", "tensors", files={"/nowhere.npz": ""}))
