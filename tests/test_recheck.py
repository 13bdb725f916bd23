"""Sealed artifacts run again: which environments, what is installed, what is said of the answers, and when a rollback moves nothing."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from kpipe.contract import LimitsTable, LoadedContract, parse_contract
from kpipe.errors import UsageError
from kpipe.evidence import Installed
from kpipe.judging.answers import Answers
from kpipe.judging.floor import Floor, K
from kpipe.judging.grade import finding
from kpipe.recheck import environments
from kpipe.recheck.columns import OWN, Kind, Recipe, affected, changes_of, columns_of, needs, pins_of, recipe
from kpipe.recheck.environments import COMPLETE, Environment, build, named_environment, satisfies, this_environment
from kpipe.recheck.outcome import Outcome, _held, compared
from kpipe.recheck.recheck import Rechecked
from kpipe.recheck.rollback import RollbackError, held_to
from kpipe.recheck.table import rendered
from kpipe.recheck.trial import unpinned
from kpipe.record import CellCounts, CellStatus, TargetRecord, Verdict
from kpipe_stages.digest import digest
from kpipe_stages.protocol import DecisionSpec, InputSpec, Trust
from kpipe_stages.rows import write_rows

from .sample_run import MODES, SCORES, run_result

PINS = {"onnxruntime": "1.32.0", "numpy": "2.4.6", "pillow": "12.0.0", "flatbuffers": "25.9.23", "keras-kpipe": "0.1.0", "openvino": "2026.4.1"}
names = st.sampled_from(sorted(set(PINS) - OWN))


def target(runtime: str = "onnxruntime", format_: str = "onnx", **job: Any) -> Any:
    """As much of a sealed target as columns look at."""
    told = SimpleNamespace(**({"trust": Trust((), (), ()), "inputs": ()} | job))
    return SimpleNamespace(name=runtime, runtime=runtime, format=format_, versions={runtime: "1", "numpy": "2"}, job=told)


# ---------------------------------------------------------------- columns


def test_without_a_change_the_other_environment_is_this_one() -> None:
    assert [c.kind for c in columns_of((), ())] == [Kind.SIGNED, Kind.HERE]
    assert [c.title for c in columns_of(("numpy==2.3", "numpy==2.3"), (Path("/p"),))] == ["signed off", "numpy==2.3", "/p"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("openvino==2026.3.0", ["openvino==2026.3.0"]),
        ("numpy>=2.1,<2.3", ["numpy<2.3,>=2.1"]),
        ("openvino==2026.3.0, numpy==2.3", ["openvino==2026.3.0", "numpy==2.3"]),
        ("openvino==2026.3.0 numpy==2.3", ["openvino==2026.3.0", "numpy==2.3"]),
    ],
)
def test_changes_are_requirements(text: str, found: list[str]) -> None:
    assert [str(r) for r in changes_of(text)] == found


@pytest.mark.parametrize(
    ("text", "said"), [("openvino", "no version of openvino"), ("==2", "no requirement"), ("", "no requirement"), ("a==1, A==2", "names a twice")]
)
def test_a_change_that_says_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        changes_of(text)


def test_a_change_reaches_what_asks_for_it() -> None:
    def reached(text: str, of: Any) -> bool:
        return affected(of, changes_of(text), PINS)

    assert reached("onnxruntime==1.31", target())
    assert not reached("openvino==2026.3", target())
    assert reached("numpy==2.3", target())
    assert reached("flatbuffers==1", target()), "nobody is known to ask for it, so anybody may"
    assert affected(target(), (), PINS)


def test_code_of_the_users_may_import_anything() -> None:
    own = InputSpec(name="x", decode="reading:read", steps=(), dtype="float32", files={"/f": "0"})
    assert needs(target(inputs=(own,)), PINS) == frozenset(PINS) - OWN
    trust = Trust(("layers.py",), (), ())
    assert "openvino" not in needs(target(trust=trust), PINS), "an ONNX file has no custom objects"
    assert "openvino" in needs(target("tensorflow", "keras", trust=trust), PINS)


@given(st.sets(names), st.sets(names, max_size=2))
def test_every_pin_is_asked_for_or_a_constraint_and_a_change_is_never_pinned(wanted: set[str], changed: set[str]) -> None:
    changes = tuple(Requirement(f"{name}==0.1") for name in sorted(changed))
    made = recipe(wanted, PINS, changes)
    lines = {*made.requirements, *made.constraints}
    assert {line.split("==")[0] for line in lines} == set(PINS) - OWN
    assert {line for line in lines if line.endswith("==0.1")} == {f"{name}==0.1" for name in changed} <= set(made.requirements)
    assert not set(made.requirements) & set(made.constraints)
    assert recipe(wanted, PINS, changes, strict=False).requirements == made.requirements
    assert recipe(wanted, PINS, changes, strict=False).constraints == ()


def test_a_change_of_what_was_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'onnxruntime'"):
        recipe((), PINS, changes_of("onnxruntim==1"))


def test_pins_are_canonical() -> None:
    assert pins_of(Installed("3.11", ("Ai_Edge.Litert==2.0",), ("mine==1",))) == {"ai-edge-litert": "2.0", "mine": "1"}


# ---------------------------------------------------------------- environments


def test_this_interpreter_will_do_where_it_holds_the_sealed_versions() -> None:
    here = this_environment()
    pins = {"numpy": here.held["numpy"], "nowhere-to-be-found": "1"}
    assert satisfies(here, pins, frozenset({"numpy"}), here.version)
    assert not satisfies(here, pins | {"numpy": "0.1"}, frozenset({"numpy"}), here.version)
    assert not satisfies(here, pins, frozenset({"nowhere-to-be-found"}), here.version)
    assert not satisfies(here, pins, frozenset({"numpy"}), "3.99.1")


@pytest.mark.parametrize(("python", "said"), [("/nowhere/python", "doesn't exist"), (__file__, "Permission denied|Exec format error|denied")])
def test_an_interpreter_that_is_none_is_said(python: str, said: str) -> None:
    found = named_environment(Path(python))
    assert found.python == ""
    assert re.search(said, found.problem)


def test_a_named_interpreter_says_what_it_holds() -> None:
    found = named_environment(Path(sys.executable))
    assert (found.problem, found.held["numpy"]) == ("", np.__version__)


def simple(*requirements: str) -> Recipe:
    return Recipe(requirements, ())


def test_an_environment_is_made_once(tmp_path: Path) -> None:
    """Of a package without dependencies; from the index that is told."""
    version = this_environment().held["packaging"]
    first = build(simple(f"packaging=={version}"), this_environment().version, tmp_path)
    assert (first.problem, first.how, first.held.get("packaging")) == ("", "built", version)
    again = build(simple(f"packaging=={version}"), this_environment().version, tmp_path)
    assert (again.how, again.python) == ("built before", first.python)
    (Path(first.python).parents[2] / COMPLETE).unlink()  # as if it had been interrupted
    assert build(simple(f"packaging=={version}"), this_environment().version, tmp_path).how == "built"


def test_an_environment_that_somebody_changed_is_made_anew(tmp_path: Path) -> None:
    held = this_environment().held
    recipe_ = simple(f"packaging=={held['packaging']}")
    first = build(recipe_, this_environment().version, tmp_path)
    metadata = next((Path(first.python).parents[1] / "lib").glob("python*/site-packages/packaging-*.dist-info/METADATA"))
    text = metadata.read_text()
    metadata.unlink()  # an installer may have linked it to its cache
    metadata.write_text(text.replace(f"Version: {held['packaging']}", "Version: 1.0"))
    again = build(recipe_, this_environment().version, tmp_path)
    assert (again.how, again.held["packaging"]) == ("built", held["packaging"])


def test_a_range_of_versions_is_asked_for_again_on_another_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=1)

    ranged = simple("packaging>=20")
    assert [build(ranged, this_environment().version, tmp_path).how for _ in range(2)] == ["built", "built before"]
    monkeypatch.setattr(environments, "datetime", Later)
    assert build(ranged, this_environment().version, tmp_path).how == "built"


@pytest.mark.parametrize(
    ("unchecked", "code", "status"), [(0, "", CellStatus.PASS), (3, "", CellStatus.UNCHECKED), (0, "KP417", CellStatus.UNCHECKED)]
)
def test_what_somebody_answers_for_covers_nothing_that_was_not_checked(unchecked: int, code: str, status: CellStatus) -> None:
    record = TargetRecord(
        "litert", "litert", "LiteRT", required=True, status=CellStatus.FAIL, reason="", cells=CellCounts(unchecked=unchecked), waived=True
    )
    open_ = [finding(code, "the worker crashed", target="litert")] if code else []
    assert _held(record, open_)[0] is status


def test_a_version_that_is_not_there_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    found = build(simple("packaging==0.0.0.1"), this_environment().version, tmp_path)
    assert found.python == ""
    assert "could not be installed" in found.problem
    assert "packaging" in found.problem
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_another_python_needs_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_uv", list)
    assert "only uv can find another Python" in build(simple(), "3.99", tmp_path).problem


# ---------------------------------------------------------------- answers

ARGMAX = DecisionSpec(rule="argmax", output="y", labels=("cat", "dog", "owl"))


def saved(folder: Path, scores: Any, modes: tuple[str, ...] = MODES) -> Answers:
    """Answers as a worker leaves them."""
    for mode in modes:
        (folder / "outputs" / mode).mkdir(parents=True)
        write_rows(folder / "outputs" / mode / "0", [np.asarray(row, dtype=np.float32) for row in scores])
    digests = {mode: digest(folder / "outputs" / mode) for mode in modes}
    return Answers(replace(run_result(modes=modes), digests=digests), folder, "run.litert")


IDS = tuple(f"in-{i}" for i in range(len(SCORES)))


def test_the_same_bits_are_the_same(tmp_path: Path) -> None:
    found = compared(saved(tmp_path / "a", SCORES), saved(tmp_path / "b", SCORES), (ARGMAX,), IDS, {})
    assert (found.same_bits, found.factor, found.changed, found.missing) == (True, 0.0, (), ())


@pytest.mark.parametrize(("move", "beyond"), [(0.5, False), (2.0, True)])
def test_a_drift_is_held_to_the_noise_floor(tmp_path: Path, move: float, *, beyond: bool) -> None:
    width = np.full(len(SCORES), 1e-6)
    floors = {"y": Floor(width, np.ones(len(SCORES)), width)}
    found = compared(saved(tmp_path / "a", SCORES), saved(tmp_path / "b", SCORES + np.float32(move * K * 1e-6)), (ARGMAX,), IDS, floors)
    assert not found.same_bits
    assert (found.factor > 1) == beyond
    assert found.factor == pytest.approx(move, rel=0.1)


def test_a_decision_that_changed_is_named(tmp_path: Path) -> None:
    other = SCORES.copy()
    other[2] = other[2][::-1] if SCORES[2].argmax() != 1 else np.roll(other[2], 1)
    found = compared(saved(tmp_path / "a", SCORES), saved(tmp_path / "b", other), (ARGMAX,), IDS, {})
    assert (found.changed, found.ties) == (("in-2",), ())


def test_nan_is_never_near(tmp_path: Path) -> None:
    other = SCORES.copy()
    other[0, 0] = math.nan
    found = compared(saved(tmp_path / "a", SCORES), saved(tmp_path / "b", other), (), IDS, {})
    assert math.isinf(found.factor)


def test_a_way_of_running_that_is_missing_is_said(tmp_path: Path) -> None:
    found = compared(saved(tmp_path / "a", SCORES), saved(tmp_path / "b", SCORES, MODES[:1]), (ARGMAX,), IDS, {})
    assert found.missing == MODES[1:]
    assert not found.same_bits


def test_sealed_answers_that_were_altered_are_not_compared(tmp_path: Path) -> None:
    sealed = saved(tmp_path / "a", SCORES)
    values = next((tmp_path / "a" / "outputs" / "alone" / "0").parent.glob("0*values*"))
    values.write_bytes(values.read_bytes()[:-1] + b"\1")
    with pytest.raises(ValueError, match="altered"):
        compared(sealed, saved(tmp_path / "b", SCORES), (ARGMAX,), IDS, {})


# ---------------------------------------------------------------- the table, and what a rollback accepts


def cell(status: CellStatus, *codes: str, name: str = "litert", column: str = "here", required: bool = True) -> Outcome:
    return Outcome("ab" * 32, name, required, column, status, "because | of\nthis", codes)


def table(*cells: Outcome) -> Rechecked:
    place = Environment("/p", "3.11.7", {}, "built")
    columns = tuple(dict.fromkeys(c.column for c in cells)) or ("here",)
    bundle = "ab" * 32
    return Rechecked(columns, {bundle: dict.fromkeys(columns, place)}, {bundle: {c: {} for c in columns}}, cells, "now", {bundle: ""}, times=True)


@pytest.mark.parametrize(
    ("cells", "verdict"),
    [
        ((), Verdict.INCOMPLETE),
        ((cell(CellStatus.PASS),), Verdict.PASS),
        ((cell(CellStatus.PASS), cell(CellStatus.UNCHECKED, "KP301", column="b")), Verdict.INCOMPLETE),
        ((cell(CellStatus.FAIL, "KP401"), cell(CellStatus.UNCHECKED, "KP301", column="b")), Verdict.FAIL),
        ((cell(CellStatus.PASS), cell(CellStatus.FAIL, "KP401", name="default", required=False)), Verdict.PASS),
        ((cell(CellStatus.FAIL, "KP401", required=False),), Verdict.INCOMPLETE),
    ],
)
def test_the_verdict_is_of_all_required_cells(cells: tuple[Outcome, ...], verdict: Verdict) -> None:
    assert table(*cells).verdict is verdict
    assert str(verdict) in rendered(table(*cells))


def test_a_cell_of_markdown_stays_in_its_row() -> None:
    lines = rendered(table(cell(CellStatus.FAIL, "KP401")), markdown=True).splitlines()
    assert "| litert | FAIL |" in lines
    assert any(line.startswith("- FAIL") and "because | of this" in line for line in lines)


BAD = cell(CellStatus.FAIL, "KP401", "KP404")


@pytest.mark.parametrize("accepted", [(), ("KP401@litert",), ("KP401@openvino", "KP404@openvino")])
def test_what_was_not_accepted_by_name_moves_nothing(accepted: tuple[str, ...]) -> None:
    with pytest.raises(RollbackError, match="KP401@litert,KP404@litert"):
        held_to([cell(CellStatus.PASS), BAD], accepted)


def test_what_was_accepted_by_name_is_kept() -> None:
    assert held_to([BAD], ("KP404@litert", "KP401@litert")) == ("KP401@litert", "KP404@litert")
    assert held_to([cell(CellStatus.PASS), cell(CellStatus.FAIL, "KP401", required=False)], ()) == ()


@pytest.mark.parametrize("outcomes", [[], [cell(CellStatus.PASS, required=False)]])
def test_nothing_run_again_is_no_way_back(outcomes: list[Outcome]) -> None:
    with pytest.raises(RollbackError, match="nothing is known of it"):
        held_to(outcomes, ())


def test_a_finding_that_nothing_raised_can_not_be_accepted() -> None:
    with pytest.raises(UsageError, match="nothing raised"):
        held_to([BAD], ("KP404@litert", "KP401@litert", "KP999@litert"))


def test_an_outcome_without_a_code_can_not_be_accepted() -> None:
    with pytest.raises(RollbackError):
        held_to([cell(CellStatus.UNCHECKED)], ())


def test_limits_that_are_relative_are_not_held_here_and_that_is_said() -> None:
    text = '[targets.litert]\nversion = "==1"\nlimits = { p50_ms = "1.1x baseline", p90_ms = 5.0, size_mib = "1.2x baseline" }\n'
    loaded = LoadedContract(parse_contract(text, "kpipe.toml"), "kpipe.toml", text, Path())
    limits = unpinned(loaded, times=True).contract.targets["litert"].limits
    assert (limits.absolute, limits.relative) == ({"p90_ms": 5.0}, {})
    assert unpinned(loaded, times=False).contract.targets["litert"].limits == LimitsTable()
    held = "[targets.litert]\nlimits = { p90_ms = 5.0, load_s = 1.0, size_mib = 3.0 }\n"
    sized = LoadedContract(parse_contract(held, "kpipe.toml"), "kpipe.toml", held, Path())
    assert unpinned(sized, times=False).contract.targets["litert"].limits.absolute == {"size_mib": 3.0}, "a size needs no timing"
    found = replace(table(), relative={"ab" * 32: ("litert p50_ms = 1.1x baseline",)})
    assert "relative to a baseline were not checked: litert p50_ms = 1.1x baseline" in rendered(found)
    assert "relative to a baseline" not in rendered(table())
