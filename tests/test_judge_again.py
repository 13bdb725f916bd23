"""A finished run held against another contract: what it asks for and the run did not do never passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kpipe.judging.again import adapt
from kpipe.judging.judge import judge
from kpipe.record import CellStatus, RunRecord, Verdict

from .sample_run import CONTRACT, SCORES, Bench, answers, codes, row

if TYPE_CHECKING:
    from pathlib import Path

MADE_WITH = CONTRACT + "inputs.x.decode = 'npy'\n[targets.litert]\n[targets.onnxruntime]\nrequired = false\n"
N = len(SCORES)


def again(tmp_path: Path, asked: str, made_with: str = MADE_WITH, **targets: Any) -> RunRecord:
    bench = Bench(tmp_path, text=made_with, targets={"litert": answers(), "onnxruntime": answers()} | targets)
    loaded = bench.loaded(asked)
    return judge(tmp_path, loaded, adapt(bench.evidence(), bench.loaded(), loaded))


def test_the_same_contract_gives_the_same_verdict(tmp_path: Path) -> None:
    record = again(tmp_path, MADE_WITH)
    assert record.verdict is Verdict.PASS
    assert "KP609" not in codes(record)


@pytest.mark.parametrize(
    "asked",
    [
        MADE_WITH.replace("litert]\n", "litert]\nsettings = { num_threads = 1 }\n"),
        MADE_WITH.replace("litert]\n", "litert]\nartifact = 'release/m.tflite'\n"),
        MADE_WITH.replace("litert]\n", "litert]\nprecision = 'default'\n"),
        MADE_WITH.replace("litert]\n", "litert]\nthreads = 4\n"),
        MADE_WITH.replace("litert]\n", "litert]\naffinity = [0]\n"),
        MADE_WITH.replace("litert]\n", "litert]\nmemory_mib = 512\n"),
        "timing.server_rate = 10\n" + MADE_WITH,
        MADE_WITH.replace("litert]\n", "litert]\npython = 'other'\n"),
        MADE_WITH.replace("litert]\n", "litert]\ninputs.x = { decode = 'npy', dtype = 'float32' }\n"),
        MADE_WITH.replace("litert]\n", "litert]\nruntime = 'onnxruntime'\n"),
        MADE_WITH + "[targets.openvino]\n",
        MADE_WITH.replace("'npy'", "'image'"),
        "model.backend = 'tensorflow'\n" + MADE_WITH,
        "model.allow_lambda = ['halve']\n" + MADE_WITH,
        "golden.path = 'elsewhere'\n" + MADE_WITH,
        "export.allow_select_tf = true\n" + MADE_WITH,
        "golden.batches = [3, 32]\n" + MADE_WITH,
        MADE_WITH.replace("litert]\n", "litert]\nlimits = { p50_ms = 1000 }\n"),
        MADE_WITH.replace("litert]\n", "litert]\nversion = '==9.9'\n"),
    ],
)
def test_other_work_is_unchecked(tmp_path: Path, asked: str) -> None:
    assert again(tmp_path, asked).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("key", ["model.sha256", "golden.manifest_sha256"])
def test_another_file_by_digest_fails(tmp_path: Path, key: str) -> None:
    assert again(tmp_path, f"{key} = '{'0a' * 32}'\n" + MADE_WITH).verdict is Verdict.FAIL


@pytest.mark.parametrize(("key", "digest"), [("model.sha256", "ef" * 32), ("golden.manifest_sha256", "cd" * 32)])
def test_the_same_file_by_digest_passes(tmp_path: Path, key: str, digest: str) -> None:
    assert again(tmp_path, f"{key} = '{digest}'\n" + MADE_WITH).verdict is Verdict.PASS


def test_required_is_the_word_of_the_contract_that_judges(tmp_path: Path) -> None:
    wrong = answers(SCORES[::-1])
    assert again(tmp_path / "a", MADE_WITH, onnxruntime=wrong).verdict is Verdict.PASS
    assert again(tmp_path / "b", MADE_WITH.replace("false", "true"), onnxruntime=wrong).verdict is Verdict.FAIL
    assert again(tmp_path / "c", MADE_WITH.replace("required = false\n", ""), onnxruntime=wrong).verdict is Verdict.FAIL


def test_a_target_that_the_run_did_not_have_is_shown_as_unchecked(tmp_path: Path) -> None:
    record = again(tmp_path, MADE_WITH + "[targets.saved_model]\n")
    assert row(record, "saved_model").status is CellStatus.UNCHECKED
    assert row(record, "saved_model").cells.unchecked == 3 * N
    assert codes(record, "saved_model") == ["KP609"]


def test_a_version_that_the_run_had_passes(tmp_path: Path) -> None:
    assert again(tmp_path, MADE_WITH.replace("litert]\n", "litert]\nversion = '==2.3.0'\n")).verdict is Verdict.PASS


def test_a_laxer_contract_may_pass_and_a_stricter_one_fail(tmp_path: Path) -> None:
    slightly = answers(SCORES * 1.001)
    for outputs in slightly.modes.values():
        outputs["y"] = [scores.astype("float32") for scores in outputs["y"]]
    assert again(tmp_path / "a", MADE_WITH, litert=slightly).verdict is Verdict.FAIL
    lax = "agreement.tolerance = { rtol = 0.01, atol = 0 }\n" + MADE_WITH
    assert again(tmp_path / "b", lax, litert=slightly).verdict is Verdict.PASS


def test_without_targets_of_its_own_a_contract_judges_what_was_run(tmp_path: Path) -> None:
    record = again(tmp_path, CONTRACT + "inputs.x.decode = 'npy'\n")
    assert record.verdict is Verdict.PASS
    assert [(t.name, t.required) for t in record.targets] == [("litert", True), ("onnxruntime", False)]
