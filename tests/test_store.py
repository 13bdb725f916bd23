"""The run folder: nothing is overwritten, nothing of another run is taken up, nothing half-written is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kpipe.errors import Exit, RunFolderError
from kpipe.store import MARKER, RunFolder, discard, load_record, new_run_path, open_run_folder
from kpipe_stages.codec import encode, write_json

from .sample_record import passing

ORDER = {"model": "0f", "contract": "1e"}


def opened(path: Path, order: dict[str, str] | None = None, *, resume: bool = False) -> RunFolder:
    return open_run_folder(path, ORDER if order is None else order, resume=resume)


def refused(path: Path, order: dict[str, str] | None = None, *, resume: bool = False) -> str:
    before = sorted((p, p.read_bytes() if p.is_file() else b"") for p in path.rglob("*")) if path.is_dir() else []
    with pytest.raises(RunFolderError) as caught:
        opened(path, order, resume=resume)
    after = sorted((p, p.read_bytes() if p.is_file() else b"") for p in path.rglob("*")) if path.is_dir() else []
    assert before == after
    assert caught.value.exit_code is Exit.USAGE
    return str(caught.value)


def test_a_new_folder_is_marked_before_anything_else(tmp_path: Path) -> None:
    folder = opened(tmp_path / "a" / "b")
    assert json.loads((folder.path / MARKER).read_text()) == ORDER
    assert folder.stages.is_dir()
    assert folder.artifacts.is_dir()


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert opened(tmp_path).path == tmp_path


def test_a_relative_folder_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert opened(Path("runs/one")).path == tmp_path / "runs" / "one"
    assert new_run_path(Path("x/model.keras")).parent == Path("runs")
    assert new_run_path(Path("x/model.keras")).name.endswith("-model")


def test_what_is_no_run_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert "holds no run" in refused(tmp_path)
    assert "holds no run" in refused(tmp_path, resume=True)


@pytest.mark.parametrize("marker", ["", "{", "[]", "3", "null", "\xff"])
def test_a_marker_that_is_none_makes_no_run(tmp_path: Path, marker: str) -> None:
    (tmp_path / MARKER).write_bytes(marker.encode("latin-1"))
    assert "holds no run" in refused(tmp_path, resume=True)


def test_a_run_is_continued_only_when_asked_and_only_of_the_same_things(tmp_path: Path) -> None:
    opened(tmp_path)
    assert "--resume" in refused(tmp_path)
    assert "model changed" in refused(tmp_path, ORDER | {"model": "2d"}, resume=True)
    assert "kpipe changed" in refused(tmp_path, ORDER | {"kpipe": "9"}, resume=True)
    assert opened(tmp_path, resume=True).path == tmp_path


def test_a_place_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--out" in refused(tmp_path / "file")
    assert "--out" in refused(tmp_path / "file" / "below")


def test_text_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_text("report.md", "old")
    with pytest.raises(UnicodeEncodeError):
        folder.write_text("report.md", "new \udcff")
    assert (tmp_path / "report.md").read_text() == "old"


def test_a_record_is_read_back(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", passing(3))
    assert encode(load_record(tmp_path)) == encode(passing(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "is of version 2; this kpipe knows version 1"),
        ({"later": 1}, "unknown field 'later'"),
        ({"verdict": "MAYBE"}, "verdict"),
    ],
)
def test_a_record_of_another_form_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    (tmp_path / "run.json").write_text(json.dumps(encode(passing(3)) | change))
    with pytest.raises(RunFolderError, match=message):
        load_record(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]"])
def test_a_broken_record_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run.json").write_bytes(data)
    with pytest.raises(RunFolderError, match=r"run\.json"):
        load_record(tmp_path)


def test_no_record_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="--resume"):
        load_record(tmp_path)


def test_a_discarded_folder_is_gone(tmp_path: Path) -> None:
    folder = opened(tmp_path / "run")
    discard(folder)
    assert not folder.path.exists()
