"""``python -P -m kpipe_stages.fork_server MODULE...``: import once what several stages begin with, then fork a worker per request.

Stdin is a Unix stream socket. A request is one JSON line ``{"id", "stage", "job"}`` together with three file descriptors: the worker's stdin,
stdout and stderr. Answers are JSON lines: ``{"ready": {module: seconds}}`` once, ``{"id", "pid"}`` for each fork, ``{"id", "code"}`` when
that worker has ended (negative: the signal). The server ends when the socket does; its workers are in sessions of their own and don't notice.

This process imports and forks, and does nothing else: no model, no custom object and no operation ever runs in it, so a worker finds exactly
what a process of its own would have after the same imports. Forking TensorFlow before its first operation is sound, after it is not.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from kpipe_stages.__main__ import main as run_stage
from kpipe_stages.lean import without_extras
from kpipe_stages.worker import Inheritance, resident_file_bytes

FILES = 3
LINE = 2**16


def main(argv: list[str]) -> int:
    """Import the modules of ``argv`` and serve until the socket ends; 1 where a module can't be imported."""
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ready: dict[str, float] = {}
    for module in argv:
        start = time.perf_counter()
        try:
            with without_extras("tensorflow"):
                importlib.import_module(module)
        except Exception:  # noqa: BLE001 - an import can fail in any way; whoever needs it meets the same error in a process of its own, and names it
            traceback.print_exc()
            return 1
        ready[module] = time.perf_counter() - start
    gc.collect()
    gc.freeze()  # before a fork, as `gc` advises: no worker's collector walks, and so copies, what lies here
    Server(channel, ready).serve()
    return 0


class Server:
    """Requests in, workers out."""

    def __init__(self, channel: socket.socket, imported: dict[str, float]) -> None:
        self._channel = channel
        self._imported = imported
        self._waiting = selectors.DefaultSelector()
        self._workers: dict[int, tuple[int, str]] = {}
        """Descriptor of a worker's process to its pid and its request's id."""
        self._mapped = resident_file_bytes()

    def serve(self) -> None:
        """Until the other side has gone."""
        self._waiting.register(self._channel, selectors.EVENT_READ)
        self._answer({"ready": self._imported})
        while True:
            for key, _ in self._waiting.select():
                if key.fileobj is not self._channel:
                    self._ended(key.fd)
                elif not self._request():
                    return

    def _request(self) -> bool:
        line, files, _, _ = socket.recv_fds(self._channel, LINE, FILES)
        if not line:
            return False
        order = json.loads(line)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._become(order, files)
        for file in files:
            os.close(file)
        watch = os.pidfd_open(pid)
        self._workers[watch] = (pid, order["id"])
        self._waiting.register(watch, selectors.EVENT_READ)
        self._answer({"id": order["id"], "pid": pid})
        return True

    def _become(self, order: dict[str, Any], files: list[int]) -> None:
        """Never returns: this is the worker."""
        code = 1
        try:
            os.setsid()
            self._channel.close()
            self._waiting.close()
            for watch in self._workers:
                os.close(watch)
            with contextlib.suppress(OSError):
                Path("/proc/self/comm").write_text(f"kpipe {order['stage']}"[:15], encoding="utf-8")  # what `ps` and `top` call it
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            code = run_stage([order["stage"], order["job"]], Inheritance(self._imported, self._mapped))
        except BaseException:  # noqa: BLE001 - nothing may run on into the server's loop
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(code)

    def _ended(self, watch: int) -> None:
        self._waiting.unregister(watch)
        os.close(watch)
        pid, order = self._workers.pop(watch)
        self._answer({"id": order, "code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])})

    def _answer(self, facts: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # the other side has gone: `_request` sees it next
            self._channel.sendall(json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
