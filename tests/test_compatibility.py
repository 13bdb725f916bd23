"""The zoo is complete; a crash costs one cell; cells, pages and differences say what the workers left behind."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe.compatibility.against import differences, load, text
from kpipe.compatibility.judging import judge
from kpipe.compatibility.markdown import page
from kpipe.compatibility.result import SCHEMA, CaseRow, Cell, Status, Table, worst
from kpipe.compatibility.running import Zoo, waves
from kpipe.compatibility.table import columns
from kpipe.errors import UsageError
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import write_json
from kpipe_stages.protocol import Observation, Signature, TensorSpec
from kpipe_stages.zoo import UNITS, Case
from kpipe_stages.zoo.case import VECTOR
from kpipe_stages.zoo.excluded import ACTIVATIONS, LAYERS, OPS
from kpipe_stages.zoo.orders import EXPORT, Exported, Ran, folder_of
from kpipe_stages.zoo.values import DRAWS, ROWS, feeds

from .cases.gate import command

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = Path(__file__).parents[1] / "docs"
WALK = """
import json, keras
def names(module, prefix=''):
    return [prefix + n for n in dir(module) if not n.startswith('_')]
def aliases(module):
    seen = {}
    for n in names(module):
        seen.setdefault(id(getattr(module, n)), []).append(n)
    return list(seen.values())
print(json.dumps({
    'layers': aliases(keras.layers), 'activations': aliases(keras.activations), 'ops': [[n] for n in names(keras.ops)] +
    [['image.' + n] for n in names(keras.ops.image)],
}))
"""


@pytest.fixture(scope="module")
def public() -> dict[str, list[list[str]]]:
    """The public names of this Keras, aliases together."""
    done = subprocess.run(
        [sys.executable, "-c", WALK],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, list[list[str]]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("group", "excluded"), [("layers", LAYERS), ("activations", ACTIVATIONS), ("ops", OPS)])
def test_every_public_name_is_a_unit_or_excluded_with_a_reason(public: dict[str, list[list[str]]], group: str, excluded: Mapping[str, str]) -> None:
    units = {name for unit in UNITS if unit.group == group for name in unit.names}
    missing = [names for names in public[group] if not set(names) & (units | set(excluded))]
    assert missing == []
    known = {name for names in public[group] for name in names}
    assert set(excluded) <= known, "an exclusion that Keras doesn't have any more"
    assert units <= known, "a unit that Keras doesn't have any more"
    assert not units & set(excluded)
    assert all(len(reason) > 20 for reason in excluded.values())


def test_names_and_folders_tell_cases_apart() -> None:
    cases = [case for unit in UNITS for case in unit.cases]
    assert len({case.name for case in cases}) == len({folder_of(case.name) for case in cases}) == len(cases)
    assert all(given.draw.partition(":")[0] in DRAWS for case in cases for given in case.given)
    assert len(UNITS) >= 200
    assert {case.unit for unit in UNITS for case in unit.cases} == {unit.name for unit in UNITS}


def test_rows_of_a_batch_begin_with_the_row_that_is_run_alone_and_free_axes_change() -> None:
    case = next(case for unit in UNITS for case in unit.cases if case.name == "Conv2D: free size")
    signature = Signature((TensorSpec("x0", (None, None, None, 3), "float32"),), ())
    ways = feeds(case, signature)
    assert ways["batch"]["x0"].shape[0] == ROWS
    assert (ways["batch"]["x0"][:1] == ways["alone"]["x0"]).all()
    assert ways["size"]["x0"].shape[1] != ways["alone"]["x0"].shape[1]
    assert not (ways["batch"]["x0"][0] == ways["batch"]["x0"][1]).all()


# ---------------------------------------------------------------- judging

CASE = Case("Dense", "plain", (VECTOR,), lambda keras, x: keras.layers.Dense(4)(x))
SPEC = Signature((TensorSpec("x0", (None, 8), "float32"),), (TensorSpec("dense", (None, 4), "float32"),))


def leave(root: Path, answers: Mapping[str, Any], *, dtypes: tuple[str, ...] = ("float32",), **ways: str) -> None:
    """What workers leave behind: an export, and an answer or an outcome for each runtime."""
    folder = root / folder_of(CASE.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{EXPORT}.json", Exported(ended=True, signature=SPEC, dtypes=dtypes))
    for runtime, answer in answers.items():
        if isinstance(answer, Ran):
            write_json(folder / f"run.{runtime}.json", answer)
            continue
        write_json(folder / f"run.{runtime}.json", Ran(ended=True, ways={"alone": "", **ways}, dtypes=(str(answer.dtype),)))
        np.savez(folder / f"run.{runtime}.npz", **{"alone/0": answer})


def cells(root: Path, *runtimes: str) -> dict[str, Cell]:
    return judge(root, CASE, "layers", runtimes).cells


ONES = np.ones((1, 4), np.float32)


def test_cells_say_what_happened(tmp_path: Path) -> None:
    refused = Ran(ended=True, refusal=Observation("KP311", "it refuses", "-"))
    leave(tmp_path, {"jax": ONES, "tensorflow": ONES * (1 + 1e-6), "openvino": ONES * 1.01, "litert": Ran(ended=False), "keras_openvino": refused})
    (tmp_path / folder_of(CASE.name) / "run.litert.lost").write_text("signal SIGSEGV: nothing in the log")
    found = cells(tmp_path, "jax", "tensorflow", "openvino", "litert", "keras_openvino", "saved_model")
    assert {name: cell.status for name, cell in found.items()} == {
        "jax": Status.WORKS,
        "tensorflow": Status.WORKS,
        "openvino": Status.DIFFERS,
        "litert": Status.CRASHED,
        "keras_openvino": Status.RUN_FAILS,
        "saved_model": Status.UNCHECKED,
    }
    assert found["openvino"].drift == pytest.approx(0.01, rel=1e-3)
    assert "SIGSEGV" in found["litert"].reason
    assert found["keras_openvino"].reason == "it refuses"


def test_a_difference_that_keras_on_tensorflow_has_too_is_told_apart(tmp_path: Path) -> None:
    leave(tmp_path, {"jax": ONES, "tensorflow": ONES * 2, "openvino": ONES * 2})
    found = cells(tmp_path, "tensorflow", "openvino")
    assert found["openvino"].reason.endswith("Keras on TensorFlow says the same")
    assert "says the same" not in found["tensorflow"].reason


@pytest.mark.parametrize(
    ("answer", "words"), [(ONES * math.nan, "off by inf"), (ONES[:, :3], "shape (1, 3) for (1, 4)"), (ONES.astype(np.float16), "float16 for float32")]
)
def test_nan_shape_and_dtype_are_differences(tmp_path: Path, answer: Any, words: str) -> None:
    leave(tmp_path, {"jax": ONES, "openvino": answer})
    cell = cells(tmp_path, "openvino")["openvino"]
    assert cell.status is Status.DIFFERS
    assert words in cell.reason


def test_without_any_reference_nothing_works(tmp_path: Path) -> None:
    leave(tmp_path, {"openvino": ONES})
    assert cells(tmp_path, "openvino")["openvino"].status is Status.UNCHECKED


def test_float64_is_compared_with_the_backend_that_has_it(tmp_path: Path) -> None:
    folder = tmp_path / folder_of(CASE.name)
    leave(tmp_path, {"jax": ONES, "tensorflow": ONES.astype(np.float64), "openvino": ONES.astype(np.float64)}, dtypes=("float64",))
    write_json(folder / f"{EXPORT}.json", Exported(ended=True, signature=replace(SPEC, outputs=(TensorSpec("dense", (None, 4), "float64"),))))
    row = judge(tmp_path, CASE, "layers", ("jax", "openvino"))
    assert row.reference == "tensorflow"
    assert (row.cells["jax"].status, row.cells["openvino"].status) == (Status.DIFFERS, Status.WORKS)


def test_a_way_of_running_that_is_refused_is_a_lost_shape(tmp_path: Path) -> None:
    leave(tmp_path, {"jax": ONES})
    leave(tmp_path, {"litert": ONES}, batch="not offered")
    assert cells(tmp_path, "litert")["litert"].status is Status.NARROWED


# ---------------------------------------------------------------- the table


def table(**statuses: Cell) -> Table:
    rows = (CaseRow("Dense", "layers", "plain", ("float32",), "jax", dict(statuses)),)
    return Table(SCHEMA, {"keras": "3.15.1"}, "3.11", "avx2", tuple(statuses), rows, 1.0, 2.0)


def test_differences_name_versions_and_cells() -> None:
    old = table(litert=Cell(Status.WORKS), openvino=Cell(Status.DIFFERS, "off", "KP401", 0.1), jax=Cell(Status.WORKS, drift=1e-7))
    new = replace(
        table(litert=Cell(Status.LOAD_FAILS, "no op", "KP202"), openvino=Cell(Status.WORKS), jax=Cell(Status.WORKS, drift=2e-7)),
        versions={"keras": "3.16.0"},
    )
    found = differences(old, new)
    assert {(change.runtime, change.direction) for change in found.changes} == {("litert", "worse"), ("openvino", "better")}
    told = text(found)
    assert "keras: 3.15.1 -> 3.16.0" in told
    assert "Dense: plain, on litert: works -> load fails [no op]" in told
    assert differences(old, old).changes == ()
    assert "No cell changed" in text(differences(old, old))


def test_what_only_left_out_is_not_gone() -> None:
    old, new = table(litert=Cell(Status.WORKS), jax=Cell(Status.WORKS)), table(litert=Cell(Status.WORKS))
    assert [change.direction for change in differences(old, new).changes] == ["gone"]
    assert differences(old, new, whole=False).changes == ()


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(UsageError, match="is no table of kpipe compatibility"):
        load(tmp_path / "old.json")
    with pytest.raises(UsageError, match="can't be read"):
        load(tmp_path / "none.json")


def test_the_page_counts_and_gives_each_reason_once() -> None:
    found = page(
        table(litert=Cell(Status.LOAD_FAILS, "no op *X*", "KP202"), openvino=Cell(Status.LOAD_FAILS, "no op *X*", "KP202"), jax=Cell(Status.WORKS))
    )
    assert r"- plain; litert, openvino: load fails. no op \*X\*" in found
    assert "| `Dense` | 1 | 0/1 load | 0/1 load | ✓ |" in found


def test_worst_is_worst() -> None:
    assert worst([Cell(Status.WORKS), Cell(Status.NARROWED)]) is Status.NARROWED
    assert worst([]) is Status.UNCHECKED


def test_each_wave_has_one_runtimes_libraries() -> None:
    first, rest = waves(tuple(RUNTIMES))
    assert first.steps[0] == EXPORT
    steps = [step for wave in (first, *rest) for step in wave.steps]
    assert {step.removeprefix("run.") for step in steps if step.startswith("run.")} == set(RUNTIMES)
    assert len(steps) == len(set(steps))


def test_the_page_that_is_kept_is_of_the_data_beside_it() -> None:
    kept = load(DOCS / "compatibility.json")
    assert (DOCS / "compatibility.md").read_text(encoding="utf-8") == page(kept)
    assert {(row.unit, row.config) for row in kept.cases} == {(case.unit, case.config) for unit in UNITS for case in unit.cases}
    assert set(kept.runtimes) == set(columns())


# ---------------------------------------------------------------- the real thing


class Killing(Zoo):
    """Kills the worker that begins one step of one case, once."""

    def __init__(self, root: Path, victim: tuple[str, str]) -> None:
        super().__init__(root, lambda _: None, 1)
        self.victim: tuple[str, str] | None = victim
        self.pids: dict[str, int] = {}

    def _heard(self, name: str, event: dict[str, Any]) -> None:
        super()._heard(name, event)
        if event.get("event") == "started":
            self.pids[name] = event["pid"]
        if (event.get("case"), event.get("step")) == self.victim:
            self.victim = None
            os.kill(self.pids[name], signal.SIGKILL)


@pytest.mark.runtimes
def test_a_crash_costs_one_model_and_the_others_are_what_they_are(tmp_path: Path) -> None:
    import asyncio

    names = (
        "Dense: plain",
        "Masking: into LSTM",
        "Hashing: strings",
        "RandomHue: plain",
        "ops, arithmetic: add, bfloat16",
        "EinsumDense: abc,cd->abd",
    )
    runtimes = ("jax", "tensorflow", "saved_model", "litert", "onnxruntime", "openvino")
    known = {case.name: case for unit in UNITS for case in unit.cases}
    waiting = tmp_path / folder_of("Masking: into LSTM") / "model.keras"
    waiting.parent.mkdir()
    os.mkfifo(waiting)  # nobody reads it: the step can't be over before the signal arrives
    zoo = Killing(tmp_path, ("Masking: into LSTM", EXPORT))
    asyncio.run(zoo.run(names, runtimes))
    assert zoo.victim is None
    assert zoo.failures == []
    rows = {name: judge(tmp_path, known[name], "layers", runtimes) for name in names}
    statuses = {name: {runtime: cell.status for runtime, cell in row.cells.items()} for name, row in rows.items()}
    assert set(statuses["Dense: plain"].values()) == {Status.WORKS}
    assert set(statuses["Masking: into LSTM"].values()) == {Status.CRASHED}
    assert rows["Hashing: strings"].reference == "tensorflow"
    assert statuses["Hashing: strings"]["litert"] in {Status.LOAD_FAILS, Status.EXPORT_FAILS}
    assert rows["Hashing: strings"].cells["litert"].reason
    assert set(statuses["RandomHue: plain"].values()) == {Status.WORKS}, "its unused seed is no reason not to export it"
    assert "no output depends on in layer 'random_hue" in rows["RandomHue: plain"].cells["onnxruntime"].repairs[0]
    assert statuses["ops, arithmetic: add, bfloat16"]["openvino"] is Status.WORKS, "NumPy's bfloat16 isn't float16"
    assert set(statuses["EinsumDense: abc,cd->abd"].values()) == {Status.WORKS}, "a size that Keras leaves open and the inputs fix isn't lost"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "Nonsense"), "fits none of the"),
        (("--out", "nowhere/page.md"), "there is no folder"),
        (("--against", "nowhere.json"), "can't be read"),
    ],
)
def test_words_that_are_off_end_with_2_before_anything_runs(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    answer = command("compatibility", *words, folder=tmp_path)
    assert answer.exit_code == 2
    assert message in answer.stderr
    assert not re.search("Traceback", answer.stderr)
