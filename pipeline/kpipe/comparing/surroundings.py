"""What else isn't the same: machine, versions, settings, contract. Pure, over two records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kpipe.comparison import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kpipe.comparing.subject import Subject
    from kpipe.record import TargetRecord


def differences(before: Subject, now: Subject) -> tuple[Difference, ...]:
    """Every difference, the machine's first."""
    return (*_machine(before, now), *_contract(before, now), *_targets(before, now))


def _machine(before: Subject, now: Subject) -> Iterator[Difference]:
    old, new = before.record.environment, now.record.environment
    for name in ("kpipe", "python", "platform", "cpu", "cores"):
        yield from _one("machine", name, getattr(old, name), getattr(new, name))
    yield from _one("machine", "CPU features", " ".join(sorted(old.cpu_features)), " ".join(sorted(new.cpu_features)))
    yield from _many("machine", old.versions, new.versions)


def _contract(before: Subject, now: Subject) -> Iterator[Difference]:
    old, new = before.contract.model_dump(mode="json"), now.contract.model_dump(mode="json")
    for table in sorted({*old, *new} - {"compare", "baseline", "targets"}):  # policies of this very comparison; targets come one by one below
        yield from _one("contract", f"[{table}]", _text(old.get(table)), _text(new.get(table)))
    yield from _one("contract", "profile", before.record.profile, now.record.profile)
    yield from _one("contract", "golden set", before.side.golden_sha256[:12], now.side.golden_sha256[:12])
    for rule in sorted({*before.rules} & {*now.rules}):
        yield from _one("contract", f"decision {rule}".strip(), _rule(before, rule), _rule(now, rule))
    code = [{path: sha256 for d in side.record.decisions for path, sha256 in d.files.items()} for side in (before, now)]
    yield from _many("contract", *code)


def _rule(side: Subject, rule: str) -> str:
    spec = side.rules[rule].spec
    return _text({key: value for key, value in vars(spec).items() if key not in {"files", "reads"}})


def _targets(before: Subject, now: Subject) -> Iterator[Difference]:
    old, new = ({t.name: t for t in (*side.record.targets, *([side.record.reference] if side.record.reference else []))} for side in (before, now))
    for name in sorted({*old} & {*new}):
        yield from _target(name, old[name], new[name])


def _target(name: str, old: TargetRecord, new: TargetRecord) -> Iterator[Difference]:
    for what in ("runtime", "required", "effective_precision"):
        yield from _one(name, what.replace("_", " "), getattr(old, what), getattr(new, what))
    for what, told in (("settings", "settings"), ("chosen_settings", "chosen settings"), ("confined", "held to"), ("preprocessing", "preprocessing")):
        yield from _one(name, told, _text(getattr(old, what)), _text(getattr(new, what)))
    if old.identity and new.identity:
        yield from _many(name, old.identity.versions, new.identity.versions)
        yield from _one(name, "Python", old.identity.python, new.identity.python)
        yield from _one(name, "threads", old.identity.threads, new.identity.threads)
        yield from _one(name, "CPU features", " ".join(old.identity.cpu_features), " ".join(new.identity.cpu_features))
    if old.artifact and new.artifact:
        yield from _one(name, "fixed batch", old.artifact.fixed_batch, new.artifact.fixed_batch)
        yield from _one(name, "repairs", "; ".join(old.artifact.repairs), "; ".join(new.artifact.repairs))


def _one(where: str, what: str, before: Any, now: Any) -> Iterator[Difference]:
    if before != now:
        yield Difference(where, what, str(before) or "none", str(now) or "none")


def _many(where: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted({*before, *now}):
        yield from _one(where, name, before.get(name, "none"), now.get(name, "none"))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str) if value else ""
