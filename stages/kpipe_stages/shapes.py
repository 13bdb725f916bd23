"""Shapes to try on one session once the golden inputs are done: sizes of free axes, batches whole, partial and empty.

The inputs are golden ones, cut or tiled to the size: what they give says whether a runtime takes the shape and agrees on it, nothing of
decisions. Each case is called three times; what the first call costs more than the others is the cost of the new shape: tracing, compiling,
allocating. A runtime that refuses a case is opened again for the next.
"""

from __future__ import annotations

import hashlib
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from kpipe_stages.digest import digest
from kpipe_stages.feeds import stack
from kpipe_stages.permuting import common_golden
from kpipe_stages.protocol import ShapeCase, ShapeOutcome, ShapesResult
from kpipe_stages.rows import to_storable
from kpipe_stages.session import raise_if_out_of_memory, telling_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from kpipe_stages.feeds import Golden
    from kpipe_stages.measure import Kept
    from kpipe_stages.protocol import Job
    from kpipe_stages.session import Answer, Array, Feeds, Session
    from kpipe_stages.worker import Worker

AGAIN = 2
LONG_S = 2.0
"""After a first call that took longer, one more is enough."""


def try_shapes(job: Job, worker: Worker, keep: Callable[[ShapesResult], None]) -> ShapesResult:
    """Try every case of the job; ``keep`` is told before and after each.

    Raises:
        ValueError: ``run`` left no session.
        StageError: the common tensors don't fit the session.
        MemoryError: there wasn't the memory for a case.
    """
    kept: Kept | None = worker.kept
    if kept is None:
        raise ValueError(f"stage {job.stage} has no shapes to try: its run left no session")
    _no_cached_programs()
    golden = common_golden(kept.order, kept.session)
    session, done = kept.session, list[ShapeOutcome]()
    seen, spoilt = _seen(kept, golden), False
    for position, case in enumerate(kept.order.shapes):
        if spoilt:
            session, seen = kept.open_again(), set()
        keep(ShapesResult(tuple(done), case.name))
        worker.progress(f"{kept.order.runtime} {case.name}", position, len(kept.order.shapes))
        outcome = _tried(kept, session, golden, case, worker.folder / "shapes" / str(position), seen)
        done.append(outcome)
        spoilt = bool(outcome.refused)
    final = ShapesResult(tuple(done), "")
    keep(final)
    return final


def _no_cached_programs() -> None:
    """A program that an earlier run left on disk would make a new shape look free."""
    if (jax := sys.modules.get("jax")) is not None:
        jax.config.update("jax_enable_compilation_cache", *(False,))


def _seen(kept: Kept, golden: Golden) -> set[object]:
    sizes = {kept.batch, *({1, *kept.order.batches} if kept.fixed is None else ())}
    return {(size, kind) for size in sizes for kind in set(golden.kinds.values())}


def _tried(kept: Kept, session: Session, golden: Golden, case: ShapeCase, folder: Path, seen: set[object]) -> ShapeOutcome:
    if kept.fixed is not None and case.batch != kept.fixed:
        return ShapeOutcome(case, offered=False, refused="", source="")
    feeds, source = make_feeds(golden, case)
    kind = (case.batch, tuple(feeds[name].shape[1:] for name in golden.names))
    fed = _digest(feeds)
    try:
        answer, first = _timed(session, feeds)
        again = [_timed(session, feeds)[1] for _ in range(1 if first > LONG_S else AGAIN)]
        digests = _write(folder, answer, [spec.name for spec in session.signature.outputs])
    except Exception as error:  # noqa: BLE001 - what the runtime says against this shape is its answer
        raise_if_out_of_memory(error)
        return ShapeOutcome(case, offered=True, refused=f"{type(error).__name__}: {telling_line(error)}", source=source, inputs_sha256=fed)
    known = kind in seen
    seen.add(kind)
    shapes = {name: tuple(int(n) for n in value.shape) for name, value in answer.items()}
    return ShapeOutcome(
        case,
        offered=True,
        refused="",
        source=source,
        first_s=first,
        again_s=min(again),
        known=known,
        shapes=shapes,
        inputs_sha256=fed,
        digest=digests,
    )


def _timed(session: Session, feeds: Feeds) -> tuple[Answer, float]:
    start = time.perf_counter()
    answer = session.infer(feeds)
    return answer, time.perf_counter() - start


def make_feeds(golden: Golden, case: ShapeCase) -> tuple[dict[str, Array], str]:
    """The case's inputs, ``(batch, ...)`` each, and what they are made of: ``golden``, ``cut`` or ``tiled``.

    Rows are the golden ones of the commonest shapes in turn, around and around; an axis is cut at its end, or repeated from its beginning.
    """
    kinds = list(golden.kinds.values())
    kind = max(dict.fromkeys(kinds), key=kinds.count)
    members = [row for row, own in golden.kinds.items() if own == kind]
    sources = set[str]()
    rows = []
    for number in range(max(1, case.batch)):
        row = golden.row(members[number % len(members)])
        for one in case.axes:
            row[one.input], how = _sized(row[one.input], one.axis - 1, one.size)
            sources.add(how)
        rows.append(row)
    batch = stack(rows)
    if case.batch == 0:
        batch = {name: array[:0] for name, array in batch.items()}
    return batch, next((how for how in ("tiled", "cut") if how in sources), "golden")


def _sized(row: Array, axis: int, size: int) -> tuple[Array, str]:
    have = row.shape[axis]
    if have == size:
        return row, "golden"
    if have == 0:
        return np.zeros((*row.shape[:axis], size, *row.shape[axis + 1 :]), row.dtype), "tiled"
    return np.ascontiguousarray(np.take(row, np.arange(size) % have, axis=axis)), "cut" if size < have else "tiled"


def _digest(feeds: Feeds) -> str:
    total = hashlib.sha256()
    for name in sorted(feeds):
        total.update(f"{name} {feeds[name].dtype.name} {feeds[name].shape} ".encode() + feeds[name].tobytes())
    return total.hexdigest()


def _write(folder: Path, answer: Answer, names: Iterable[str]) -> str:
    """Write each output to ``<position>.npy`` with its dtype beside it; the folder's digest.

    Raises:
        KeyError: an output is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for position, name in enumerate(names):
        stored, dtype = to_storable(answer[name])
        np.save(folder / f"{position}.npy", stored, allow_pickle=False)
        (folder / f"{position}.dtype").write_text(dtype, encoding="utf-8")
    return digest(folder)
