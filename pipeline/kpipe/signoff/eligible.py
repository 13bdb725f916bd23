"""What stands against signing a run off, each in its own words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.errors import Exit
from kpipe.profiles import SIGNOFF
from kpipe.record import RunRecord, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kpipe.contract import LoadedContract
    from kpipe.evidence import Evidence

_EXITS = {Verdict.FAIL: Exit.FAIL, Verdict.INCOMPLETE: Exit.INCOMPLETE}


def refusals(judged: RunRecord, evidence: Evidence, loaded: LoadedContract, written: Verdict | None) -> list[str]:
    """Every reason, in the order in which they are mended.

    Args:
        judged: the run, judged now from its saved evidence.
        evidence: what it left behind.
        loaded: the contract that it was made with.
        written: the verdict that ``run.json`` holds; None where that can't be read.
    """
    return [*_terms(evidence, loaded), *_goldens(evidence), *_answer(judged, written), *_unchecked(judged), *_known(evidence)]


def exit_of(judged: RunRecord) -> Exit:
    """A failed run ends with 1, one that is incomplete with 3; whatever else stands against it with 2."""
    return _EXITS.get(judged.verdict, Exit.USAGE)


def _terms(evidence: Evidence, loaded: LoadedContract) -> Iterator[str]:
    if loaded.source == "inferred":
        yield "it had no contract, so nobody has said what the model promises. Write one with 'kpipe init MODEL' and run 'kpipe validate' with it."
    if evidence.profile != SIGNOFF.name:
        yield f"it was run in the profile '{evidence.profile}'. Run 'kpipe validate MODEL --profile signoff'."


def _goldens(evidence: Evidence) -> Iterator[str]:
    kind = evidence.golden.kind
    if kind == "synthetic":
        yield "it was run on synthetic inputs: nothing is known of decisions on real data. Collect golden inputs: 'kpipe init MODEL --raw DIR'."
    elif kind == "arrays":
        yield f"its golden inputs are arrays that were already preprocessed ({evidence.golden.shown}): preprocessing was not checked. Retain the raw files in a folder with a manifest."
    elif kind != "raw":
        yield "it was refused before it had any golden inputs. See the findings of its report."


def _answer(judged: RunRecord, written: Verdict | None) -> Iterator[str]:
    if judged.verdict is not Verdict.PASS:
        yield f"its verdict is {judged.verdict}, judged now from its saved evidence: {judged.headline} Only a PASS can be approved."
    if written is None:
        yield "its run.json can't be read. 'kpipe judge RUN' writes it again."
    elif written is not judged.verdict:
        yield f"its run.json says {written}, and its saved evidence, judged by its own contract, gives {judged.verdict}: the file was edited, or the run judged by another contract. Run 'kpipe judge RUN' and read the report."


def _unchecked(judged: RunRecord) -> Iterator[str]:
    for target in judged.targets:
        if target.cells.unchecked or not (target.cells.passed or target.cells.failed):
            what = f"{target.cells.unchecked} cells" if target.cells.unchecked else "all"
            yield f"{what} of target '{target.name}' {'is' if what == 'all' else 'are'} unchecked ({target.reason}). Make it run, or take the target out of the contract."


def _known(evidence: Evidence) -> Iterator[str]:
    if not evidence.installed:
        if evidence.profile == SIGNOFF.name:
            yield "it doesn't say what its interpreters held, because an older kpipe made it. Run 'kpipe validate' again."
        return
    for path, held in evidence.installed.items():
        if held.problem:
            yield f"what the interpreter {path} held is not known: {held.problem}. Run 'kpipe validate' again."
