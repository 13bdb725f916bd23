"""What the commands print: progress on stderr while a run goes on, the answer on stdout."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any


def colored(stream: Any = None) -> bool:
    """Whether colour is wanted: a terminal, and no NO_COLOR (https://no-color.org)."""
    stream = stream or sys.stdout
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Columns to fill; 120 where nobody says."""
    return shutil.get_terminal_size((120, 24)).columns


class Progress:
    """One line that is overwritten on a terminal, a line a stage elsewhere; nothing with ``quiet``."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._running: dict[str, str] = {}
        self._done = 0
        self._start = time.monotonic()

    def __call__(self, stage: str, event: dict[str, Any]) -> None:
        """Hear an event of a stage."""
        kind = event["event"]
        if kind == "started":
            self._running[stage] = ""
        elif kind == "progress":
            total = f" {event['done']}/{event['total']}" if event["total"] else ""
            self._running[stage] = f" {event['what']}{total}"
        elif kind == "phase":
            self._running[stage] = f" {event['phase']}"
        elif kind == "notice":
            self._notice(event["text"])
        elif kind in {"result", "timed"}:
            self._finished(stage, "timed" if kind == "timed" else event["status"])
        self._draw()

    def _notice(self, text: str) -> None:
        """What has to be read, and isn't overwritten."""
        if not self._quiet:
            self.close()
            print(f"kpipe: {text}", file=sys.stderr, flush=True)

    def _finished(self, stage: str, how: str) -> None:
        self._running.pop(stage, None)
        self._done += 1
        if not self._quiet and not self._live:
            print(f"[{time.monotonic() - self._start:6.1f} s] {stage}: {how}", file=sys.stderr)

    def _draw(self) -> None:
        if self._quiet or not self._live:
            return
        doing = ", ".join(f"{stage}{what}" for stage, what in self._running.items())
        line = f"[{time.monotonic() - self._start:5.1f} s] {self._done} done; {doing}"
        columns = max(20, width() - 1)
        print(f"\r\x1b[K{line[:columns]}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave a clean line."""
        if not self._quiet and self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
