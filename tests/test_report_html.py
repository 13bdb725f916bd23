"""``report.html`` and its plots: safe, self-contained, complete, of bounded size."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from kpipe.report import plots
from kpipe.report.html import LADDER, MAX_BYTES, Limits, cut_lists, render_html

from .sample_hostile import hostile, huge
from .sample_record import failing, incomplete, passing, picture, pictures
from .test_report_text import greener_than_the_cells

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.record import RunRecord

RECORDS: dict[str, Callable[[], RunRecord]] = {"passing": passing, "failing": failing, "incomplete": incomplete, "hostile": hostile}
PLOTS = (plots.drift_plot, plots.margin_plot, plots.latency_plot, plots.timeline_plot)
VOID = {"meta", "img", "br", "link", "input"}
OPTIONAL_END = {"td", "tr", "th", "li", "p"}
SAFE = {
    "ul",
    "body",
    "desc",
    "path",
    "h4",
    "h2",
    "text",
    "em",
    "dd",
    "meta",
    "span",
    "td",
    "tr",
    "th",
    "div",
    "figcaption",
    "main",
    "nav",
    "dt",
    "title",
    "figure",
    "details",
    "a",
    "defs",
    "article",
    "h1",
    "dl",
    "summary",
    "style",
    "table",
    "clippath",
    "pattern",
    "svg",
    "img",
    "html",
    "section",
    "h3",
    "footer",
    "tspan",
    "g",
    "code",
    "header",
    "thead",
    "use",
    "small",
    "p",
    "b",
    "tbody",
    "head",
    "rect",
    "li",
}


class Page(HTMLParser):
    """Tags, attributes and text of a document; complains about ends that have no beginning."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] != tag and self.open[-1] in OPTIONAL_END:
            self.open.pop()
        assert self.open, f"</{tag}> ends nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.tags if attribute in attrs]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    made = {name: build() for name, build in RECORDS.items()}
    return {name: render_html(record, pictures(record)) for name, record in made.items()}


@pytest.mark.parametrize("name", RECORDS)
def test_the_page_is_well_formed_and_fetches_nothing(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    assert page.open == []
    assert {tag for tag, _ in page.tags} <= SAFE
    assert not [key for _, attrs in page.tags for key in attrs if key.startswith("on") or key in {"action", "srcset", "data", "background"}]
    assert all(uri.startswith("data:image/png;base64,") for uri in page.values("src"))
    assert all(uri.startswith("#") for uri in page.values("href") + page.values("xlink:href"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", pages[name]))
    assert "@import" not in pages[name]
    policy = [attrs["content"] for tag, attrs in page.tags if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


@pytest.mark.parametrize("name", RECORDS)
def test_every_id_is_one_of_a_kind_and_every_link_leads_somewhere(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in page.values("href") + page.values("xlink:href")} <= set(ids)
    assert {ref for refs in page.values("aria-labelledby") for ref in refs.split()} <= set(ids)


def test_the_verdict_is_the_first_heading_and_says_itself_in_words(pages: dict[str, str]) -> None:
    for name, word in (("passing", "PASS"), ("failing", "FAIL"), ("incomplete", "INCOMPLETE")):
        first = re.search(r"<h1>(.*?)</h1>", pages[name], re.DOTALL)
        assert first is not None
        assert re.sub(r"<[^>]*>", "", first.group(1)).strip() == word


def test_errors_of_optional_targets_are_told_apart(pages: dict[str, str]) -> None:
    assert "1 error, only on targets that are not required" in pages["passing"]
    assert "only on targets that are not required" not in pages["failing"]


def test_everything_that_is_wrong_is_on_the_page(pages: dict[str, str]) -> None:
    record, shown = failing(), Page(pages["failing"]).text
    for words in (
        record.headline,
        *record.caveats,
        *(t.reason for t in record.targets),
        *(f.cause for f in record.findings),
        *(f.remedy for f in record.findings),
    ):
        assert words in shown
    for flip in record.flips:
        assert flip.input in shown
    assert shown.count("rtol 0.0645, atol 0.00645") == 1
    assert all(t.artifact.sha256 in shown for t in record.targets if t.artifact)
    assert len(Page(pages["failing"]).values("src")) == len(pictures(record))


def test_hostile_names_are_shown_as_text(pages: dict[str, str]) -> None:
    shown = Page(pages["hostile"]).text
    for words in (
        "<script>alert(1)</script>",
        "a]]>b",
        "x\\x1b[31mred\\x00\\x07",
        '"><img src=x onerror=alert(1)>',
        "\\u202e rtl \\ud800",
        "{{ 7*7 }}",
        "&amp; &#x3c; --> <!--",
    ):
        assert words in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", pages["hostile"])


@pytest.mark.parametrize("name", ["zero cells", "error finding"])
def test_a_contradicted_pass_does_not_look_like_one(name: str) -> None:
    page = render_html(greener_than_the_cells()[name], {})
    assert '<header class="verdict fail">' in page
    assert "PASS (contradicted)" in page
    assert "This record contradicts itself" in page


def test_only_raster_pictures_are_shown() -> None:
    record = failing()
    first = record.flips[0].input
    for uri in (
        "https://example.com/x.png",
        "data:text/html;base64,AAAA",
        'data:image/png;base64,AAAA" onerror="x',
        "data:image/svg+xml;base64,AAAA",
    ):
        assert {shown for _, shown in cut_lists(record, {first: uri}, LADDER[0])["cards"]} == {""}
    assert Page(render_html(record, {first: picture("2")})).values("src") == [picture("2")]


def test_a_large_picture_is_shown_whole() -> None:
    """Long texts are cut; half a picture is none."""
    record = failing()
    large = "data:image/png;base64," + "QUJD" * 3000
    assert Page(render_html(record, {record.flips[0].input: large})).values("src") == [large]


def test_twenty_thousand_flipped_inputs_fit_and_none_is_forgotten() -> None:
    record = huge()
    page = render_html(record, {})
    assert len(page.encode()) < MAX_BYTES
    shown = Page(page).text
    assert "19,940 more inputs with a flip" in shown
    assert all(row.id in shown for row in record.golden.rows[::997])
    assert "19,980 more findings of this kind in run.json" in shown


def test_what_does_not_fit_is_counted() -> None:
    record = huge(1500)
    findings = tuple(replace(f, target=f"target {i}", cause="c" * 4000) for i, f in enumerate(record.findings))
    page = render_html(replace(record, findings=findings), {})
    assert len(page.encode()) < MAX_BYTES
    hidden = re.search(r"([\d,]+) more errors in run.json", page)
    assert hidden is not None
    assert int(hidden.group(1).replace(",", "")) + page.count('<article class="finding') == len(findings)


@pytest.mark.parametrize("limits", LADDER)
def test_every_list_adds_up_at_every_size(limits: Limits) -> None:
    record = huge(300)
    found = cut_lists(record, {}, limits)
    assert len(found["cards"]) + len(found["lines"]) + found["lines_left_out"] == 300
    assert len(found["golden_rows"]) + found["golden_left_out"] == 300
    assert len(found["drifts"]) + found["drifts_left_out"] == sum(len(t.drift) for t in record.targets)
    groups = found["groups"]["error"]
    assert sum(len(g.shown) + g.left_out for g in groups.shown) + groups.left_out == len(record.findings)


@pytest.mark.parametrize("draw", PLOTS)
def test_a_plot_is_the_same_twice_readable_and_themed(draw: Callable[[RunRecord], str]) -> None:
    record = failing()
    drawing = draw(record)
    assert drawing == draw(record)
    root = ET.fromstring(drawing)  # noqa: S314 - our own
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert [child.tag.removeprefix(space) for child in root[:2]] == ["title", "desc"]
    assert root[1].text
    assert len(root.findall(f".//{space}text")) > 5
    assert "var(--ink" in drawing
    assert not re.search(r"<style|<metadata|<!DOCTYPE|Date|matplotlib", drawing)


def test_the_drift_plot_describes_every_target_that_was_compared() -> None:
    record = failing()
    description = ET.fromstring(plots.drift_plot(record))[1].text or ""  # noqa: S314 - our own
    assert description.count("of the tolerance") == sum(bool(t.drift) for t in record.targets)
    assert "openvino: 645 x of the tolerance" in description


@pytest.mark.parametrize("draw", PLOTS)
def test_hostile_records_are_drawn_or_left_out(draw: Callable[[RunRecord], str]) -> None:
    drawing = draw(hostile())
    if drawing:
        ET.fromstring(drawing)  # noqa: S314 - our own
        assert "<script" not in drawing
    assert (draw is plots.margin_plot) == (drawing == "")


def test_the_reach_of_a_drift_follows_the_decision_rule() -> None:
    record = failing()
    assert record.decision is not None
    assert plots.decision_reach(record) == pytest.approx(2 * 7.1e-3)
    threshold = replace(record.decision, rule="threshold")
    assert plots.decision_reach(replace(record, decision=threshold)) == pytest.approx(7.1e-3)


def test_importing_the_reports_costs_neither_matplotlib_nor_jinja() -> None:
    code = "import sys, kpipe.report, kpipe.report.terminal, kpipe.report.html; print({'matplotlib', 'jinja2', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
