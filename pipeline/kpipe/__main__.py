"""The command: words in, exit code out, no traceback to a user."""

from __future__ import annotations

import os
import signal
import sys

from kpipe.errors import Exit, KpipeError
from kpipe.signals import Terminated, terminate


def main() -> None:
    """Entry point of ``kpipe`` and ``python -m kpipe``."""
    signal.signal(signal.SIGTERM, terminate)
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has gone, e.g. `kpipe ... | head`
    raise SystemExit(int(code))


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
