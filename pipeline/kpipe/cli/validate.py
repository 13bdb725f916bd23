"""``kpipe validate``, ``judge`` and ``report``: run or read, then print the table."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.cli.console import Progress, colored, width

if TYPE_CHECKING:
    from kpipe.api import Run
    from kpipe.running.request import Request


def run_validate(request: Request, *, as_json: bool) -> int:
    """Validate and print."""
    from kpipe.api import validate

    progress = Progress(quiet=as_json)
    try:
        run = validate(
            request.model,
            contract=request.contract,
            golden=request.golden,
            targets=request.targets,
            custom_objects=request.custom_objects,
            out=request.out,
            jobs=request.jobs,
            resume=request.resume,
            profile=request.profile,
            baseline=request.baseline,
            waivers=request.waivers,
            reuse=request.reuse,
            on_event=progress,
        )
    finally:
        progress.close()
    summarise_for_ci(run)
    return show(run, as_json=as_json)


def run_judge(folder: Path, contract: Path | None, waivers: Path | None, *, as_json: bool) -> int:
    """Judge again and print."""
    from kpipe.api import judge

    return show(judge(folder, contract, waivers=waivers), as_json=as_json)


def run_report(folder: Path, *, as_json: bool) -> int:
    """Write the reports again and print."""
    from kpipe.api import load_run, report

    return show(report(load_run(folder)), as_json=as_json)


def show(run: Run, *, as_json: bool) -> int:
    """Print the answer; the exit code is the verdict's."""
    from kpipe.report.terminal import render_table
    from kpipe_stages.codec import encode

    if as_json:
        print(json.dumps(encode(run.record), ensure_ascii=False, indent=1))
    else:
        sys.stdout.write(render_table(run.record, color=colored(), width=width()))
        if run.record.baseline is not None:
            from kpipe.report.comparison import render_comparison_text

            sys.stdout.write(render_comparison_text(run.record.baseline, findings=False))
        print(f"Report: {run.report}")
    return int(run.exit_code)


def summarise_for_ci(run: Run) -> None:
    """Append ``report.md`` to the CI job's summary file, where there is one."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    try:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write((run.folder / "report.md").read_text(encoding="utf-8") + "\n")
    except OSError as error:
        print(f"kpipe: the CI summary {summary} can't be written: {error.strerror}; the verdict stands.", file=sys.stderr)
