"""Bad input through the real command: one clear message, the right exit code, no traceback, nothing left behind and nothing lost."""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest
from PIL import Image

from .cases.gate import Command, command
from .sample_gate import GOLDEN, LAYERS, MODEL, copy_golden, digits_contract, manifest, shipped, without_targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TARGET = "[targets.litert]\n"


def contents(folder: Path) -> dict[str, str]:
    """Every path below a folder with its digest."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "folder"
        for p in sorted(folder.rglob("*"))
        if "kpipe-cache" not in p.parts
    }


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working folder with nothing in it."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def said(answer: Command, code: int, *words: str) -> str:
    """Hold an answer to its exit code and to what it has to say; return the message."""
    message = answer.stderr if code == 2 else answer.stdout
    assert answer.exit_code == code, answer
    assert "Traceback" not in answer.stdout + answer.stderr
    assert "fault of kpipe" not in answer.stderr
    for word in words:
        assert word in " ".join(message.split()), message
    return message


def refuse(here: Path, *words: str | Path) -> Command:
    """Run a command that has to change nothing."""
    before = contents(here)
    answer = command(*words, folder=here)
    assert contents(here) == before
    assert answer.stdout == ""
    assert answer.stderr.startswith("kpipe: ")
    return answer


# ------------------------------------------------------------ the model's path


def test_a_model_that_is_not_there(here: Path) -> None:
    said(refuse(here, "validate", "gone.keras"), 2, "model gone.keras does not exist", "Check the path")


def test_a_model_that_is_a_folder(here: Path) -> None:
    (here / "saved").mkdir()
    said(refuse(here, "validate", "saved"), 2, "model saved is a folder", "Expected a file such as model.keras")


def test_a_model_that_cannot_be_opened(here: Path) -> None:
    (here / "loop.keras").symlink_to("loop.keras")
    said(refuse(here, "validate", "loop.keras"), 2, "loop.keras")


# ------------------------------------------------------------ not a .keras file


def cut(path: Path) -> None:
    path.write_bytes(MODEL.read_bytes()[:100_000])


def hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["layer"] = np.zeros(3)


def nothing(path: Path) -> None:
    path.touch()


def text(path: Path) -> None:
    path.write_text("This is a note about the model.\n" * 100, encoding="utf-8")


def other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "hello")


@pytest.mark.parametrize(
    ("make", "code", "word"),
    [(cut, "KP001", "cut"), (hdf5, "KP001", "HDF5"), (nothing, "KP001", "empty"), (text, "KP001", "zip"), (other_zip, "KP004", "config.json")],
)
def test_a_file_that_is_no_model(here: Path, make: object, code: str, word: str) -> None:
    assert callable(make)
    make(here / "model.keras")
    before = contents(here)
    answer = command("validate", "model.keras", "--out", "out", folder=here)
    message = said(answer, 1, "FAIL", code, "->")
    assert word.lower() in message.lower()
    assert {name: digest for name, digest in contents(here).items() if not name.startswith("out")} == before
    assert (here / "out" / "report.html").is_file()
    assert {p.name for p in (here / "out" / "stages").iterdir()} <= {"inspect", "home", "cache", "fork_server"}


def test_a_file_that_is_no_model_is_refused_by_inspect_and_init_too(here: Path) -> None:
    cut(here / "model.keras")
    answer = command("inspect", "model.keras", folder=here)
    said(answer, 1, "refused", "KP001")
    said(refuse(here, "init", "model.keras"), 2, "can't be read, so no contract was written", "KP001")


# ------------------------------------------------------------ code that is not given


def test_a_custom_layer_that_is_not_given(here: Path) -> None:
    answer = command("validate", MODEL, "--contract", here_contract(here, '[targets.litert]\n[golden]\npath = "x.npz"\n'), folder=here)
    said(answer, 2, "x.npz does not exist", "Expected a folder with manifest.toml, or an .npz")
    np.savez(here / "x.npz", image=np.zeros((2, 16, 16, 1), np.float32))
    answer = command("validate", MODEL, "--contract", here / "kpipe.toml", "--out", "out", folder=here)
    said(answer, 1, "FAIL", "KP007", "RMSNorm", "custom_objects")


def here_contract(here: Path, text: str) -> Path:
    path = here / "kpipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_custom_layers_that_is_not_there(here: Path) -> None:
    said(refuse(here, "validate", MODEL, "--custom-objects", "layers.py"), 2, "custom-object file layers.py does not exist", "Check the path")


def test_a_file_of_custom_layers_that_does_not_register_them(here: Path) -> None:
    (here / "layers.py").write_text("import keras\n\n\nclass Other(keras.layers.Layer):\n    pass\n", encoding="utf-8")
    contract = here_contract(here, without_targets().replace(str(LAYERS), "layers.py") + TARGET)
    answer = command("validate", MODEL, "--contract", contract, "--out", "out", folder=here)
    assert answer.exit_code == 1, answer
    assert "RMSNorm" in answer.stdout
    assert "Traceback" not in answer.stdout + answer.stderr


# ------------------------------------------------------------ the contract


CONTRACTS = {
    "unknown key": ("[model]\nsha265 = 'x'\n", "unknown key 'model.sha265' (did you mean 'sha256'?)"),
    "unknown table": ("[target.litert]\n", "unknown key 'target' (did you mean 'targets'?)"),
    "unknown key of a target": ("[targets.litert]\nsetings = {}\n", "unknown key 'targets.litert.setings' (did you mean 'settings'?)"),
    "unknown key of limits": ("[targets.litert]\nlimits = { p50 = 1.0 }\n", "unknown key 'targets.litert.limits.p50' (did you mean 'p50_ms'?)"),
    "a text for a number": ("[agreement]\nmax_flips = '3'\n", "agreement.max_flips is '3': input should be a valid integer"),
    "a number for a text": ("[golden]\npath = 3\n", "golden.path is 3: input should be a valid string"),
    "a negative number": ("[agreement]\nmax_flips = -1\n", "agreement.max_flips is -1"),
    "an unknown rule": ("[decision]\nrule = 'argmin'\n", "decision.rule is 'argmin'"),
    "an unknown runtime": ("[targets.prod]\nruntime = 'tflite'\n", "targets.prod.runtime is 'tflite'"),
    "a step with a typing error": (
        "[inputs.image]\ndecode = 'image'\nsteps = [{ resise = [1, 1] }]\n",
        "inputs.image.steps",
    ),
    "not TOML": ("[model\n", "it isn't valid TOML"),
    "one batch size": ("[golden]\nbatches = [4]\n", "at least two different sizes"),
    "an artifact for a runtime that takes none": ("[targets.tensorflow]\nartifact = 'm.pb'\n", "drop the key"),
}


@pytest.mark.parametrize("case", CONTRACTS)
def test_a_contract_that_cannot_be_used(here: Path, case: str) -> None:
    text, words = CONTRACTS[case]
    contract = here_contract(here, text)
    message = said(refuse(here, "validate", MODEL, "--contract", contract), 2, f"{contract} can't be used", words)
    assert message.count("\n  - ") == 1


def test_every_problem_of_a_contract_is_listed(here: Path) -> None:
    contract = here_contract(here, "[model]\nbackend = 'torch'\n[golden]\npath = 1\n[targets.litert]\nversion = 'about 3'\n")
    message = said(
        refuse(here, "validate", MODEL, "--contract", contract), 2, "model.backend is 'torch'", "golden.path is 1", "targets.litert.version"
    )
    assert message.count("\n  - ") == 3


def test_a_contract_that_is_not_there(here: Path) -> None:
    said(refuse(here, "validate", MODEL, "--contract", "kpipe.tmol"), 2, "kpipe.tmol can't be used", "it can't be read: No such file")


NAMES = {
    "an input": ("[inputs.image]", "[inputs.imaeg]", "inputs.imaeg: the model has no input 'imaeg' (did you mean 'image'?); its inputs are image"),
    "an output": ('output = "digit"', 'output = "digits"', "decision.output is 'digits' (did you mean 'digit'?); the model's outputs are digit"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_that_the_model_does_not_have(here: Path, case: str) -> None:
    old, new, words = NAMES[case]
    text = without_targets() + TARGET
    assert old in text
    contract = here_contract(here, text.replace(old, new))
    answer = command("validate", MODEL, "--contract", contract, "--out", "out", folder=here)
    said(answer, 2, f"{contract} can't be used", words)
    assert sorted(p.name for p in here.iterdir()) == ["kpipe.toml"]


def test_names_of_outputs_in_a_target(here: Path) -> None:
    contract = here_contract(here, without_targets() + "[targets.litert]\noutputs.digti = { atol = 1.0, rtol = 1.0 }\n")
    answer = command("validate", MODEL, "--contract", contract, folder=here)
    said(answer, 2, "targets.litert.outputs.digti: the model has no output 'digti' (did you mean 'digit'?)")
    assert sorted(p.name for p in here.iterdir()) == ["kpipe.toml"]


def test_a_target_on_the_command_line_that_is_not_in_the_contract(here: Path) -> None:
    contract = here_contract(here, shipped())
    message = command("validate", MODEL, "--contract", contract, "--target", "litter", "--out", "out", folder=here)
    said(message, 2, "--target litter: no such target (did you mean 'litert'?)", "there are tensorflow, saved_model")
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("validate",), "Missing argument"),
        (("validate", "m.keras", "--no-such"), "No such option"),
        (("validate", "m.keras", "--jobs", "0"), "--jobs"),
        (("validat", "m.keras"), "No such command"),
        (("judge",), "Missing argument"),
    ],
)
def test_words_that_the_command_does_not_know(here: Path, words: tuple[str, ...], expected: str) -> None:
    said(refuse(here, *words), 2, expected, "--help")


# ------------------------------------------------------------ golden inputs


@pytest.fixture
def golden(here: Path) -> Path:
    """A golden set of one's own."""
    return copy_golden(here)


def first(golden: Path) -> tuple[str, Path]:
    """Id and file of the first entry."""
    entry = manifest(golden)[0]
    return entry["id"], golden / entry["file"]


def judged(here: Path, golden: Path, *words: str) -> str:
    """Validate the digits on a spoiled golden set: FAIL before any framework is started."""
    contract = digits_contract(here, TARGET, golden=golden)
    answer = command("validate", MODEL, "--contract", contract, "--out", "out", folder=here)
    message = said(answer, 1, "FAIL", *words)
    assert {p.name for p in (here / "out" / "stages").iterdir()} <= {"inspect", "prepare", "home", "cache", "fork_server"}
    return message


def test_a_golden_file_that_is_missing(here: Path, golden: Path) -> None:
    name, file = first(golden)
    file.unlink()
    judged(here, golden, "KP101", name)


def test_a_golden_file_that_is_altered(here: Path, golden: Path) -> None:
    name, file = first(golden)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    judged(here, golden, "KP102", name)


def replace_file(golden: Path, data: bytes) -> str:
    """Another file in the first entry's place, its digest approved."""
    entry = manifest(golden)[0]
    (golden / entry["file"]).write_bytes(data)
    path = golden / "manifest.toml"
    path.write_text(path.read_text(encoding="utf-8").replace(entry["sha256"], hashlib.sha256(data).hexdigest()), encoding="utf-8")
    return str(entry["id"])


@pytest.mark.parametrize("data", [b"", b"no picture at all", b"\x89PNG\r\n\x1a\n" + bytes(200)])
def test_a_golden_file_that_does_not_decode(here: Path, golden: Path, data: bytes) -> None:
    judged(here, golden, "KP103", replace_file(golden, data))


def test_golden_tensors_of_another_shape(here: Path, golden: Path) -> None:
    contract = here_contract(here, (without_targets(golden) + TARGET).replace("resize = [16, 16]", "resize = [12, 16]"))
    answer = command("validate", MODEL, "--contract", contract, "--out", "out", folder=here)
    said(answer, 1, "FAIL", "KP104", "Input 'image' has shape [12, 16, 1] per golden input; the model takes [16, 16, 1]")


def test_a_golden_file_of_another_size_where_nothing_resizes(here: Path, golden: Path) -> None:
    contract = here_contract(
        here, (without_targets(golden) + TARGET).replace('  { resize = [16, 16], method = "bilinear", antialias = true },\n', "")
    )
    answer = command("validate", MODEL, "--contract", contract, "--out", "out", folder=here)
    said(answer, 1, "FAIL", "KP104")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = 1\n", "is empty: manifest.toml has no [[golden]] entry"),
        ("", "version"),
        ("version = 2\n", "version"),
        ("version = [\n", "not a TOML file"),
        (
            'version = 1\n[[golden]]\nid = "a"\nfile = "../../kpipe.toml"\nsha256 = "' + "0" * 64 + '"\nchosen = "mined"\n',
            "lies outside the golden folder",
        ),
        ('version = 1\n[[golden]]\nid = "a"\nfiel = "a.png"\nsha256 = "' + "0" * 64 + '"\nchosen = "mined"\n', "fiel"),
    ],
)
def test_a_manifest_that_cannot_be_used(here: Path, golden: Path, text: str, words: str) -> None:
    (golden / "manifest.toml").write_text(text, encoding="utf-8")
    contract = digits_contract(here, TARGET, golden=golden)
    said(refuse(here, "validate", MODEL, "--contract", contract), 2, str(golden), words)


@pytest.mark.parametrize(
    ("rules", "entry", "words"),
    [
        ("[decision]", "{ digit = '9' }", ("names the rule 'digit'", "only text can be given")),
        ("[decisions.digit]", "{ digits = '9' }", ("names the rule 'digits' (did you mean 'digit'?)", "are digit.")),
        (
            "[decisions.best]\nrule = 'top_k'\noutput = 'digit'\n[decisions.digit]",
            "'9'",
            ("the contract has 2 rules (best, digit)", "expected = { best = ... }"),
        ),
    ],
)
def test_approved_decisions_by_rules_that_the_contract_does_not_have(
    here: Path, golden: Path, rules: str, entry: str, words: tuple[str, ...]
) -> None:
    path = golden / "manifest.toml"
    text = re.sub(r"^(label|expected) = .*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    path.write_text(text.replace("chosen = ", f"expected = {entry}\nchosen = ", 1), encoding="utf-8")
    contract = digits_contract(here, TARGET, golden=golden)
    contract.write_text(contract.read_text(encoding="utf-8").replace("[decision]", rules), encoding="utf-8")
    said(refuse(here, "validate", MODEL, "--contract", contract), 2, str(golden), "entry ", *words)


def test_a_golden_folder_without_a_manifest(here: Path, golden: Path) -> None:
    (golden / "manifest.toml").unlink()
    contract = digits_contract(here, TARGET, golden=golden)
    said(refuse(here, "validate", MODEL, "--contract", contract), 2, "manifest.toml can't be read", "kpipe init --raw DIR")


def test_a_manifest_that_names_an_input_twice(here: Path, golden: Path) -> None:
    path = golden / "manifest.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "\n[[golden]]" + text.split("[[golden]]")[1], encoding="utf-8")
    said(
        refuse(here, "validate", MODEL, "--contract", digits_contract(here, TARGET, golden=golden)), 2, "stands more than once", "ids must be unique"
    )


def test_a_golden_folder_where_no_contract_says_how_it_is_read(here: Path) -> None:
    shutil.copy(MODEL, here / "model.keras")
    answer = refuse(here, "validate", "model.keras", "--golden", GOLDEN, "--custom-objects", LAYERS)
    said(answer, 2, "holds raw files, and the contract has no [inputs]", "'kpipe init' writes them")


def empty_npz(path: Path) -> None:
    np.savez(path)


def no_rows(path: Path) -> None:
    np.savez(path, image=np.zeros((0, 16, 16, 1), np.float32))


def uneven(path: Path) -> None:
    np.savez(path, image=np.zeros((2, 16, 16, 1), np.float32), other=np.zeros((3, 1), np.float32))


def pickled(path: Path) -> None:
    np.savez(path, image=np.array([{"a": 1}], dtype=object), allow_pickle=True)


def no_zip(path: Path) -> None:
    path.write_bytes(b"PK nothing")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (empty_npz, "can't be used"),
        (no_rows, "there is no row to compare"),
        (uneven, "differ in their number of rows"),
        (pickled, "can't be used"),
        (no_zip, "not a zip"),
    ],
)
def test_arrays_that_cannot_be_used(here: Path, make: object, words: str) -> None:
    assert callable(make)
    make(here / "x.npz")
    contract = here_contract(here, without_targets() + TARGET)
    said(refuse(here, "validate", MODEL, "--contract", contract, "--golden", "x.npz"), 2, "x.npz", words)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"imaeg": np.zeros((2, 16, 16, 1), np.float32)}, "'imaeg', which is no input of the model (did you mean 'image'?)"),
        ({"image": np.zeros((2, 16, 16), np.float32)}, "has shape [16, 16] per golden input; the model takes [16, 16, 1]"),
        ({"image": np.zeros((2, 16, 16, 1), np.float64)}, "is float64; the model takes float32"),
    ],
)
def test_arrays_that_do_not_fit_the_model(here: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    np.savez(here / "x.npz", **arrays)  # type: ignore[arg-type]
    contract = here_contract(here, f'[model]\ncustom_objects = ["{LAYERS}"]\n' + TARGET)
    answer = command("validate", MODEL, "--contract", contract, "--golden", "x.npz", "--out", "out", folder=here)
    said(answer, 1, "FAIL", "KP104", words)


# ------------------------------------------------------------ the output folder


@pytest.fixture
def places(here: Path) -> Iterator[Path]:
    """A contract, and things that stand where a run should go."""
    digits_contract(here, TARGET)
    (here / "file").write_text("mine", encoding="utf-8")
    (here / "full").mkdir()
    (here / "full" / "thesis.txt").write_text("years of work", encoding="utf-8")
    (here / "run").mkdir()
    (here / "run" / "order.json").write_text("{}", encoding="utf-8")
    return here


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("file", ("can't be used", "Name a folder that can be written")),
        ("file/below", ("can't be used", "Name a folder that can be written")),
        ("/proc/kpipe-run", ("can't be used", "Name a folder that can be written")),
        ("full", ("is not empty and holds no run of kpipe", "Name a new folder; nothing was changed")),
        ("run", ("already holds a run", "continue it with --resume")),
    ],
)
def test_a_folder_that_a_run_cannot_have(places: Path, out: str, words: tuple[str, ...]) -> None:
    said(refuse(places, "validate", MODEL, "--contract", "kpipe.toml", "--out", out), 2, f"--out {places / out}", *words)


def test_a_run_of_other_things_is_not_resumed(places: Path) -> None:
    answer = refuse(places, "validate", MODEL, "--contract", "kpipe.toml", "--out", "run", "--resume")
    said(answer, 2, "the run there is of other things", "model", "Start a new run; nothing was changed")


def test_a_folder_of_other_files_is_not_resumed(places: Path) -> None:
    answer = refuse(places, "validate", MODEL, "--contract", "kpipe.toml", "--out", "full", "--resume")
    said(answer, 2, "is not empty and holds no run of kpipe")


def test_a_refused_contract_leaves_an_empty_folder_of_the_users_in_place(here: Path) -> None:
    """Whether a name fits the model is only known once a worker has looked: by then the folder has been taken."""
    contract = here_contract(here, (without_targets() + TARGET).replace("[inputs.image]", "[inputs.imaeg]"))
    (here / "mine").mkdir()
    answer = command("validate", MODEL, "--contract", contract, "--out", "mine", folder=here)
    said(answer, 2, "did you mean 'image'?")
    assert contents(here) == {"kpipe.toml": contents(here)["kpipe.toml"], "mine": "folder"}


@pytest.mark.parametrize("words", [("judge",), ("report",)])
def test_a_folder_that_holds_no_run_is_not_judged(places: Path, words: tuple[str, ...]) -> None:
    said(refuse(places, *words, "full"), 2, "holds no finished run", "--resume")
    said(refuse(places, *words, "nowhere"), 2, "holds no finished run")


# ------------------------------------------------------------ the interpreter of a target


def test_a_picture_that_is_larger_than_anything_a_product_gets(here: Path, golden: Path) -> None:
    """Its header says so: it is refused before it takes memory."""
    path = here / "large.png"
    Image.new("1", (20_000, 20_000)).save(path)
    name = replace_file(golden, path.read_bytes())
    path.unlink()
    judged(here, golden, "KP103", name)
