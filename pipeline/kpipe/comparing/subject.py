"""The one view of a run or a bundle that comparing needs. Reads saved files, changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kpipe.comparing.ancestry import first_approved
from kpipe.comparison import Side
from kpipe.contract import CONTRACT_NAME, Contract, parse_contract
from kpipe.errors import BundleError, KpipeError, StoreError, UsageError
from kpipe.evidence import Evidence
from kpipe.judging.answers import ALONE, Answers, open_answers
from kpipe.judging.decided import DECIDE_STAGE, stored_decisions
from kpipe.judging.judge import REFERENCE_STAGE
from kpipe.record import RunRecord
from kpipe.signoff.bundle import open_bundle
from kpipe.signoff.decisions import specs_of
from kpipe.signoff.manifest import MANIFEST
from kpipe.signoff.store import DEFAULT_STORE, find_bundle
from kpipe.signoff.verify import verify
from kpipe.store import load_evidence, load_record
from kpipe_stages.codec import CodecError
from kpipe_stages.decisions import Decision, DecisionError
from kpipe_stages.protocol import DecisionSpec

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.golden import GoldenInput


@dataclass(frozen=True)
class Decided:
    """What a model decides by one rule, a decision a golden input."""

    spec: DecisionSpec
    decisions: tuple[Decision, ...]


@dataclass(frozen=True)
class Subject:
    """One side of a comparison."""

    side: Side
    record: RunRecord
    evidence: Evidence
    contract: Contract
    answers: Answers | None
    """Of the model itself, on its own backend; None where it was never run."""
    rules: dict[str, Decided]
    """By the rule's name."""
    undecided: dict[str, str] = field(default_factory=dict)
    """Rule to why there are no decisions by it."""
    untimed: tuple[str, ...] = ()
    """Why targets could not be timed in turns though that was asked for, a sentence each."""

    @property
    def inputs(self) -> tuple[GoldenInput, ...]:
        """Its golden inputs, a row each."""
        return self.evidence.golden.inputs


def open_subject(path: Path) -> Subject:
    """A finished run's folder, or a bundle's; also a bundle by its id, or ``product`` or ``product@channel`` for what is current in the store ``releases``.

    Raises:
        KpipeError: it is neither, or what it left behind can't be read or was altered.
    """
    path = path.resolve() if path.exists() else _named(str(path))
    if (path / MANIFEST).is_file():
        if altered := verify(find_bundle(str(path))).findings:
            raise BundleError(f"{path} can't be compared: {altered[0].cause} 'kpipe verify {path}' says what else is wrong.")
        bundle = open_bundle(path)
        return subject_of(bundle.run, "bundle", bundle.id, path)
    if not path.is_dir():
        raise UsageError(f"{path} is no folder. Expected that of a finished run, or of a bundle that 'kpipe approve' has sealed.")
    return subject_of(path, "run", "", path)


def _named(word: str) -> Path:
    try:
        return find_bundle(word).path
    except BundleError:
        raise UsageError(
            f"{word} does not exist, and the store '{DEFAULT_STORE}' has no such bundle. Expected the folder of a finished run or of a bundle."
        ) from None
    except StoreError as error:
        raise UsageError(f"{word} does not exist as a folder, and is no bundle that could be found: {error}") from error


def open_first(path: Path) -> Subject | None:
    """The first approved model of the line that ``path``, a bundle, belongs to; None where nothing knows one.

    Raises:
        KpipeError: the store's log is damaged, or the bundle can't be read.
    """
    first = first_approved(path.resolve())
    return open_subject(first) if first is not None else None


def subject_of(run: Path, kind: str, name: str, shown: Path, judged: tuple[Evidence, RunRecord] | None = None) -> Subject:
    """What lies in a run's folder.

    Args:
        run: the folder.
        kind: ``run`` or ``bundle``.
        name: the bundle's id; empty for the run's own.
        shown: the folder as it was named.
        judged: its evidence and record, where they aren't to be read from the folder.

    Raises:
        KpipeError: it can't be read.
    """
    evidence, record = judged or (load_evidence(run), load_record(run))
    try:
        text = (run / "contract.toml").read_text(encoding="utf-8")
        contract = parse_contract(text, f"{shown}: contract.toml")
        side = Side(
            kind=kind,
            path=str(shown),
            id=name or evidence.run_id,
            candidate_sha256=evidence.candidate_sha256,
            verdict=str(record.verdict),
            made=evidence.started,
            golden_sha256=evidence.golden.manifest_sha256,
            inputs=len(evidence.golden.inputs),
        )
        answers, rules, undecided = _decided(run, evidence, contract)
    except OSError as error:
        raise KpipeError(
            f"{shown}: {error.filename or CONTRACT_NAME} can't be read ({error.strerror or error}), so there is nothing to compare."
        ) from error
    except (CodecError, ValueError, LookupError) as error:
        raise KpipeError(f"{shown} can't be compared: {error}. It was altered, or another kpipe made it.") from error
    return Subject(side, record, evidence, contract, answers, rules, undecided)


def _decided(run: Path, evidence: Evidence, contract: Contract) -> tuple[Answers | None, dict[str, Decided], dict[str, str]]:
    stages = {stage.name: stage for stage in evidence.stages}
    decided = stored_decisions(run, evidence, stages.get(DECIDE_STAGE))
    answers = open_answers(stages.get(REFERENCE_STAGE), run / evidence.folders.get(REFERENCE_STAGE, f"stages/{REFERENCE_STAGE}"), decided)
    rules, undecided = dict[str, Decided](), dict[str, str]()
    for spec in specs_of(contract, evidence):
        if answers is None or not answers.has(ALONE):
            undecided[spec.name] = "the model was not run on its own backend"
            continue
        try:
            found = tuple(answers.decisions(spec, ALONE))
        except DecisionError as error:  # the rule doesn't fit, or code of the user's own left none
            undecided[spec.name] = str(error)
            continue
        if len(found) != len(evidence.golden.inputs):
            raise ValueError(f"{len(found)} decisions for {len(evidence.golden.inputs)} golden inputs")
        rules[spec.name] = Decided(spec, found)
    return answers, rules, undecided
