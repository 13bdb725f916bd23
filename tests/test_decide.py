"""``rule = "module:function"``: the user's own decision code, with every way in which it can be wrong."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kpipe
from kpipe.contract import Contract, parse_contract
from kpipe.errors import ContractError, UsageError
from kpipe.evidence import Ending
from kpipe.judging.again import adapt
from kpipe.judging.judge import judge
from kpipe.profiles import SIGNOFF
from kpipe.record import CellCounts, CellStatus, Verdict
from kpipe_stages import decide
from kpipe_stages.codec import encode
from kpipe_stages.decisions import runs_code
from kpipe_stages.digest import digest
from kpipe_stages.protocol import PROTOCOL, DecidedMode, DecideJob, DecideResult, DecisionSpec, Job, Latency, SavedAnswers, StageError, TimingResult
from kpipe_stages.rows import write_rows
from kpipe_stages.worker import Worker

from .sample_gate import MODEL, digits_contract, findings, states
from .sample_run import MODES, SCORES, Bench, answers, codes, failure, found, result, row, stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

N = len(SCORES)
CODE = "def decide(outputs):\n    best = outputs['y'].argmax()\n    return f'class {best}', float(outputs['y'].max())\n"


@pytest.fixture(autouse=True)
def _no_module_stays() -> Iterator[None]:
    """Each test loads files of the same names."""
    modules, finders = set(sys.modules), list(sys.meta_path)
    yield
    for name in set(sys.modules) - modules:
        if hasattr(sys.modules[name], "__kpipe_sha256__"):
            del sys.modules[name]
    sys.meta_path[:] = finders


# ---------------------------------------------------------------- the stage


def decided(folder: Path, text: str, rule: str = "own_rule:decide") -> tuple[DecidedMode, Path]:
    """What the stage makes of three rows by this code."""
    file = folder / "own_rule.py"
    file.write_text(text, encoding="utf-8")
    outputs = folder / "run.litert" / "outputs" / "alone"
    write_rows(outputs / "0", list(SCORES[:3]))
    spec = DecisionSpec(rule, "y", reads=("y",), files={str(file): hashlib.sha256(text.encode()).hexdigest()})
    saved = SavedAnswers("run.litert", str(folder / "run.litert"), ("y",), ("alone",), {"alone": digest(outputs)})
    (folder / "decide").mkdir()
    channel = os.open(os.devnull, os.O_WRONLY)
    try:
        job = Job(PROTOCOL, "decide", "t", str(folder / "decide"), encode(DecideJob((spec,), (saved,), ("a", "b", "c"))))
        (one,) = decide.run(job, Worker("decide", folder / "decide", channel)).decided
    finally:
        os.close(channel)
    return one, folder / "decide" / "decisions"


def test_every_row_is_decided_and_stored(tmp_path: Path) -> None:
    one, folder = decided(tmp_path, CODE)
    assert (one.failure, one.rule, one.function, one.stage, one.mode) == ("", "", "own_rule:decide", "run.litert", "alone")
    stored = [(text, float(margin)) for text, margin in json.loads((folder / one.file).read_text(encoding="utf-8"))]
    assert stored == [("class 0", float(SCORES[0].max())), ("class 1", float(SCORES[1].max())), ("class 2", float(SCORES[2].max()))]
    assert one.sha256 == digest(folder / one.file)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return outputs['z'], 1.0", "own_rule.py:2, golden input 'a': decide() raised KeyError: 'z'"),
        ("raise SystemExit(3)", "decide() raised SystemExit: 3"),
        ("return 1 / 0, 1.0", "decide() raised ZeroDivisionError: division by zero"),
        ("return 'yes'", "returned 'yes' on golden input 'a' (expected (text, margin)"),
        ("return 'yes', 1.0, 2", "returned ('yes', 1.0, 2)"),
        ("return ['yes', 1.0]", "returned ['yes', 1.0]"),
        ("return '', 1.0", "returned ('', 1.0)"),
        ("return 1, 1.0", "returned (1, 1.0)"),
        ("return 'yes', '1'", "returned ('yes', '1')"),
        ("return 'yes', True", "returned ('yes', True)"),
        ("return 'yes', None", "returned ('yes', None)"),
        ("return 'yes', -1.0", "returned ('yes', -1.0)"),
        ("return 'yes', float('nan')", "returned ('yes', nan)"),
        ("return 'yes', 10 ** 400", "returned ('yes', 1000"),
        ("return None", "returned None"),
        ("return 'y' * 20000, 1.0", "returned ('yyyy"),
        ("outputs['y'][:] = 0; raise MemoryError", "decide() raised MemoryError"),
        ("calls.append(1); return f'call {len(calls)}', 1.0", "gave ('call 1', 1.0) and then ('call 2', 1.0) on the same outputs of 'a'"),
        ("import random; return 'yes', random.random()", "on the same outputs of 'a' (expected the same decision)"),
    ],
)
def test_code_that_goes_wrong_says_so_and_leaves_no_decisions(tmp_path: Path, body: str, told: str) -> None:
    one, folder = decided(tmp_path, f"def decide(outputs, calls=[]):\n    {body}\n")
    assert told in one.failure
    assert (one.file, one.sha256, list(folder.iterdir())) == ("", "", [])


def test_one_bad_row_leaves_none_of_them_decided(tmp_path: Path) -> None:
    one, _ = decided(tmp_path, CODE.replace("    return", "    assert best != 2\n    return"))
    assert "golden input 'c': decide() raised AssertionError" in one.failure


def test_code_that_changes_its_arrays_decides_the_same_twice(tmp_path: Path) -> None:
    one, _ = decided(tmp_path, CODE.replace("    return", "    outputs['y'][best] = 9\n    outputs.clear\n    return"))
    assert one.failure == ""


@pytest.mark.parametrize(
    ("text", "rule", "told"),
    [
        ("import no_such_package\n", "own_rule:decide", "own_rule.py:1: importing it raised ModuleNotFoundError"),
        ("def decide(:\n", "own_rule:decide", "importing it raised SyntaxError"),
        ("raise SystemExit\n", "own_rule:decide", "importing it raised SystemExit"),
        (CODE, "own_rule:choose", "has no function 'choose' (expected def choose(outputs))"),
        ("decide = 3\n", "own_rule:decide", "has no function 'decide'"),
    ],
)
def test_code_that_cannot_be_loaded_ends_the_stage(tmp_path: Path, text: str, rule: str, told: str) -> None:
    with pytest.raises(StageError) as caught:
        decided(tmp_path, text, rule)
    assert caught.value.observation.code == "KP419"
    assert told in caught.value.observation.cause


@given(st.text(), st.one_of(st.none(), st.floats(), st.integers(), st.booleans(), st.text(), st.just(np.float32(0.5)), st.just(np.int64(3))))
def test_only_a_text_and_a_number_from_zero_up_are_a_decision(text: str, margin: Any) -> None:
    number = not isinstance(margin, bool | str) and margin is not None and margin >= 0
    assert decide._is_text(text) == (text != "")
    assert decide._is_margin(margin) == number


# ---------------------------------------------------------------- the contract


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("rule = 'own_rule:decide'", "files = [] has no own_rule.py"),
        ("rule = 'own_rule.py:decide'\nfiles = ['own_rule.py']", 'expected a rule\'s name or "module:function"'),
        ("rule = 'json:decide'\nfiles = ['json.py']", "Python or kpipe has a module 'json'"),
        ("rule = 'own_rule:decide'\nfiles = ['own_rule.py']\nlabels = ['a']", "labels means nothing to a rule of your own code"),
        ("rule = 'argmax'\nfiles = ['own_rule.py']", "files means nothing to rule = 'argmax'"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(table: str, told: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse_contract(f"[decision]\n{table}\n", "kpipe.toml")
    assert told in str(caught.value)


def test_code_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    contract = tmp_path / "kpipe.toml"
    contract.write_text("[decision]\nrule = 'own_rule:decide'\nfiles = ['own_rule.py']\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"decision\.files .*own_rule\.py does not exist"):
        kpipe.validate(MODEL, contract=contract, out=tmp_path / "run")


# ---------------------------------------------------------------- judging


TEXT = "[decision]\nrule = 'own_rule:decide'\nfiles = ['own_rule.py']\n[targets.litert]\n"
FILES = {"": {"/contract/own_rule.py": "5c" * 32}}


class Coded(Bench):
    """A run whose decisions were taken by code."""

    def with_decisions(self, **wrong: Any) -> Coded:
        """Store the decisions; ``wrong`` maps ``stage/mode`` to a failure."""
        folder = self.folder / "stages" / "decide" / "decisions"
        folder.mkdir(parents=True)
        self.changes = {"decision_code": FILES} | self.changes
        found = []
        everyone = {"reference": self.reference, **{f"run.{name}": of for name, of in self.targets.items()}}
        for name, of in everyone.items():
            assert of is not None
            self._ran(name, of)
            for mode, outputs in of.modes.items():
                path = folder / f"{len(found)}.json"
                texts = [[f"class {int(np.argmax(scores))}", repr(float(np.max(scores)))] for scores in outputs["y"]]
                path.write_text(json.dumps(texts), encoding="utf-8")
                failed = wrong.get(f"{name}/{mode}", "")
                known = digest(self.folder / "stages" / name / "outputs" / mode)
                found.append(
                    DecidedMode("", "own_rule:decide", name, mode, known, "" if failed else path.name, "" if failed else digest(path), failed)
                )
        self.replaced["decide"] = stage("decide", result("decide", DecideResult(tuple(found))))
        return self


def coded(folder: Path, scores: Any = SCORES, **wrong: Any) -> Coded:
    return Coded(folder, TEXT, targets={"litert": answers(scores)}).with_decisions(**wrong)


def test_stored_decisions_are_judged(tmp_path: Path) -> None:
    record = coded(tmp_path).judge()
    assert record.verdict is Verdict.PASS
    assert record.golden.rows[1].decision == "class 1"
    assert record.golden.rows[1].margin == float(SCORES[1].max())
    assert record.decisions[0].files == {"/contract/own_rule.py": "5c" * 32}
    assert record.decisions[0].detail == "what own_rule:decide returns"


def test_another_decision_is_a_flip_and_never_a_tie(tmp_path: Path) -> None:
    other = SCORES.copy()
    other[3] = [0.4, 0.5, 0.1]
    text = TEXT + "tolerance = { atol = 0.5, rtol = 0.0 }\n"
    bench = Coded(tmp_path, text, targets={"litert": answers(other)}).with_decisions()
    record = bench.judge()
    assert record.verdict is Verdict.FAIL
    assert "'class 0' became 'class 1'" in found(record, "KP404").cause
    assert (row(record).flips, row(record).ties) == (1, 0)
    assert row(record).cells.failed == 3


def test_failing_code_on_a_target_leaves_that_mode_unchecked(tmp_path: Path) -> None:
    record = coded(tmp_path, **{"run.litert/batch_3": "it raised"}).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).status is CellStatus.UNCHECKED
    assert row(record).cells == CellCounts(2 * N, 0, N)
    assert "No decisions in mode 'batch_3': it raised" in found(record, "KP419").cause


def test_failing_code_on_a_target_hides_no_drift(tmp_path: Path) -> None:
    wrong = SCORES.copy()
    wrong[2] += np.float32(0.01)
    record = coded(tmp_path, wrong, **{f"run.litert/{mode}": "it raised" for mode in MODES}).judge()
    assert record.verdict is Verdict.FAIL
    assert row(record).cells == CellCounts(0, 3, 3 * (N - 1))


@pytest.mark.parametrize("how", ["failed", "missing", "crashed", "not loaded", "altered", "short", "of other outputs"])
def test_unknown_decisions_of_the_reference_leave_everything_unchecked(tmp_path: Path, how: str) -> None:
    bench = coded(tmp_path, **({"reference/alone": "it raised"} if how == "failed" else {}))
    stored = tmp_path / "stages" / "decide" / "decisions" / "0.json"
    if how == "missing":
        bench.replaced["decide"] = None
    elif how == "crashed":
        bench.replaced["decide"] = stage("decide", None, Ending.CRASHED)
    elif how == "not loaded":
        bench.replaced["decide"] = stage("decide", failure("decide"), Ending.FAILED)
    elif how == "altered":
        stored.write_text(stored.read_text(encoding="utf-8").replace("class 0", "class 1"), encoding="utf-8")
    elif how == "short":
        stored.unlink()
    elif how == "of other outputs":
        assert bench.reference is not None
        bench.reference.modes["alone"]["y"][0] = SCORES[0] * np.float32(1.0000001)
    record = bench.judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert row(record).cells == CellCounts(0, 0, 3 * N)
    assert "KP419" in codes(record, "reference")


def test_sign_off_needs_the_reference_s_decisions_in_every_way_of_running(tmp_path: Path) -> None:
    full: dict[str, Any] = {"modes": SIGNOFF.modes(Contract()), "repeats": SIGNOFF.repeats}
    text = TEXT + "[run]\nprofile = 'signoff'\n"
    bench = Coded(tmp_path / "a", text, reference=answers(**full), targets={"litert": answers(**full)})
    assert bench.with_decisions().judge().verdict is Verdict.PASS
    bench = Coded(tmp_path / "b", text, reference=answers(**full), targets={"litert": answers(**full)})
    record = bench.with_decisions(**{"reference/position_2_of_3": "it raised"}).judge()
    assert record.verdict is Verdict.INCOMPLETE
    assert found(record, "KP419").cause == "No decisions of the reference in mode 'position_2_of_3': it raised"


@pytest.mark.parametrize(
    ("asked", "code", "verdict"),
    [
        (TEXT, FILES, Verdict.PASS),
        (TEXT, {"": {"/elsewhere/own_rule.py": "5c" * 32}}, Verdict.PASS),
        (TEXT, {"": {"/contract/own_rule.py": "5d" * 32}}, Verdict.INCOMPLETE),
        (TEXT, {"": {"/contract/own_rule.py": ""}}, Verdict.INCOMPLETE),
        (TEXT, {}, Verdict.INCOMPLETE),
        (TEXT.replace(":decide", ":other"), FILES, Verdict.INCOMPLETE),
        (TEXT.replace("[decision]", "[decisions.one]"), {"one": FILES[""]}, Verdict.INCOMPLETE),
    ],
)
def test_stored_decisions_hold_for_the_same_code_only(tmp_path: Path, asked: str, code: dict[str, dict[str, str]], verdict: Verdict) -> None:
    bench = coded(tmp_path)
    loaded = bench.loaded(asked)
    record = judge(tmp_path, loaded, adapt(bench.evidence(), bench.loaded(), loaded, code))
    assert record.verdict is verdict
    assert ("KP609" in codes(record)) == (verdict is Verdict.INCOMPLETE)
    assert row(record).cells.passed == (3 * N if verdict is Verdict.PASS else 0)


def test_a_run_without_code_judged_by_code_is_unchecked(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    loaded = bench.loaded(TEXT)
    record = judge(tmp_path, loaded, adapt(bench.evidence(), bench.loaded(), loaded, FILES))
    assert (record.verdict, row(record).cells.passed) == (Verdict.INCOMPLETE, 0)


def test_times_that_leave_the_code_out_say_so(tmp_path: Path) -> None:
    bench = coded(tmp_path)
    assert not any("decision code" in caveat for caveat in bench.judge().caveats)
    timed = Latency((1e-3,) * 100, 20, stable=True, worst_difference=0.0, worst_relative=0.0, decision_changes=0, compared=100)
    bench.timings = {"litert": result("run_litert", TimingResult(timed, timed))}
    assert "End-to-end times leave out the decision code: own_rule:decide." in bench.judge().caveats


def test_a_limit_on_all_of_the_way_is_not_kept_by_the_part_that_was_timed(tmp_path: Path) -> None:
    bench = coded(tmp_path)
    timed = Latency((1e-3,) * 200, 20, stable=True, worst_difference=0.0, worst_relative=0.0, decision_changes=0, compared=200)
    bench.timings = {"litert": result("run_litert", TimingResult(timed, timed))}
    limited = bench.text + "limits = { p50_ms = 2.0, end_to_end_p50_ms = 2.0 }\n"
    checks = {check.name: check.value for check in row(bench.judge(limited)).limits}
    assert checks["p50_ms"] == pytest.approx(1.0)
    assert checks["end_to_end_p50_ms"] is None
    assert ("KP505", "end_to_end_p50_ms") in {(f.code, f.place) for f in bench.judge(limited).findings}


def test_what_is_code() -> None:
    assert runs_code("a:b")
    assert not runs_code("argmax")


# ---------------------------------------------------------------- real runtimes


OWN = """import numpy as np
from words import WORDS

def decide(outputs):
    scores = outputs["digit"]
    second, best = np.sort(scores)[-2:]
    return WORDS[int(scores.argmax())], best - second
"""
WORDS = "WORDS = [str(i) for i in range(10)]\n"


def digits(folder: Path, own: str, targets: str = "[targets.onnxruntime]\n") -> Path:
    """The shipped contract, deciding by code."""
    (folder / "own_rule.py").write_text(own, encoding="utf-8")
    (folder / "words.py").write_text(WORDS, encoding="utf-8")
    contract = digits_contract(folder, targets)
    before, _, after = contract.read_text(encoding="utf-8").partition("[decision]\n")
    after = after[after.index("\n[") :]
    contract.write_text(f"{before}[decision]\nrule = 'own_rule:decide'\nfiles = ['own_rule.py', 'words.py']\n{after}", encoding="utf-8")
    return contract


@pytest.mark.runtimes
def test_the_shipped_model_decided_by_code(tmp_path: Path) -> None:
    own = '[targets.openvino_default]\nruntime = "openvino"\nprecision = "default"\nrequired = false\n'
    contract = digits(tmp_path, OWN, "[targets.onnxruntime]\n[targets.openvino]\nsettings = { INFERENCE_PRECISION_HINT = 'f32' }\n" + own)
    run = kpipe.validate(MODEL, contract=contract, out=tmp_path / "run")
    assert str(run.verdict) == "PASS", [(f.code, f.cause) for f in run.record.findings if f.severity == "error"]
    assert all(golden.approved in {True, None} for golden in run.record.golden.rows)
    assert any(golden.approved for golden in run.record.golden.rows)
    assert set(run.record.decisions[0].files) == {"own_rule.py", "words.py"}
    assert not findings(run.record, "KP419")
    coarse = bool({"avx512_bf16", "amx_bf16"} & set(run.record.environment.cpu_features))
    assert bool(findings(run.record, "KP404", "openvino_default")) == coarse  # a real flip, by the code's own words
    again = kpipe.judge(run.folder, contract, write=False)
    assert (again.verdict, again.record.targets) == (run.verdict, run.record.targets)
    (tmp_path / "words.py").write_text(WORDS + "# another file\n", encoding="utf-8")
    other = kpipe.judge(run.folder, contract, write=False)
    assert str(other.verdict) == "INCOMPLETE"
    assert str(kpipe.judge(run.folder, write=False).verdict) == "PASS"


@pytest.mark.runtimes
def test_code_that_raises_and_code_that_hangs_leave_the_shipped_model_unchecked(tmp_path: Path) -> None:
    raising = digits(tmp_path, OWN.replace("    scores =", "    raise RuntimeError('no prices')\n    scores ="))
    run = kpipe.validate(MODEL, contract=raising, out=tmp_path / "raising")
    assert (str(run.verdict), int(run.exit_code), states(run.record)) == ("INCOMPLETE", 3, {"onnxruntime": "unchecked"})
    assert "decide() raised RuntimeError: no prices" in findings(run.record, "KP419", "reference")[0].cause
    hanging = digits(tmp_path, OWN.replace("    scores =", "    import time; time.sleep(600)\n    scores ="))
    hanging.write_text(hanging.read_text(encoding="utf-8") + "\n[run]\nstage_s = 50\n", encoding="utf-8")
    run = kpipe.validate(MODEL, contract=hanging, out=tmp_path / "hanging")
    assert (str(run.verdict), states(run.record)) == ("INCOMPLETE", {"onnxruntime": "unchecked"})
    assert [f.place for f in findings(run.record, "KP305")] == ["decide"]
