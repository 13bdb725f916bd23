"""``kpipe approve``: a run that has passed, sealed as a bundle, kept in a store, entered into its log, made current."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.contract import LoadedContract
from kpipe.errors import RunFolderError, SignoffError, UsageError
from kpipe.evidence import Evidence
from kpipe.record import RunRecord
from kpipe.report.summary import waiver_lines
from kpipe.running.system import kpipe_version
from kpipe.signoff.contents import FULL, HASHES, Approval
from kpipe.signoff.eligible import exit_of, refusals
from kpipe.signoff.log import APPROVE, LOG_VERSION, Entry, Logged
from kpipe.signoff.seal import SealOrder, seal
from kpipe.signoff.signing import sign
from kpipe.signoff.store import open_store
from kpipe.store import load_record
from kpipe.waivers import WaiverSet

if TYPE_CHECKING:
    from datetime import datetime

    from kpipe.record import Verdict

PRODUCTION = "production"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class ApproveRequest:
    """An approval, as asked for."""

    run: Path
    by: str
    reason: str
    store: str | None = None
    key: Path | None = None
    goldens: str = FULL
    channel: str = PRODUCTION
    product: str | None = None
    """Where the contract names none."""


@dataclass(frozen=True)
class Judgement:
    """The run, judged now from its saved evidence."""

    record: RunRecord
    evidence: Evidence
    loaded: LoadedContract
    """The contract that it was made with."""
    waivers: WaiverSet
    """What it was judged with."""


@dataclass(frozen=True)
class Approved:
    """What came of it."""

    bundle: str
    path: str
    """Where the bundle lies; for a remote store its place there."""
    logged: Logged
    new: bool
    """False where the very same bundle was there already."""


def approve(request: ApproveRequest, judgement: Judgement, now: datetime) -> Approved:
    """Seal, keep, enter, point.

    Args:
        request: what is asked for.
        judgement: the run.
        now: the time of the approval, UTC.

    Raises:
        UsageError: the command's words are off.
        SignoffError: the run can't be signed off; every reason is listed, and nothing was sealed.
        StoreError: the store can't be written; nothing half is left there.
    """
    _check_words(request)
    product = _product(request, judgement.loaded)
    if problems := refusals(judgement.record, judgement.evidence, judgement.loaded, _written(request.run)):
        raise SignoffError(str(request.run), problems, exit_of(judgement.record))
    at = now.isoformat(timespec="microseconds")
    approval = Approval(request.by, request.reason, at, product, request.channel, kpipe_version())
    order = SealOrder(request.run, judgement.loaded, judgement.evidence, judgement.record, approval, request.goldens, waivers=judgement.waivers)
    signatures = []

    def write(folder: Path) -> str:
        bundle = seal(order, folder)
        if request.key is not None:
            signatures.append(sign(folder, request.key))
        return bundle

    store = open_store(request.store)
    bundle, new = store.seal(write)
    entry = Entry(
        version=LOG_VERSION,
        number=0,
        previous="",
        action=APPROVE,
        at=at,
        by=request.by,
        reason=request.reason,
        product=product,
        channel=request.channel,
        bundle=bundle,
        verdict=str(judgement.record.verdict),
        run_id=judgement.evidence.run_id,
        candidate_sha256=judgement.evidence.candidate_sha256,
        signature_sha256=signatures[0] if signatures else "",
        notes=waiver_lines(judgement.record),
    )
    logged = store.append(entry, fresh=new)
    return Approved(bundle, f"{store.place.name}/bundles/{bundle}", logged, new)


def _check_words(request: ApproveRequest) -> None:
    for option, value in (("--by", request.by), ("--reason", request.reason)):
        if not value.strip():
            raise UsageError(f"{option} is empty. Say {'who approves' if option == '--by' else 'why the model may ship'}.")
    if request.goldens not in {FULL, HASHES}:
        raise UsageError(
            f"--goldens is {request.goldens!r}; expected {FULL} (the files are sealed) or {HASHES} (they are supplied again at re-check)."
        )
    if not _NAME.fullmatch(request.channel):
        raise UsageError(f"--channel is {request.channel!r}; expected up to 64 letters, digits, '_' and '-', such as production.")
    if request.product is not None and not _NAME.fullmatch(request.product):
        raise UsageError(f"--product is {request.product!r}; expected up to 64 letters, digits, '_' and '-'.")


def _product(request: ApproveRequest, loaded: LoadedContract) -> str:
    named = loaded.contract.product.name if loaded.contract.product else None
    if named and request.product and named != request.product:
        raise UsageError(f"--product is {request.product!r}, and the run's contract says {named!r}. Drop the option.")
    if found := named or request.product:
        return found
    raise UsageError(
        'the run\'s contract names no product. Give --product NAME, and write [product] name = "NAME" into the contract for the next run.'
    )


def _written(run: Path) -> Verdict | None:
    """The verdict that the run folder's record holds."""
    try:
        return load_record(run).verdict
    except RunFolderError:
        return None
