"""Files put into a golden set: all or none, whatever stops it, and the manifest's own words stay as they were."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.curating.manifest import LONGEST_NAME, STAGING, ManifestFile, free_name, plain_name, read_manifest, with_entries
from kpipe.curating.placing import Staging, held_set, staging, take_back
from kpipe.errors import GoldenError, UsageError
from kpipe.golden import parse_manifest, sha256_of

from .sample_gate import GOLDEN, copy_golden

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

D = "0" * 64
ENTRY: dict[str, Any] = {"id": "new", "file": "files/new.png", "sha256": D, "chosen": "mined"}

WRITTEN = """# kept by hand
version = 1  # the first

[set]
name = "x"   # free

# the hard ones
[[golden]]
id = "one"   # ask Ada
file = "files/one.png"
sha256 = "{digest}"
chosen = "mined"
"""


def as_file(text: str, folder: Path) -> ManifestFile:
    data = text.encode()
    return ManifestFile(folder, data, parse_manifest(data, folder / "manifest.toml"))


def snapshot(folder: Path) -> dict[str, bytes]:
    """Everything in a set."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ------------------------------------------------------------ text

words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=30)
entries = st.lists(
    st.fixed_dictionaries(
        {"id": words, "file": words, "sha256": st.just(D), "chosen": st.sampled_from(["mined", "sampled"])},
        optional={"label": words, "expected": words, "slice": words, "how": words, "margin": st.floats(0, 1)},
    ),
    min_size=1,
    max_size=4,
)


@given(entries)
def test_old_text_stays_to_the_letter_and_new_entries_are_read_as_given(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    before = WRITTEN.format(digest=D)
    text = with_entries(as_file(before, tmp_path_factory.getbasetemp()), rows)
    assert text.startswith(before)
    assert tomllib.loads(text)["golden"][1:] == rows


@pytest.mark.parametrize(
    "before",
    [
        "version = 1\n",
        "version = 1",
        "version = 1\ngolden = []\n",
        WRITTEN.format(digest=D).replace("\n", "\r\n"),
        WRITTEN.format(digest=D).rstrip(),
        f'version = 1\n[[golden]]\nid = "a"\nfile = "a"\nsha256 = "{D}"\nchosen = "mined"\n\n[set]\nname = "after"\n',
        f'version = 1\ngolden = [{{ id = "a", file = "a", sha256 = "{D}", chosen = "mined" }}]  # short\n',
    ],
    ids=["none", "no newline", "empty list", "windows", "no newline after entry", "set last", "inline"],
)
def test_every_way_to_write_a_manifest_is_added_to(before: str, tmp_path: Path) -> None:
    held = as_file(before, tmp_path)
    after = parse_manifest(with_entries(held, [ENTRY, ENTRY | {"id": "other"}]).encode(), tmp_path)
    assert after.golden[:-2] == held.manifest.golden
    assert [entry.id for entry in after.golden[-2:]] == ["new", "other"]
    assert after.set == held.manifest.set


def test_the_shipped_manifest_keeps_every_byte() -> None:
    before = read_manifest(GOLDEN)
    text = with_entries(before, [ENTRY])
    assert text.startswith(before.text)
    assert text.count("\n\n[[golden]]") == before.text.count("\n\n[[golden]]") + 1


@given(st.text(max_size=300))
def test_names_are_plain_and_short(name: str) -> None:
    plain = plain_name(name)
    assert 0 < len(plain) <= LONGEST_NAME
    assert plain.isascii()
    assert not set(plain) & set("/\\ \n\"'")
    assert not plain.startswith((".", "-"))


@given(st.sampled_from(["a.png", "A.png", "b"]), st.lists(st.sampled_from(["a.png", "A.PNG", "a-2.png", "b", "b-2"])))
def test_a_free_name_is_free_whatever_the_case(wanted: str, taken: list[str]) -> None:
    name = free_name(wanted, taken)
    assert name.casefold() not in {other.casefold() for other in taken}
    assert name == wanted or wanted.casefold() in {other.casefold() for other in taken}


# ------------------------------------------------------------ reading


def test_a_folder_without_a_manifest_is_a_new_set_only_where_it_is_empty(tmp_path: Path) -> None:
    assert read_manifest(tmp_path / "none", new=True).data is None
    assert read_manifest(tmp_path, new=True).data is None
    (tmp_path / "photo.png").write_bytes(b"x")
    with pytest.raises(GoldenError, match=r"manifest\.toml can't be read"):
        read_manifest(tmp_path, new=True)
    with pytest.raises(UsageError, match="does not exist"):
        read_manifest(tmp_path / "none")
    with pytest.raises(UsageError, match="is a file"):
        read_manifest(tmp_path / "photo.png")


# ------------------------------------------------------------ all or none


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.png"
    path.write_bytes(b"raw bytes")
    return path


def add(golden: Path, source: Path, name: str = "files/new.png") -> str:
    """Put one file into a set, as the commands do."""
    with held_set(golden):
        before = read_manifest(golden, new=True)
        take_back(before)
        with staging(before) as shelf:
            digest = shelf.take(source, name)
            return shelf.commit(with_entries(before, [ENTRY | {"file": name, "sha256": digest}]))


def test_a_commit_adds_the_file_and_the_entry_and_nothing_else(tmp_path: Path, source: Path) -> None:
    golden = copy_golden(tmp_path)
    before = snapshot(golden)
    digest = add(golden, source)
    after = snapshot(golden)
    assert set(after) - set(before) == {"files/new.png"}
    assert after["files/new.png"] == b"raw bytes"
    assert digest == sha256_of(golden / "manifest.toml")
    assert {name: after[name] for name in before if name != "manifest.toml"} == {n: d for n, d in before.items() if n != "manifest.toml"}


def test_a_new_set_is_made_with_its_folders(tmp_path: Path, source: Path) -> None:
    add(tmp_path / "a" / "b", source)
    assert set(snapshot(tmp_path / "a")) == {"b/manifest.toml", "b/files/new.png"}


def full_disk(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def changed_manifest(shelf: Staging) -> None:
    shelf.before.path.write_bytes(b"version = 1\n")


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("a fault")], ids=["disk", "ctrl-c", "fault"]
)
@pytest.mark.parametrize("where", ["_replace_manifest", "_place"])
def test_whatever_stops_a_commit_leaves_the_set_as_it_was(
    where: str, error: BaseException, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = copy_golden(tmp_path)
    before = snapshot(golden)

    def stop(*_: Any) -> None:
        raise error

    owner = Staging if where == "_replace_manifest" else sys.modules["kpipe.curating.placing"]
    monkeypatch.setattr(owner, where, stop)
    with pytest.raises(GoldenError if isinstance(error, OSError) else type(error)):
        add(golden, source, "sub/new.png")
    assert snapshot(golden) == before
    assert not (golden / "sub").exists()
    assert not (golden / STAGING).exists()


def test_a_new_set_that_fails_leaves_no_folder(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Staging, "_replace_manifest", full_disk)
    with pytest.raises(GoldenError, match="No space left"):
        add(tmp_path / "a" / "b", source)
    assert not (tmp_path / "a").exists()


def test_a_stop_right_after_the_manifest_was_replaced_takes_nothing_back(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = copy_golden(tmp_path)
    replace: Callable[[Staging, bytes], None] = Staging._replace_manifest

    def late(shelf: Staging, data: bytes) -> None:
        replace(shelf, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(Staging, "_replace_manifest", late)
    with pytest.raises(KeyboardInterrupt):
        add(golden, source)
    assert (golden / "files" / "new.png").read_bytes() == b"raw bytes"
    assert read_manifest(golden).listed() >= {"files/new.png"}


def test_a_name_that_was_taken_meanwhile_is_not_overwritten(tmp_path: Path, source: Path) -> None:
    golden = copy_golden(tmp_path)
    (golden / "files" / "new.png").write_bytes(b"somebody else's")
    before = snapshot(golden)
    with pytest.raises(GoldenError, match="was not overwritten"):
        add(golden, source)
    assert snapshot(golden) == before


def test_a_manifest_that_changed_meanwhile_is_not_overwritten(tmp_path: Path, source: Path) -> None:
    golden = copy_golden(tmp_path)
    with held_set(golden), staging(read_manifest(golden)) as shelf:
        digest = shelf.take(source, "files/new.png")
        text = with_entries(shelf.before, [ENTRY | {"sha256": digest}])
        edited = shelf.before.text + "# an edit\n"
        shelf.before.path.write_text(edited, encoding="utf-8")
        with pytest.raises(GoldenError, match="changed by somebody else"):
            shelf.commit(text)
    assert (golden / "manifest.toml").read_text(encoding="utf-8") == edited
    assert not (golden / "files" / "new.png").exists()


def test_two_can_not_add_at_the_same_time(tmp_path: Path, source: Path) -> None:
    golden = copy_golden(tmp_path)
    with held_set(golden), pytest.raises(GoldenError, match="another kpipe is adding"):
        add(golden, source)


def test_a_file_system_without_hard_links_gets_copies(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.link", full_disk)
    golden = copy_golden(tmp_path)
    add(golden, source)
    assert (golden / "files" / "new.png").read_bytes() == b"raw bytes"
    (golden / "files" / "other.png").write_bytes(b"somebody else's")
    with pytest.raises(GoldenError):
        add(golden, source, "files/other.png")
    assert (golden / "files" / "other.png").read_bytes() == b"somebody else's"


KILLED = """
import os, signal, sys
from pathlib import Path
from kpipe.curating import placing
from tests.test_golden_placing import add
where = sys.argv[1]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(placing.Staging if where == "_replace_manifest" else placing, where, die)
add(Path(sys.argv[2]), Path(sys.argv[3]))
"""


@pytest.mark.parametrize("where", ["_replace_manifest", "_place"])
@pytest.mark.parametrize("new", [False, True], ids=["known set", "new set"])
def test_a_kill_leaves_the_set_whole_and_the_next_addition_takes_it_back(where: str, new: bool, tmp_path: Path, source: Path) -> None:
    golden = tmp_path / "golden" if new else copy_golden(tmp_path)
    before = snapshot(golden)
    top = GOLDEN.parents[1]
    done = subprocess.run([sys.executable, "-c", KILLED, where, golden, source], cwd=top, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = snapshot(golden)
    assert {name: left[name] for name in before} == before, "the manifest and every listed file"
    assert set(left) - set(before) <= {"files/new.png", f"{STAGING}/files/new.png"}
    with held_set(golden):
        found = read_manifest(golden, new=True)
        assert take_back(found) == (["files/new.png"] if where == "_replace_manifest" else [])
    assert snapshot(golden) == before
    add(golden, source)
    assert set(snapshot(golden)) - set(before) == {"files/new.png"} | ({"manifest.toml"} if new else set())


def test_taking_back_touches_nothing_that_is_listed_or_other(tmp_path: Path) -> None:
    golden = copy_golden(tmp_path)
    listed = min(read_manifest(golden).listed())
    (golden / "other.png").write_bytes(b"mine")
    for name, data in ((listed, (golden / listed).read_bytes()), ("other.png", b"not the same")):
        (golden / STAGING / name).parent.mkdir(parents=True, exist_ok=True)
        (golden / STAGING / name).write_bytes(data)
    assert take_back(read_manifest(golden)) == []
    assert (golden / listed).is_file()
    assert (golden / "other.png").read_bytes() == b"mine"
