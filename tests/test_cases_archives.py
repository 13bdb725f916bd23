"""Archives of the kinds that were seen in the wild: each is refused by its code, and nothing of it has run or been unpacked."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .cases.build_archives import ARCHIVES, CANARY, CANARY_SOURCE, Base, members_of
from .cases.gate import BEFORE_FRAMEWORKS, Command, command

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def members(cases: Path) -> dict[str, bytes]:
    return members_of(cases / "base" / "model.keras")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a canary to import, three levels down, so that what climbs out of it is seen too."""
    folder = tmp_path / "one" / "two" / "three"
    folder.mkdir(parents=True)
    (folder / f"{CANARY}.py").write_text(CANARY_SOURCE, encoding="utf-8")
    (tmp_path / "temporary").mkdir()
    return folder


def files(top: Path) -> set[Path]:
    """Everything below ``top`` but kpipe's own run folder and bytecode."""
    return {path for path in top.rglob("*") if "run" not in path.parts and "__pycache__" not in path.parts}


def validate(model: Path, golden: Path, top: Path) -> Command:
    """The command, where the canary could be imported if anyone would: in the working folder, on the path, beside the archive."""
    return command(
        "validate", model, "--golden", golden, "--out", "run", folder=model.parent, PYTHONPATH=str(model.parent), TMPDIR=str(top / "temporary")
    )


def check_refused(answer: Command, folder: Path, code: str, says: str) -> None:
    assert answer.exit_code == 1, answer.stderr
    record = answer.record(folder / "run")
    errors = [f for f in record["findings"] if f["severity"] == "error"]
    assert code in {f["code"] for f in errors}
    assert any(says in f["cause"] + f["place"] for f in errors if f["code"] == code)
    assert all(f["remedy"] for f in errors)
    assert record["verdict"] == "FAIL"
    assert record["edge"]["name"] == "archive"
    assert {stage["name"] for stage in record["stages"]} <= BEFORE_FRAMEWORKS
    assert {(target["status"], target["cells"]["passed"]) for target in record["targets"]} == {("unchecked", 0)}
    assert max(stage["peak_rss_bytes"] for stage in record["stages"]) < 2**29
    assert "Traceback" not in answer.stdout + answer.stderr


@pytest.mark.parametrize("case", ARCHIVES)
def test_a_hostile_archive_is_refused_and_does_nothing(case: str, members: dict[str, bytes], cases: Path, place: Path, tmp_path: Path) -> None:
    archive = ARCHIVES[case]
    model = place / "model.keras"
    model.write_bytes(archive.build(Base(members, place)))
    before = files(tmp_path)
    answer = validate(model, cases / "base" / "inputs.npz", tmp_path)
    assert files(tmp_path) == before
    check_refused(answer, place, archive.code, archive.says)


def test_a_lambda_with_a_payload_is_refused_and_does_nothing(cases: Path, place: Path, tmp_path: Path) -> None:
    model = place / "model.keras"
    model.write_bytes((cases / "A03_lambda_code" / "model.keras").read_bytes())
    marker = cases / "MARKER_lambda"
    marker.unlink(missing_ok=True)
    before = files(tmp_path)
    check_refused(validate(model, cases / "A03_lambda_code" / "inputs.npz", tmp_path), place, "KP006", "payload")
    assert files(tmp_path) == before
    assert not marker.exists()


def test_the_canary_sings_when_it_is_used(place: Path) -> None:
    """The other tests could not fail if the canary were mute."""
    script = f"import {CANARY} as canary; canary.Thing.from_config({{}}); canary.function()"
    subprocess.run([sys.executable, "-c", script], cwd=place, check=True)
    assert {path.name for path in place.glob("MARKER_*")} == {"MARKER_imported", "MARKER_made", "MARKER_from_config", "MARKER_called"}


def test_the_archive_that_all_are_cut_from_is_sound(members: dict[str, bytes], place: Path) -> None:
    """Put together again unchanged, it is inspected without an error: what the others are refused for is what was done to them."""
    model = place / "model.keras"
    model.write_bytes(Base(members, place).zipped())
    answer = command("inspect", model, "--json", folder=place)
    assert answer.exit_code == 0, answer.stdout + answer.stderr
