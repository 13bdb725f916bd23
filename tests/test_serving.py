"""Production's own preprocessing end to end: planted faults are shown at the border and named, and none is hidden by what goes wrong besides."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kpipe
from kpipe.errors import KpipeError
from kpipe.store import load_evidence
from kpipe_stages.rows import Rows

from .sample_gate import FEW_CALLS, MODEL, QUIET, codes, digits_contract, findings, states, without_targets

pytestmark = pytest.mark.runtimes

CODE = Path(__file__).with_name("serving_code.py")
NAMED = {
    "nearest": "nearest",
    "plain": "bilinear without antialias",
    "sideways": "EXIF orientation ignored",
    "on_black": "alpha composed on black",
    "paper_is_one": "not inverted",
    "by_tensorflow": "bilinear without antialias",
}
OTHERS = ("faithful", "darkened", "flat", "torn", "unsteady", "counted")


def own(name: str, runtime: str = "litert", lines: str = 'decode = "serving_code:{name}"\nfiles = ["serving_code.py"]\n') -> str:
    return f'[targets.{name}]\nruntime = "{runtime}"\n[targets.{name}.inputs.image]\n{lines.format(name=name)}'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> kpipe.Run:
    """The digits, one artifact, and a dozen ways in which production could make its tensors; a few calls are timed."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(CODE, folder)
    targets = "".join(own(name, "onnxruntime" if name == "plain" else "litert") for name in (*NAMED, *OTHERS))
    path = folder / "kpipe.toml"
    path.write_text(without_targets().replace(QUIET, FEW_CALLS) + targets, encoding="utf-8")
    return kpipe.validate(MODEL, contract=path, out=folder / "run")


@pytest.mark.parametrize(("name", "suspect"), NAMED.items())
def test_a_planted_fault_is_named(served: kpipe.Run, name: str, suspect: str) -> None:
    (found,) = findings(served.record, "KP106", name)
    assert suspect in (found.evidence["suspect"], *found.evidence["also"]), found.cause
    assert f"This is {found.evidence['suspect']}, where the reference has " in found.cause
    assert suspect in found.cause
    assert found.evidence["explained"] == found.evidence["used"] <= 32
    assert found.evidence["residual"] < 1e-4 < found.evidence["max_abs"]
    assert 0 < found.evidence["rms"] <= found.evidence["max_abs"]
    assert states(served.record)[name] == "fail"


def test_suspects_that_the_inputs_can_not_tell_apart_are_all_named(served: kpipe.Run) -> None:
    """What lies behind the transparent pixels of this set is black."""
    (found,) = findings(served.record, "KP106", "on_black")
    assert (found.evidence["suspect"], found.evidence["also"]) == ("alpha ignored", ["alpha composed on black"])
    assert "these inputs can't tell it from: alpha composed on black" in found.cause


def test_the_remedy_names_the_steps_that_would_make_them_equal(served: kpipe.Run) -> None:
    (found,) = findings(served.record, "KP106", "plain")
    assert '{ resize = [16, 16], method = "bilinear", antialias = false }' in found.remedy
    (found,) = findings(served.record, "KP106", "sideways")
    assert "No step of a contract does the same" in found.remedy


def test_a_fault_in_no_list_matches_nothing(served: kpipe.Run) -> None:
    (found,) = findings(served.record, "KP106", "darkened")
    assert "No suspect matches" in found.cause
    assert found.evidence["suspect"] == ""
    assert found.evidence["complete"]
    assert found.evidence["tried"] > 1000
    assert states(served.record)["darkened"] == "fail"


def test_faithful_code_passes_and_is_timed_from_the_raw_file(served: kpipe.Run) -> None:
    assert states(served.record)["faithful"] == "pass"
    assert codes(served.record, "faithful") <= {"KP507"}  # a machine that is busy is said
    row = next(t for t in served.record.targets if t.name == "faithful")
    assert row.end_to_end is not None
    assert row.end_to_end.calls == 12
    assert list(row.preprocessing) == ["serving_code.py"]
    assert "serving_code.py" in (served.folder / "artifacts" / "litert" / "deploy.toml").read_text(encoding="utf-8")
    evidence = load_evidence(served.folder)
    (search,) = [stage for stage in evidence.stages if stage.name == "fingerprint.faithful"]  # other bits, by float32's rounding
    assert search.result is not None
    assert search.result.data == {"found": []}


def test_tensors_that_no_runtime_takes_are_compared_all_the_same(served: kpipe.Run) -> None:
    assert {"KP104", "KP106"} <= codes(served.record, "flat")
    assert "shape (256,) instead of (16, 16, 1)" in findings(served.record, "KP106", "flat")[0].cause
    assert states(served.record)["flat"] == "fail"


def test_code_that_fails_on_an_input_fails_its_target_alone(served: kpipe.Run) -> None:
    (found,) = findings(served.record, "KP112")
    assert (found.target, found.place) == ("torn", "d0119-rgba-28")
    assert "serving_code.py:" in found.cause
    assert "ValueError: the reader gave up" in found.cause
    assert states(served.record)["torn"] == "fail"


def test_code_that_is_not_the_same_twice_is_found_out(served: kpipe.Run) -> None:
    assert "KP109" in codes(served.record, "unsteady")


def test_code_runs_in_the_targets_workers_and_nowhere_else(served: kpipe.Run) -> None:
    seen = {int(line) for line in (served.folder.parent / "processes.txt").read_text(encoding="utf-8").split()}
    evidence = load_evidence(served.folder)
    pids = {s.result.identity.pid for s in evidence.stages if s.name in {"prepare.counted", "run.counted"} and s.result and s.result.identity}
    assert seen == pids
    assert os.getpid() not in seen


def judged_again(run: kpipe.Run, folder: Path, change: Any) -> kpipe.Run:
    copy = Path(shutil.copytree(run.folder, folder / "copy"))
    evidence = json.loads((copy / "evidence.json").read_text(encoding="utf-8"))
    change(evidence)
    (copy / "evidence.json").write_text(json.dumps(evidence), encoding="utf-8")
    return kpipe.judge(copy)


@pytest.mark.parametrize("ending", ["crashed", "timed out", "failed", "gone"])
def test_a_search_that_went_wrong_hides_nothing(served: kpipe.Run, tmp_path: Path, ending: str) -> None:
    def change(evidence: dict[str, Any]) -> None:
        stage = next(s for s in evidence["stages"] if s["name"] == "fingerprint.plain")
        if ending == "gone":
            evidence["stages"].remove(stage)
        else:
            stage |= {"ending": ending, "detail": "it stopped", "result": None}

    again = judged_again(served, tmp_path, change)
    (found,) = findings(again.record, "KP106", "plain")
    assert "differs from the reference's on" in found.cause
    assert ("was not searched for" if ending == "gone" else "is not known: the search") in found.cause
    assert states(again.record)["plain"] == "fail"


# ---------------------------------------------------------------- for all, and by tensors


def test_shared_code_gives_the_reference_its_inputs_too(tmp_path: Path) -> None:
    shutil.copy(CODE, tmp_path)
    text = without_targets()
    start, end = text.index("[inputs.image]"), text.index("[decision]")
    shared = '[inputs.image]\ndecode = "serving_code:faithful"\nfiles = ["serving_code.py"]\n\n'
    other = own("turned", lines='decode = "serving_code:paper_is_one"\nfiles = ["serving_code.py"]\n')
    (tmp_path / "kpipe.toml").write_text(text[:start] + shared + text[end:] + "[targets.litert]\n" + other, encoding="utf-8")
    run = kpipe.validate(MODEL, contract=tmp_path / "kpipe.toml", out=tmp_path / "run")
    assert states(run.record) == {"litert": "pass", "turned": "fail"}
    (found,) = findings(run.record, "KP106")
    assert "values times -1 plus 1" in found.evidence["suspect"]
    assert "function" in found.cause
    assert run.record.reference is not None
    assert list(run.record.reference.preprocessing) == ["serving_code.py"]


def test_tensors_of_a_serving_system_are_compared_and_run(served: kpipe.Run, tmp_path: Path) -> None:
    rows = Rows(served.folder / "stages" / "prepare" / "tensors" / "0")
    ids = [entry["id"] for entry in load_ids(served)]
    order = np.random.default_rng(3).permutation(len(ids))
    tensors = np.stack([rows[i] for i in order])
    np.savez(tmp_path / "good.npz", ids=[ids[i] for i in order], image=tensors)
    np.savez(tmp_path / "bad.npz", ids=[ids[i] for i in order], image=tensors[:, ::-1])
    np.savez(tmp_path / "short.npz", ids=[ids[i] for i in order[1:]], image=tensors[1:])
    targets = "".join(own(name, lines=f'tensors = "{name}.npz"\n') for name in ("good", "bad", "short"))
    run = kpipe.validate(MODEL, contract=digits_contract(tmp_path, targets), out=tmp_path / "run")
    assert states(run.record) == {"good": "pass", "bad": "fail", "short": "fail"}
    assert codes(run.record, "good") == {"KP111"}
    assert "nothing was timed from them" in findings(run.record, "KP111", "good")[0].cause
    assert findings(run.record, "KP106", "bad")[0].evidence["suspect"] == "upside down"
    (found,) = findings(run.record, "KP112")
    assert f"1 golden inputs have no row ({ids[order[0]]})" in found.cause


def load_ids(run: kpipe.Run) -> list[dict[str, str]]:
    return [{"id": golden.id} for golden in load_evidence(run.folder).golden.inputs]


def test_an_end_to_end_limit_on_handed_in_tensors_is_unchecked(served: kpipe.Run, tmp_path: Path) -> None:
    rows = Rows(served.folder / "stages" / "prepare" / "tensors" / "0")
    np.savez(tmp_path / "good.npz", ids=[entry["id"] for entry in load_ids(served)], image=np.stack(list(rows)))
    text = own("good", lines='tensors = "good.npz"\n').replace("[targets.good.inputs", "limits = { end_to_end_p50_ms = 1000 }\n[targets.good.inputs")
    run = kpipe.validate(MODEL, contract=digits_contract(tmp_path, text), out=tmp_path / "run")
    assert states(run.record) == {"good": "unchecked"}
    assert "KP505" in codes(run.record, "good")


def test_code_that_changes_during_the_run_is_refused(tmp_path: Path) -> None:
    """The function writes to a file of its own list: what the next process would load is not what ran."""
    (tmp_path / "serving_code.py").write_text(CODE.read_text(encoding="utf-8") + CHANGES, encoding="utf-8")
    (tmp_path / "means.txt").write_text("1", encoding="utf-8")
    lines = 'decode = "serving_code:changing"\nfiles = ["serving_code.py", "means.txt"]\n'
    run = kpipe.validate(MODEL, contract=digits_contract(tmp_path, own("litert", lines=lines)), out=tmp_path / "run")
    assert run.verdict is kpipe.Verdict.FAIL
    assert any("means.txt changed during the run" in found.cause for found in findings(run.record, "KP011"))


CHANGES = """

def changing(path: str) -> Array:
    (Path(__file__).parent / "means.txt").write_text("2", encoding="utf-8")
    return faithful(path)
"""


@pytest.mark.parametrize(
    ("lines", "golden", "words"),
    [
        ('decode = "gone:f"\nfiles = ["gone.py"]\n', "raw", ("targets.litert.inputs.image.files", "gone.py", "does not exist")),
        ('tensors = "gone.npz"\n', "raw", ("targets.litert.inputs.image.tensors", "gone.npz", "does not exist")),
        ('tensors = "gone.npz"\n', "arrays", ("targets.litert.inputs.image.tensors", "arrays", "raw files")),
    ],
)
def test_files_that_are_not_there_are_a_usage_error(tmp_path: Path, lines: str, golden: str, words: tuple[str, ...]) -> None:
    np.savez(tmp_path / "inputs.npz", image=np.zeros((3, 16, 16, 1), np.float32))
    contract = digits_contract(tmp_path, own("litert", lines=lines))
    with pytest.raises(KpipeError) as caught:
        kpipe.validate(MODEL, contract=contract, golden=tmp_path / "inputs.npz" if golden == "arrays" else None, out=tmp_path / "run")
    assert int(caught.value.exit_code) == 2
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_run_is_not_resumed_with_other_code(tmp_path: Path) -> None:
    path = tmp_path / "serving_code.py"
    shutil.copy(CODE, path)
    contract = digits_contract(tmp_path, own("litert", lines='decode = "serving_code:sideways"\nfiles = ["serving_code.py"]\n'))
    first = kpipe.validate(MODEL, contract=contract, out=tmp_path / "run")
    again = kpipe.validate(MODEL, contract=contract, out=tmp_path / "run", resume=True)
    assert {stage.outcome for stage in again.record.stages} == {"reused"}
    assert [f.cause for f in findings(again.record, "KP106")] == [f.cause for f in findings(first.record, "KP106")] != []
    path.write_text(path.read_text(encoding="utf-8").replace("BILINEAR", "NEAREST"), encoding="utf-8")
    with pytest.raises(KpipeError, match="files"):
        kpipe.validate(MODEL, contract=contract, out=tmp_path / "run", resume=True)
