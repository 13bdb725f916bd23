"""The bench's pure parts: the critical path from a run's evidence, and the page."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kpipe.store import load_evidence

sys.path.append(str(Path(__file__).parents[1] / "bench"))
import critical_path
import document
import profiles
import rows
import run as bench_run

if TYPE_CHECKING:
    import kpipe


@pytest.mark.runtimes
def test_the_critical_path_is_of_the_run_and_no_longer_than_it(digits_run: kpipe.Run) -> None:
    evidence = load_evidence(digits_run.folder)
    chain = critical_path.critical_path(evidence)
    names = [name for name, _ in chain.steps]
    assert names.index(next(n for n in names if n.startswith("time "))) > 0
    assert 0 < chain.seconds <= evidence.wall_s
    assert all(seconds >= 0 for _, seconds in chain.steps)
    assert critical_path.work_in_agreement(evidence) > 0
    longer = tuple(
        replace(stage, result=replace(stage.result, seconds=stage.result.seconds + 100)) if stage.name == "reference" and stage.result else stage
        for stage in evidence.stages
    )
    slow = critical_path.critical_path(replace(evidence, stages=longer))
    assert slow.seconds > chain.seconds + 50
    assert "reference" in [name for name, _ in slow.steps]


@pytest.mark.runtimes
def test_what_was_reused_took_no_time(digits_run: kpipe.Run) -> None:
    evidence = load_evidence(digits_run.folder)
    reused = tuple(replace(stage, reused=True) if stage.name.startswith("export") else stage for stage in evidence.stages)
    chain = critical_path.critical_path(replace(evidence, stages=reused))
    assert not [name for name, _ in chain.steps if name.startswith("export")]
    assert chain.seconds <= critical_path.critical_path(evidence).seconds


@pytest.mark.runtimes
def test_every_stage_has_a_line_in_the_timeline(digits_run: kpipe.Run) -> None:
    evidence = load_evidence(digits_run.folder)
    lines = profiles.timeline(evidence).splitlines()
    assert len(lines) == len(evidence.stages) + 1
    assert len({len(line) for line in lines}) == 1


def test_a_missed_bound_is_on_the_page_with_its_profile() -> None:
    met = rows.at_most("fast", 1.0, 2.0, "ratio", "as seen", "no profile")
    missed = rows.at_least("slow", 0.5, 0.9, "ratio", "as seen too", "stage 1 2 3")
    assert (met.met, met.profile, missed.met, missed.profile) == (True, "", False, "stage 1 2 3")
    page = document.document({"processor": "one"}, {"gate": [met, missed]}, {"gate": "The gate"})
    assert "| fast | 1 | 2 | ratio | yes |" in page
    assert "| slow | 0.5 | 0.9 | ratio | **no** |" in page
    assert page.count("stage 1 2 3") == 1
    assert "None." not in page
    assert "None." in document.document({}, {"gate": [met]}, {"gate": "The gate"})


def test_a_command_that_fails_ends_the_bench() -> None:
    environment: dict[str, Any] = {}
    done = rows.taken([sys.executable, "-c", "print('seconds 1.5')"], environment)
    assert rows.seconds_in(done.printed) == 1.5
    assert done.wall_s > 0 < done.peak_mib
    with pytest.raises(SystemExit, match="ended with 3"):
        rows.taken([sys.executable, "-c", "raise SystemExit(3)"], environment)


def test_the_page_in_docs_is_of_these_tables() -> None:
    page = (rows.ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for table in bench_run.TABLES.values():
        assert f"## {table.title}\n" in page
