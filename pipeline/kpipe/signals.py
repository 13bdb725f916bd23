"""SIGTERM, made as gentle as Ctrl-C: workers are ended, and what was finished is kept."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType

Answer = TypeVar("Answer")


class Terminated(BaseException):
    """SIGTERM arrived."""


def terminate(_signal: int, _frame: FrameType | None) -> None:
    """The command's handler of SIGTERM."""
    raise Terminated


def run(main: Coroutine[Any, Any, Answer]) -> Answer:
    """`asyncio.run`, where SIGTERM cancels ``main`` if `terminate` is its handler, as asyncio itself does with SIGINT.

    An exception raised from a signal handler in the middle of an event loop loses whatever callback was about to run; a wait for it then
    never ends.

    Raises:
        Terminated: SIGTERM arrived.
    """
    import asyncio

    if signal.getsignal(signal.SIGTERM) is not terminate:
        return asyncio.run(main)
    stopped = asyncio.Event()
    tasks: list[asyncio.Task[Any] | None] = []

    def stop() -> None:
        stopped.set()
        for task in tasks:
            if task is not None:
                task.cancel()

    async def stoppable() -> Answer:
        tasks.append(asyncio.current_task())
        if stopped.is_set():
            raise asyncio.CancelledError
        return await main

    try:
        with asyncio.Runner() as runner:
            runner.get_loop().add_signal_handler(signal.SIGTERM, stop)
            return runner.run(stoppable())
    except asyncio.CancelledError:
        if stopped.is_set():
            raise Terminated from None
        raise
    finally:
        main.close()
        signal.signal(signal.SIGTERM, terminate)  # the loop has put the system's own back
