"""What else happened on the machine while calls were timed: read from the system between stretches of calls, outside the clock.

On Linux; elsewhere unknown, which is said and never taken for quiet.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_stages.protocol import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WINDOW_S = 0.1
"""Shorter stretches go together: the system counts processor time in ticks of 10 ms."""
WAITED = 0.05
LITTLE = 0.08
STOLEN = 0.02
OTHERS = 0.2


def is_disturbed(windows: Sequence[Window]) -> bool | None:
    """Whether others took enough of the machine to slow the calls of these stretches; None where the system says nothing at all.

    The hypervisor took more than `STOLEN` of the time; others used more than `OTHERS` of the processors that the process may use (sharing caches
    and memory slows without any waiting); or more than `LITTLE` while threads waited for a processor for more than `WAITED` of the time. Where
    others used next to nothing the threads of a runtime wait for one another, and that is its own doing.
    """
    seconds = sum(window.seconds for window in windows)
    if not seconds or all(window.waited_s is None and window.others is None and window.stolen is None for window in windows):
        return None
    waited = sum(window.waited_s or 0.0 for window in windows) / seconds
    stolen, others = (share(windows, name) for name in ("stolen", "others"))
    if (stolen or 0.0) > STOLEN or (others or 0.0) > OTHERS:
        return True
    return waited > WAITED and (others is None or others > LITTLE)


def share(windows: Sequence[Window], name: str) -> float | None:
    """The mean of ``others`` or ``stolen`` over the stretches that have it, weighted by their seconds; None where none has."""
    known = [(getattr(window, name), window.seconds) for window in windows if getattr(window, name) is not None]
    total = sum(seconds for _, seconds in known)
    return sum(value * seconds for value, seconds in known) / total if total else None


class Watch:
    """Cuts the time since it was made into stretches."""

    def __init__(self) -> None:
        self._calls = 0
        self._waited_ns: int | None = None
        self._windows: list[Window] = []
        self._last = _Now()

    def add(self, calls: int, waited_ns: int | None = None) -> None:
        """So many calls were made, in which threads waited so long; a stretch that is long enough ends here."""
        self._calls += calls
        if waited_ns is not None:
            self._waited_ns = (self._waited_ns or 0) + waited_ns
        if time.perf_counter() - self._last.at >= WINDOW_S:
            self._cut()

    def finish(self) -> tuple[Window, ...]:
        """The stretches; the last one may be a short one."""
        if self._calls:
            self._windows.append(self._with_calls(self.whole(self._calls)))
            self._last, self._calls = _Now(), 0
        return tuple(self._windows)

    def whole(self, calls: int) -> Window:
        """All since the last stretch ended, as one.

        Where threads waited in it and it is too short to tell for whom, the rest of `WINDOW_S` is waited for: others don't stop just then.
        """
        found = _Now().since(self._last, calls)
        if found.others is None and (found.waited_s or 0.0) > WAITED * found.seconds and self._last.busy is not None:
            time.sleep(max(0.0, WINDOW_S - found.seconds))
            found = replace(found, others=_Now().since(self._last, calls).others)
        return found

    def _cut(self) -> None:
        now = _Now()
        self._windows.append(self._with_calls(now.since(self._last, self._calls)))
        self._last, self._calls = now, 0

    def _with_calls(self, window: Window) -> Window:
        waited, self._waited_ns = self._waited_ns, None
        return window if waited is None else replace(window, in_calls_s=waited * 1e-9)


class _Now:
    """The counters at one moment."""

    def __init__(self) -> None:
        self.at = time.perf_counter()
        self.waited = waited_ns()
        self.busy, self.stolen = _processors()
        self.processors = len(_usable())
        self.own, self.switches = _own()

    def since(self, before: _Now, calls: int) -> Window:
        seconds = self.at - before.at
        available = seconds * self.processors
        waited = None if self.waited is None or before.waited is None else max(0, self.waited - before.waited) * 1e-9
        others = stolen = None
        if self.busy is not None and before.busy is not None and seconds >= WINDOW_S:
            others = min(1.0, max(0.0, self.busy - before.busy - (self.own - before.own)) / available)
            stolen = min(1.0, max(0.0, self.stolen - before.stolen) / available)
        return Window(calls, seconds, waited, others, stolen, self.switches - before.switches, stolen_s=max(0.0, self.stolen - before.stolen))


def _usable() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def waited_ns() -> int | None:
    """Nanoseconds that the threads of this process spent waiting for a processor; a thread that has ended takes its own along."""
    total, found = 0, False
    try:
        for thread in os.scandir("/proc/self/task"):
            try:
                total += int(Path(thread.path, "schedstat").read_text(encoding="ascii").split()[1])
                found = True
            except (OSError, IndexError, ValueError):
                continue  # it ended meanwhile, or the kernel doesn't count
    except OSError:
        return None
    return total if found else None


def _processors() -> tuple[float | None, float]:
    """Seconds that the usable processors were busy, and that were stolen from them, since the machine was started."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None, 0.0
    names = {f"cpu{number}" for number in _usable()}
    busy = stolen = 0
    for line in lines:
        name, *counts = line.split()
        if name in names and len(counts) >= 8:  # noqa: PLR2004 - user nice system idle iowait irq softirq steal
            user, nice, system, _, _, irq, softirq, steal = map(int, counts[:8])
            busy += user + nice + system + irq + softirq
            stolen += steal
    tick = os.sysconf("SC_CLK_TCK")
    return busy / tick, stolen / tick


def _own() -> tuple[float, int]:
    """Processor seconds of this process, and how often a thread of it was made to give way."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nivcsw


def resident_bytes() -> int | None:
    """Resident memory of this process now; None where the system doesn't say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


class Waits:
    """How long the threads of this process waited for a processor during some pieces of work."""

    def __init__(self) -> None:
        self.seconds: float | None = 0.0
        """Of all pieces so far, all threads together; None where the system doesn't say."""
        self.worked = 0.0
        """Processor seconds of the calling thread in them: without any disturbance they would have taken no less."""

    def during(self, work: Callable[[], Any]) -> Any:
        """Do a piece of work."""
        before, began = waited_ns(), time.thread_time()
        done = work()
        self.worked += time.thread_time() - began
        after = waited_ns()
        if self.seconds is not None:
            self.seconds = None if before is None or after is None else self.seconds + max(0, after - before) * 1e-9
        return done


class OwnWaits:
    """How long the thread that made it has waited for a processor: cheap enough to be read around every call."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1
        self.known = self._file >= 0 and self._read() is not None

    def _read(self) -> int | None:
        try:
            return int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return None

    def ns(self) -> int:
        """Nanoseconds so far; always 0 where it isn't known."""
        return (self._read() or 0) if self.known else 0
