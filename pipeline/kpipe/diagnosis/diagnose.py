"""``kpipe diagnose``: cut the candidate open, run it as the target does, and name the first layer that leaves the reference."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe import signals
from kpipe.diagnosis.bisect import smallest_hiding
from kpipe.diagnosis.conclude import Seen, conclude
from kpipe.diagnosis.passes import CantError, Passes, all_of
from kpipe.diagnosis.reproducer import reproduce
from kpipe.diagnosis.result import Diagnosis, Fusion, Outcome
from kpipe.diagnosis.subject import Choice, Subject, choose, fitting, open_subject, write_tensors
from kpipe.errors import UsageError
from kpipe.judging.floor import K
from kpipe.judging.layers import Output, Sides, coarsest, drift_of, first_to_leave, judge_layers
from kpipe.running import system
from kpipe.running.launch import Launcher, make_home
from kpipe.running.workshop import Workshop
from kpipe.store import RunFolder, held, refuse_sealed
from kpipe_stages.codec import write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe.judging.answers import Answers
    from kpipe_stages.cutting.orders import CutResult

RESULT = "diagnosis.json"
FREE = 64
"""What a free axis counts for where the size of outputs is estimated."""
BISECT_S = 300.0
"""Most that the search for the smallest set of exposed outputs may take."""


@dataclass(frozen=True)
class DiagnoseRequest:
    """What was asked for."""

    run: Path
    target: str
    input: str | None = None
    out: Path | None = None
    cache: str | None = None


def diagnose(request: DiagnoseRequest, on_event: Callable[[str, dict[str, Any]], None] | None = None) -> Diagnosis:
    """Diagnose one target of a finished run; ``diagnosis.json`` and the reproducer lie in ``--out`` afterwards.

    Raises:
        KpipeError: the run, the target, the input or the folder is off; nothing was run.
    """
    subject = open_subject(request.run, request.target)
    choice = choose(subject, request.input)
    with held(RunFolder(subject.run)):
        out = _folder(request, subject)
        write_tensors(subject, choice, out / "tensors")
        found = signals.run(_diagnose(subject, choice, RunFolder(out), request.cache, on_event or (lambda *_: None)))
        write_json(out / RESULT, found)
    return found


def _folder(request: DiagnoseRequest, subject: Subject) -> Path:
    """The folder to write to; an earlier diagnosis in the run's own place is replaced, nothing else is touched."""
    out = Path.cwd() / (request.out or subject.run / "diagnose" / subject.plan.name)
    refuse_sealed(out, "a diagnosis")
    try:
        if request.out is None and out.is_dir():
            shutil.rmtree(out)
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UsageError(f"--out {out} is not empty. Name a new folder; nothing was changed.")
        for name in ("stages", "artifacts"):
            (out / name).mkdir()
    except OSError as error:
        raise UsageError(f"--out {out} can't be used: {error.strerror}. Name a folder that can be written.") from error
    return out


async def _diagnose(subject: Subject, choice: Choice, folder: RunFolder, cache: str | None, on_event: Any) -> Diagnosis:
    began = time.monotonic()
    make_home(folder.stages / "home")
    launcher = Launcher(folder.stages, began, on_event)
    shop = Workshop(subject.loaded.contract, folder, launcher, asyncio.Semaphore(system.cores()), cache)
    passes = Passes(subject, choice, shop, folder.path / "tensors")
    try:
        shop.warm()
        found = await _Search(passes).run()
        if found.outcome is Outcome.NAMED and found.layer is not None:
            found = replace(found, reproducer=await reproduce(passes, found.layer, folder.path / "reproducer"))
    finally:
        await launcher.close()
        shutil.rmtree(folder.stages / "home", ignore_errors=True)
    return replace(found, seconds=launcher.now())


def not_raised(truth: Answers) -> list[str]:
    """What of the cut model isn't computed in float64: rounding there is in no floor."""
    facts = truth.result.facts
    parts = dict.fromkeys([*facts.get("kept", {}), *(layer or "an op outside any layer" for layer in facts.get("computes_in_less", {}))])
    return [f"Not all of it could be raised to float64, and rounding there is missing from the floors: {', '.join(parts)}."] if parts else []


@dataclass
class _Search:
    """The passes in their order, and what was seen."""

    passes: Passes

    async def run(self) -> Diagnosis:
        """All of it; whatever keeps it from being told is the diagnosis then."""
        seen = Seen(self.passes.subject, self.passes.choice, notes=[])
        try:
            cut, path = await self.passes.cut("all", None)
            self._fit(seen, cut)
            await self._look(seen, cut, path)
        except CantError as error:
            seen.untold = str(error)
        if seen.fused and not seen.untold:
            seen.fusion = await self._bisect(seen)
        return conclude(seen)

    def _fit(self, seen: Seen, cut: CutResult) -> None:
        """Take fewer inputs where the answers would fill the disk."""
        sizes = [math.prod(n or FREE for n in (point.shape or ())[1:]) for point in cut.points]
        seen.choice = self.passes.choice = fitting(self.passes.choice, 8 * sum(sizes))
        write_tensors(self.passes.subject, seen.choice, self.passes.tensors)

    async def _look(self, seen: Seen, cut: CutResult, path: Path) -> None:
        """Run the candidate and the cut model on both sides and in float64, and compare."""
        subject, passes = seen.subject, self.passes
        seen.cut = cut
        seen.notes += [seen.choice.note] if seen.choice.note else []
        seen.notes += [f"'{layer}' is looked at as one layer: {why}." for layer, why in cut.closed.items()]
        work = [
            passes.reference("whole"),
            passes.reference("all", path, cut),
            passes.truth("all", path, cut),
            passes.whole(),
            passes.target("all", path, cut.sha256, cut),
        ]
        if subject.plan.provided:
            work.append(passes.target("own", Path(subject.reference.artifact), subject.reference.sha256))
        whole, inside, truth, target, opened, *own = await all_of(*work)
        for what, answers in (("the reference", whole), ("the reference with its layers' outputs exposed", inside), ("the target", target)):
            if isinstance(answers, CantError):
                raise CantError(f"{what} could not be run: {answers}")
        if isinstance(truth, CantError):
            seen.notes.append(f"There is no float64 run ({truth}); the default tolerance stands in for {K:g} floors.")
            truth = None
        else:
            seen.notes += not_raised(truth)
        seen.truth, seen.inside, seen.reference = truth, inside, whole
        seen.precision = coarsest([point.dtype for point in cut.points])
        if self._finals(seen, whole, inside, exposed=True, mode="alone") >= K:
            raise CantError("on the reference's own backend the model gives other answers once its layers' outputs are exposed")
        seen.before = self._finals(seen, whole, target, exposed=False, mode=seen.choice.mode)
        if own:
            seen.own = self._own(seen, own[0])
        if isinstance(opened, CantError):
            raise CantError(f"the model with its layers' outputs exposed could not be exported and run on the target: {opened}")
        seen.after = self._finals(seen, inside, opened, exposed=True, mode=seen.choice.mode, inside=True)
        seen.rows = judge_layers(cut.points, tuple(cut.inputs), Sides(inside, truth, opened, seen.choice.mode))

    def _own(self, seen: Seen, answers: Any) -> float | None:
        if isinstance(answers, CantError):
            seen.notes.append(f"What kpipe would export could not be run: {answers}")
            return None
        return self._finals(seen, seen.reference, answers, exposed=False, mode=seen.choice.mode)

    @staticmethod
    def _finals(seen: Seen, ours: Answers | None, theirs: Answers, *, exposed: bool, mode: str, inside: bool = False) -> float:
        """The largest drift of the model's own outputs, in floors.

        Raises:
            CantError: they can't be compared.
        """
        assert seen.cut is not None and ours is not None  # noqa: PT018 - set before anything is compared
        worst = 0.0
        for output, point in seen.cut.finals.items():
            real = Output(seen.truth, point) if seen.truth is not None else None
            try:
                reference = Output(ours, point if inside else output)
                drift = drift_of(reference, Output(theirs, point if exposed else output, mode), real, seen.precision)
            except (OSError, ValueError, LookupError) as error:
                raise CantError(f"output '{output}' can't be compared: {error}") from error
            worst = max(worst, drift.floors)
        return worst

    # ------------------------------------------------------------ a fault that hides

    async def _bisect(self, seen: Seen) -> Fusion:
        """The smallest set of exposed outputs that hides the fault, within `BISECT_S`."""
        assert seen.cut is not None
        began, count = time.monotonic(), 0
        finals = set(seen.cut.finals.values())
        names = {point.name: point.layer for point in seen.cut.points}
        items = tuple(row.point for row in seen.rows if row.point not in finals)

        async def shows(expose: tuple[str, ...]) -> tuple[float, Answers, CutResult] | None:
            nonlocal count
            count += 1
            with contextlib.suppress(CantError):
                cut, path = await self.passes.cut(f"trial_{count}", expose)
                answers = await self.passes.target(f"trial_{count}", path, cut.sha256, cut)
                return self._finals(seen, seen.inside, answers, exposed=True, mode=seen.choice.mode, inside=True), answers, cut
            return None

        async def hides(expose: tuple[str, ...]) -> bool | None:
            found = await shows(expose)
            return None if found is None else found[0] < K

        def may_go_on() -> bool:
            return time.monotonic() - began < BISECT_S and self.passes.shop.left() > 0

        kept, complete = await smallest_hiding(items, hides, may_go_on)
        still: tuple[str, ...] = ()
        rest = tuple(item for item in items if item not in kept)
        if may_go_on() and rest and (found := await shows(rest)) is not None and found[0] >= K:
            rows = judge_layers(seen.cut.points, tuple(seen.cut.inputs), Sides(seen.inside, seen.truth, found[1], seen.choice.mode))  # type: ignore[arg-type]
            first = first_to_leave(rows)
            still = (first.layer,) if first is not None else ()
        return Fusion(tuple(names[one] for one in kept), complete, count, still)
