"""The saved outputs of one worker, and the decisions in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.evidence import Ending
from kpipe.judging.decided import Decided
from kpipe_stages.codec import decode
from kpipe_stages.decisions import Decision, NoDecisionError, decide_rows, outputs_of, runs_code
from kpipe_stages.digest import digest
from kpipe_stages.protocol import RunResult
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kpipe.evidence import StageEvidence
    from kpipe_stages.protocol import DecisionSpec

ALONE = "alone"
MACHINE_DEFAULT = "machine_default"


@dataclass(frozen=True)
class Answers:
    """Every output of every mode of one target, read lazily."""

    result: RunResult
    folder: Path
    stage: str = ""
    """The worker's."""
    decided: Decided | None = None
    """What the user's own code decided, if any."""
    _held: set[str] = field(default_factory=set, compare=False)
    """Modes whose files are known to be the worker's."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Output names, the model's."""
        return tuple(spec.name for spec in self.result.signature.outputs)

    def has(self, mode: str) -> bool:
        """Whether the mode was run to its end."""
        return mode in self.result.modes

    def rows(self, mode: str, output: str) -> Rows:
        """One output in one mode.

        Raises:
            OSError: its files are gone.
            ValueError: they contradict one another, or aren't the ones that the worker wrote.
        """
        self._hold(mode)
        return Rows(self.folder / "outputs" / mode / str(self.outputs.index(output)))

    def _hold(self, mode: str) -> None:
        """See, once for each mode, that its files are what the worker left: another target's would be judged as well."""
        if mode in self._held:
            return
        folder = self.folder / "outputs" / mode
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is gone")
        if (found := digest(folder)) != (known := self.result.digests.get(mode)):
            raise ValueError(f"the outputs in {folder} were altered: SHA-256 {known or 'none known'}, now {found}")
        self._held.add(mode)

    def batched(self, mode: str, output: str) -> bool:
        """Whether the output has a row for each input in that mode."""
        return output not in self.result.unbatched.get(mode, ())

    def decisions(self, spec: DecisionSpec, mode: str) -> list[Decision]:
        """The decisions of one mode, a row a golden input.

        Raises:
            DecisionError: the rule can't decide on these outputs.
            NoDecisionError: it is the user's own code, and no decisions of it are known.
            OSError: saved answers are gone.
            ValueError: they aren't the ones that the worker wrote.
        """
        if runs_code(spec.rule):
            if self.decided is None:
                raise NoDecisionError(f"rule {spec.rule!r} is code of your own, and only 'kpipe validate' runs it")
            self._hold(mode)
            return self.decided.of(spec, self.stage, mode, self.result.digests[mode])
        return decide_rows(spec, self.decidable(spec, mode))

    def decidable(self, spec: DecisionSpec, mode: str) -> Iterable[Any]:
        """What the rule reads, a row a golden input: one output's array, or arrays by output name where it reads several."""
        names = outputs_of(spec)
        if names == (spec.output,):
            return self.rows(mode, spec.output)
        columns = [self.rows(mode, name) for name in names]
        return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def open_answers(stage: StageEvidence | None, folder: Path, decided: Decided | None = None) -> Answers | None:
    """The answers of a run stage that ended well, else None."""
    if stage is None or stage.ending is not Ending.OK or stage.result is None or not stage.result.data:
        return None
    return Answers(decode(RunResult, stage.result.data), folder, stage.name, decided)
