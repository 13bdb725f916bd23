"""A target's process before its runtime is imported, and right after its first inference.

What it may use of the machine, the state of the file cache, and what a new shape costs.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe_stages.session import fault, raise_if_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kpipe_stages.feeds import Golden
    from kpipe_stages.protocol import LoadTimes, RunJob
    from kpipe_stages.session import Feeds, Session
    from kpipe_stages.worker import Worker

MIB = 2**20


def confine(order: RunJob, worker: Worker) -> None:
    """Hold the process to the processors and the memory that the target may use, before anything of the runtime is there.

    Memory is the private memory that the process asks for (``RLIMIT_DATA``), touched or not, without mapped files.

    Raises:
        StageError: KP511, this machine can't.
    """
    if order.affinity:
        _set_affinity(order.affinity)
        worker.threads = len(order.affinity)
    if order.memory_mib:
        _set_memory(order.memory_mib * MIB)


def _set_affinity(wanted: Sequence[int]) -> None:
    if not hasattr(os, "sched_setaffinity"):
        raise _cannot("affinity", f"{sys.platform} has no way to hold a process to processors", list(wanted))
    here = os.sched_getaffinity(0)
    if missing := sorted(set(wanted) - here):
        raise _cannot("affinity", f"this process may use the processors {sorted(here)}, not {missing}", list(wanted))
    os.sched_setaffinity(0, wanted)
    if (found := os.sched_getaffinity(0)) != set(wanted):
        raise _cannot("affinity", f"the system gave the processors {sorted(found)}", list(wanted))


def _set_memory(size: int) -> None:
    if not sys.platform.startswith("linux"):
        raise _cannot("memory_mib", f"{sys.platform} doesn't hold a process to a limit of its private memory", size // MIB)
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard != resource.RLIM_INFINITY and hard < size:
        raise _cannot("memory_mib", f"this process is held to {hard // MIB} MiB already", size // MIB)
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard))


def _cannot(name: str, why: str, asked: object) -> Exception:
    return fault(
        "KP511",
        f"The target's {name} = {asked} can't be enforced here: {why}.",
        f"Run on a machine that can, or change the target's {name}.",
        place=name,
        asked=asked,
    )


def drop_pages(paths: Iterable[str]) -> bool:
    """Drop files (or all files of folders) from the system's file cache, as far as nobody has them mapped; False where it has no such call."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in map(Path, paths):
        for file in [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]:
            with file.open("rb") as opened:
                os.fsync(opened.fileno())  # what isn't written yet can't be dropped
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def more_inferences(load: LoadTimes, session: Session, golden: Golden, fixed: int | None) -> LoadTimes:
    """Beside the first inference of all: the second of the same shape, and the first with another number of rows where that may be.

    A runtime that refuses two rows has said so in the agreement run; here it has no such time.
    """
    size = fixed or 1
    first = golden.present[0]
    _, second_s = _timed(session, golden.batch([first] * size))
    if fixed is not None:
        return replace(load, second_s=second_s)
    feeds = golden.batch([first] * 2)
    try:
        _, new_shape_s = _timed(session, feeds)
    except Exception as error:  # noqa: BLE001 - whatever it says against two rows: the batch modes of the agreement run judge that
        raise_if_out_of_memory(error)
        return replace(load, second_s=second_s)
    return replace(load, second_s=second_s, new_shape_s=new_shape_s)


def _timed(session: Session, feeds: Feeds) -> tuple[object, float]:
    start = time.perf_counter()
    answer = session.infer(feeds)
    return answer, time.perf_counter() - start
