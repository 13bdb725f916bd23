"""``kpipe compare``: one model against another, as a table, Markdown or JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from kpipe.errors import Exit, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def run_compare(before: Path, now: Path, contract: Path | None, first: Path | None, *, time: bool, markdown: bool, as_json: bool) -> int:
    """Compare and print; 0 where the policy holds, 1 where it is broken, 3 where it can't be told."""
    from kpipe.api import compare
    from kpipe.comparison import Outcome
    from kpipe.report.comparison import render_comparison_markdown, render_comparison_text
    from kpipe_stages.codec import encode

    if markdown and as_json:
        raise UsageError("--markdown and --json exclude one another: give one of them.")
    found = compare(before, now, contract=contract, first=first, time=time)
    if as_json:
        print(json.dumps(encode(found), ensure_ascii=False, indent=1))
    else:
        sys.stdout.write(render_comparison_markdown(found) if markdown else render_comparison_text(found))
    return {Outcome.PASS: Exit.PASS, Outcome.FAIL: Exit.FAIL, Outcome.INCOMPLETE: Exit.INCOMPLETE}[found.outcome]
