"""The environment of a run as a bundle keeps it. Pure, over the run's evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.signoff.contents import REFERENCE, SealedEnvironment

if TYPE_CHECKING:
    from kpipe.evidence import Evidence


def sealed_environment(evidence: Evidence) -> SealedEnvironment:
    """Machine, interpreters, settings, and what every worker said of itself."""
    names = {path: "python" if number == 1 else f"python-{number}" for number, path in enumerate(_by_use(evidence), start=1)}
    stages = {REFERENCE: REFERENCE} | {t.plan.name: f"run.{t.plan.name}" for t in evidence.targets}
    said = {s.name: s.result.identity for s in evidence.stages if s.result and s.result.identity}
    return SealedEnvironment(
        machine=evidence.environment,
        interpreters={names[path]: evidence.installed[path] for path in names},
        paths={name: path for path, name in names.items()},
        worker_settings=dict(evidence.worker_settings),
        identities={name: said[stage] for name, stage in stages.items() if stage in said},
    )


def _by_use(evidence: Evidence) -> list[str]:
    """Interpreters, the reference's first."""
    plans = (evidence.reference, *(t.plan for t in evidence.targets))
    return list(dict.fromkeys(plan.python for plan in plans))


def requirement_files(environment: SealedEnvironment) -> dict[str, str]:
    """``requirements/<interpreter>.txt``: every distribution with its exact version, as pip and uv read it."""
    files = {}
    for name, held in environment.interpreters.items():
        lines = [f"# Python {held.python}", *held.requirements, *(f"# not from an index: {line}" for line in held.local)]
        files[f"requirements/{name}.txt"] = "\n".join(lines) + "\n"
    return files
