"""``kpipe preflight``: the gate on an untrained architecture."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from kpipe.cli.console import Progress
from kpipe.errors import Exit

if TYPE_CHECKING:
    from kpipe.preflight.run import Order


def run_preflight(order: Order, *, as_json: bool) -> int:
    """Build, run, print; 0 would convert and agree, 1 would not, 3 something is unchecked. Never a verdict."""
    from kpipe.preflight.result import Answer
    from kpipe.preflight.run import preflight
    from kpipe.preflight.text import rendered
    from kpipe_stages.codec import encode

    progress = Progress(quiet=as_json)
    try:
        found = preflight(order, progress)
    finally:
        progress.close()
    if as_json:
        print(json.dumps(encode(found), ensure_ascii=False, indent=1))
    else:
        sys.stdout.write(rendered(found))
    return {Answer.OK: Exit.PASS, Answer.FAILS: Exit.FAIL, Answer.UNCHECKED: Exit.INCOMPLETE}[found.answer]
