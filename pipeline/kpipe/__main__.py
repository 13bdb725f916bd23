"""The command: words in, exit code out, no traceback to a user."""

from __future__ import annotations

import os
import signal
import sys
from typing import TextIO

from kpipe.errors import Exit, KpipeError
from kpipe.signals import Terminated, terminate


def main() -> None:
    """Entry point of ``kpipe`` and ``python -m kpipe``."""
    signal.signal(signal.SIGTERM, terminate)
    code = run(sys.argv[1:])
    if not _flushed(sys.stdout, 1):
        code = Exit.INTERNAL  # the verdict was for a reader who has gone, e.g. `kpipe ... | head`: not a pass
    _flushed(sys.stderr, 2)
    raise SystemExit(int(code))


def _flushed(stream: TextIO, number: int) -> bool:
    """Whether what was written has got out; what hasn't is dropped, or Python would end with a code of its own."""
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        return False
    return True


def run(words: list[str]) -> int:
    """Run one command; every way that it can end has an exit code."""
    try:
        from kpipe.cli.app import command

        return command(words)
    except KpipeError as error:
        _say(str(error))
        return error.exit_code
    except (KeyboardInterrupt, Terminated) as error:
        _say(" ".join(["stopped.", *getattr(error, "__notes__", ())]))
        return Exit.TERMINATED if isinstance(error, Terminated) else Exit.INTERRUPTED
    except BrokenPipeError:
        return Exit.INTERNAL  # the reader went away before the verdict was out: not a pass
    except Exception as error:  # a fault of kpipe's own: never a traceback on the screen, always a file to send
        from kpipe.cli.crash import write_report

        _say(f"a fault of kpipe's own: {type(error).__name__}: {error}\n  The report to send is {write_report(error, words)}.")
        return Exit.INTERNAL


def _say(message: str) -> None:
    print(f"kpipe: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
