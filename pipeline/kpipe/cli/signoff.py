"""``kpipe approve``, ``verify``, ``history``, ``inventory``: do, then print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kpipe.errors import Exit, StoreError
from kpipe.text import printable
from kpipe_stages.codec import encode

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.signoff.approve import ApproveRequest
    from kpipe.signoff.history import Release
    from kpipe.signoff.verify import Verification

SHORT = 12
"""Digits of an id as text shows it; the store finds a bundle by them."""


def run_approve(request: ApproveRequest, waivers: Path | None, *, as_json: bool) -> int:
    """Approve and print."""
    from kpipe.api import approve

    done = approve(request, waivers)
    entry = done.logged.entry
    if as_json:
        _json(done)
        return Exit.PASS
    signed = "signed" if entry.signature_sha256 else "not signed"
    print(
        f"approved  {entry.product}@{entry.channel} is now {done.bundle[:SHORT]}, by {printable(entry.by)}; entry {entry.number} of the log, {signed}"
    )
    print(f"Bundle: {done.path}")
    print(f"Head of the log: {done.logged.sha256}")
    return Exit.PASS


def run_verify(bundle: str, store: str | None, key: Path | None, *, as_json: bool) -> int:
    """Verify and print; 1 where something is wrong, 3 where a signature was not checked."""
    from kpipe.signoff.store import find_bundle
    from kpipe.signoff.verify import verify

    found = verify(find_bundle(bundle, store), key)
    if as_json:
        _json(found)
    else:
        print_verification(found)
    return found.exit_code


def print_verification(found: Verification) -> None:
    """What was found, for a terminal."""
    if found.findings:
        print(f"ALTERED  {found.path}: {len(found.findings)} problem{'s' if len(found.findings) > 1 else ''}")
        for one in found.findings:
            print(f"  {one.code} {printable(one.cause)}")
        print(f"  -> {found.findings[0].remedy}")
    else:
        print(f"intact  {found.bundle}: {found.files} files are as they were sealed")
    print(f"  signature: {found.signature}{'; give the public key with --key' if found.signature == 'not checked' else ''}")
    print(f"  approvals log: {'checked' if found.logged else 'not checked: the bundle lies in no store'}")
    if not found.expected:
        print("  Nothing outside of the folder says which bundle it is: compare the id with the one that was approved.")


def run_history(store: str | None, product: str | None, channel: str | None, head: str | None, *, as_json: bool) -> int:
    """Print the line of releases; 1 where the store contradicts itself."""
    from kpipe.signoff.history import history
    from kpipe.signoff.store import open_store

    place = open_store(store)
    found = history(place.place.name, place.log(), product, channel, head)
    problems = place.problems()
    if as_json:
        _json({"history": found, "problems": problems})
    else:
        for release in found.releases:
            print(_line(release))
        if not found.releases:
            print(f"nothing was approved in {found.store}")
        print(f"Head of the log: {found.head or 'none'}")
    if problems and not as_json:
        raise StoreError(f"store {found.store} contradicts itself:\n" + "\n".join(f"  - {problem}" for problem in problems))
    return Exit.FAIL if problems else Exit.PASS


def _line(release: Release) -> str:
    entry = release.entry
    mark = "*" if release.current else " "
    notes = "".join(f"\n      {printable(note)}" for note in entry.notes)
    return (
        f"{mark} {entry.number:>3}  {entry.at[:16].replace('T', ' ')}  {entry.product}@{entry.channel}  {entry.bundle[:SHORT]}  {entry.action}  "
        f"{entry.verdict}  {printable(entry.by)}: {printable(entry.reason)}{notes}"
    )


def run_inventory(bundle: str, store: str | None, *, as_json: bool) -> int:
    """Print what is in a bundle."""
    from kpipe.signoff.bundle import open_bundle
    from kpipe.signoff.inventory import inventory, render
    from kpipe.signoff.store import find_bundle

    found = inventory(open_bundle(find_bundle(bundle, store).path))
    if as_json:
        _json(found)
    else:
        print(render(found), end="")
    return Exit.PASS


def _json(value: object) -> None:
    print(json.dumps(encode(value), ensure_ascii=False, indent=1))
