"""The store of bundles: its log can't be cut, altered or put back unseen, several writers lose nothing, and a store that can't be written holds nothing new."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.errors import BundleError, StoreError
from kpipe.signoff.files import take_stock
from kpipe.signoff.history import history
from kpipe.signoff.local_place import LocalPlace
from kpipe.signoff.log import Logged, chained, file_of, pointer_file, pointer_problems, pointer_to, read_log
from kpipe.signoff.manifest import BUNDLES, document, parse
from kpipe.signoff.store import SETTLED_S, Located, Store, find_bundle, open_store
from kpipe.signoff.verify import verify

from .sample_store import EACH, ENTRY, approved, sealing, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def everything(folder: Path) -> dict[str, bytes]:
    """All files, scratch included, but for the lock."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A new one."""
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def folder(store: Store) -> Path:
    """Where it lies."""
    return Path(store.place.name)


# ---------------------------------------------------------------- what it holds


def test_what_is_current_by_product_and_channel(store: Store) -> None:
    first, second = approved(store, "1"), approved(store, "2")
    other = approved(store, "3", channel="canary")
    third = approved(store, "4", product="letters")
    assert store.current("digits", "production").bundle == second.entry.bundle != first.entry.bundle
    assert store.current("digits", "canary").bundle == other.entry.bundle
    assert store.current("letters", "production").bundle == third.entry.bundle
    assert [logged.entry.number for logged in store.log()] == [1, 2, 3, 4]
    assert store.problems() == []
    with pytest.raises(StoreError, match="nothing approved for letters@canary; it has digits@canary, digits@production, letters@production"):
        store.current("letters", "canary")


def test_a_bundle_is_found_by_id_by_digits_by_product_and_by_path(store: Store, folder: Path) -> None:
    logged = approved(store, "1")
    bundle = logged.entry.bundle
    for word in (bundle, bundle[:8], "digits", "digits@production"):
        found = find_bundle(word, str(folder))
        assert (found.path, found.expected) == (folder / BUNDLES / bundle, bundle)
    by_path = find_bundle(str(folder / BUNDLES / bundle))
    assert by_path.store is not None
    assert by_path.expected == bundle
    with pytest.raises(StoreError, match="no bundle begins with ffffffff"):
        find_bundle("ffffffff", str(folder))
    with pytest.raises(BundleError, match="has no approvals"):
        find_bundle("digits", str(folder / "empty"))


def test_the_same_bundle_again_is_kept_once_and_entered_twice(store: Store) -> None:
    assert approved(store, "1").entry.bundle == approved(store, "1").entry.bundle
    assert len(store.bundle_names()) == 1
    assert len(store.log()) == 2
    assert store.problems() == []


def test_bundles_are_read_only(store: Store, folder: Path) -> None:
    bundle = approved(store, "1").entry.bundle
    assert (folder / BUNDLES / bundle / "run" / "a.txt").stat().st_mode & 0o222 == 0


def test_history_says_what_is_current_and_holds_to_the_head(store: Store) -> None:
    first, second = approved(store, "1"), approved(store, "2")
    found = history("s", store.log(), None, None, first.sha256[:10])
    assert [r.current for r in found.releases] == [False, True]
    assert found.head == second.sha256
    with pytest.raises(StoreError, match="no entry of the log is feed"):
        history("s", store.log(), None, None, "feed")


# ---------------------------------------------------------------- old logs, cut logs, altered logs


def saved(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder / name, folder.parent / f"saved-{name}"))


def put_back(folder: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(folder / name)
        shutil.copytree(folder.parent / f"saved-{name}", folder / name)


def change(path: Path, key: str, value: Any) -> None:
    path.write_bytes(document(json.loads(path.read_bytes()) | {key: value}))


def old_log(folder: Path) -> None:
    put_back(folder, "approvals")


def old_log_and_pointers(folder: Path) -> None:
    put_back(folder, "approvals", "current")


def old_pointer(folder: Path) -> None:
    put_back(folder, "current")


def last_dropped(folder: Path) -> None:
    (folder / "approvals" / file_of(3)).unlink()


def middle_dropped(folder: Path) -> None:
    (folder / "approvals" / file_of(2)).unlink()


def middle_dropped_and_closed(folder: Path) -> None:
    (folder / "approvals" / file_of(2)).unlink()
    (folder / "approvals" / file_of(3)).rename(folder / "approvals" / file_of(2))


def exchanged(folder: Path) -> None:
    one, two = (folder / "approvals" / file_of(n) for n in (1, 2))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def reason_edited(folder: Path) -> None:
    change(folder / "approvals" / file_of(1), "reason", "another")


def last_reason_edited(folder: Path) -> None:
    change(folder / "approvals" / file_of(3), "reason", "another")


def white_space(folder: Path) -> None:
    path = folder / "approvals" / file_of(3)
    path.write_bytes(path.read_bytes() + b"\n")


def not_json(folder: Path) -> None:
    (folder / "approvals" / file_of(1)).write_bytes(b"\xff{")


def foreign_file(folder: Path) -> None:
    (folder / "approvals" / "note.txt").write_text("hello")


def pointer_edited(folder: Path) -> None:
    change(folder / pointer_file("digits", "production"), "bundle", "0" * 64)


def pointer_moved(folder: Path) -> None:
    (folder / "current" / "digits" / "production.json").rename(folder / "current" / "digits" / "canary.json")


def pointer_removed(folder: Path) -> None:
    (folder / "current" / "digits" / "production.json").unlink()


def pointer_garbled(folder: Path) -> None:
    (folder / "current" / "digits" / "production.json").write_bytes(b"[]")


def bundle_removed(folder: Path) -> None:
    shutil.rmtree(min((folder / BUNDLES).iterdir()))


def bundle_added(folder: Path) -> None:
    (folder / BUNDLES / ("f" * 64)).mkdir()


MEDDLING = {
    old_log: "an old log was put back",
    old_log_and_pointers: "no entry names it",
    old_pointer: "an old pointer was put back",
    last_dropped: "which the log doesn't have",
    middle_dropped: "an entry was dropped",
    middle_dropped_and_closed: "does not follow from the entry before",
    exchanged: "does not follow from the entry before",
    reason_edited: "does not follow from the entry before",
    last_reason_edited: "which the log doesn't have",
    white_space: "not in the form",
    not_json: "can't be read",
    foreign_file: "a file put there",
    pointer_edited: "it was altered",
    pointer_moved: "it was altered",
    pointer_removed: "is missing",
    pointer_garbled: "can't be read",
    bundle_removed: "isn't there",
    bundle_added: "no entry names it",
}


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No approval is under way, so nothing is waited for."""
    assert SETTLED_S > 0
    monkeypatch.setattr("kpipe.signoff.store.SETTLED_S", 0.0)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("meddle", MEDDLING, ids=lambda meddle: meddle.__name__)
def test_meddling_with_the_store_is_found(store: Store, folder: Path, meddle: Callable[[Path], None]) -> None:
    first = approved(store, "1")
    saved(folder, "approvals")
    saved(folder, "current")
    approved(store, "2")
    approved(store, "3")
    assert store.problems() == []
    meddle(folder)
    assert MEDDLING[meddle] in " ".join(store.problems())
    found = verify(Located(folder / BUNDLES / first.entry.bundle, store, first.entry.bundle))
    assert found.exit_code == 1
    assert {f.code for f in found.findings} <= {"KP712", "KP710"}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("meddle", [old_log, last_dropped, middle_dropped, reason_edited, last_reason_edited, pointer_edited, not_json, old_pointer])
def test_nothing_of_a_damaged_store_is_used(store: Store, folder: Path, meddle: Callable[[Path], None]) -> None:
    approved(store, "1")
    saved(folder, "approvals")
    saved(folder, "current")
    approved(store, "2")
    approved(store, "3")
    meddle(folder)
    with pytest.raises(StoreError):
        store.current("digits", "production")


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("meddle", [old_log, last_dropped, middle_dropped, reason_edited, last_reason_edited, pointer_edited, not_json])
def test_nothing_is_added_to_a_damaged_store(store: Store, folder: Path, meddle: Callable[[Path], None]) -> None:
    approved(store, "1")
    saved(folder, "approvals")
    approved(store, "2")
    approved(store, "3")
    meddle(folder)
    before = everything(folder)
    with pytest.raises(StoreError):
        approved(store, "4")
    assert everything(folder) == before


@pytest.mark.usefixtures("settled")
def test_the_whole_store_put_back_is_found_by_the_head_alone(store: Store, folder: Path) -> None:
    approved(store, "1")
    kept = Path(shutil.copytree(folder, folder.parent / "kept"))
    head = approved(store, "2").sha256
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    assert store.problems() == []
    with pytest.raises(StoreError, match="An older log was put back"):
        history(store.place.name, store.log(), None, None, head)


def test_an_approval_that_was_killed_before_the_pointer_is_mended_by_the_next(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    approved(store, "1")
    monkeypatch.setattr(LocalPlace, "replace", lambda *_: os.abort())
    monkeypatch.setattr(os, "abort", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        approved(store, "2")
    monkeypatch.undo()
    monkeypatch.setattr("kpipe.signoff.store.SETTLED_S", 0.0)
    assert len(store.log()) == 2
    assert "an approval was interrupted" in store.problems()[0]
    third = approved(store, "3")
    assert store.problems() == []
    assert store.current("digits", "production").bundle == third.entry.bundle


def test_what_a_killed_kpipe_left_is_swept_out(store: Store, folder: Path) -> None:
    approved(store, "1")
    left = folder / BUNDLES / ".incoming-dead"
    left.mkdir()
    (left / "half").write_text("x")
    approved(store, "2")
    assert not left.exists()


entries = st.lists(st.sampled_from([("digits", "production"), ("digits", "canary"), ("letters", "production")]), min_size=1, max_size=8)


def log_of(channels: list[tuple[str, str]]) -> tuple[list[Logged], dict[str, bytes]]:
    log: list[Logged] = []
    files = {}
    for number, (product, channel) in enumerate(channels, start=1):
        logged, data = chained(replace(ENTRY, product=product, channel=channel, bundle=f"{number:064x}"), log)
        log.append(logged)
        files[file_of(number)] = data
    return log, files


@given(entries, st.data())
def test_any_byte_of_the_log_that_changes_is_found(channels: list[tuple[str, str]], data: st.DataObject) -> None:
    log, files = log_of(channels)
    pointers = {pointer_file(one.entry.product, one.entry.channel): pointer_to(one) for one in log}
    assert read_log(files) == (log, [])
    assert pointer_problems(log, pointers) == []
    name = data.draw(st.sampled_from(sorted(files)))
    at = data.draw(st.integers(0, len(files[name]) - 1))
    changed = bytes([files[name][at] ^ data.draw(st.integers(1, 255))])
    after, problems = read_log(files | {name: files[name][:at] + changed + files[name][at + 1 :]})
    assert problems or pointer_problems(after, pointers)


@given(entries, st.data())
def test_any_entry_that_is_dropped_is_found(channels: list[tuple[str, str]], data: st.DataObject) -> None:
    log, files = log_of(channels)
    pointers = {pointer_file(one.entry.product, one.entry.channel): pointer_to(one) for one in log}
    gone = data.draw(st.sampled_from(sorted(files)))
    left = [files[name] for name in sorted(files) if name != gone]
    for kept in ({name: content for name, content in files.items() if name != gone}, {file_of(n): c for n, c in enumerate(left, start=1)}):
        after, problems = read_log(kept)
        assert problems or pointer_problems(after, pointers)


# ---------------------------------------------------------------- several at once


def test_several_writers_lose_nothing(store: Store) -> None:
    writers = [started("write", store.place.name, str(who)) for who in range(4)]
    said = [writer.communicate() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0], said
    log = store.log()
    assert [one.entry.number for one in log] == list(range(1, 4 * EACH + 1))
    assert all(sum(one.entry.by == f"writer {who}" for one in log) == EACH for who in range(4))
    assert store.current("digits", "production").bundle == log[-1].entry.bundle
    assert store.problems() == []


def test_a_folder_that_was_only_just_made_is_swept_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, make = LocalPlace(tmp_path), tempfile.mkdtemp
    others: list[threading.Thread] = []

    def other() -> None:
        with place.incoming():
            pass

    def slow(**words: Any) -> str:
        made = make(**words)
        if not others:
            others.append(threading.Thread(target=other))
            others[0].start()
            others[0].join(0.3)
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", slow)
    with place.incoming() as folder:
        others[0].join(30)
        assert folder.is_dir()
    assert place.names("bundles") == []


def test_another_writer_between_reading_and_writing_comes_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a store has no lock, only the exclusive creation of the entry's file orders two writers."""
    create = LocalPlace.create
    others = iter(["faster"])

    def interrupted(place: LocalPlace, path: str, data: bytes) -> None:
        if content := next(others, ""):
            bundle, _ = store.seal(sealing(content))
            logged, theirs = chained(replace(ENTRY, bundle=bundle), store.log())
            create(place, f"approvals/{file_of(logged.entry.number)}", theirs)
        create(place, path, data)

    monkeypatch.setattr(LocalPlace, "create", interrupted)
    logged = approved(store, "slower")
    assert logged.entry.number == 2
    assert store.log()[1].entry.bundle == store.current("digits", "production").bundle == logged.entry.bundle


def test_an_entry_that_comes_before_the_pointer_is_moved_stays_current(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_ = LocalPlace.replace
    others = iter(["later"])

    def interrupted(place: LocalPlace, path: str, data: bytes) -> None:
        if content := next(others, ""):
            bundle, _ = store.seal(sealing(content))
            logged, theirs = chained(replace(ENTRY, bundle=bundle), store.log())
            place.create(f"approvals/{file_of(logged.entry.number)}", theirs)
            replace_(place, path, document(pointer_to(logged)))
        replace_(place, path, data)

    monkeypatch.setattr(LocalPlace, "replace", interrupted)
    approved(store, "earlier")
    assert store.current("digits", "production").number == 2
    assert store.problems() == []


# ---------------------------------------------------------------- full, read-only


def test_a_full_store_keeps_nothing_of_a_bundle(store: Store, folder: Path) -> None:
    approved(store, "1")
    before = everything(folder)
    out, err = started("full", str(folder)).communicate()
    assert "it is full" in out, err
    assert "nothing was left" in out
    assert everything(folder) == before
    assert store.problems() == []


@pytest.mark.parametrize("step", ["create", "keep"])
@pytest.mark.parametrize(("number", "told"), [(errno.ENOSPC, "it is full"), (errno.EROFS, "it is read-only"), (errno.EIO, "can't be written")])
def test_a_store_that_fails_at_any_step_is_as_before(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, told: str
) -> None:
    approved(store, "1")
    before = everything(folder)

    def fails(*_: Any) -> bool:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(LocalPlace, step, fails)
    with pytest.raises(StoreError, match=told):
        approved(store, "2")
    monkeypatch.undo()
    assert everything(folder) == before
    assert store.problems() == []


@pytest.fixture
def powerless() -> Iterator[Path]:
    """A folder that this process can read and not write; root steps down for it."""
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)
    approved(open_store(str(home / "store")), "1")
    for path in (home / "store", *(home / "store").rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield home / "store"
    finally:
        if root:
            os.seteuid(0)
        for path in (home / "store", *(home / "store").rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(home)


def test_a_read_only_store_is_said_and_can_still_be_read(powerless: Path) -> None:
    before = everything(powerless)
    store = open_store(str(powerless))
    with pytest.raises(StoreError, match="it is read-only for you"):
        approved(store, "2")
    assert everything(powerless) == before
    assert store.problems() == []
    assert verify(find_bundle("digits", str(powerless))).exit_code == 0


def test_a_log_that_is_no_folder_is_said_and_nothing_is_taken_in(store: Store, folder: Path) -> None:
    folder.mkdir()
    (folder / "approvals").write_text("x")
    before = everything(folder)
    with pytest.raises(StoreError, match="can't be read"):
        approved(store, "1")
    assert everything(folder) == before


def test_a_store_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("x")
    with pytest.raises(StoreError, match="Not a directory"):
        approved(open_store(str(tmp_path / "store")), "1")


# ---------------------------------------------------------------- elsewhere


@pytest.fixture
def remote(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store in fsspec's memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return open_store(f"memory://{request.node.name}/store")


@pytest.mark.usefixtures("settled")
def test_a_remote_store_does_the_same(remote: Store) -> None:
    first, second = approved(remote, "1"), approved(remote, "2")
    assert [one.entry.number for one in remote.log()] == [1, 2]
    assert remote.problems() == []
    found = find_bundle("digits", remote.place.name)
    assert found.expected == second.entry.bundle
    assert verify(found).exit_code == 0
    assert verify(find_bundle(first.entry.bundle[:9], remote.place.name)).exit_code == 0
    system, root = fsspec.core.url_to_fs(remote.place.name)
    system.rm(f"{root}/approvals/{file_of(2)}")
    assert "which the log doesn't have" in remote.problems()[0]


def test_a_remote_store_that_fails_keeps_nothing(remote: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    approved(remote, "1")
    system, root = fsspec.core.url_to_fs(remote.place.name)
    before = sorted(system.find(root))

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(type(system), "put_file", fails)
    with pytest.raises(StoreError, match="it is full"):
        approved(remote, "2")
    assert sorted(system.find(root)) == before


def test_a_service_without_exclusive_creation_is_refused(remote: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    system, _ = fsspec.core.url_to_fs(remote.place.name)

    def unable(*_: Any, **__: Any) -> None:
        raise NotImplementedError("mode create")

    monkeypatch.setattr(type(system), "pipe_file", unable)
    with pytest.raises(StoreError, match="two approvals could overwrite one another"):
        approved(remote, "1")
    assert remote.bundle_names() == []


def test_a_service_that_overwrites_what_it_was_to_create_is_refused(remote: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some systems of fsspec don't look at ``mode``."""
    system, root = fsspec.core.url_to_fs(remote.place.name)
    plain = type(system).pipe_file

    def lenient(self: Any, path: str, value: bytes, **_mode: str) -> None:
        plain(self, path, value)

    monkeypatch.setattr(type(system), "pipe_file", lenient)
    with pytest.raises(StoreError, match="it overwrites the file"):
        approved(remote, "1")
    assert remote.bundle_names() == []
    assert not [name for name in system.find(root) if "trials" in name or "approvals" in name]


def test_an_unknown_protocol_is_said() -> None:
    with pytest.raises(StoreError, match="can't be used"):
        open_store("nosuchprotocol://x/y")


# ---------------------------------------------------------------- manifests


@pytest.mark.parametrize("name", ["../x", "/x", "a/../b", ".", "bundle.json", "a//b", "a/", "./a"])
def test_a_manifest_names_paths_below_the_bundle_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").write_text("x")
    stock = take_stock(tmp_path)
    parse(document(stock), "here")
    with pytest.raises(BundleError, match="no path below the bundle"):
        parse(document(replace(stock, files={name: stock.files["a"]})), "here")


@given(st.binary(max_size=60))
def test_bytes_that_are_no_manifest_are_told(data: bytes) -> None:
    with pytest.raises(BundleError):
        parse(data, "here")
