"""Stage ``decide``: the user's own decision rule, ``rule = "module:function"``, on every saved answer of the reference and of every target.

The function gets one input's outputs, arrays by output name without a batch axis, and returns ``(text, margin)``. It is called twice on each
input, each time with arrays of its own, and has to give the same. What goes wrong ends the decisions of that worker in that way of running, and
is written down beside them: it is the code's fault and not the artifact's. Decisions lie in ``<folder>/decisions/<number>.json``.
"""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.codec import decode
from kpipe_stages.decisions import outputs_of
from kpipe_stages.digest import digest
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.function import load_module, raised_at
from kpipe_stages.protocol import DecidedMode, DecideJob, DecideResult, Observation, StageError
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.protocol import DecisionSpec, Job, SavedAnswers
    from kpipe_stages.worker import Worker

CODE = "KP419"
EXPECTED = "(text, margin): a text that isn't empty, and a number of 0 or more"
REMEDY = "Mend the function; call it by itself on the outputs of that input."
LONGEST = 10_000
"""Characters of a decision's text."""


def run(job: Job, worker: Worker) -> DecideResult:
    """Decide on all answers.

    Raises:
        StageError: KP419, the code can't be loaded.
    """
    order = decode(DecideJob, job.params)
    worker.distributions = ["numpy"]
    worker.enter("decide")
    folder = worker.folder / "decisions"
    folder.mkdir()
    found: list[DecidedMode] = []
    for spec in order.rules:
        code = DecisionCode(spec)
        for saved in order.answers:
            for mode in saved.modes:
                worker.progress(f"{spec.rule} {saved.stage} {mode}", len(found))
                found.append(_mode(code, saved, mode, order.ids, folder / f"{len(found)}.json"))
    return DecideResult(tuple(found))


def _mode(code: DecisionCode, saved: SavedAnswers, mode: str, ids: tuple[str, ...], path: Path) -> DecidedMode:
    """Decide on one worker's answers in one way of running, all or none."""
    decided, failure = list[tuple[str, float]](), ""
    try:
        for id_, outputs in zip(ids, _outputs(code.spec, saved, mode, len(ids)), strict=True):
            decided.append(code(id_, *outputs))
    except DecisionCodeError as error:
        failure = str(error)
    except (OSError, ValueError, LookupError) as error:  # the answers, not the code: they went away, or aren't the ones that were judged
        failure = f"the outputs of '{saved.stage}' in mode '{mode}' can't be read: {error}"
    if failure:
        return DecidedMode(code.spec.name, code.spec.rule, saved.stage, mode, saved.digests[mode], "", "", failure)
    path.write_text(json.dumps([[text, repr(margin)] for text, margin in decided]), encoding="utf-8")
    return DecidedMode(code.spec.name, code.spec.rule, saved.stage, mode, saved.digests[mode], path.name, digest(path), "")


def _outputs(spec: DecisionSpec, saved: SavedAnswers, mode: str, count: int) -> Any:
    """Twice the outputs by name, input after input; the second ones are copies that the first call can't have changed."""
    folder = Path(saved.folder) / "outputs" / mode
    if (known := digest(folder)) != saved.digests[mode]:
        raise ValueError(f"SHA-256 {known}, where {saved.digests[mode]} was written")
    columns = {name: Rows(folder / str(saved.outputs.index(name))) for name in outputs_of(spec)}
    if any(len(rows) != count for rows in columns.values()):
        raise ValueError(f"{ {name: len(rows) for name, rows in columns.items()} } rows for {count} golden inputs")
    for index in range(count):
        yield {name: rows[index] for name, rows in columns.items()}, {name: rows[index] for name, rows in columns.items()}


class DecisionCodeError(Exception):
    """The user's function raised, returned something else, or isn't deterministic."""


class DecisionCode:
    """A decision rule of the user's, loaded once."""

    def __init__(self, spec: DecisionSpec) -> None:
        """Load it from the files that were hashed.

        Raises:
            StageError: KP419, with the file and the line.
        """
        self.spec = spec
        module, _, self._name = spec.rule.partition(":")
        self._files = frozenset(spec.files)
        self._file = next((path for path in spec.files if Path(path).stem == module and path.endswith(".py")), module)
        try:
            function = getattr(load_module(module, spec.files), self._name, None)
        except PreprocessError as error:
            raise _unusable(f"{error.what} (expected {error.expected})") from error
        except (Exception, SystemExit) as error:  # the user's code: whatever it raises is a finding about it
            raise _unusable(f"{raised_at(error, self._files, self._file)}: importing it raised {type(error).__name__}: {error}") from error
        if not callable(function):
            raise _unusable(f"{self._file} has no function {self._name!r} (expected def {self._name}(outputs))")
        self._function: Callable[[dict[str, Any]], Any] = function

    def __call__(self, id_: str, outputs: dict[str, Any], again: dict[str, Any]) -> tuple[str, float]:
        """The decision on one input; ``again`` are the same outputs, for the second call.

        Raises:
            DecisionCodeError: it raised, returned something else, or decided otherwise the second time.
        """
        first, second = self._once(id_, outputs), self._once(id_, again)
        if first != second:
            raise DecisionCodeError(
                f"{self._name}() of {self._file} gave {first!r} and then {second!r} on the same outputs of '{id_}' (expected the same decision)"
            )
        return first

    def _once(self, id_: str, outputs: dict[str, Any]) -> tuple[str, float]:
        try:
            value = self._function(outputs)
        except (Exception, SystemExit) as error:
            where = raised_at(error, self._files, self._file)
            raise DecisionCodeError(
                f"{where}, golden input '{id_}': {self._name}() raised {type(error).__name__}: {_line(error)} (expected {EXPECTED})"
            ) from error
        if not isinstance(value, tuple) or len(value) != 2 or not _is_text(value[0]) or not _is_margin(value[1]):  # noqa: PLR2004 - text and margin
            raise DecisionCodeError(f"{self._name}() of {self._file} returned {_shown(value)} on golden input '{id_}' (expected {EXPECTED})")
        return str(value[0]), float(value[1])


def _unusable(cause: str) -> StageError:
    return StageError(Observation(CODE, f"The decision code can't be loaded: {cause}.", REMEDY, "decide"))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST


def _is_margin(value: Any) -> bool:
    """A real number of 0 or more, infinity too: a constant decision is infinitely far from another one."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return float(value) >= 0  # NaN isn't
    except OverflowError:
        return False


def _line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[-1].partition(": ")[2][:300]


def _shown(value: Any) -> str:
    """A returned value in a message; its own ``repr`` may be anything."""
    try:
        return repr(value)[:200]
    except Exception:  # noqa: BLE001 - the user's object
        return f"a {type(value).__name__}"
