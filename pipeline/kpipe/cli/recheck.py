"""``kpipe recheck`` and ``kpipe rollback``: do, then print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.cli.folders import working_folder
from kpipe.errors import Exit, UsageError
from kpipe.record import Verdict
from kpipe_stages.codec import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kpipe.signoff.bundle import Bundle
    from kpipe.signoff.verify import Verification

EXITS = {Verdict.PASS: Exit.PASS, Verdict.FAIL: Exit.FAIL, Verdict.INCOMPLETE: Exit.INCOMPLETE}


def say(line: str) -> None:
    """Progress, beside the answer."""
    print(line, file=sys.stderr, flush=True)


def run_recheck(
    words: Sequence[str],
    changes: tuple[str, ...],
    pythons: tuple[Path, ...],
    *,
    store: str | None,
    key: Path | None,
    goldens: Path | None,
    targets: tuple[str, ...],
    times: bool,
    anew: bool,
    out: Path | None,
    markdown: Path | None,
    as_json: bool,
) -> int:
    """Verify every bundle, run it again, print the table."""
    from kpipe.recheck.recheck import RecheckRequest, recheck
    from kpipe.recheck.table import rendered
    from kpipe.running.system import cache_folder

    bundles = []
    for word in words:
        bundle, problem = intact(word, store, key)
        if bundle is None:
            return problem
        bundles.append(bundle)
    cache = cache_folder(None, Path(".kpipe-cache")) / "environments"
    with working_folder(out, "kpipe-recheck-") as folder:
        request = RecheckRequest(tuple(bundles), changes, pythons, targets, goldens, times, cache, anew)
        found = recheck(request, Path(folder).resolve(), say)
    if markdown is not None:
        _write(markdown, rendered(found, markdown=True))
    print(
        json.dumps(encode(found) | {"verdict": str(found.verdict)}, ensure_ascii=False, indent=1) if as_json else rendered(found),
        end="\n" if as_json else "",
    )
    return EXITS[found.verdict]


def intact(word: str, store: str | None, key: Path | None) -> tuple[Bundle | None, int]:
    """A bundle that is what was sealed; else what is wrong is printed, and the exit code given."""
    from kpipe.cli.signoff import print_verification
    from kpipe.signoff.bundle import open_bundle
    from kpipe.signoff.store import find_bundle
    from kpipe.signoff.verify import NOT_CHECKED, verify

    located = find_bundle(word, store)
    found: Verification = verify(located, key)
    if found.findings:
        print_verification(found)
        return None, Exit.FAIL
    if found.signature == NOT_CHECKED:
        say(f"{word}: signed, and nobody has checked by whom: give the public key with --key")
    return open_bundle(located.path), Exit.PASS


def run_rollback(
    word: str,
    *,
    store: str | None,
    by: str,
    reason: str,
    channel: str,
    accepted: tuple[str, ...],
    key: Path | None,
    goldens: Path | None,
    dry_run: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    """Verify, re-check, move the pointer, say what to restore."""
    from kpipe.recheck.rollback import RollbackRequest, rollback
    from kpipe.recheck.table import rendered
    from kpipe.running.system import cache_folder
    from kpipe.signoff.store import find_bundle

    bundle, problem = intact(word, store, key)
    if bundle is None:
        return problem
    place = find_bundle(word, store).store
    if place is None:
        raise UsageError(f"{word} lies in no store, so there is nothing to move. Name the store with --store, and the bundle by its id.")
    cache = cache_folder(None, Path(".kpipe-cache")) / "environments"
    request = RollbackRequest(bundle, place, by, reason, channel, accepted, goldens, cache, dry_run, unproved=bundle.signed and key is None)
    with working_folder(out, "kpipe-recheck-") as folder:
        done = rollback(request, Path(folder).resolve(), say)
    if as_json:
        print(json.dumps(encode(done), ensure_ascii=False, indent=1))
        return Exit.PASS
    print(rendered(done.table), end="")
    where = f"{bundle.contents.approval.product}@{channel}"
    if done.logged is None:
        print(f"\nRehearsal: {where} would go from {done.before[:12]} to {bundle.id[:12]}. Nothing was moved.")
    else:
        print(
            f"\nrolled back  {where} from {done.before[:12]} to {bundle.id[:12]}; entry {done.logged.entry.number} of the log, {done.logged.sha256}"
        )
    print("\nRestore where the model runs:")
    for line in done.restore:
        print(f"  {line}")
    return Exit.PASS


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--markdown {path} can't be written: {error.strerror}. The table is lost; name a place that can be written.") from error
