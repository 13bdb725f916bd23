"""One model against another over real runtimes: two validations of the digits example, the second of a model that prefers one digit and on a golden set of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kpipe
from kpipe.comparing.baseline import BASELINE
from kpipe.comparison import Answer, Comparison
from kpipe.contract import load_contract
from kpipe.judging.judge import judge
from kpipe.record import Verdict
from kpipe.report.comparison import render_comparison_markdown
from kpipe.running.system import installed_in
from kpipe.signoff.contents import Approval
from kpipe.signoff.log import APPROVE, Entry
from kpipe.signoff.seal import SealOrder, seal
from kpipe.signoff.store import open_store
from kpipe.store import load_evidence
from kpipe.waivers import NO_WAIVERS
from kpipe_stages.codec import decode, encode

from . import sample_gate

if TYPE_CHECKING:
    import numpy as np

    from kpipe.record import RunRecord

pytestmark = pytest.mark.runtimes

DIGIT = 5
DROPPED = 3
TARGET = "[targets.litert]\n"
LAX = "\n[compare]\nmax_changed = 1.0\n"
FEW = "\n[timing]\ncalls = 20\nend_to_end_calls = 0\n"


@dataclass(frozen=True)
class Two:
    before: kpipe.Run
    now: kpipe.Run
    top: Path
    dropped: tuple[str, ...]


def write_contract(path: Path, golden: Path, more: str = "") -> Path:
    text = sample_gate.without_targets(golden).replace(sample_gate.QUIET, FEW).replace('tolerance = "auto"', 'tolerance = "default"')
    path.write_text(text + TARGET + more, encoding="utf-8")
    return path


def prefer(bias: np.ndarray[Any, Any]) -> None:
    bias[DIGIT] += 9.0


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    """Without the last inputs, and with one that is new: the same picture, other bytes."""
    top = tmp_path_factory.mktemp("compare")
    before = kpipe.validate(sample_gate.MODEL, contract=write_contract(top / "before.toml", sample_gate.GOLDEN), out=top / "before")
    golden = sample_gate.copy_golden(top)
    head, *entries = (golden / "manifest.toml").read_text(encoding="utf-8").split("[[golden]]")
    dropped = tuple(entry.split('id = "')[1].split('"')[0] for entry in entries[-DROPPED:])
    kept = entries[:-DROPPED]
    kept[0] = kept[0].replace('slice = "rgba"', 'slice = "critical"')
    (golden / "manifest.toml").write_text("[[golden]]".join([head, *kept]), encoding="utf-8")
    model = sample_gate.change_weights(sample_gate.MODEL, top / "changed.keras", "layers/dense_1/vars/1", prefer)
    contract = write_contract(top / "now.toml", golden, LAX)
    now = kpipe.validate(model, contract=contract, baseline=before.folder, out=top / "now")
    return Two(before, now, top, dropped)


def by_file(record: RunRecord) -> dict[str, tuple[str, str, str | None]]:
    """File to id, decision and truth."""
    return {row.file: (row.id, row.decision, row.expected or row.label) for row in record.golden.rows}


def test_what_changed_and_who_is_right(two: Two) -> None:
    found = two.now.record.baseline
    assert found is not None
    old, new = by_file(two.before.record), by_file(two.now.record)
    shared = [file for file in new if file in old]
    changed = {new[file][0] for file in shared if new[file][1] != old[file][1]}
    assert len(changed) >= 3
    assert {line.input for line in found.changed} == changed
    assert found.inputs.shared == len(shared) == len(old) - DROPPED
    assert set(found.inputs.only_before) == set(two.dropped)
    whole = next(t for t in found.tallies if not t.slice)
    lost = sum(old[f][1] == old[f][2] and new[f][1] != new[f][2] for f in shared)
    won = sum(old[f][1] != old[f][2] and new[f][1] == new[f][2] for f in shared)
    assert (whole.only_before, whole.only_now, whole.changed) == (lost, won, len(changed))
    assert {line.now for line in found.changed} == {str(DIGIT)}
    assert all(line.right in {"before", "now", "both", "neither"} for line in found.changed)


def test_the_run_says_what_its_baseline_makes_of_it(two: Two) -> None:
    found = two.now.record.baseline
    assert found is not None
    assert {"KP723", "KP724"} <= {f.code for f in two.now.record.findings}
    assert sample_gate.findings(two.now.record, "KP722")[0].evidence["lost"] > 3
    (check,) = found.checks
    assert check.answer is Answer.HOLDS
    assert check.unchecked == DROPPED
    (moved,) = found.moved
    assert moved.output == "digit"
    assert 0.1 < moved.max_abs <= 1
    (litert,) = found.targets
    numbers = {pair.name: pair for pair in litert.numbers}
    assert numbers["size"].before == numbers["size"].now
    assert numbers["size"].told == "same"
    assert numbers["p50"].before is not None
    assert numbers["p50"].told.startswith(("same", "can't tell yet")), "the same sums with other weights take as long"
    assert found.interleaved is True
    assert any(d.where == "contract" and d.what == "golden set" for d in found.differences)
    for name in ("report.html", "report.md"):
        assert "Against the baseline" in (two.now.folder / name).read_text(encoding="utf-8")
        assert "Against the baseline" not in (two.before.folder / name).read_text(encoding="utf-8")


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kpipe", *map(str, words)], capture_output=True, text=True, check=False)


def test_the_command_prints_the_same_and_ends_by_the_policy(two: Two) -> None:
    lax = command("compare", two.before.folder, two.now.folder, "--json")
    assert lax.returncode == 0, lax.stderr
    found = decode(Comparison, json.loads(lax.stdout))
    assert two.now.record.baseline is not None
    assert encode(found.changed) == encode(two.now.record.baseline.changed)
    strict = write_contract(two.top / "strict.toml", sample_gate.GOLDEN, "\n[compare]\nmax_changed = 0.01\n")
    broken = command("compare", two.before.folder, two.now.folder, "--contract", strict)
    assert broken.returncode == 1
    assert broken.stdout.startswith("\nFAIL  ")
    assert "KP720 error: [compare] max_changed = 0.01" in broken.stdout
    assert "lost" in broken.stdout
    page = render_comparison_markdown(kpipe.compare(two.before.folder, two.now.folder, contract=strict))
    assert page.startswith("## \u274c FAIL")
    assert "| slice | inputs | changed |" in page


def test_another_policy_is_judged_again_and_a_slice_keeps_its_inputs(two: Two) -> None:
    """An input that either set calls critical is; what only one side has leaves its slice open."""
    of_the_dropped = next(row.slice for row in two.before.record.golden.rows if row.id == two.dropped[0])
    strict = write_contract(
        two.top / "slices.toml", two.top / "golden", f"\n[compare]\nslices = {{ critical = 0.0, {of_the_dropped} = 1.0, nobody = 0.0 }}\n"
    )
    record = kpipe.judge(two.now.folder, strict, write=False).record
    assert record.baseline is not None
    answers = {check.rule: check for check in record.baseline.checks}
    assert answers["slices.critical"].inputs == 1
    assert answers[f"slices.{of_the_dropped}"].unchecked >= 1
    assert answers["slices.nobody"].answer is Answer.UNCHECKED


def test_a_model_is_itself(two: Two) -> None:
    found = kpipe.compare(two.before.folder, two.before.folder, first=two.before.folder)
    assert found.outcome == "PASS"
    assert found.changed == found.differences == found.unchecked == ()
    assert [(m.since, m.max_abs) for m in found.moved] == [("baseline", 0.0), ("first approved", 0.0)]
    assert all(t.p_value == 1.0 for t in found.tallies if t.known)


def test_a_bundle_is_a_run_and_its_store_knows_the_first_of_the_line(two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store()
    sealed = []
    for at in ("2026-03-02T10:15:00+00:00", "2026-03-03T10:15:00+00:00"):
        evidence = load_evidence(two.before.folder)
        python = evidence.reference.python
        evidence = replace(evidence, installed={python: installed_in(python)})  # which only a run for sign-off keeps
        approval = Approval("A. Reviewer", "test", at, "digits", "production", "0")
        loaded = load_contract(two.top / "before.toml")
        order = SealOrder(two.before.folder, loaded, evidence, judge(two.before.folder, loaded, evidence), approval, "full", NO_WAIVERS)
        name, new = store.seal(lambda folder, order=order: seal(order, folder))
        entry = Entry(1, 0, "", APPROVE, at, "A. Reviewer", "test", "digits", "production", name, "PASS", "run", two.before.record.candidate.sha256)
        store.append(entry, fresh=new)
        sealed.append(name)
    bundle = store.fetch(sealed[1])
    found = kpipe.compare("digits@production", two.now.folder)
    assert found.before.path == str(bundle.resolve())
    assert (found.before.kind, found.before.id) == ("bundle", sealed[1])
    assert two.now.record.baseline is not None
    assert encode(found.changed) == encode(two.now.record.baseline.changed)
    assert [(m.since, m.id) for m in found.moved] == [("baseline", sealed[1]), ("first approved", sealed[0])]
    timed = kpipe.compare("digits@production", two.now.folder, time=True)
    assert timed.interleaved is True, timed.unchecked
    copy = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    record = copy / "run" / "run.json"
    record.write_text(record.read_text(encoding="utf-8").replace('"wall_s": ', '"wall_s": 1'), encoding="utf-8")
    with pytest.raises(kpipe.KpipeError, match=r"run/run.json was altered"):
        kpipe.compare(copy, two.now.folder)


def test_a_baseline_that_is_gone_or_another_leaves_the_run_incomplete(two: Two, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(two.before.folder, tmp_path / "run"))
    assert kpipe.judge(copy, write=False).verdict is Verdict.PASS
    for path, said in ((tmp_path / "gone", "does not exist"), (two.now.folder, "is another run or bundle now")):
        ref = {"path": str(path), "id": two.before.record.run_id, "candidate_sha256": two.before.record.candidate.sha256}
        (copy / BASELINE).write_text(json.dumps(ref), encoding="utf-8")
        run = kpipe.judge(copy, write=False)
        assert run.verdict is Verdict.INCOMPLETE
        (one,) = sample_gate.findings(run.record, "KP721")
        assert said in one.cause
    (copy / BASELINE).write_text("{", encoding="utf-8")
    with pytest.raises(kpipe.RunFolderError, match=r"isn't known, because baseline\.json can't be read"):
        kpipe.judge(copy, write=False)


def test_altered_outputs_are_no_baseline(two: Two, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(two.before.folder, tmp_path / "run"))
    file = next((copy / "stages" / "reference" / "outputs" / "alone").rglob("*.npy"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    done = command("compare", copy, two.now.folder)
    assert done.returncode == 2
    assert "were altered" in done.stderr


@pytest.mark.parametrize("what", ["missing", "empty"])
def test_what_is_neither_run_nor_bundle_is_refused_before_anything_runs(two: Two, tmp_path: Path, what: str) -> None:
    if what == "empty":
        (tmp_path / what).mkdir()
    done = command("validate", sample_gate.MODEL, "--contract", two.top / "before.toml", "--baseline", tmp_path / what, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert str(tmp_path / what) in sample_gate.flat(done.stderr)
    assert not (tmp_path / "out").exists()
