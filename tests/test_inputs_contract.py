"""What a contract may say of inputs: decoders, their options, the files that they read, and where raw files come from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kpipe.cli.init import KINDS, look_at, make_golden, of_one_kind, raw_files
from kpipe.contract import load_contract, parse_contract
from kpipe.curating.add import AddRequest, add_files
from kpipe.curating.verify import verify_set
from kpipe.errors import ContractError, GoldenError, UsageError
from kpipe.golden import load_golden_folder
from kpipe.inputs import raw_inputs
from kpipe.running.plan import input_specs
from kpipe_stages.preprocess import Preprocessor
from kpipe_stages.preprocessing.decoders import distributions
from kpipe_stages.protocol import InputSpec, TensorSpec
from kpipe_stages.recipe import contract_inputs

if TYPE_CHECKING:
    from pathlib import Path

TEXT = 'decode = "text"\nfiles = ["words.txt"]\nsteps = [{ tokenize = "words.txt" }]\n'
TABLE = 'decode = "table"\nread = { columns = [{ name = "a" }] }\n'


def problems(text: str) -> list[str]:
    with pytest.raises(ContractError) as caught:
        parse_contract(text, "kpipe.toml")
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('decode = "sound"', r"expected one of image, audio, text, table, npy, npz"),
        ('decode = "imag"', r"did you mean 'image'"),
        ('decode = "audio"', "inputs.x.read lacks 'rate'"),
        ('decode = "audio"\nread = { rate = 16000.0 }', "inputs.x.read.rate = 16000.0"),
        ('decode = "image"\nread = { fram = 0 }', "Did you mean 'frame'?"),
        ('decode = "npy"\nread = { array = "x" }', "takes no options"),
        ('decode = "serve:f"\nfiles = ["serve.py"]\nread = { a = 1 }', "takes no options"),
        ('decode = "table"\nread = { columns = [{ nam = "a" }] }', r"inputs.x.read.columns: columns\[0\]"),
        ('decode = "table"\nread = { columns = "c.json" }', "files has no 'c.json'"),
        (TEXT.replace('files = ["words.txt"]\n', ""), "files has no 'words.txt'"),
        (TEXT.replace('["words.txt"]', '["words.txt", "more.txt"]'), "files names 'more.txt', and neither decoder nor steps do"),
        (TEXT.replace('["words.txt"]', '["words.txt", "b/words.txt"]'), "files names two files 'words.txt'"),
        (TABLE + 'source = "y"', "inputs.x.source is 'y'"),
        (TABLE + 'source = "x"', "expected an input that has raw files of its own"),
        (TABLE + 'pad_batches = { at = "left" }', "inputs.x.pad_batches.at"),
        (TABLE + "pad_batches = { value = 0 }", "'inputs.x.pad_batches.at' is missing"),
        ('decode = "text"\nsteps = [{ scale = 2.0 }]', "comes on text"),
        ('decode = "image"\nread = { deep = "keep" }\nsteps = [{ invert = true }]', "expected levels from 0 to 255"),
    ],
)
def test_a_wrong_input_is_named_with_its_place(table: str, words: str) -> None:
    (problem, *_) = problems(f"[inputs.x]\n{table}\n")
    assert re.search(words, problem), problem


def test_a_targets_own_input_is_held_to_the_same() -> None:
    (problem,) = problems(f'[inputs.x]\n{TABLE}\n[targets.litert.inputs.x]\ndecode = "audio"\n')
    assert problem.startswith("targets.litert.inputs.x.read lacks 'rate'")


def test_what_the_contract_says_reaches_the_worker_and_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\ncat\n", encoding="utf-8")
    (tmp_path / "kpipe.toml").write_text(
        f'[inputs.ids]\n{TEXT}\n[inputs.mask]\n{TEXT.replace(chr(34) + " }]", chr(34) + ", give = " + chr(34) + "mask" + chr(34) + " }]")}source = "ids"\n'
        '[inputs.row]\ndecode = "table"\nread = { columns = [{ name = "a", mean = 1.0, std = 2.0 }, { name = "b", categories = ["x", "y"] }] }\n'
        'pad_batches = { at = "end" }\n',
        encoding="utf-8",
    )
    loaded = load_contract(tmp_path / "kpipe.toml")
    specs = {spec.name: Preprocessor(spec) for spec in input_specs(loaded.contract.inputs, loaded)}
    for made in (specs, contract_inputs(tmp_path / "kpipe.toml")):
        assert made["ids"].from_bytes(b"cat cat").tolist() == [1, 1]
        assert made["mask"].from_bytes(b"cat").tolist() == [1]
        assert made["row"].from_row({"a": "5", "b": "y"}).tolist() == [2, 1]
    assert raw_inputs(loaded.contract.inputs) == {"ids": ("ids", False), "mask": ("ids", False), "row": ("row", True)}


def test_the_libraries_that_numbers_depend_on_are_named() -> None:
    assert distributions(InputSpec("x", "image")) == {"pillow"}
    assert distributions(InputSpec("x", "audio", read={"rate": 1})) == {"soundfile", "soxr"}
    assert distributions(InputSpec("x", "audio", read={"rate": 1, "resample": "refuse"})) == {"soundfile"}
    assert distributions(InputSpec("x", "table", read={"columns": [], "format": "parquet"})) == {"pyarrow"}
    assert distributions(InputSpec("x", "text", ({"tokenize": "t.json"},))) == {"tokenizers"}
    assert distributions(InputSpec("x", "text", ({"tokenize": "t.txt"},))) == set()


# ---------------------------------------------------------------- golden sets of rows and of shared files


def manifest(folder: Path, *entries: str) -> Path:
    (folder / "manifest.toml").write_text("version = 1\n" + "".join(f"[[golden]]\n{entry}\n" for entry in entries), encoding="utf-8")
    return folder


def entry(name: str, more: str = "") -> str:
    return f'id = "{name}"\nfile = "rows.csv"\nsha256 = "{"0" * 64}"\nchosen = "sampled"\n{more}'


def test_an_entry_may_be_a_row_and_one_file_may_feed_several_inputs(tmp_path: Path) -> None:
    manifest(tmp_path, entry("one", "row = 4"))
    names = {"a": ("a", True), "b": ("a", True), "c": ("a", False)}
    (found,) = load_golden_folder(tmp_path, names).inputs
    assert found.files == {"a": f"{tmp_path}/rows.csv#row=4", "b": f"{tmp_path}/rows.csv#row=4", "c": f"{tmp_path}/rows.csv"}
    assert found.sha256 == dict.fromkeys("abc", "0" * 64)
    assert found.shown == "rows.csv#row=4"


def test_a_row_without_a_table_is_refused(tmp_path: Path) -> None:
    manifest(tmp_path, entry("one", "row = 4"))
    with pytest.raises(GoldenError, match="entry 'one' names row 4, and no input of the contract has decode = \"table\""):
        load_golden_folder(tmp_path, ("a",))
    manifest(tmp_path, entry("one", "row = -1"))
    with pytest.raises(GoldenError, match="row"):
        load_golden_folder(tmp_path, {"a": ("a", True)})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "kpipe.toml").write_text(f"[inputs.x]\n{TABLE}\n", encoding="utf-8")
    (tmp_path / "rows.csv").write_text("a\n1\n2\ntwo\n4\n", encoding="utf-8")
    return tmp_path


def add(folder: Path, *rows: int, **more: Any) -> tuple[str, ...]:
    report = add_files(AddRequest(folder / "set", (folder / "rows.csv",), folder / "kpipe.toml", rows=rows, **more))
    return tuple(item.id for item in report.added)


def test_rows_of_a_table_are_added_one_by_one_and_the_file_once(table: Path) -> None:
    assert add(table, 0, 3) == ("rows-row-0", "rows-row-3")
    assert add(table, 1) == ("rows-row-1",)
    assert [path.name for path in (table / "set" / "files").iterdir()] == ["rows.csv"]
    with pytest.raises(UsageError, match=r"row 3 of .* is in the set already, as 'rows-row-3'"):
        add(table, 3)
    with pytest.raises(UsageError, match="column 'a': the value 'two'"):
        add(table, 2)
    with pytest.raises(UsageError, match="no row 9 among 4"):
        add(table, 9)
    report = verify_set(table / "set", table / "kpipe.toml")
    assert (report.inputs, report.decoded, report.problems) == (3, 3, ())


def test_a_table_of_several_rows_is_no_golden_input_by_itself(table: Path) -> None:
    with pytest.raises(UsageError, match=r"4 rows .expected one.. Name the row in the manifest"):
        add(table)
    (table / "kpipe.toml").write_text('[inputs.x]\ndecode = "text"\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r'--row 1: no input of .* has decode = "table"'):
        add(table, 1)


def test_a_row_that_stands_twice_and_one_that_is_not_there_are_found(table: Path) -> None:
    add(table, 0, 1)
    path = table / "set" / "manifest.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("row = 1", "row = 0"), encoding="utf-8")
    assert "row 0): it counts twice" in verify_set(table / "set", table / "kpipe.toml").problems[0].what
    path.write_text(path.read_text(encoding="utf-8").replace("row = 0", "row = 7"), encoding="utf-8")
    assert any("no row 7 among 4" in problem.what for problem in verify_set(table / "set", table / "kpipe.toml").problems)


def test_a_vocabulary_reaches_the_golden_commands(tmp_path: Path) -> None:
    (tmp_path / "kpipe.toml").write_text(f"[inputs.x]\n{TEXT}\n[inputs.y]\n{TEXT}source = 'x'\n", encoding="utf-8")
    (tmp_path / "words.txt").write_text("\ncat\n", encoding="utf-8")
    for name, words in (("a.txt", "cat"), ("b.txt", "cat cat"), ("c.txt", "dog")):
        (tmp_path / name).write_text(words, encoding="utf-8")
    report = add_files(AddRequest(tmp_path / "set", (tmp_path / "a.txt", tmp_path / "b.txt"), tmp_path / "kpipe.toml"))
    assert len(report.added) == 2
    with pytest.raises(UsageError, match=r"the token 'dog' is no line of words\.txt"):
        add_files(AddRequest(tmp_path / "set", (tmp_path / "c.txt",), tmp_path / "kpipe.toml"))
    assert verify_set(tmp_path / "set", tmp_path / "kpipe.toml").decoded == 2


def test_arrays_of_an_npz_are_golden_inputs_too(tmp_path: Path) -> None:
    (tmp_path / "kpipe.toml").write_text('[inputs.x]\ndecode = "npz"\nread = { array = "wave" }\n', encoding="utf-8")
    np.savez(tmp_path / "one.npz", wave=np.ones(3))
    assert len(add_files(AddRequest(tmp_path / "set", (tmp_path / "one.npz",), tmp_path / "kpipe.toml")).added) == 1
    np.savez(tmp_path / "two.npz", sound=np.ones(3))
    with pytest.raises(UsageError, match="no member 'wave'"):
        add_files(AddRequest(tmp_path / "set", (tmp_path / "two.npz",), tmp_path / "kpipe.toml"))


# ---------------------------------------------------------------- kpipe init


def test_init_makes_an_entry_of_every_row_and_takes_the_headers_names(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    (raw / "benign").mkdir(parents=True)
    (raw / "benign" / "a.csv").write_text('\ufeff"mean radius",b\n1,2\n\n3,"4\n"\n', encoding="utf-8")
    (raw / "one.csv").write_text("mean radius,b\n1,2\n", encoding="utf-8")
    files = raw_files(raw, ["x"], tmp_path / "golden")
    look = look_at(files)
    assert (look.kind, look.format, look.columns) == ("table", "csv", ("mean radius", "b"))
    assert make_golden(raw, files, tmp_path / "golden") == 3
    found = load_golden_folder(tmp_path / "golden", {"x": ("x", True)})
    assert [g.shown for g in found.inputs] == ["files/benign/a.csv#row=0", "files/benign/a.csv#row=1", "files/one.csv"]
    assert [g.label for g in found.inputs] == ["benign", "benign", None]


def test_init_takes_no_names_that_columns_can_not_be_found_by(tmp_path: Path) -> None:
    for text in ("a,a\n1,2\n", "a,\n1,2\n", "", ",".join(f"c{i}" for i in range(1001)) + "\n"):
        (tmp_path / "t.csv").write_text(text, encoding="utf-8")
        assert look_at([tmp_path / "t.csv"]).columns == ()
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe")
    assert look_at([tmp_path / "t.csv"]).columns == ()


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [
        ((None, 8, 8, 3), "float32", "image"),
        ((None, 4), "float32", "table"),
        ((None, 4), "int32", "table"),
        ((None,), "string", "text"),
        ((None, 3, 4, 5, 6), "bool", "npy"),
    ],
)
def test_init_takes_the_kind_that_the_model_is_made_of_and_leaves_the_others_out(
    tmp_path: Path, shape: tuple[int | None, ...], dtype: str, kind: str
) -> None:
    names = ("a.png", "b.png", "c.csv", "d.parquet", "e.txt", "f.npy")
    files, others = of_one_kind([tmp_path / name for name in names], TensorSpec("x", shape, dtype))
    assert {KINDS[path.suffix] for path in files} == {kind}
    assert sorted([*files, *others]) == [tmp_path / name for name in names]
    assert look_at(files).kind == kind


def test_shapes_of_arrays_are_read_off_their_headers(tmp_path: Path) -> None:
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for length, file in enumerate(files, start=3):
        np.save(file, np.zeros((length, 2), np.float32))
    assert look_at(files).shapes == ((3, 2), (4, 2))
    files[1].write_bytes(b"no array")
    assert look_at(files).shapes == ()
    files[1].write_bytes(b"")
    assert look_at(files).shapes == ()


def test_init_refuses_a_table_that_is_no_golden_set(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "t.csv").write_text("a\n" + "1\n" * 10_001, encoding="utf-8")
    with pytest.raises(UsageError, match="has 10,001 rows; at most 10,000"):
        make_golden(raw, [raw / "t.csv"], tmp_path / "golden")
    assert not (tmp_path / "golden").exists()
