"""Where the wall time of a run goes, from its own evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kpipe.evidence import Evidence

WIDTH = 60


def timeline(evidence: Evidence) -> str:
    """A line a stage: begin, end, seconds of work up to its answer, seconds of its timed phase; and when it was there."""
    scale = WIDTH / max(evidence.wall_s, 0.001)
    lines = [f"{'stage':<24} {'begin':>6} {'end':>6} {'work':>6} {'timed':>6}  |{'0':<{WIDTH - 8}}{evidence.wall_s:>6.1f} s|"]
    for stage in evidence.stages:
        work = stage.result.seconds if stage.result and not stage.reused else 0.0
        timed = f"{stage.timing.seconds:6.2f}" if stage.timing else " " * 6
        begin, end = int(stage.begin_s * scale), max(int(stage.begin_s * scale) + 1, int(stage.end_s * scale))
        bar = " " * begin + ("=" if not stage.reused else ".") * (end - begin)
        lines.append(f"{stage.name:<24} {stage.begin_s:6.2f} {stage.end_s:6.2f} {work:6.2f} {timed}  |{bar[:WIDTH]:<{WIDTH}}|")
    return "\n".join(lines)
