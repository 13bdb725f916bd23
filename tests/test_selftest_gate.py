"""A few faults of every family through the real gate, and the command's own refusals. The whole table is ``kpipe selftest``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kpipe.selftest.fault import Family
from kpipe.selftest.faults import FAULTS
from kpipe.selftest.runner import run_selftest
from kpipe.selftest.subjects import own_setups

from .cases.gate import command

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.selftest.fault import Fault
    from kpipe.selftest.result import Row, Table

CHOSEN = {
    "mean a hundredth off",
    "one weight off by 1e-7",
    "candidate's statistics reset",
    "ONNX: padding at the end",
    "one thread",
    "random numbers, 1e-3",
    "labels in the other order",
    "a file altered by a byte",
    "an empty manifest",
}
EQUIVALENT = {"one weight off by 1e-7", "one thread"}


def chosen() -> list[Fault]:
    return [fault for fault in FAULTS if fault.name in CHOSEN]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("selftest")
    setups = own_setups(("swatch",), folder, lambda _: None)
    return run_selftest(setups, chosen(), folder, lambda _: None, all_faults=False)


def named(table: Table, name: str) -> Row:
    return next(row for row in table.rows if row.name == name)


@pytest.mark.runtimes
def test_every_fault_that_is_one_is_caught_and_its_edge_is_named(table: Table) -> None:
    assert {row.family for row in table.rows} == {str(family) for family in Family}
    assert [(row.name, row.verdict) for row in table.rows if not row.caught and not row.equivalent] == []
    assert [(row.name, row.edge) for row in table.rows if row.caught and not row.right_edge] == []
    assert table.skipped == ()
    assert table.met


@pytest.mark.runtimes
def test_what_changes_nothing_is_told_from_what_was_missed(table: Table) -> None:
    assert {row.name for row in table.rows if row.equivalent} == EQUIVALENT
    assert all(row.verdict == "PASS" for row in table.rows if row.equivalent)
    assert all(row.floors is not None and row.floors <= 16 for row in table.rows if row.equivalent)
    drifted = [row for row in table.rows if "KP401" in row.codes]
    assert drifted
    assert all(row.floors is not None and row.floors > 16 for row in drifted)


@pytest.mark.runtimes
def test_the_yardsticks_see_what_they_can_see_and_no_more(table: Table) -> None:
    blind = {row.name for row in table.rows if row.family in {"preprocessing", "decision"}}
    assert {row.name for row in table.rows if row.name in blind and row.random} == set()
    assert named(table, "mean a hundredth off").golden is True
    assert named(table, "ONNX: padding at the end").random is True
    assert named(table, "an empty manifest").golden is False
    assert named(table, "candidate's statistics reset").golden is False
    counts = table.score
    assert counts.random < counts.caught
    assert counts.golden < counts.caught


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "wieghts"), "--only wieghts is no family of faults (did you mean 'weights'?)"),
        (("--model", "m.keras"), "--model and --contract go together"),
        (("--out", "taken"), "is not empty"),
        (("--model", "m.keras", "--contract", "nowhere.toml"), "nowhere.toml"),
        (("--model", "m.keras", "--contract", "bare.toml"), "names no folder of raw golden inputs"),
        (("--healthy", "0"), "greater than or equal to 1"),
    ],
)
def test_words_that_are_off_end_with_2_and_a_sentence(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    (tmp_path / "m.keras").write_bytes(b"x")
    (tmp_path / "bare.toml").write_text("[agreement]\nmax_flips = 0\n")
    answer = command("selftest", *words, folder=tmp_path)
    assert answer.exit_code == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""


@pytest.mark.runtimes
def test_a_healthy_model_raises_no_alarm_and_the_command_keeps_its_run(tmp_path: Path) -> None:
    answer = command("selftest", "--healthy", "1", "--json", "--out", "kept", folder=tmp_path)
    assert answer.exit_code == 0, answer.stderr
    assert json.loads(answer.stdout) == {**json.loads((tmp_path / "kept" / "healthy.json").read_text()), "alarms": []}
    assert (tmp_path / "kept" / "healthy-1" / "run" / "report.html").is_file()
