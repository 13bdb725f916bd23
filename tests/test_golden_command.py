"""``kpipe golden verify`` and ``add`` as a shell runs them: each fault named with values, nothing added unless all of it is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import tomllib
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tomlkit

from kpipe.curating import decoding
from kpipe.curating.decoding import decode_files
from kpipe.curating.manifest import STAGING
from kpipe.curating.verify import verify_set
from kpipe.errors import GoldenError
from kpipe.golden import GoldenInput, sha256_of
from kpipe_stages.protocol import InputSpec

from .cases.gate import command
from .sample_gate import GOLDEN, MODEL, copy_golden, flat, manifest, shipped
from .sample_pool import make_pool
from .test_golden_placing import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .cases.gate import Command

TWO_INPUTS = '[inputs.left]\ndecode = "npy"\n[inputs.right]\ndecode = "npy"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the shipped contract and a copy of the shipped set, ``golden``."""
    golden = copy_golden(tmp_path)
    (tmp_path / "kpipe.toml").write_text(shipped(golden), encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Raw files that no set holds."""
    folder = tmp_path_factory.mktemp("photos")
    return [folder / name for name in make_pool(folder, 4, seed=11)]


def golden(*words: str | Path, folder: Path) -> Command:
    return command("golden", *words, folder=folder)


def rewrite(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the entries of a set."""
    path = folder / "manifest.toml"
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    change(document["golden"])
    path.write_text(tomlkit.dumps(document), encoding="utf-8")


def bomb() -> bytes:
    """A PNG whose header declares 60,000 x 60,000 pixels."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b"x")), (b"IEND", b"")]
    chunks = (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


# ------------------------------------------------------------ verify


def test_the_shipped_set_is_well(place: Path) -> None:
    answer = golden("verify", "golden", folder=place)
    assert answer.exit_code == 0, answer
    assert "78 golden inputs, 78 of them decoded by" in answer.stdout
    assert "all is well" in answer.stdout
    assert "mined 22, sampled 56" in answer.stdout
    assert sha256_of(place / "golden" / "manifest.toml") in answer.stdout


def test_json_holds_the_counts(place: Path) -> None:
    answer = golden("verify", "golden", "--json", folder=place)
    report = json.loads(answer.stdout)
    entries = manifest(GOLDEN)
    assert (report["inputs"], report["decoded"], report["problems"]) == (78, 78, [])
    assert sum(report["expected"].values()) == sum("expected" in entry for entry in entries)
    assert sum(report["slices"].values()) == 78
    assert report["chosen"] == {"mined": 22, "sampled": 56}
    assert not answer.stderr


def first_file(place: Path) -> Path:
    return place / "golden" / manifest(GOLDEN)[0]["file"]


def alter(place: Path) -> None:
    first_file(place).write_bytes(first_file(place).read_bytes() + b"x")


def lose(place: Path) -> None:
    first_file(place).unlink()


def replaced(data: bytes) -> Callable[[Path], None]:
    def spoil(place: Path) -> None:
        first_file(place).write_bytes(data)
        rewrite(place / "golden", lambda entries: entries[0].update(sha256=hashlib.sha256(data).hexdigest()))

    return spoil


def copy_second(place: Path) -> None:
    entry = manifest(GOLDEN)[1]
    shutil.copyfile(place / "golden" / entry["file"], first_file(place))
    rewrite(place / "golden", lambda entries: entries[0].update(sha256=entry["sha256"]))


def entry(**values: str) -> Callable[[Path], None]:
    return lambda place: rewrite(place / "golden", lambda entries: entries[0].update(values))


def link(place: Path) -> None:
    first_file(place).rename(first_file(place).with_name(".real"))
    first_file(place).symlink_to(".real")


def stray(place: Path) -> None:
    (place / "golden" / "files" / "stray.png").write_bytes(first_file(place).read_bytes())


def interrupted(place: Path) -> None:
    (place / "golden" / STAGING).mkdir()


def empty(place: Path) -> None:
    shutil.rmtree(place / "golden" / "files")
    rewrite(place / "golden", lambda entries: entries.clear())


def named_otherwise(place: Path) -> None:
    contract = place / "kpipe.toml"
    contract.write_text(contract.read_text(encoding="utf-8").replace("[golden]", f'[golden]\nmanifest_sha256 = "{"0" * 64}"'), encoding="utf-8")


def other_preprocessing(place: Path) -> None:
    """A target's own steps, which don't deal with transparency."""
    contract = place / "kpipe.toml"
    steps = '\n[targets.litert.inputs.image]\ndecode = "image"\nsteps = [{ channels = "gray" }, { resize = [16, 16] }]\n'
    contract.write_text(contract.read_text(encoding="utf-8") + steps, encoding="utf-8")


ID, OTHER = (row["id"] for row in manifest(GOLDEN)[:2])


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (alter, [f"{ID}: KP102: ", "has SHA-256", "as the manifest says"]),
        (lose, [f"{ID}: KP101: ", "does not exist"]),
        (replaced(b"no image at all"), [f"{ID}: KP103: ", "Convert the file"]),
        (replaced(bomb()), [f"{ID}: KP103: ", "60000"]),
        (copy_second, [f"{OTHER}: its bytes are those of '{ID}'", "counts twice"]),
        (entry(id=OTHER), [f"{OTHER}: the id stands 2 times"]),
        (entry(file="../kpipe.toml"), [f"{ID}: it can't be run", "outside the golden folder"]),
        (entry(expected="sevn"), [f"{ID}: expected is 'sevn'", "0, 1, 2, 3"]),
        (link, [f"{ID}: files/", "is a link"]),
        (stray, ["-: files/stray.png is in the folder and no entry lists it"]),
        (interrupted, [f"-: an addition was interrupted and left {STAGING}"]),
        (empty, ["-: manifest.toml has no [[golden]] entry"]),
        (named_otherwise, ["-: the manifest's SHA-256 is", "0" * 64, "on purpose"]),
        (other_preprocessing, [f"{ID}: for target 'litert': KP1", "alpha"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_fault_is_a_line_of_its_own(spoil: Callable[[Path], None], expected: list[str], place: Path) -> None:
    spoil(place)
    before = snapshot(place)
    answer = golden("verify", "golden", folder=place)
    assert answer.exit_code == 1, answer
    lines = [line for line in answer.stdout.splitlines() if expected[0] in line]
    assert len(lines) == 1, answer.stdout
    assert all(words in lines[0] for words in expected), lines
    assert snapshot(place) == before
    assert "Traceback" not in answer.stderr


def test_all_faults_are_listed_and_counted_in_one_go(place: Path) -> None:
    for spoil in (alter, stray, interrupted):
        spoil(place)
    report = verify_set(place / "golden")
    assert [problem.id for problem in report.problems] == ["-", "-", ID]
    assert (report.inputs, report.decoded) == (78, 77)
    assert not report.ok


def test_what_people_keep_beside_golden_inputs_is_no_stray_file(place: Path) -> None:
    for name in ("README.md", "LICENSE", ".gitattributes", "files/.keep"):
        (place / "golden" / name).write_text("x", encoding="utf-8")
    assert verify_set(place / "golden").ok


@pytest.mark.parametrize(
    ("words", "prepare", "expected"),
    [
        (("none",), None, "golden set none does not exist"),
        (("kpipe.toml",), None, "kpipe.toml is a file"),
        (("empty",), lambda place: (place / "empty").mkdir(), "manifest.toml can't be read"),
        (("golden",), lambda place: (place / "kpipe.toml").unlink(), "no kpipe.toml in golden,"),
        (("golden",), lambda place: (place / "golden" / "manifest.toml").write_text("x"), "not a TOML file"),
        (("golden",), entry(colour="red"), "golden.0.colour"),
        (("golden",), lambda place: (place / "kpipe.toml").write_text("[model]\n"), "has no [inputs]"),
        (("golden", "--contract", "other.toml"), None, "other.toml can't be used"),
        ((), None, "Missing argument"),
    ],
)
def test_what_can_not_be_checked_at_all_ends_with_2(words: tuple[str, ...], prepare: Any, expected: str, place: Path) -> None:
    if prepare:
        prepare(place)
    answer = golden("verify", *words, folder=place)
    assert (answer.exit_code, answer.stdout) == (2, ""), answer
    assert expected in flat(answer.stderr)
    assert "Traceback" not in answer.stderr


def test_a_folder_that_can_not_be_read_is_no_empty_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan: Callable[..., Any] = os.scandir

    def denied(path: Any) -> Any:
        if str(path).endswith("files"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr("os.scandir", denied)
    with pytest.raises(GoldenError, match=r"files can't be read \(Permission denied\)"):
        verify_set(place / "golden")


def test_tensors_of_two_kinds_show_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "CHUNK", 1)
    inputs = []
    for name, dtype in (("a", np.float32), ("b", np.int32)):
        np.save(tmp_path / f"{name}.npy", np.zeros(3, dtype))
        path = tmp_path / f"{name}.npy"
        inputs.append(GoldenInput(name, {"x": str(path)}, {"x": sha256_of(path)}, "", None, None, "", ""))
    found = decode_files(inputs, (InputSpec("x", "npy"),), 60.0, lambda *_: None)
    assert not found.bad
    assert "float32 of rank 1 and int32 of rank 1" in found.mixed


def test_a_set_for_several_inputs_is_verified_and_not_added_to(tmp_path: Path, photos: list[Path]) -> None:
    (tmp_path / "kpipe.toml").write_text(TWO_INPUTS, encoding="utf-8")
    rows = []
    for number in range(2):
        files = {side: f"{side}{number}.npy" for side in ("left", "right")}
        for place, file in enumerate(files.values()):
            np.save(tmp_path / file, np.full(3, 10 * number + place, np.float32))
        rows.append({"id": str(number), "files": files, "sha256": {s: sha256_of(tmp_path / f) for s, f in files.items()}, "chosen": "sampled"})
    for file in tmp_path.glob("*.npy"):
        (tmp_path / "golden").mkdir(exist_ok=True)
        file.rename(tmp_path / "golden" / file.name)
    (tmp_path / "golden" / "manifest.toml").write_text(tomlkit.dumps({"version": 1, "golden": rows}), encoding="utf-8")
    assert golden("verify", "golden", folder=tmp_path).exit_code == 0
    answer = golden("add", "golden", photos[0], folder=tmp_path)
    assert answer.exit_code == 2
    assert "has 2 inputs (left, right)" in answer.stderr


# ------------------------------------------------------------ add


def test_added_files_are_listed_with_where_they_come_from_and_the_set_stays_well(place: Path, photos: list[Path]) -> None:
    old = (place / "golden" / "manifest.toml").read_text(encoding="utf-8")
    words = ("--slice", "night", "--label", "4", "--expected", "9", "--chosen", "sampled", "--source", "camera 2")
    answer = golden("add", "golden", *photos[:2], *words, folder=place)
    assert answer.exit_code == 0, answer
    text = (place / "golden" / "manifest.toml").read_text(encoding="utf-8")
    assert text.startswith(old)
    for path, row in zip(photos[:2], manifest(place / "golden")[-2:], strict=True):
        assert row["sha256"] == sha256_of(path) == sha256_of(place / "golden" / row["file"])
        assert {key: row[key] for key in ("id", "slice", "label", "expected", "chosen", "origin")} == {
            "id": path.stem,
            "slice": "night",
            "label": "4",
            "expected": "9",
            "chosen": "sampled",
            "origin": "camera 2",
        }
        assert row["added"].startswith("20")
        assert " by kpipe " in row["added"]
        assert "margin" not in row
        assert path.exists(), "copied, not moved"
    assert sha256_of(place / "golden" / "manifest.toml") in answer.stdout
    assert verify_set(place / "golden").ok


def test_picked_files_are_mined_unless_said_otherwise(place: Path, photos: list[Path]) -> None:
    assert golden("add", "new", photos[0], folder=place).exit_code == 0
    [row] = manifest(place / "new")
    assert (row["chosen"], row["origin"], set(row) & {"label", "expected", "slice"}) == ("mined", photos[0].name, set())
    assert verify_set(place / "new").ok


def test_names_that_are_taken_get_a_number_and_odd_ones_are_made_plain(place: Path, photos: list[Path]) -> None:
    for folder, path in (("a", photos[0]), ("b", photos[1])):
        (place / folder).mkdir()
        shutil.copyfile(path, place / folder / "my photo\n.png")
    assert golden("add", "golden", "a/my photo\n.png", "b/my photo\n.png", folder=place).exit_code == 0
    rows = manifest(place / "golden")[-2:]
    assert [row["file"] for row in rows] == ["files/my_photo_.png", "files/my_photo_-2.png"]
    assert [row["id"] for row in rows] == ["my_photo_", "my_photo_-2"]
    assert [sha256_of(place / "golden" / row["file"]) for row in rows] == [sha256_of(path) for path in photos[:2]]


def junk(place: Path) -> Path:
    (place / "junk.png").write_bytes(b"no image at all")
    return place / "junk.png"


def huge(place: Path) -> Path:
    (place / "bomb.png").write_bytes(bomb())
    return place / "bomb.png"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (lambda place, photos: [photos[0], first_file(place)], f"is in the set already, as '{ID}'"),
        (lambda _place, photos: [photos[0], photos[0]], "has the same bytes as"),
        (lambda place, photos: [photos[0], junk(place)], "can't be a golden input: KP103"),
        (lambda place, photos: [photos[0], huge(place)], "can't be a golden input: KP103"),
        (lambda place, photos: [photos[0], place / "none.png"], "none.png does not exist"),
        (lambda place, photos: [photos[0], place], "is a folder"),
        (lambda _place, photos: [photos[0], "--expected", "sevn"], "'sevn'"),
        (lambda _place, photos: [photos[0], "--expected-from-model"], "needs --model"),
        (lambda _place, photos: [photos[0], "--expected-from-model", "--expected", "4", "--model", MODEL], "contradict"),
        (lambda _place, photos: [photos[0], "--chosen", "found"], "'found'"),
        (lambda _place, photos: [photos[0], "--source", "two\nlines"], "--source"),
        (lambda _place, photos: [photos[0], "--model", "none.keras"], "none.keras does not exist"),
        (lambda _place, _photos: [], "Missing argument"),
    ],
)
@pytest.mark.parametrize("folder", ["golden", "fresh"])
def test_a_refusal_adds_nothing(
    words: Callable[[Path, list[Path]], list[str | Path]], expected: str, folder: str, place: Path, photos: list[Path]
) -> None:
    given = words(place, photos)
    if folder == "fresh" and first_file(place) in given:
        assert golden("add", folder, first_file(place), "--source", "x", folder=place).exit_code == 0
        expected = "is in the set already, as"
    before = snapshot(place)
    answer = golden("add", folder, *given, folder=place)
    assert (answer.exit_code, answer.stdout) == (2, ""), answer
    assert expected in flat(answer.stderr)
    assert "Traceback" not in answer.stderr
    assert snapshot(place) == before
    assert folder == "golden" or (place / folder).exists() == any(name.startswith(folder) for name in before)


def test_a_folder_of_other_things_is_no_set(place: Path, photos: list[Path]) -> None:
    (place / "other").mkdir()
    (place / "other" / "thesis.txt").write_text("x", encoding="utf-8")
    answer = golden("add", "other", photos[0], folder=place)
    assert answer.exit_code == 2
    assert "Expected a folder with a manifest, or a new or empty one" in answer.stderr
    assert set(snapshot(place / "other")) == {"thesis.txt"}


def test_a_manifest_that_the_contract_names_has_to_be_named_anew(place: Path, photos: list[Path]) -> None:
    named_otherwise(place)
    answer = golden("add", "golden", photos[0], folder=place)
    assert answer.exit_code == 0
    assert "update [golden] manifest_sha256 on purpose" in answer.stdout


@pytest.mark.runtimes
def test_a_model_that_approves_is_said_to_prove_nothing(place: Path, photos: list[Path]) -> None:
    answer = golden("add", "golden", *photos, "--model", MODEL, "--contract", "kpipe.toml", "--expected-from-model", folder=place)
    assert answer.exit_code == 0, answer
    assert "A model that approves itself proves nothing" in flat(answer.stdout)
    for row in manifest(place / "golden")[-4:]:
        assert row["expected"] in "0123456789"
        assert sha256_of(MODEL)[:12] in row["how"]
        assert "a person has to approve it" in row["how"]
        assert 0 < row["margin"] <= 1
        assert f"{row['id']}: {row['file']}, mined, expected {row['expected']}; the model decides '{row['expected']}'" in answer.stdout


@pytest.mark.runtimes
def test_a_decision_that_the_model_does_not_take_is_pointed_out(place: Path) -> None:
    row = next(row for row in manifest(GOLDEN) if row.get("expected") == "7" and row["chosen"] == "sampled")
    answer = golden("add", "new", GOLDEN / row["file"], "--model", MODEL, "--contract", "kpipe.toml", "--expected", "1", folder=place)
    assert answer.exit_code == 0, answer
    assert "expected 1; the model decides '7'" in answer.stdout
    assert "(NOT the approved one)" in answer.stdout
    [written] = manifest(place / "new")
    assert written["expected"] == "1"
    assert written["margin"] == pytest.approx(row["margin"], abs=1e-4)
