"""Waivers: what they cover, and all that they never do."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.errors import WaiverError
from kpipe.judging.judge import judge
from kpipe.record import CellStatus, RunRecord, Verdict, WaiverState
from kpipe.report import render_all
from kpipe.report.summary import contradictions, waiver_lines
from kpipe.waivers import PLACE_OF, WaiverSet, load_waivers, parse_waivers

from .sample_run import CONTRACT, SCORES, Bench, answers, codes, row

if TYPE_CHECKING:
    from pathlib import Path

TODAY = date(2026, 11, 30)
ARTIFACT = "ab" * 32
CANDIDATE = "ef" * 32


def waiver(**changes: Any) -> dict[str, Any]:
    """One that covers the flip on ``in-1``."""
    facts = {
        "code": "KP404",
        "target": "litert",
        "input": "in-1",
        "artifact": ARTIFACT,
        "observed": 0.5,
        "allowed": [0.0, 0.6],
        "owner": "approvers",
        "reason": "people misread it too",
        "expires": date(2026, 12, 31),
    }
    return {key: value for key, value in (facts | changes).items() if value is not None}


def waivers(*entries: dict[str, Any], today: date = TODAY) -> WaiverSet:
    return parse_waivers(tomlkit.dumps({"version": 1, "waiver": list(entries)}), "waivers.toml", today)


def drift(**changes: Any) -> dict[str, Any]:
    """One that covers the numbers of output ``y``."""
    return waiver(**({"code": "KP401", "input": None, "output": "y", "observed": 0.5, "allowed": [0.0, 1.0]} | changes))


def flipping(folder: Path, *inputs: int, text: str = CONTRACT + "[targets.litert]\n", **changes: Any) -> Bench:
    """A target that decides otherwise on some inputs."""
    scores = np.array(SCORES)
    for i in inputs:
        scores[i] = np.roll(scores[i], 1)
    return Bench(folder, text=text, targets={"litert": answers(scores, **changes)})


def held(bench: Bench, given: WaiverSet) -> RunRecord:
    return judge(bench.folder, bench.loaded(), bench.evidence(), given)


def largest(record: RunRecord, name: str) -> float:
    return max(flip.drift for flip in record.flips if flip.input == name)


# ---------------------------------------------------------------- what is covered


def test_a_run_whose_every_failing_finding_is_covered_passes(tmp_path: Path) -> None:
    bench = flipping(tmp_path, 1)
    plain = bench.judge()
    assert (plain.verdict, {f.code for f in plain.findings if f.severity == "error"}) == (Verdict.FAIL, {"KP401", "KP404"})
    drifted = largest(plain, "in-1")
    record = held(bench, waivers(waiver(observed=drifted, allowed=[0.0, drifted]), drift()))
    assert record.verdict is Verdict.PASS
    assert "waived by approvers" in record.headline
    assert "differ on 3" in record.headline
    assert (row(record).status, row(record).waived, row(record).cells) == (CellStatus.FAIL, True, row(plain).cells)
    assert [w.state for w in record.waivers] == [WaiverState.USED, WaiverState.USED]
    assert record.waivers[0].found == drifted
    assert record.judged_on == "2026-11-30"
    assert contradictions(record) == ()
    assert {f.code for f in record.findings if f.waived} == {"KP401", "KP404"}
    assert all(f.waived == "approvers until 2026-12-31: people misread it too" for f in record.findings if f.waived)


def test_every_report_lists_waivers_first(tmp_path: Path) -> None:
    bench = flipping(tmp_path, 1)
    record = held(bench, waivers(waiver(), drift(), waiver(input="in-5")))
    lines = waiver_lines(record)
    assert [line.split(":")[0] for line in lines] == ["Waived", "Waived", "Waiver unused"]
    files = render_all(record, {})
    for name in ("report.html", "report.md", "junit.xml", "results.sarif"):
        assert "people misread it too" in files[name], name
    assert files["report.md"].index("Waived") < files["report.md"].index("| target |")
    assert files["report.html"].index("Waived") < files["report.html"].index('id="targets"')
    assert files["junit.xml"].index("Waived") < files["junit.xml"].index("kpipe.litert")
    assert "<failure" not in files["junit.xml"]
    assert "<error" not in files["junit.xml"]


def test_a_record_that_is_marked_waived_without_a_waiver_contradicts_itself(tmp_path: Path) -> None:
    record = held(flipping(tmp_path, 1), waivers(waiver(), drift()))
    assert any("no waiver covers it" in problem for problem in contradictions(replace(record, waivers=())))
    plain = replace(record, findings=tuple(replace(f, waived="") for f in record.findings))
    assert any("no finding about it is" in problem for problem in contradictions(plain))


def test_the_last_day_counts_and_the_next_does_not(tmp_path: Path) -> None:
    bench = flipping(tmp_path, 1)
    entries = (waiver(), drift())
    assert held(bench, waivers(*entries, today=date(2026, 12, 31))).verdict is Verdict.PASS
    late = held(bench, waivers(*entries, today=date(2027, 1, 1)))
    assert late.verdict is Verdict.FAIL
    assert [f.code for f in late.findings].count("KP701") == 2
    assert not row(late).waived


# ---------------------------------------------------------------- what never is


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([waiver(artifact="cd" * 32), drift()], "KP703"),
        ([waiver(artifact=CANDIDATE), drift()], "KP703"),
        ([waiver(observed=0.1, allowed=[0.0, 0.2]), drift()], "KP703"),
        ([waiver(), drift(observed=0.01, allowed=[0.0, 0.02])], "KP703"),
        ([waiver(observed=0.7, allowed=[0.6, 0.8]), drift()], "KP703"),
        ([waiver(input="in-2"), drift()], "KP702"),
        ([waiver(target="onnxruntime"), drift()], "KP702"),
        ([waiver()], ""),
        ([drift()], ""),
        ([waiver(expires=date(2026, 11, 29)), drift()], "KP701"),
        ([waiver(), drift(output="z")], "KP702"),
    ],
)
def test_one_that_does_not_fit_leaves_the_run_failed(tmp_path: Path, entries: list[dict[str, Any]], code: str) -> None:
    record = held(flipping(tmp_path, 1), waivers(*entries))
    assert record.verdict is Verdict.FAIL
    assert not row(record).waived
    assert {c for c in codes(record) if c.startswith("KP7")} == ({code} if code else set())


def test_each_flipped_input_needs_its_own(tmp_path: Path) -> None:
    bench = flipping(tmp_path, 1, 4)
    both = (waiver(allowed=[0.0, 9.0]), waiver(input="in-4", allowed=[0.0, 9.0]))
    assert held(bench, waivers(both[0], drift())).verdict is Verdict.FAIL
    assert held(bench, waivers(*both, drift())).verdict is Verdict.PASS


def test_an_optional_target_is_neither_failed_nor_helped(tmp_path: Path) -> None:
    text = CONTRACT + "[targets.litert]\nrequired = false\n[targets.onnxruntime]\n"
    bench = flipping(tmp_path, 1, text=text)
    bench.targets["onnxruntime"] = answers()
    record = held(bench, waivers(waiver(allowed=[0.0, 9.0]), drift()))
    assert record.verdict is Verdict.PASS
    assert row(record).waived
    assert "waived" not in record.headline


def test_unchecked_cells_are_never_waived(tmp_path: Path) -> None:
    """The target's failed cells are waived, one mode was not run: incomplete, not passed."""
    record = held(flipping(tmp_path, 1, modes=("alone", "batch_3")), waivers(waiver(), drift()))
    assert row(record).waived
    assert record.verdict is Verdict.INCOMPLETE


def test_nan_lies_in_no_range(tmp_path: Path) -> None:
    scores = np.array(SCORES)
    scores[1] = np.nan
    bench = Bench(tmp_path, targets={"litert": answers(scores)})
    record = held(bench, waivers(waiver(allowed=[-1e300, 1e300]), drift(allowed=[-1e300, 1e300])))
    assert record.verdict is Verdict.FAIL
    assert not any(f.waived for f in record.findings if f.code in {"KP402", "KP404"})


def test_another_failure_of_the_same_target_still_fails(tmp_path: Path) -> None:
    bench = flipping(tmp_path, 1, repeats_equal=False, repeat_difference=0.5)
    record = held(bench, waivers(waiver(), drift()))
    assert record.verdict is Verdict.FAIL
    assert "KP416" in record.headline


def test_a_limit_that_was_not_kept_can_be_waived_by_its_value(tmp_path: Path) -> None:
    text = CONTRACT + "[targets.litert]\nlimits = { size_mib = 0.001 }\n"
    bench = Bench(tmp_path, text=text)
    assert bench.judge().verdict is Verdict.FAIL
    limit = waiver(code="KP504", input=None, place="size_mib", observed=0.0039, allowed=[0.0, 0.004])
    record = held(bench, waivers(limit))
    assert record.verdict is Verdict.PASS
    assert row(record).waived
    assert held(bench, waivers(limit | {"allowed": [0.0, 0.003901], "observed": 0.0039})).verdict is Verdict.FAIL


def test_without_waivers_nothing_is_another(tmp_path: Path) -> None:
    bench = flipping(tmp_path, 1)
    assert held(bench, WaiverSet(today=TODAY)) == replace(bench.judge(), judged_on="2026-11-30")


choices = st.lists(
    st.sampled_from(
        [
            waiver(allowed=[0.0, 9.0]),
            waiver(input="in-4", allowed=[0.0, 9.0]),
            waiver(input="in-4", allowed=[0.0, 9.0], artifact=CANDIDATE),
            drift(),
            drift(observed=0.01, allowed=[0.0, 0.02]),
            waiver(expires=date(2026, 1, 1), allowed=[0.0, 9.0]),
        ]
    ),
    max_size=4,
)


@settings(max_examples=40)
@given(entries=choices, inputs=st.sets(st.sampled_from([1, 4])), lost=st.booleans())
def test_what_passes_is_covered_whole(tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]], inputs: set[int], lost: bool) -> None:
    """The verdict is PASS exactly where every flip has a waiver that fits, the numbers have theirs, and nothing is unchecked."""
    unique = {(e["code"], e.get("input"), e.get("output"), e["artifact"]): e for e in entries}.values()
    modes = ("alone", "batch_3") if lost else ("alone", "batch_3", "batch_8")
    bench = flipping(tmp_path_factory.mktemp("run"), *sorted(inputs), modes=modes)
    record = held(bench, waivers(*unique))
    fits = [e for e in unique if e["artifact"] == ARTIFACT and e["expires"] >= TODAY and e["allowed"][1] >= 1.0]
    covered = {f"in-{i}" for i in inputs} <= {e.get("input") for e in fits}
    numbers = any(e["code"] == "KP401" for e in fits) or not inputs
    expected = Verdict.FAIL if not (covered and numbers) else Verdict.INCOMPLETE if lost else Verdict.PASS
    assert record.verdict is expected
    assert contradictions(record) == ()
    assert len(record.waivers) == len(list(unique))


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (waiver(code="KP999"), "waiver 1: code: KP999 is no finding code"),
        (waiver(code="KP001"), "code: KP001 has no number that a waiver could bound"),
        (waiver(code="KP314"), "KP314 has no number"),
        (waiver(input=None), "a waiver of KP404 needs 'input', and it alone; it has none"),
        (waiver(output="y"), "it has input, output"),
        (waiver(observed=0.7), "observed is 0.7, which is outside of allowed = [0, 0.6]"),
        (waiver(allowed=[0.6, 0.0]), "outside of allowed"),
        (waiver(allowed=[0.0]), "waiver 1: allowed"),
        (waiver(observed=float("nan")), "waiver 1: observed"),
        (waiver(allowed=[0.0, float("inf")]), "waiver 1: allowed: 1"),
        (waiver(artifact="abc"), "waiver 1: artifact"),
        (waiver(owner=""), "waiver 1: owner"),
        (waiver(reason=None), "waiver 1: reason is missing"),
        (waiver(expires="2026-12-31"), "waiver 1: expires"),
        (waiver(expire=date(2026, 1, 1)), "unknown key (did you mean 'expires'?)"),
        (waiver(observed="0.5"), "waiver 1: observed"),
        (waiver(observed=True), "waiver 1: observed"),
    ],
)
def test_a_waiver_that_is_off_is_told(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(WaiverError) as caught:
        waivers(entry)
    assert message in str(caught.value)


def test_files_that_are_off_are_told(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    with pytest.raises(WaiverError, match="can't be read: No such file"):
        load_waivers(path, TODAY)
    for data, message in (
        (b"a = ", "isn't a TOML file"),
        (b"\xff", "isn't UTF-8"),
        (b"version = 2", "version"),
        (b"waiver = 3\nversion = 1", "waiver"),
    ):
        path.write_bytes(data)
        with pytest.raises(WaiverError, match=message):
            load_waivers(path, TODAY)
    with pytest.raises(WaiverError, match="waiver 2 is about KP404 of target 'litert' at 'in-1', and so is one before it"):
        waivers(waiver(), waiver(owner="on-call"))


def test_whole_numbers_are_numbers() -> None:
    assert waivers(waiver(observed=0, allowed=[0, 1])).waivers[0].allowed == (0.0, 1.0)


def test_only_findings_with_numbers_can_be_waived() -> None:
    from kpipe.codes import CODES, UNCHECKED_CODES

    assert not set(PLACE_OF) & UNCHECKED_CODES
    assert all(CODES[code].severity == "error" for code in PLACE_OF)
    assert not [code for code, family in itertools.product(PLACE_OF, ("KP0", "KP2", "KP3", "KP7")) if code.startswith(family)]
