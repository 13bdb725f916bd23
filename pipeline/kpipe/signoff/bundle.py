"""A bundle as it is read: its targets, artifacts, orders, golden inputs, outputs and environment. Changes nothing.

Nothing of a bundle is executed or unpickled here; whether it is intact says `kpipe.signoff.verify`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kpipe.contract import Contract, LoadedContract, parse_contract
from kpipe.errors import BundleError
from kpipe.golden import GoldenSet, load_golden_folder
from kpipe.judging.answers import Answers, open_answers
from kpipe.judging.decided import DECIDE_STAGE, stored_decisions
from kpipe.judging.judge import judge
from kpipe.signoff.contents import CONTENTS, ENVIRONMENT, FULL, GOLDEN, REFERENCE, RUN, WAIVERS, Contents, SealedEnvironment, SealedTarget
from kpipe.signoff.decisions import specs_of
from kpipe.signoff.manifest import MANIFEST, SIGNATURE, Manifest, id_of, parse
from kpipe.signoff.relocation import move_prepare, move_run
from kpipe.store import load_evidence, load_record
from kpipe.waivers import WaiverSet, load_waivers
from kpipe_stages.codec import CodecError, read_json

if TYPE_CHECKING:
    from kpipe.evidence import Evidence
    from kpipe.record import RunRecord
    from kpipe_stages.protocol import DecisionSpec, PrepareJob, RunJob

T = TypeVar("T")


@dataclass(frozen=True)
class Bundle:
    """One sealed run. Paths that its methods give are absolute."""

    path: Path
    id: str
    """SHA-256 of ``bundle.json``."""
    manifest: Manifest
    contents: Contents

    @property
    def run(self) -> Path:
        """The sealed run folder; `kpipe.store.load_evidence` and ``kpipe judge`` read it as any other."""
        return self.path / RUN

    @property
    def signed(self) -> bool:
        """Whether a signature lies beside the manifest; whose, only a key can say."""
        return (self.path / SIGNATURE).is_file()

    @property
    def full(self) -> bool:
        """Whether the golden files, and the tensors made of them, are inside."""
        return self.contents.goldens == FULL

    @cached_property
    def environment(self) -> SealedEnvironment:
        """Where the run took place: machine, exact requirements of every interpreter, worker settings."""
        return _read(SealedEnvironment, self.path, ENVIRONMENT)

    @cached_property
    def evidence(self) -> Evidence:
        """What the run left behind. Its paths are those of the machine that made it."""
        return load_evidence(self.run)

    @cached_property
    def record(self) -> RunRecord:
        """The record as it was judged when it was sealed."""
        return load_record(self.run)

    @cached_property
    def contract(self) -> LoadedContract:
        """The contract that the run was made with. Relative paths in it mean nothing here: `job` has them in place."""
        text = (self.run / "contract.toml").read_text(encoding="utf-8")
        parsed: Contract = parse_contract(text, f"{self.path}/{RUN}/contract.toml")
        return LoadedContract(parsed, self.evidence.contract_source, text, self.run)

    @cached_property
    def waivers(self) -> WaiverSet:
        """The waivers that it was judged with, held against the day of the approval."""
        path, today = self.path / WAIVERS, date.fromisoformat(self.contents.judged_on)
        return load_waivers(path, today) if path.is_file() else WaiverSet(today=today)

    def judge(self) -> RunRecord:
        """Judge the sealed run again from its sealed evidence, as on the day of its approval. With hashes only, what tensors say is unchecked."""
        return judge(self.run, self.contract, self.evidence, self.waivers)

    def target(self, name: str) -> SealedTarget:
        """A target by name, or the ``reference``.

        Raises:
            BundleError: there is none of that name.
        """
        known = {REFERENCE: self.contents.reference} | {t.name: t for t in self.contents.targets}
        if name not in known:
            raise BundleError(f"bundle {self.id[:12]} has no target '{name}'; it has {', '.join(known)}.")
        return known[name]

    def artifact(self, name: str) -> Path:
        """What a target's runtime loads."""
        return self.path / self.target(name).artifact

    def outputs(self, name: str) -> Path:
        """The sealed outputs of a target: ``<mode>/<position of the output>`` below it (`kpipe_stages.rows`)."""
        return self.run / "stages" / self.target(name).stage / "outputs"

    def answers(self, name: str) -> Answers:
        """The sealed outputs of a target, with the decisions in them; each mode is held to its digest when it is read.

        Raises:
            BundleError: the sealed evidence has none.
        """
        stages = {s.name: s for s in self.evidence.stages}
        stage = self.target(name).stage
        decided = stored_decisions(self.run, self.evidence, stages.get(DECIDE_STAGE))
        answers = open_answers(stages.get(stage), self.run / "stages" / stage, decided)
        if answers is None:
            raise BundleError(f"bundle {self.id[:12]}: the outputs of '{name}' are not in its evidence. Verify it: kpipe verify {self.path}")
        return answers

    @property
    def rules(self) -> tuple[DecisionSpec, ...]:
        """The decision rules in force."""
        return specs_of(self.contract.contract, self.evidence)

    @property
    def decision_code(self) -> dict[str, dict[str, str]]:
        """Rule name to the sealed files of the user's own code that decides: absolute path to SHA-256."""
        sources = self.contents.sources
        return {rule: {str(self.path / sources[path]): known for path, known in files.items()} for rule, files in self.evidence.decision_code.items()}

    def golden_set(self, folder: Path | None = None) -> GoldenSet:
        """The sealed golden inputs.

        Args:
            folder: where the golden files lie, for a bundle that was sealed with their hashes only. Whoever decodes them holds them to
                the sealed digests.

        Raises:
            BundleError: the bundle has hashes only, and no folder is given.
        """
        place = self._goldens(folder)
        sealed = load_golden_folder(self.path / GOLDEN, tuple(self.contract.contract.inputs), GOLDEN)
        inputs = tuple(replace(g, files={n: str(place / self._below_golden(p)) for n, p in g.files.items()}) for g in sealed.inputs)
        return replace(sealed, path=str(place), inputs=inputs)

    def prepare_job(self, stage: str, folder: Path | None = None) -> PrepareJob:
        """What a stage that makes tensors was told (`SealedTarget.prepare`), its golden files as in `golden_set`."""
        place = self._goldens(folder)
        return move_prepare(self.contents.prepares[stage], lambda path: self._absolute(path, place))

    def tensors(self, name: str) -> Path:
        """The sealed tensors that a target was given; only in a full bundle."""
        self._goldens(None)
        return self.run / "stages" / self.target(name).prepare / "tensors"

    def job(self, name: str, folder: Path | None = None, tensors: Path | None = None) -> RunJob:
        """What a target's worker was told: the sealed artifact, settings, batches, repeats, tensors.

        Args:
            name: a target, or ``reference``.
            folder: golden files, for a bundle with hashes only.
            tensors: a folder of tensors, for a bundle with hashes only: what `prepare_job` makes.
        """
        place = self._goldens(folder)
        job = move_run(self.target(name).job, lambda path: self._absolute(path, place))
        if not self.full and tensors is None:
            raise BundleError(f"bundle {self.id[:12]} has no tensors, because it was sealed with hashes only. Prepare them from the golden files.")
        return replace(job, tensors=str(tensors)) if tensors is not None else job

    def _goldens(self, folder: Path | None) -> Path:
        if folder is not None:
            return folder.resolve()
        if not self.full:
            raise BundleError(f"bundle {self.id[:12]} was sealed with hashes of its golden inputs only. Give the folder that holds the files.")
        return self.path / GOLDEN

    def _below_golden(self, path: str) -> str:
        return path.removeprefix(f"{self.path / GOLDEN}/")

    def _absolute(self, path: str, goldens: Path) -> str:
        if path.startswith(f"{GOLDEN}/"):
            return str(goldens / path.removeprefix(f"{GOLDEN}/"))
        return str(self.path / path)


def open_bundle(path: Path) -> Bundle:
    """Open a bundle's folder. Its files are not looked at: `kpipe.signoff.verify` does that.

    Raises:
        BundleError: it is none, or its manifest or contents can't be read.
    """
    path = path.resolve()
    try:
        data = (path / MANIFEST).read_bytes()
    except OSError as error:
        raise BundleError(
            f"{path} is no bundle: {MANIFEST} can't be read ({error.strerror}). Expected a folder that 'kpipe approve' has sealed."
        ) from error
    manifest = parse(data, str(path))
    return Bundle(path, id_of(data), manifest, _read(Contents, path, CONTENTS))


def _read(kind: type[T], path: Path, name: str) -> T:
    try:
        return read_json(kind, path / name)
    except OSError as error:
        raise BundleError(f"{path}: {name} can't be read ({error.strerror}). Verify the bundle: kpipe verify {path}") from error
    except CodecError as error:
        raise BundleError(f"{path}: {name} can't be read: {error}. It was altered, or another kpipe sealed it: kpipe verify {path}") from error
