"""Reports of a run: pure functions from a `kpipe.record.RunRecord` to text. Nothing here starts a process or writes a file."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.record import RunRecord

MARKDOWN = "report.md"


def import_libraries() -> None:
    """Import what the reports are made with, for a caller that has to wait for something else meanwhile: it takes half a second."""
    for name in ("matplotlib.figure", "matplotlib.backends.backend_svg", "kpipe.report.html"):
        importlib.import_module(name)


def render_all(record: RunRecord, pictures: Mapping[str, str]) -> dict[str, str]:
    """Every report file of a run.

    Args:
        record: the run.
        pictures: golden input id to a ``data:`` URI of its picture, for the inputs that flipped and have one.

    Returns:
        File name to content, to be written as UTF-8: ``report.html``, ``report.md``, ``junit.xml``, ``results.sarif``.
    """
    # Imported here: jinja2 and matplotlib cost more than the rest of the command together.
    from kpipe.report.html import render_html
    from kpipe.report.junit import render_junit
    from kpipe.report.markdown import render_markdown
    from kpipe.report.sarif import render_sarif

    return {
        "report.html": render_html(record, pictures),
        MARKDOWN: render_markdown(record),
        "junit.xml": render_junit(record),
        "results.sarif": render_sarif(record),
    }
