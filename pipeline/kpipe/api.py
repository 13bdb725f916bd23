"""The command's parts for Python: `validate`, `judge`, `load_run`."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe import signals
from kpipe.axes import placed_axes
from kpipe.comparing.baseline import held_to_baseline, note_baseline
from kpipe.comparing.compare import compare as compare_subjects
from kpipe.comparing.subject import open_first, open_subject
from kpipe.comparing.timing import timed_against, timed_subject
from kpipe.contract import LoadedContract, check_names, load_contract, parse_contract
from kpipe.errors import Exit, KpipeError, RunFolderError
from kpipe.judging.again import adapt
from kpipe.judging.judge import judge as judge_run
from kpipe.judging.judge import model_signature
from kpipe.record import RunRecord, Verdict
from kpipe.report import import_libraries
from kpipe.report.deploy import deployments
from kpipe.report.summary import contradictions
from kpipe.running import system
from kpipe.running.knobs import turn_knobs
from kpipe.running.orchestrate import collect
from kpipe.running.request import Request, Resolved, calibration_record, known_code, resolve
from kpipe.running.reuse_key import own_source
from kpipe.signoff.approve import Approved, ApproveRequest, Judgement
from kpipe.signoff.approve import approve as approve_run
from kpipe.store import RunFolder, discard, held, load_evidence, load_record, new_run_path, open_run_folder, refuse_sealed, save_evidence, sealed_in
from kpipe.waivers import NO_WAIVERS, WAIVERS_NAME, WaiverSet, load_waivers
from kpipe_stages.codec import CodecError, write_json
from kpipe_stages.digest import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kpipe.comparison import Comparison
    from kpipe.evidence import Evidence


JUDGED_BY = "contract.judged.toml"
"""The contract that a finished run was judged by last, where that was not its own."""

TUNABLE = frozenset({"backend", "export", "runtime", "precision", "batch"})
"""Borders at which a setting of the runtime may remove the difference."""

EXIT_OF_VERDICT = {Verdict.PASS: Exit.PASS, Verdict.FAIL: Exit.FAIL, Verdict.INCOMPLETE: Exit.INCOMPLETE}


@dataclass(frozen=True)
class Run:
    """One judged validation and where it lies."""

    folder: Path
    record: RunRecord

    @property
    def verdict(self) -> Verdict:
        """PASS, FAIL or INCOMPLETE."""
        return self.record.verdict

    @property
    def exit_code(self) -> Exit:
        """What the command ends with."""
        return EXIT_OF_VERDICT[self.record.verdict]

    @property
    def report(self) -> Path:
        """The page that a person reads."""
        return self.folder / "report.html"


def validate(
    model: str | os.PathLike[str],
    *,
    contract: str | os.PathLike[str] | None = None,
    golden: str | os.PathLike[str] | None = None,
    targets: tuple[str, ...] = (),
    custom_objects: tuple[str | os.PathLike[str], ...] = (),
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    resume: bool = False,
    profile: str | None = None,
    baseline: str | os.PathLike[str] | None = None,
    waivers: str | os.PathLike[str] | None = None,
    reuse: bool = False,
    on_event: Callable[[str, dict[str, Any]], None] | None = None,
) -> Run:
    """May this model ship to these runtimes?

    Args:
        model: the ``.keras`` file.
        contract: a ``kpipe.toml``; else the one beside the model, else everything is inferred.
        golden: a golden folder or an ``.npz`` of arrays by input name; else the contract's, else synthetic inputs.
        targets: run only these; the others stay unchecked.
        custom_objects: Python files that register custom layers, besides the contract's.
        out: the run folder; else ``runs/<UTC time>-<model>``.
        jobs: workers at a time; else as many as there are cores.
        resume: continue the run in ``out``.
        profile: ``default`` or ``signoff``; else the contract's.
        baseline: a run or a bundle of an earlier model, to hold this one against by the contract's ``[compare]``.
        waivers: findings that somebody answers for; else ``waivers.toml`` beside the contract.
        reuse: take artifacts that an earlier run made of the same things from kpipe's cache, and keep this run's there, as the command does.
        on_event: called with a stage's name and its event while the run goes on.

    Returns:
        The run, judged; its reports are written.

    Raises:
        KpipeError: the command, the contract or the golden set is off; nothing was judged.
    """
    request = Request(
        model=Path(model),
        contract=Path(contract) if contract is not None else None,
        golden=Path(golden) if golden is not None else None,
        targets=tuple(targets),
        custom_objects=tuple(Path(p) for p in custom_objects),
        out=Path(out) if out is not None else None,
        jobs=jobs,
        resume=resume,
        cache=os.environ.get("KPIPE_CACHE_DIR"),
        profile=profile,
        reuse=reuse,
    )
    resolved = resolve(request)
    earlier = open_subject(Path(baseline)) if baseline is not None else None
    held_to = waivers_for(waivers, resolved.loaded)
    folder = open_run_folder(request.out or new_run_path(request.model), _order(resolved), resume=resume)
    with held(folder), _resumable(folder):
        folder.write_text("contract.toml", resolved.loaded.text)
        if earlier is not None:
            note_baseline(folder.path, earlier)
        try:
            evidence = signals.run(collect(resolved, folder, on_event or (lambda *_: None)))
        except KpipeError:
            if not resume:
                discard(folder)
            raise
        if earlier is not None:
            evidence = timed_against(earlier, resolved.loaded.contract, evidence, folder, on_event or (lambda *_: None), resume=resume)
        save_evidence(folder, evidence)
        record = judge_run(folder.path, resolved.loaded, evidence, held_to)
        if differing := [target.name for target in record.targets if target.edge and target.edge.name in TUNABLE]:
            with ThreadPoolExecutor(1) as beside:  # nothing is timed any more, and this process has nothing to do until the workers end
                beside.submit(import_libraries)
                save_evidence(folder, signals.run(turn_knobs(resolved, folder, evidence, differing, on_event or (lambda *_: None))))
            return conclude(folder, resolved.loaded, held_to)
        return _write(folder, held_to_baseline(folder.path, resolved.loaded, evidence, record), held_to)


@contextmanager
def _resumable(folder: RunFolder) -> Iterator[None]:
    """Say with Ctrl-C how to go on."""
    try:
        yield
    except (KeyboardInterrupt, signals.Terminated) as stop:
        stop.add_note(f"Its workers were ended, and what was finished is kept: go on with the same command and --out {folder.path} --resume.")
        raise


def _order(resolved: Resolved) -> dict[str, str]:
    """What a resumed run must have in common with the interrupted one."""
    contract = resolved.loaded.contract
    foreign = sorted({table.python for table in contract.targets.values() if table.python})
    interpreters = {path: system.foreign_interpreter(resolved.loaded.resolve(path)).versions for path in foreign}
    here = system.environment()
    provided = [resolved.loaded.resolve(table.artifact) for table in contract.targets.values() if table.artifact]
    code = [path for files in resolved.decision_code.values() for path in files]
    files = [*(Path(path) for path in (*resolved.trust.custom_objects, *resolved.input_files, *code)), *provided]
    return {
        "model": resolved.sha256,
        "contract": resolved.loaded.sha256,
        "golden set": resolved.golden.manifest_sha256 or next(iter(resolved.golden.inputs[0].sha256.values())) if resolved.golden else "synthetic",
        "calibration set": used.sha256 if (used := calibration_record(resolved.calibration)) else "none",
        "targets": ",".join(resolved.request.targets),
        "profile": resolved.profile.name,
        "files": ",".join(digest(path) for path in files if path.exists()),
        "kpipe": f"{system.kpipe_version()}, workers {own_source()[:12]}",
        "versions": _listed(here.versions),
        "interpreters": "; ".join(f"{path}: {_listed(versions)}" for path, versions in interpreters.items()),
        "machine": f"{here.cpu}, Python {here.python}",
    }


def _listed(versions: Mapping[str, str]) -> str:
    return ",".join(f"{name} {version}" for name, version in sorted(versions.items()))


def conclude(folder: RunFolder, loaded: LoadedContract, waivers: WaiverSet = NO_WAIVERS) -> Run:
    """Judge what a run left behind and write its record and reports."""
    evidence = load_evidence(folder.path)
    record = judge_run(folder.path, loaded, evidence, waivers)
    return _write(folder, held_to_baseline(folder.path, loaded, evidence, record), waivers)


def waivers_for(given: str | os.PathLike[str] | None, loaded: LoadedContract, run: Path | None = None) -> WaiverSet:
    """The waivers that a run is held to: those given, else ``waivers.toml`` beside the contract, else none.

    A finished run that is sealed, or whose contract's folder is gone, has a copy of its own.

    Raises:
        KpipeError: they can't be used, or the file that was given isn't there.
    """
    today = datetime.now(UTC).date()
    if given is not None:
        return load_waivers(Path(given), today)
    own = run is not None and (sealed_in(run) is not None or not loaded.folder.is_dir())
    path = (run if run is not None and own else loaded.folder) / WAIVERS_NAME
    return load_waivers(path, today) if loaded.source != "inferred" and path.is_file() else WaiverSet(today=today)


def _write(folder: RunFolder, record: RunRecord, waivers: WaiverSet = NO_WAIVERS) -> Run:
    if waivers.source:
        folder.write_text(WAIVERS_NAME, waivers.text)
    else:
        (folder.path / WAIVERS_NAME).unlink(missing_ok=True)  # of an earlier judgement: it is not what this one was held to
    write_json(folder.path / "run.json", record)
    for place, text in deployments(record).items():
        (folder.artifacts / place).mkdir(parents=True, exist_ok=True)
        folder.write_text(f"artifacts/{place}/deploy.toml", text)
    run = report(Run(folder.path, record))
    if record.verdict is Verdict.PASS and (wrong := contradictions(record)):
        raise RuntimeError(f"the verdict is PASS and the record says otherwise: {wrong[0]}")
    return run


def judge(
    run: str | os.PathLike[str],
    contract: str | os.PathLike[str] | None = None,
    *,
    waivers: str | os.PathLike[str] | None = None,
    write: bool = True,
) -> Run:
    """Judge a finished run again, by another contract or by its own; nothing is run.

    Args:
        run: its folder.
        contract: the contract to judge by; else the one that it was made with.
        waivers: findings that somebody answers for; else ``waivers.toml`` beside the contract.
        write: write record and reports into the run's folder. Nothing is ever written into a bundle.

    Raises:
        KpipeError: it holds no finished run, or the contract can't be used.
    """
    path = Path(run).resolve()
    evidence = load_evidence(path)
    made_with = _made_with(path, evidence)
    loaded = load_contract(Path(contract)) if contract is not None else made_with
    held_to = waivers_for(waivers, loaded, path)
    code = evidence.decision_code if contract is None else known_code(loaded)
    record = _judged(path, loaded, adapt(evidence, made_with, loaded, code), held_to)
    if not write or sealed_in(path):
        return Run(path, record)
    if contract is not None:
        RunFolder(path).write_text(JUDGED_BY, loaded.text)
    return _write(RunFolder(path), record, held_to)


def _judged(path: Path, loaded: LoadedContract, evidence: Evidence, waivers: WaiverSet) -> RunRecord:
    try:
        if (signature := model_signature({stage.name: stage for stage in evidence.stages})) is not None:
            check_names(loaded.contract, signature, loaded.source)
            placed_axes(loaded.contract, signature, loaded.source)
        return held_to_baseline(path, loaded, evidence, judge_run(path, loaded, evidence, waivers))
    except CodecError as error:
        raise RunFolderError(f"{path}: a stage's answer can't be read by this kpipe: {error}. Judge it with the kpipe that made it.") from error


def approve(request: ApproveRequest, waivers: str | os.PathLike[str] | None = None) -> Approved:
    """Judge a run again from its saved evidence, seal it as a bundle, enter it into a store's log and make it current.

    Raises:
        KpipeError: it can't be signed off, or the store can't be written; nothing was sealed then.
    """
    path = request.run.resolve()
    evidence = load_evidence(path)
    loaded = _made_with(path, evidence)
    held_to = waivers_for(waivers, loaded, path)
    now = datetime.now(UTC)
    judgement = Judgement(_judged(path, loaded, evidence, held_to), evidence, loaded, held_to)
    return approve_run(replace(request, run=path), judgement, now)


def _made_with(path: Path, evidence: Evidence) -> LoadedContract:
    """The contract that a run was made with, as kept in its folder; one that was edited since is refused."""
    source = evidence.contract_source
    try:
        text = (path / "contract.toml").read_text(encoding="utf-8")
    except OSError as error:
        raise RunFolderError(f"{path} has lost its contract.toml ({error.strerror}), so what it was asked to do is not known.") from error
    loaded = LoadedContract(parse_contract(text, source), source, text, Path(evidence.contract_folder))
    if loaded.sha256 != evidence.contract_sha256:
        raise RunFolderError(
            f"{path / 'contract.toml'} is not the contract that the run was made with: SHA-256 {loaded.sha256}, where the run says "
            f"{evidence.contract_sha256}. Restore it, and give another contract with --contract."
        )
    return loaded


def compare(
    before: str | os.PathLike[str],
    now: str | os.PathLike[str],
    *,
    contract: str | os.PathLike[str] | None = None,
    first: str | os.PathLike[str] | None = None,
    time: bool = False,
) -> Comparison:
    """Hold a finished run or a bundle against an earlier one. Nothing is run unless times are asked for.

    Args:
        before: the earlier model's run or bundle.
        now: the later one's.
        contract: whose ``[compare]`` is the policy; else the later one's own.
        first: the first approved model's run or bundle, for the drift since then; else the one that the log of the baseline's store has.
        time: time the targets that both have in turns, on this machine, within ``[baseline] max_seconds`` each.

    Raises:
        KpipeError: one of them can't be read, or was altered.
    """
    subjects = [open_subject(Path(path)) for path in (before, now)]
    policy = load_contract(Path(contract)).contract if contract is not None else subjects[1].contract
    if time:
        subjects[1] = timed_subject(subjects[0], subjects[1], policy)
    ancestor = open_subject(Path(first)) if first is not None else open_first(Path(subjects[0].side.path))
    return compare_subjects(subjects[0], subjects[1], policy.compare, policy.agreement.confidence, ancestor)


def report(run: Run) -> Run:
    """Write a run's reports from its record."""
    from kpipe.report import render_all
    from kpipe.report.pictures import pictures

    refuse_sealed(run.folder, "a report")
    folder = Path(load_evidence(run.folder).golden.path)
    for name, text in render_all(run.record, pictures(run.record, folder)).items():
        RunFolder(run.folder).write_text(name, text)
    return run


def load_run(path: str | os.PathLike[str]) -> Run:
    """A finished run, as it was judged.

    Raises:
        KpipeError: there is none.
    """
    folder = Path(path).resolve()
    return Run(folder, load_record(folder))
