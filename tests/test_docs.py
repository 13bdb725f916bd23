"""The documents say what the code does: codes, keys, numbers, links, the record's schema; and nothing committed names the machine it was written on."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from kpipe.codes import CODES, UNCHECKED_CODES
from kpipe.contract import Contract, LimitsTable, parse_contract
from kpipe.errors import Exit
from kpipe.golden import Entry, Manifest
from kpipe.judging.times import NEEDED
from kpipe.judging.tolerance import DEFAULTS
from kpipe.schema import run_schema, schema_text
from kpipe.waivers import parse_waivers
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.codec import encode
from kpipe_stages.preprocessing.steps import KINDS

from . import sample_record

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FINDINGS = DOCS / "findings"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
CODE = re.compile(r"KP\d{3}\b")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def prose(path: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", text(path), flags=re.DOTALL | re.MULTILINE)


def section(page: Path, heading: str) -> str:
    """What stands under a heading, down to the next one of its level or above."""
    level = heading.split(" ", maxsplit=1)[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", text(page), re.DOTALL | re.MULTILINE)
    assert found, f"{named(page)} has no heading '{heading}'"
    return found[1]


def rows(part: str) -> dict[str, list[str]]:
    """First cell to all cells of the tables in a part of a page; a first cell may name several things."""
    table = {}
    for line in re.findall(r"^\| (.*) \|$", part, re.MULTILINE):
        cells = [cell.strip() for cell in line.split(" | ")]
        for name in re.findall(r"`([^`]+)`", cells[0]) or [cells[0]]:
            table.setdefault(name, cells)
    return table


# ---------------------------------------------------------------- finding codes


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_page_that_agrees_with_the_table(code: str) -> None:
    page, row = text(FINDINGS / f"{code}.md"), CODES[code]
    assert page.startswith(f"# {code}: {row.title}\n\n**Severity: {row.severity.value}.**")
    assert ("INCOMPLETE" in page.splitlines()[2]) is (code in UNCHECKED_CODES)
    for heading in ("What it means", "How kpipe sees it", "Example", "What to do"):
        assert len(section(FINDINGS / f"{code}.md", f"## {heading}").split()) >= 3, heading


def test_no_page_without_a_code() -> None:
    assert {page.stem for page in FINDINGS.glob("*.md")} - {"README"} == set(CODES)


def test_index_lists_every_code_with_severity_title_and_meaning() -> None:
    listed = {
        found[1]: found[2:]
        for found in re.findall(r"^(\| \[(KP\d{3})\]\(KP\d{3}\.md\) \| (.*) \| (.*) \| (.*) \|)$", text(FINDINGS / "README.md"), re.MULTILINE)
    }
    expected = {
        code: (row.severity.value + (" (unchecked)" if code in UNCHECKED_CODES else ""), row.title, row.meaning) for code, row in CODES.items()
    }
    assert listed == expected


def test_every_code_that_the_source_names_is_in_the_table() -> None:
    named_in = {code: named(path) for root in ("stages", "pipeline") for path in (ROOT / root).rglob("*.py") for code in CODE.findall(text(path))}
    assert {code: where for code, where in named_in.items() if code not in CODES} == {}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_name_no_unknown_code(page: Path) -> None:
    assert set(CODE.findall(text(page))) <= set(CODES)


def test_verdict_page_lists_the_codes_that_leave_unchecked() -> None:
    line = next(line for line in text(DOCS / "verdict.md").splitlines() if "leave unchecked and fail nothing" in line)
    assert set(CODE.findall(line)) == set(UNCHECKED_CODES)


# ---------------------------------------------------------------- the contract


def tables(model: type[BaseModel], heading: str) -> list[tuple[str, type[BaseModel]]]:
    """Heading to the table class described under it, for every table of the contract that has a section of its own."""
    described = [(heading, model)]
    for name, field in model.model_fields.items():
        inner = next((kind for kind in table_classes(field.annotation) if kind.__name__ != "ToleranceTable"), None)
        if inner is None or heading != "":
            continue
        many = "dict" in str(field.annotation)
        described += tables(inner, f"## `[{name}.NAME]`" if many else f"## `[{name}]`")
    return described


def table_classes(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for inner in getattr(annotation, "__args__", ()) for kind in table_classes(inner)]


SECTIONS = [(heading, model) for heading, model in tables(Contract, "") if heading] + [("### `limits`", LimitsTable)]


def test_the_sections_are_all_tables_of_the_contract() -> None:
    assert {heading.strip("#` []").removesuffix(".NAME") for heading, _ in SECTIONS} == {*Contract.model_fields, "limits"}


@pytest.mark.parametrize(("heading", "model"), SECTIONS, ids=[heading for heading, _ in SECTIONS])
def test_every_key_of_the_contract_is_described(heading: str, model: type[BaseModel]) -> None:
    if heading == "## `[decisions.NAME]`":
        assert "has the keys of [`[decision]`](#decision)" in section(DOCS / "contract.md", heading)
        return
    described = rows(section(DOCS / "contract.md", heading))
    for key, field in model.model_fields.items():
        assert key in described, f"{heading} lacks a row for {key}"
        default = described[key][2]
        if model is LimitsTable:
            continue
        if field.is_required():
            assert default == "required", key
        elif isinstance(field.default, bool | int | float | str):
            assert default == f"`{json.dumps(field.default)}`", key
        elif field.default in ((), {}):
            assert default not in ("required", ""), key


def test_every_step_runtime_and_setting_is_described() -> None:
    page = DOCS / "contract.md"
    steps = rows(section(page, "### Steps"))
    for name, kind in KINDS.items():
        assert name in steps, name
        assert all(f"`{option}`" in steps[name][2] or steps[name][2] == "the same" for option in kind.options), name
    targets = rows(section(page, "## `[targets.NAME]`"))
    settings = rows(section(page, "### Settings"))
    for name, row in RUNTIMES.items():
        assert name in targets, name
        assert name in settings, name
        assert all(key in settings[name][1] for key, _ in row.float32_settings), name


def test_every_key_of_the_manifest_is_described() -> None:
    described = rows(section(DOCS / "golden.md", "## A folder of raw files"))
    assert set(Entry.model_fields) <= set(described)
    example = next(block for block in blocks(DOCS / "golden.md", "toml") if block.startswith("version"))
    manifest = Manifest.model_validate(tomllib.loads(whole_digests(example)) | {"golden": tuple(tomllib.loads(whole_digests(example))["golden"])})
    assert set(manifest.golden[0].model_fields_set) == set(Entry.model_fields) - {"files"}


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text(page), re.DOTALL | re.MULTILINE)
    return [block for _, block in found]


def whole_digests(block: str) -> str:
    """Digests are cut short on the pages; here they are whole."""
    return re.sub(r'"([0-9a-f]{4})\.\.\."', lambda found: f'"{found[1] * 16}"', block)


TOML = [(page, i) for page in PAGES for i, _ in enumerate(blocks(page, "toml"))]


@pytest.mark.parametrize(("page", "index"), TOML, ids=[f"{named(page)}-{i}" for page, i in TOML])
def test_every_toml_block_is_a_valid_piece_of_a_contract_or_manifest(page: Path, index: int) -> None:
    block = whole_digests(blocks(page, "toml")[index])
    data = tomllib.loads(block)
    if "waiver" in data:
        assert parse_waivers(block, named(page), date(2026, 1, 1)).waivers
    elif isinstance(data.get("golden"), list):
        assert all(set(entry) <= set(Entry.model_fields) for entry in data["golden"])
    else:
        parse_contract(block, named(page))


# ---------------------------------------------------------------- numbers


def test_exit_codes_are_told_alike() -> None:
    for page, heading in ((ROOT / "README.md", "## In CI"), (DOCS / "verdict.md", "## Exit codes")):
        told = {int(number) for first in rows(section(page, heading)) for number in re.findall(r"\d+", first)}
        assert told == {int(code) for code in Exit}


def test_default_tolerances_are_told() -> None:
    told = {
        name.strip(): (float(row[1]), float(row[2]))
        for first, row in rows(section(DOCS / "verdict.md", "## Tolerances")).items()
        for name in first.split(",")
        if "float" in name
    }
    assert told == DEFAULTS


def test_calls_that_a_percentile_needs_are_told() -> None:
    line = "p50 needs 11 calls, p90 64, p95 130, p99 662"
    assert [int(n) for n in re.findall(r"p\d+ (?:needs )?(\d+)", line)] == [NEEDED[p] for p in (50.0, 90.0, 95.0, 99.0)]
    assert line in text(DOCS / "verdict.md")


# ---------------------------------------------------------------- README and links


def test_readme_names_both_commands_and_ci_runs_the_second() -> None:
    assert {"make demo", "make test"} <= set(re.findall(r"make \w+", text(ROOT / "README.md")))
    assert text(ROOT / ".ci" / "run").rstrip().endswith("make test")
    targets = set(re.findall(r"^(\w+):", text(ROOT / "Makefile"), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"^\$ make (\w+)", text(page), re.MULTILINE)) <= targets, named(page)


def test_readme_names_every_command() -> None:
    from kpipe.cli.app import app

    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    for group in app.registered_groups:
        inside = group.typer_instance
        assert inside is not None
        assert inside.registered_commands
        commands |= {f"{inside.info.name} {command.callback.__name__}" for command in inside.registered_commands if command.callback}
    assert {name.removeprefix("kpipe ") for name in rows(section(ROOT / "README.md", "## The rest of the command"))} - {"command"} >= commands


def test_readme_shows_a_real_table() -> None:
    block = re.search(r"<!-- demo-table:begin -->\n```text\n(.*?)```\n<!-- demo-table:end -->", text(ROOT / "README.md"), re.DOTALL)
    assert block
    shown = {line.split()[0] for line in block[1].splitlines() if re.match(r"\S+ +(PASS|FAIL|UNCHECKED) ", line)}
    contract = tomllib.loads(text(ROOT / "examples" / "digits" / "kpipe.toml"))
    assert shown == set(contract["targets"])
    assert (DOCS / "images" / "report.png").stat().st_size < 300_000


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{named(page)} links to {link}"
        if anchor:
            anchors = {slug(heading) for heading in re.findall(r"^#+ (.*)$", prose(target), re.MULTILINE)}
            assert anchor in anchors, f"{named(page)} links to {link}; the headings there are {sorted(anchors)}"


# ---------------------------------------------------------------- the record


def test_committed_schema_is_the_generated_one() -> None:
    assert text(DOCS / "schema" / "run.schema.json") == schema_text(), "python -m kpipe.schema > docs/schema/run.schema.json"


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = run_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("build", [sample_record.passing, sample_record.failing, sample_record.incomplete])
def test_records_validate(build: Any, validator: Any) -> None:
    validator.validate(json.loads(json.dumps(encode(build()))))


def test_schema_takes_non_finite_numbers_as_words_and_nothing_else(validator: Any) -> None:
    record = replace(sample_record.passing(), wall_s=float("nan"))
    written = encode(record)
    assert written["wall_s"] == "NaN"
    validator.validate(written)
    for wrong in (None, "nan", "1.0", True):
        assert not validator.is_valid(written | {"wall_s": wrong}), wrong


def test_schema_refuses_what_the_codec_refuses(validator: Any) -> None:
    written = encode(sample_record.passing())
    assert not validator.is_valid(written | {"colour": "blue"})
    assert not validator.is_valid(written | {"schema_version": 2})
    assert not validator.is_valid(written | {"verdict": "MAYBE"})
    assert not validator.is_valid({key: value for key, value in written.items() if key != "targets"})


# ---------------------------------------------------------------- nothing of the machine


def committed() -> list[Path]:
    """Every file that is, or would be, committed."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True).stdout
    return sorted({ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()})


FOREIGN = [
    re.compile(pattern)
    for pattern in (
        r"(?<![\w.])/(?:tmp|root|work)\b/",
        r"\.\./shared\b",
        r"https?://(?:localhost|127\.|10\.\d|192\.168)",
        r"(?:extra-)?index-url +https?:",
    )
]


def test_nothing_committed_names_a_machine() -> None:
    found = []
    for path in committed():
        data = path.read_bytes()
        if b"\0" in data[:8192] or path == Path(__file__).resolve():
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            found += [f"{named(path)}:{number}: {line.strip()[:120]}" for pattern in FOREIGN if pattern.search(line)]
    assert found == []
