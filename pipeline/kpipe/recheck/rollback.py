"""``kpipe rollback``: back to a bundle that was approved before, once it is known to work still. Nothing moves that did not pass."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.errors import BundleError, Exit, KpipeError, UsageError
from kpipe.recheck.recheck import Rechecked, RecheckRequest, recheck
from kpipe.record import CellStatus, Verdict
from kpipe.signoff.bundle import Bundle
from kpipe.signoff.log import LOG_VERSION, ROLLBACK, Entry, Logged
from kpipe.signoff.store import Store
from kpipe.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kpipe.recheck.outcome import Outcome
    from kpipe.recheck.recheck import Say


class RollbackError(KpipeError):
    """The bundle does not work as it did, or nobody knows: nothing was moved."""

    def __init__(self, message: str, exit_code: Exit) -> None:
        self.exit_code = exit_code
        super().__init__(message)


@dataclass(frozen=True)
class RollbackRequest:
    """What is asked for."""

    bundle: Bundle
    store: Store
    by: str
    reason: str
    channel: str
    accepted: tuple[str, ...]
    """Findings that are accepted: ``CODE@target``."""
    goldens: Path | None
    cache: Path
    dry_run: bool
    times: bool = True
    unproved: bool = False
    """It is signed, and no key was given to check that."""


@dataclass(frozen=True)
class RolledBack:
    """What came of it."""

    table: Rechecked
    logged: Logged | None
    """None for a rehearsal."""
    before: str
    """The bundle that was current; empty for none."""
    accepted: tuple[str, ...]
    restore: tuple[str, ...]
    """What to restore where the model runs, a line each."""


def rollback(request: RollbackRequest, out: Path, say: Say) -> RolledBack:
    """Re-run the bundle in today's environment and in the sealed one, move the pointer where both pass, and say what to restore.

    Raises:
        UsageError: the command's words are off.
        BundleError: the bundle was never approved for that product and channel.
        RollbackError: it fails or is unchecked, and that was not accepted.
        StoreError: the store can't be read or written.
    """
    before = _approved(request)
    columns = RecheckRequest((request.bundle,), goldens=request.goldens, times=request.times, cache=request.cache)
    table = recheck(columns, out, say)
    used = held_to(table.outcomes, request.accepted)
    logged = None if request.dry_run else request.store.append(_entry(request, table, used))
    return RolledBack(table, logged, before, used, restoring(request.bundle))


def _approved(request: RollbackRequest) -> str:
    """The bundle that is current now."""
    for option, value in (("--by", request.by), ("--reason", request.reason)):
        if not value.strip() and not request.dry_run:
            raise UsageError(f"{option} is empty. Say {'who rolls back' if option == '--by' else 'why'}; a rehearsal (--dry-run) needs neither.")
    product = request.bundle.contents.approval.product
    entries = [one.entry for one in request.store.log() if (one.entry.product, one.entry.channel) == (product, request.channel)]
    if not any(entry.bundle == request.bundle.id for entry in entries):
        raise BundleError(
            f"bundle {request.bundle.id[:12]} was never approved for {product}@{request.channel} in store {request.store.place.name}. "
            "'kpipe history' lists what was; approve a run with 'kpipe approve'."
        )
    if entries[-1].bundle == request.bundle.id and not request.dry_run:
        raise UsageError(
            f"bundle {request.bundle.id[:12]} is what is current for {product}@{request.channel}: there is nothing to roll back. Rehearse with --dry-run."
        )
    return entries[-1].bundle


def held_to(outcomes: Iterable[Outcome], accepted: Iterable[str]) -> tuple[str, ...]:
    """The accepted findings that were needed.

    Raises:
        RollbackError: something else stands against it.
        UsageError: a finding was accepted that isn't there: it may be a slip for one that is.
    """
    outcomes, wanted = list(outcomes), set(accepted)
    if not any(one.required for one in outcomes):
        raise RollbackError("nothing that is required was run again, so nothing is known of it; nothing was moved.", Exit.INCOMPLETE)
    against = [one for one in outcomes if one.required and one.status is not CellStatus.PASS]
    said = {word for one in against for word in words_of(one)}
    open_ = [one for one in against if not one.codes or not set(words_of(one)) <= wanted]
    if open_:
        lines = [
            f"  - {one.target}, {one.column}: {one.status}: {printable(' '.join(one.reason.split()))} [{', '.join(words_of(one))}]" for one in open_
        ]
        raise RollbackError(
            "it does not work as it did when it was signed off; nothing was moved:\n"
            + "\n".join(lines)
            + "\nMend the environment, or accept each by name: --accept-findings "
            + ",".join(sorted({word for one in open_ for word in words_of(one)})),
            Exit.FAIL if any(one.status is CellStatus.FAIL for one in open_) else Exit.INCOMPLETE,
        )
    if strange := sorted(wanted - said):
        raise UsageError(
            f"--accept-findings names {strange[0]}, which nothing raised; there is {', '.join(sorted(said)) or 'nothing to accept'}. Nothing was moved."
        )
    return tuple(sorted(wanted))


def words_of(one: Outcome) -> tuple[str, ...]:
    """What has to be accepted for an outcome, ``CODE@target`` each."""
    return tuple(f"{code}@{one.target}" for code in one.codes)


def _entry(request: RollbackRequest, table: Rechecked, accepted: tuple[str, ...]) -> Entry:
    contents = request.bundle.contents
    notes = (f"re-checked in {', '.join(table.columns)}: {table.verdict}", *(f"accepted: {word}" for word in accepted))
    notes += tuple(f"not checked: {name}, which is relative to a baseline" for name in table.relative.get(request.bundle.id, ()))
    notes += ("the signature was not checked",) if request.unproved else ()
    return Entry(
        version=LOG_VERSION,
        number=0,
        previous="",
        action=ROLLBACK,
        at=datetime.now(UTC).isoformat(timespec="microseconds"),
        by=request.by,
        reason=request.reason,
        product=contents.approval.product,
        channel=request.channel,
        bundle=request.bundle.id,
        verdict=str(Verdict.PASS if not accepted else table.verdict),
        run_id=contents.run_id,
        candidate_sha256=contents.candidate_sha256,
        notes=notes,
    )


def restoring(bundle: Bundle) -> tuple[str, ...]:
    """What to put back where the model runs: files by digest, settings, versions."""
    lines = [f"model.keras  SHA-256 {bundle.contents.candidate_sha256}  {bundle.path / 'model.keras'}"]
    for target in bundle.contents.targets:
        versions = ", ".join(f"{name}=={version}" for name, version in sorted(target.versions.items()))
        settings = ", ".join(f"{key} = {value}" for key, value in {**target.job.chosen, **target.job.settings}.items()) or "no settings"
        threads = f", {target.job.threads} threads" if target.job.threads else ""
        threads += f", processors {', '.join(map(str, target.job.affinity))}" if target.job.affinity else ""
        threads += f", {target.job.memory_mib} MiB of private memory" if target.job.memory_mib else ""
        lines.append(f"{target.name}  SHA-256 {target.sha256}  {bundle.artifact(target.name)}")
        lines.append(f"    {versions}; {settings}{threads}; requirements/{target.interpreter}.txt")
    return tuple(lines)
