"""Every command as a shell runs it: words in, text or JSON out, the right exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kpipe
from kpipe.contract import parse_contract
from kpipe_stages.catalog import RUNTIMES

from .cases.gate import command
from .sample_gate import GOLDEN, LAYERS, MODEL, QUIET, flat, manifest, shipped, states, without_targets, workers_of

COMMANDS = (
    "validate",
    "inspect",
    "init",
    "golden",
    "judge",
    "diagnose",
    "report",
    "train",
    "targets",
    "doctor",
    "selftest",
    "preflight",
    "compatibility",
)
HEAVY = {"numpy", "pydantic", "rich", "jinja2", "matplotlib", "PIL", "h5py", "keras", "tensorflow", "jax", "openvino", "onnxruntime"}
ESCAPE = "\x1b["


# ------------------------------------------------------------ help


def imported(*words: str) -> tuple[str, set[str]]:
    """Stdout of a command and the heavy packages that it has imported."""
    code = (
        "import sys\nfrom kpipe.__main__ import run\n"
        f"code = run({list(words)!r})\n"
        f"print('\\n' + ' '.join(sorted({HEAVY!r} & set(sys.modules))), file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.splitlines()[-1].split())


def test_help_names_every_command_and_exit_code_and_imports_nothing() -> None:
    text, heavy = imported("--help")
    assert heavy == set()
    assert all(re.search(rf"^\s+{name}\s", text, re.MULTILINE) for name in COMMANDS)
    assert "Exit codes: 0 PASS, 1 FAIL" in flat(text)
    assert ESCAPE not in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_imports_nothing_of_kpipes_own(name: str) -> None:
    text, heavy = imported(name, "--help")
    assert heavy <= {"pydantic"}, "which typer takes for its own parameters"
    assert f"kpipe {name}" in text


@pytest.mark.parametrize("name", ["verify", "add", "mine"])
def test_help_of_each_command_about_golden_sets_imports_nothing_of_kpipes_own(name: str) -> None:
    text, heavy = imported("golden", name, "--help")
    assert heavy <= {"pydantic"}, "which typer takes for its own parameters"
    assert f"kpipe golden {name}" in text


def test_the_options_of_validate_are_the_promised_ones() -> None:
    text, _ = imported("validate", "-h")
    assert {"--contract", "--golden", "--target", "--out", "--jobs", "--resume", "--json", "--custom-objects"} <= set(re.findall(r"--[\w-]+", text))


def test_version(tmp_path: Path) -> None:
    answer = command("--version", folder=tmp_path)
    assert answer.exit_code == 0
    assert re.fullmatch(r"kpipe \d+\.\d+\.\d+\n", answer.stdout)


def test_no_words_at_all_show_the_help(tmp_path: Path) -> None:
    answer = command(folder=tmp_path)
    assert answer.exit_code in {0, 2}
    assert "validate" in answer.stdout + answer.stderr


# ------------------------------------------------------------ completion


def test_a_completion_script_is_printed_and_completes(tmp_path: Path) -> None:
    answer = command("--show-completion", "bash", folder=tmp_path, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert answer.exit_code == 0, answer
    assert "_KPIPE_COMPLETE=complete_bash" in answer.stdout
    completed = command(folder=tmp_path, _KPIPE_COMPLETE="complete_bash", COMP_WORDS="kpipe val", COMP_CWORD="1")
    assert completed.stdout.split() == ["validate"]


# ------------------------------------------------------------ targets, doctor


def test_targets_lists_every_runtime_with_its_version(tmp_path: Path) -> None:
    answer = command("targets", folder=tmp_path)
    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(RUNTIMES)
    assert len({line.index("installed") if "installed" in line else line.index("missing") for line in lines}) == 1
    rows = json.loads(command("targets", "--json", folder=tmp_path).stdout)
    assert [row["runtime"] for row in rows] == list(RUNTIMES)
    assert all(row["versions"] or row["missing"] for row in rows)


def test_targets_names_the_extra_that_brings_what_is_missing(tmp_path: Path) -> None:
    """Without site packages but kpipe's own there is no runtime."""
    code = "import kpipe.running.plan, kpipe.running.system; from kpipe.__main__ import run; import importlib.metadata as m; old = m.version\n"
    code += "def version(name):\n    if name == 'onnxruntime':\n        raise m.PackageNotFoundError(name)\n    return old(name)\n"
    code += "m.version = version\nrun(['targets'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("onnxruntime"))
    assert "missing onnxruntime: pip install 'keras-kpipe[onnxruntime]'" in line


def clean_environment() -> dict[str, str]:
    """The caller's, without what doctor complains of."""
    return dict.fromkeys(("KERAS_BACKEND", "PYTHONPATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "TF_USE_LEGACY_KERAS"), "")


def test_doctor_finds_nothing_in_the_way_of_a_clean_shell(tmp_path: Path) -> None:
    answer = command("doctor", folder=tmp_path, KERAS_HOME=str(tmp_path), **clean_environment())
    assert "KERAS_HOME=" in answer.stdout
    home = {**clean_environment(), "HOME": str(tmp_path)}
    answer = command("doctor", folder=tmp_path, **home)
    assert answer.exit_code == 0, answer.stdout
    assert "Nothing stands in the way." in answer.stdout
    assert "CPU features that change numerics" in answer.stdout


def test_doctor_names_what_stands_in_the_way(tmp_path: Path) -> None:
    home = {**clean_environment(), "HOME": str(tmp_path), "KERAS_BACKEND": "torch"}
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text('{"floatx": "float16", "epsilon": 1e-07}', encoding="utf-8")
    answer = command("doctor", folder=tmp_path, **home)
    assert answer.exit_code == 1
    assert "in the way: KERAS_BACKEND=torch is set" in answer.stdout
    assert "keras.json sets floatx = float16" in answer.stdout
    document = json.loads(command("doctor", "--json", folder=tmp_path, **home).stdout)
    assert len(document["in_the_way"]) == 2
    assert document["environment"]["cores"] >= 1
    (tmp_path / ".keras" / "keras.json").write_text("[1]", encoding="utf-8")
    broken = command("doctor", folder=tmp_path, **{**home, "KERAS_BACKEND": ""})
    assert broken.exit_code == 1
    assert "keras.json can't be read" in broken.stdout


# ------------------------------------------------------------ inspect


def test_inspect_prints_what_is_inside(tmp_path: Path) -> None:
    answer = command("inspect", MODEL, "--custom-objects", LAYERS, folder=tmp_path)
    assert answer.exit_code == 0, answer.stdout
    assert "input       image  (any, 16, 16, 1)  float32" in answer.stdout
    assert "norm_2" in answer.stdout
    assert "kpipe_digits>RMSNorm" in answer.stdout
    assert re.search(r"conv_1\s+Conv2D", answer.stdout)
    assert not any(tmp_path.iterdir())


def test_inspect_takes_the_contract_beside_the_model_and_gives_json(tmp_path: Path) -> None:
    answer = command("inspect", MODEL, "--json", folder=tmp_path)
    assert answer.exit_code == 0
    document = json.loads(answer.stdout)
    assert document["findings"] == []
    assert document["archive"]["model_name"] == "digits"
    assert document["archive"]["parameters"] > 30_000
    assert document["archive"]["has_optimizer"] is True


def test_inspect_refuses_a_layer_that_nobody_gave(tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "model.keras")
    answer = command("inspect", "model.keras", folder=tmp_path)
    assert answer.exit_code == 1
    assert "KP007" in answer.stdout
    assert "norm_2" in answer.stdout


# ------------------------------------------------------------ init


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which ``kpipe init`` wrote a contract and a golden folder from raw files, sorted by label."""
    here = tmp_path_factory.mktemp("drafted")
    shutil.copy(MODEL, here / "model.keras")
    shutil.copy(LAYERS, here / "layers.py")
    for entry in manifest(GOLDEN)[:12]:
        target = here / "raw" / entry["label"] / Path(entry["file"]).name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(GOLDEN / entry["file"], target)
    (here / "raw" / "notes.txt").write_text("not a picture", encoding="utf-8")
    answer = command("init", "model.keras", "--raw", "raw", "--custom-objects", "layers.py", folder=here)
    assert answer.exit_code == 0, answer.stderr
    assert "12 golden inputs" in answer.stdout
    assert "1 of another kind left out, notes.txt first" in answer.stdout
    assert "kpipe validate model.keras --contract" in answer.stdout
    return here


def test_init_writes_a_contract_that_can_be_used(drafted: Path) -> None:
    text = (drafted / "kpipe.toml").read_text(encoding="utf-8")
    contract = parse_contract(text, "kpipe.toml")
    assert contract.golden.path == "golden_inputs"
    assert contract.model.custom_objects == ("layers.py",)
    assert set(contract.inputs) == {"image"}
    assert contract.decision is not None
    assert (contract.decision.rule, contract.decision.output) == ("argmax", "digit")
    assert {name for name, table in contract.targets.items() if table.required is not False} == set(RUNTIMES) - {
        "jax",
        "keras_openvino",
        "litert_compiled",
    }
    assert "LOOK AT THIS" in text


def test_init_copies_raw_files_with_their_labels(drafted: Path) -> None:
    document = tomllib.loads((drafted / "golden_inputs" / "manifest.toml").read_text(encoding="utf-8"))
    assert len(document["golden"]) == 12
    assert all(entry["file"].split("/")[1] == entry["label"] for entry in document["golden"])
    assert len({entry["id"] for entry in document["golden"]}) == 12


def test_init_changes_nothing_that_is_there(drafted: Path) -> None:
    before = (drafted / "kpipe.toml").read_bytes()
    answer = command("init", "model.keras", "--custom-objects", "layers.py", folder=drafted)
    assert answer.exit_code == 2
    assert "exists already" in answer.stderr
    assert (drafted / "kpipe.toml").read_bytes() == before
    answer = command("init", "model.keras", "--raw", "raw", "--out", "other.toml", "--custom-objects", "layers.py", folder=drafted)
    assert answer.exit_code == 2
    assert "is not empty" in answer.stderr
    assert not (drafted / "other.toml").exists()


def test_init_refuses_what_it_cannot_make_anything_of(drafted: Path, tmp_path: Path) -> None:
    words = ("init", drafted / "model.keras", "--custom-objects", drafted / "layers.py", "--out", "kpipe.toml")
    (tmp_path / "none").mkdir()
    answer = command(*words, "--raw", "none", folder=tmp_path)
    assert (answer.exit_code, "holds none of the kinds" in answer.stderr) == (2, True)
    answer = command(*words, "--raw", "nowhere", folder=tmp_path)
    assert (answer.exit_code, "is no folder" in answer.stderr) == (2, True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["none"]


@pytest.mark.runtimes
def test_what_init_wrote_is_validated_as_it_stands(drafted: Path) -> None:
    """Its steps are a guess that says so: the golden inputs fit the model, and every target agrees."""
    contract = drafted / "kpipe.toml"
    text = contract.read_text(encoding="utf-8")
    quick = drafted / "quick.toml"
    quick.write_text(text.split("[targets", 1)[0] + QUIET + "[targets.litert]\n", encoding="utf-8")
    summary = drafted / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    answer = command(
        "validate", "model.keras", "--contract", "quick.toml", "--out", "run", "--json", folder=drafted, GITHUB_STEP_SUMMARY=str(summary)
    )
    record = json.loads(answer.stdout)
    assert answer.exit_code == {"PASS": 0, "FAIL": 1, "INCOMPLETE": 3}[record["verdict"]]
    assert answer.stderr == ""
    assert record == json.loads((drafted / "run" / "run.json").read_text(encoding="utf-8"))
    assert {t["status"] for t in record["targets"]} == {"pass"}
    assert "KP607" in {f["code"] for f in record["findings"]}
    told = summary.read_text(encoding="utf-8")
    assert told.startswith("before\n")
    assert (drafted / "run" / "report.md").read_text(encoding="utf-8") in told


def test_a_summary_that_cannot_be_written_changes_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_bytes(b"no model")
    answer = command("validate", "model.keras", "--out", "run", folder=tmp_path, GITHUB_STEP_SUMMARY=str(tmp_path / "no" / "such" / "file"))
    assert answer.exit_code == 1
    assert "the CI summary" in answer.stderr
    assert "the verdict stands" in answer.stderr


# ------------------------------------------------------------ judge and report: a copy of a finished run, no process started


@pytest.fixture
def finished(digits_run: kpipe.Run, tmp_path: Path) -> Path:
    """A copy of the shipped example's run."""
    return Path(shutil.copytree(digits_run.folder, tmp_path / "run"))


@pytest.mark.runtimes
def test_a_stricter_contract_turns_a_pass_into_a_fail_without_running_anything(finished: Path) -> None:
    here = finished.parent
    (here / "stricter.toml").write_text(shipped().replace('tolerance = "auto"', "tolerance = { atol = 1e-12, rtol = 1e-12 }"), encoding="utf-8")
    stages = {path: path.stat().st_mtime_ns for path in (finished / "stages").rglob("*")}
    answer = command("judge", finished, "--contract", "stricter.toml", folder=here)
    assert answer.exit_code == 1, answer.stdout
    assert "FAIL" in answer.stdout
    assert "KP401" in answer.stdout
    assert {path: path.stat().st_mtime_ns for path in (finished / "stages").rglob("*")} == stages
    assert not workers_of(finished)
    record = kpipe.load_run(finished).record
    assert record.contract.source.endswith("stricter.toml")
    assert "FAIL" in (finished / "report.md").read_text(encoding="utf-8")
    again = command("judge", finished, folder=here)
    assert again.exit_code == 0, "by its own contract it is what it was"


@pytest.mark.runtimes
def test_judge_holds_a_run_to_what_it_did_not_do(finished: Path) -> None:
    here = finished.parent
    text = shipped().replace("[targets.litert]\n", "[targets.litert]\nthreads = 1\n")
    (here / "other.toml").write_text(text + '\n[targets.edge]\nruntime = "litert"\n', encoding="utf-8")
    answer = command("judge", finished, "--contract", "other.toml", "--json", folder=here)
    record = json.loads(answer.stdout)
    assert answer.exit_code == 3
    assert {(f["code"], f["target"]) for f in record["findings"] if f["code"] == "KP609"} == {("KP609", "litert"), ("KP609", "edge")}


@pytest.mark.runtimes
def test_judge_takes_a_looser_number_of_flips_for_what_it_is(finished: Path) -> None:
    here = finished.parent
    (here / "loose.toml").write_text(
        without_targets() + "[targets.openvino_default]\nruntime = 'openvino'\nprecision = 'default'\n", encoding="utf-8"
    )
    assert command("judge", finished, "--contract", "loose.toml", folder=here).exit_code in {0, 1}
    run = kpipe.load_run(finished)
    assert [t.required for t in run.record.targets] == [True]


@pytest.mark.runtimes
def test_report_writes_what_was_lost_and_prints_the_same_table(finished: Path) -> None:
    for name in ("report.html", "report.md", "junit.xml", "results.sarif"):
        (finished / name).unlink()
    answer = command("report", finished, folder=finished.parent)
    assert answer.exit_code == 0
    assert all((finished / name).stat().st_size > 0 for name in ("report.html", "report.md", "junit.xml", "results.sarif"))
    assert ESCAPE not in answer.stdout
    assert f"Report: {finished / 'report.html'}" in answer.stdout
    document = json.loads(command("report", finished, "--json", folder=finished.parent).stdout)
    assert {t["name"]: t["status"] for t in document["targets"]} == states(kpipe.load_run(finished).record)


@pytest.mark.runtimes
def test_colour_is_for_terminals_and_no_color_is_kept(finished: Path) -> None:
    code = (
        "import os, pty, sys\n"
        "def read(fd):\n    data = os.read(fd, 65536)\n    return data\n"
        f"status = pty.spawn([sys.executable, '-m', 'kpipe', 'report', {str(finished)!r}], read)\n"
        "sys.exit(os.waitstatus_to_exitcode(status))"
    )

    def in_a_terminal(**environment: str) -> str:
        inherited = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        done = subprocess.run(
            [sys.executable, "-c", code], env={**inherited, "TERM": "xterm-256color", **environment}, capture_output=True, check=True
        )
        return done.stdout.decode()

    assert ESCAPE in in_a_terminal()
    assert ESCAPE not in in_a_terminal(NO_COLOR="1")
    assert ESCAPE not in in_a_terminal(TERM="dumb")
