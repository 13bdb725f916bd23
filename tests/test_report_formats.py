"""Terminal, Markdown, JUnit and SARIF: read back by what reads them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kpipe.codes import CODES
from kpipe.report import render_all, text
from kpipe.report.junit import render_junit
from kpipe.report.markdown import escape, render_markdown
from kpipe.report.sarif import relative_uri, render_sarif
from kpipe.report.terminal import render_table

from .sample_hostile import hostile, huge
from .sample_record import failing, incomplete, passing
from .test_report_text import ANY_TEXT, greener_than_the_cells

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.record import RunRecord

RECORDS: dict[str, Callable[[], RunRecord]] = {"passing": passing, "failing": failing, "incomplete": incomplete, "hostile": hostile}


# ---------------------------------------------------------------- terminal


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("width", [20, 80, 200])
def test_a_plain_terminal_gets_ascii_within_its_width(name: str, width: int) -> None:
    lines = render_table(RECORDS[name](), color=False, width=width).split("\n")
    assert all(line.isascii() and (line.isprintable() or not line) and line == line.rstrip() for line in lines)
    # "> " before a line that a CI service would take for a command of the job
    assert max(map(len, lines)) <= max(60, width) + 2
    assert not [line for line in lines if line.lstrip().startswith("::")]


def test_the_terminal_shows_all_reasons_errors_and_remedies() -> None:
    record = failing()
    shown = " ".join(render_table(record, color=False, width=80).split())
    assert shown.startswith(f"FAIL {record.headline}")
    for words in (*record.caveats, *(t.reason for t in record.targets), *(f.cause for f in record.findings if f.severity != "note")):
        assert words in shown
    assert all(f.remedy in shown for f in record.findings if f.severity != "note")
    assert "KP304 openvino_ir at load" in shown
    assert re.search(r"openvino_ir +UNCHECKED +- +- +- +- +- +112 kB", shown)


def test_colour_changes_nothing_but_colour() -> None:
    for build in (passing, failing, incomplete):
        colored = render_table(build(), color=True, width=100)
        assert "\x1b[" in colored
        assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render_table(build(), color=False, width=100)


def test_a_coloured_terminal_can_not_be_steered() -> None:
    shown = render_table(hostile(), color=True, width=100)
    assert not re.search("[\x00-\x08\x0b-\x1a\x1c-\x1f\u202a-\u202e]", shown)
    assert not re.search(r"\x1b(?!\[[0-9;]*m)", shown)
    assert "\\x1b[31mred" in shown


def test_no_number_of_findings_is_forgotten() -> None:
    base = failing()
    findings = tuple(replace(f, target=f"target {i}") for i, f in enumerate([*base.findings] * 9) if f.severity == "error")
    shown = render_table(replace(base, findings=findings), color=False, width=80)
    more = re.search(r"(\d+) more errors: see the report", shown)
    assert more is not None
    assert int(more.group(1)) + len(re.findall(r"^  KP\d{3} ", shown, re.MULTILINE)) == len(findings)


def test_many_findings_of_a_kind_are_counted() -> None:
    assert "1,997 more KP404 on openvino: see the report." in render_table(huge(2000), color=False, width=80)


# ---------------------------------------------------------------- markdown


def rendered(markdown: str) -> str:
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


@given(ANY_TEXT)
def test_escaped_text_renders_as_itself(raw: str) -> None:
    shown = rendered(f"x {escape(raw)} x")
    assert "<" not in shown.removeprefix("<p>").removesuffix("</p>\n")
    plain = shown.removeprefix("<p>").removesuffix("</p>\n").replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    assert plain.split() == f"x {text.clean(raw)} x".split()


@given(st.text(alphabet="|`*_<>\\@#:/w.$~ab \n", max_size=60))
def test_escaped_text_stays_in_its_cell_and_calls_nobody(raw: str) -> None:
    escaped = escape(raw)
    row = rendered(f"| a | b |\n|:--|:--|\n| x{escaped} | y |\n")
    assert row.count("<td") == 2
    assert not re.search(r"@|://|\n|\bwww\.", escaped)


@pytest.mark.parametrize("name", RECORDS)
def test_markdown_holds_only_markup_of_its_own(name: str) -> None:
    source = render_markdown(RECORDS[name]())
    shown = rendered(source)
    tags = set(re.findall(r"<([a-z0-9]+)", re.sub(r"&lt;", "", shown)))
    assert tags <= {"h2", "h3", "p", "code", "strong", "em", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "blockquote"}
    targets = len(RECORDS[name]().targets)
    first = shown[shown.index("<tbody>") : shown.index("</tbody>")]
    assert first.count("<tr>") == targets
    assert first.count("<td") == 10 * targets
    assert len(source) < 60_000


def test_markdown_of_twenty_thousand_flips_stays_small() -> None:
    source = render_markdown(huge())
    assert len(source) < 60_000
    assert "19,985 more inputs in the report" in source
    assert "39,975 more error" in source


# ---------------------------------------------------------------- junit


def totals(document: str) -> dict[str, int]:
    """Counted from the cases; the attributes have to say the same."""
    root = ET.fromstring(document)  # noqa: S314 - our own
    found = {
        kind: len(root.findall(f".//{tag}"))
        for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"), ("tests", "testcase"))
    }
    assert {kind: int(root.get(kind, "-1")) for kind in found} == found
    for kind, total in found.items():
        assert sum(int(suite.get(kind, "-1")) for suite in root) == total
    return found


def test_junit_of_a_pass_is_green_though_an_optional_target_fails() -> None:
    found = totals(render_junit(passing()))
    assert (found["failures"], found["errors"]) == (0, 0)
    assert found["skipped"] == 3


def test_junit_tells_wrong_from_unchecked() -> None:
    root = ET.fromstring(render_junit(failing()))  # noqa: S314 - our own
    outcomes = {(c.get("classname"), c.get("name")): c[0].tag for c in root.iter("testcase") if len(c)}
    assert outcomes["kpipe.run", "verdict"] == "failure"
    assert outcomes["kpipe.openvino", "digit [alone]"] == "failure"
    assert outcomes["kpipe.openvino", "decisions [batch_3]"] == "failure"
    assert outcomes["kpipe.openvino_ir", "status"] == "error"
    assert outcomes["kpipe.openvino_ir", "KP304"] == "error"
    assert outcomes["kpipe.onnxruntime", "KP201"] == "failure"
    assert outcomes["kpipe.saved_model", "limit p99_ms"] == "error"
    assert outcomes["kpipe.litert", "[batch_3]"] == "skipped"
    assert outcomes["kpipe.keras_openvino", "status"] == "skipped"


def test_junit_of_an_incomplete_run_is_red() -> None:
    found = totals(render_junit(incomplete()))
    assert found["errors"] == 1


@pytest.mark.parametrize("name", greener_than_the_cells())
def test_junit_of_a_contradicted_pass_is_red(name: str) -> None:
    found = totals(render_junit(greener_than_the_cells()[name]))
    assert found["failures"] + found["errors"] > 0


def test_junit_survives_hostile_names() -> None:
    document = render_junit(hostile())
    assert totals(document)["tests"] > 30
    document.encode("utf-8")
    assert "a]]>b" in "".join(ET.fromstring(document).itertext())  # noqa: S314 - our own


# ---------------------------------------------------------------- sarif


def sarif_run(document: str) -> dict[str, Any]:
    """The one run, after a check of what SARIF 2.1.0 requires of the parts that are used here."""
    log = json.loads(document, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(set(rules)) == len(rules)
    for rule in driver["rules"]:
        assert re.fullmatch(r"\w[\w.-]*", rule["id"])
        assert rule["defaultConfiguration"]["level"] in {"error", "warning", "note"}
        assert all(rule[part]["text"] for part in ("shortDescription", "fullDescription", "help"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", run["invocations"][0]["startTimeUtc"])
    for result in run["results"]:
        check_result(run, result, rules)
    return run  # type: ignore[no-any-return]


def check_result(run: dict[str, Any], result: dict[str, Any], rules: list[str]) -> None:
    assert set(result) <= {"ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints", "properties"}
    assert rules[result["ruleIndex"]] == result["ruleId"]
    assert result["level"] in {"error", "warning", "note"}
    assert result["message"]["text"].strip()
    (location,) = result["locations"]
    artifact = location["physicalLocation"]["artifactLocation"]
    assert artifact["uriBaseId"] in run["originalUriBaseIds"]
    assert re.fullmatch(r"(?:[\w.~-]|%[0-9A-F]{2})[\w.~/%-]*", artifact["uri"], re.ASCII)
    assert location["physicalLocation"]["region"]["startLine"] >= 1


@pytest.mark.parametrize("name", RECORDS)
def test_sarif_has_the_required_shape_and_every_finding(name: str) -> None:
    record = RECORDS[name]()
    run = sarif_run(render_sarif(record))
    own = [r for r in run["results"] if r["ruleId"] in CODES]
    assert len(own) == len(record.findings)
    prints = [r["partialFingerprints"]["kpipeSubject/v1"] for r in run["results"]]
    assert len(set(prints)) == len(prints)
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} >= set(CODES)


def test_sarif_errors_are_the_required_ones() -> None:
    run = sarif_run(render_sarif(passing()))
    assert [r["level"] for r in run["results"] if r["level"] == "error"] == []
    assert [r["level"] for r in run["results"] if r["ruleId"] == "KP401"] == ["warning"]
    assert run["invocations"][0] == {"executionSuccessful": True, "exitCode": 0, "startTimeUtc": "2026-03-02T10:15:00Z"}


def test_sarif_is_never_silent_when_the_verdict_is_not_pass() -> None:
    quiet = replace(incomplete(), findings=())
    run = sarif_run(render_sarif(quiet))
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [("kpipe-verdict", "error")]
    assert run["invocations"][0]["executionSuccessful"] is False
    unchecked = [r for r in sarif_run(render_sarif(failing()))["results"] if r["ruleId"] == "kpipe-unchecked"]
    assert len(unchecked) == 1
    assert "openvino_ir was not checked" in unchecked[0]["message"]["text"]


@pytest.mark.parametrize("name", greener_than_the_cells())
def test_sarif_of_a_contradicted_pass_has_an_error(name: str) -> None:
    assert "error" in {r["level"] for r in sarif_run(render_sarif(greener_than_the_cells()[name]))["results"]}


def test_sarif_fingerprints_do_not_depend_on_numbers() -> None:
    base = failing()
    moved = replace(base, findings=tuple(replace(f, cause=f.cause + " 0.123") for f in base.findings))

    def prints(record: RunRecord) -> list[str]:
        return [r["partialFingerprints"]["kpipeSubject/v1"] for r in sarif_run(render_sarif(record))["results"]]

    assert prints(base) == prints(moved)


def test_sarif_points_at_the_file_that_is_meant() -> None:
    places = {r["ruleId"]: r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in sarif_run(render_sarif(failing()))["results"]}
    assert places["KP201"] == "models/digits.keras"
    assert places["KP304"] == "artifacts/openvino_ir/model.xml"
    assert places["KP212"] == "artifacts/litert/model.tflite"


def test_sarif_says_how_many_findings_it_leaves_out() -> None:
    run = sarif_run(render_sarif(huge(4000)))
    assert "3000 more findings are in run.json." in [r["message"]["text"] for r in run["results"]]


@given(ANY_TEXT)
def test_uris_are_relative_and_tell_no_folders(raw: str) -> None:
    assert re.fullmatch(r"(?:[\w.~-]|%[0-9A-F]{2})[\w.~/%-]*", relative_uri(raw), re.ASCII)
    assert ".." not in relative_uri(raw).split("/")
    assert relative_uri(f"/home/secret/{raw.replace('/', '') or 'x'}").count("/") == 0


def test_uris_of_usual_paths() -> None:
    assert relative_uri("models/my model.keras") == "models/my%20model.keras"
    assert relative_uri("../other/model.keras") == "other/model.keras"
    assert relative_uri("C:\\models\\model.keras") == "model.keras"


# ---------------------------------------------------------------- all


def test_every_report_is_made_and_can_be_written() -> None:
    made = render_all(hostile(), {})
    assert list(made) == ["report.html", "report.md", "junit.xml", "results.sarif"]
    assert all(document.encode("utf-8").endswith(b"\n") for document in made.values())
