"""Whether a bundle is what was sealed: every file against the manifest, the manifest against its id, the signature, the approvals log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe.errors import BundleError, Exit
from kpipe.findings import Finding
from kpipe.golden import sha256_of
from kpipe.judging.grade import finding
from kpipe.signoff.contents import CONTENTS
from kpipe.signoff.files import compare
from kpipe.signoff.manifest import MANIFEST, SIGNATURE, id_of, parse
from kpipe.signoff.signing import form_problems, verify_signature

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.signoff.log import Entry
    from kpipe.signoff.store import Located

ALTERED, BAD_SIGNATURE, BAD_LOG = "KP710", "KP711", "KP712"

VALID, NOT_VALID, NOT_CHECKED, NONE = "valid", "not valid", "not checked", "none"


@dataclass(frozen=True)
class Verification:
    """What was found."""

    path: str
    bundle: str
    """The id that its manifest has now; empty where that can't be read."""
    files: int
    """How many the manifest lists."""
    expected: str
    """The id that it must have; empty where nothing outside of the folder says."""
    logged: bool
    """Whether the approvals log of its store was checked too."""
    signature: str
    """``valid``, ``not valid``, ``not checked`` (there is one, and no key was given) or ``none``."""
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> Exit:
        """1 where something is altered, 3 where a signature is there that nobody checked."""
        if self.findings:
            return Exit.FAIL
        return Exit.INCOMPLETE if self.signature == NOT_CHECKED else Exit.PASS


def verify(located: Located, key: Path | None = None) -> Verification:
    """Verify a bundle where it lies.

    Args:
        located: the bundle, and the store that it lies in.
        key: a public key that must have signed it.

    Raises:
        BundleError: the folder is no bundle at all.
        UsageError: the key can't be used.
    """
    path = located.path
    try:
        data = (path / MANIFEST).read_bytes()
    except OSError as error:
        if not located.expected and not (path / CONTENTS).exists():
            raise BundleError(
                f"{path} is no bundle: {MANIFEST} can't be read ({error.strerror}). Expected a folder that 'kpipe approve' has sealed."
            ) from error
        return _unreadable(located, f"{MANIFEST} can't be read: {error.strerror}.")
    bundle = id_of(data)
    try:
        manifest = parse(data, str(path))
    except BundleError as error:
        return _unreadable(located, str(error))
    findings = []
    if located.expected and bundle != located.expected:
        cause = f"{MANIFEST} was altered: the bundle's id is {bundle}, and {located.expected} was expected."
        findings.append(finding(ALTERED, cause, place=MANIFEST))
    findings += [finding(ALTERED, _told(f.path, f.what, f.detail), place=f.path) for f in compare(path, manifest)]
    signature, more = _signature(located, key)
    findings += more
    if located.store is not None:
        findings += [finding(BAD_LOG, f"{problem[0].upper()}{problem[1:]}.", place="approvals") for problem in located.store.problems()]
    return Verification(str(path), bundle, len(manifest.files), located.expected, located.store is not None, signature, tuple(findings))


def _unreadable(located: Located, cause: str) -> Verification:
    return Verification(
        str(located.path), "", 0, located.expected, logged=False, signature=NOT_CHECKED, findings=(finding(ALTERED, cause, place=MANIFEST),)
    )


def _told(path: str, what: str, detail: str) -> str:
    return f"{path} {'is' if what not in {'added', 'altered'} else 'was'} {what}{f': {detail}' if detail else ''}."


def _signature(located: Located, key: Path | None) -> tuple[str, list[Finding]]:
    path = located.path / SIGNATURE
    there = path.is_file()
    known = _logged(located)
    problems = []
    if known and not there and known[-1].signature_sha256:
        problems = [f"the bundle was signed when it was approved, and {SIGNATURE} is missing"]
    elif known and there and sha256_of(path) not in {entry.signature_sha256 for entry in known}:
        problems = [f"{SIGNATURE} isn't the signature that the approvals log names"]
    if key is not None:
        problems += verify_signature(located.path, key) if there else ["the bundle isn't signed, and a key was given to verify it with"]
    elif there:
        problems += form_problems(path)
    state = NOT_VALID if problems else NONE if not there else VALID if key is not None else NOT_CHECKED
    return state, [finding(BAD_SIGNATURE, f"{problem[0].upper()}{problem[1:]}.", place=SIGNATURE) for problem in dict.fromkeys(problems)]


def _logged(located: Located) -> list[Entry]:
    """What the log says of the bundle; a damaged one is told by itself."""
    if located.store is None:
        return []
    log, _ = located.store.read_log()
    return [logged.entry for logged in log if logged.entry.bundle == located.expected]
