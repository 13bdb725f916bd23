"""The line of releases, as the approvals log has it. Pure, over the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.errors import StoreError
from kpipe.signoff.log import Entry, currents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.signoff.log import Logged


@dataclass(frozen=True)
class Release:
    """One entry of the log."""

    entry: Entry
    sha256: str
    """The entry's: what ``--head`` may name."""
    current: bool


@dataclass(frozen=True)
class History:
    """A store's releases, oldest first."""

    store: str
    head: str
    """SHA-256 of the newest entry: kept elsewhere, it shows that nothing was taken from the log since. Empty for an empty log."""
    releases: tuple[Release, ...]


def history(store: str, log: Sequence[Logged], product: str | None, channel: str | None, head: str | None) -> History:
    """The releases of one product and channel, or of all.

    Raises:
        StoreError: the log lacks the entry ``head``.
    """
    if head and not any(logged.sha256.startswith(head) for logged in log):
        raise StoreError(
            f"store {store}: no entry of the log is {head}. An older log was put back, or this is another store. Compare with a backup before using it."
        )
    current = {logged.sha256 for logged in currents(log).values()}
    chosen = [one for one in log if product in {None, one.entry.product} and channel in {None, one.entry.channel}]
    releases = tuple(Release(one.entry, one.sha256, one.sha256 in current) for one in chosen)
    return History(store, log[-1].sha256 if log else "", releases)
