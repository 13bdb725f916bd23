"""The first approved model of the line that a bundle belongs to, where its store's log knows one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.signoff.bundle import open_bundle
from kpipe.signoff.log import APPROVE
from kpipe.signoff.manifest import MANIFEST
from kpipe.signoff.store import find_bundle

if TYPE_CHECKING:
    from pathlib import Path


def first_approved(path: Path) -> Path | None:
    """The bundle that was approved first for the same product and channel; None for a run, or a bundle that lies in no store.

    Raises:
        StoreError: the log is damaged, or the bundle that it names isn't there.
    """
    if not (path / MANIFEST).is_file():
        return None
    store = find_bundle(str(path)).store
    if store is None:
        return None
    approval = open_bundle(path).contents.approval
    line = [
        one.entry for one in store.log() if (one.entry.product, one.entry.channel, one.entry.action) == (approval.product, approval.channel, APPROVE)
    ]
    return store.fetch(line[0].bundle) if line else None
