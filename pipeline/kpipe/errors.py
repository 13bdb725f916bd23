"""What can end a command before there is a verdict, each with its exit code."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """Exit codes of the command."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERNAL = 4
    INTERRUPTED = 130
    TERMINATED = 143


class KpipeError(Exception):
    """A message for the user: what happened with values, what was expected, what to do."""

    exit_code = Exit.USAGE


class UsageError(KpipeError):
    """The command's own words are off: a path, a name, a folder that is taken."""


class ContractError(KpipeError):
    """The contract can't be used. ``problems`` lists every one."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{source} can't be used:\n" + "\n".join(f"  - {p}" for p in problems))


class WaiverError(KpipeError):
    """The waivers can't be used. ``problems`` lists every one."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{source} can't be used:\n" + "\n".join(f"  - {p}" for p in problems))


class GoldenError(KpipeError):
    """The golden set can't be used at all (no set, an empty one, no manifest)."""


class RunFolderError(KpipeError):
    """A run folder can't be written, or holds something else."""


class SignoffError(KpipeError):
    """A run that can't be signed off. ``problems`` lists every reason."""

    def __init__(self, what: str, problems: list[str], exit_code: Exit = Exit.USAGE) -> None:
        self.problems = tuple(problems)
        self.exit_code = exit_code
        super().__init__(f"{what} can't be signed off; nothing was sealed:\n" + "\n".join(f"  - {p}" for p in problems))


class BundleError(KpipeError):
    """A bundle can't be read: it is no bundle, of another version, or altered where it says what it holds."""


class StoreError(KpipeError):
    """A store can't be read or written."""


def nearest(word: str, known: list[str] | tuple[str, ...]) -> str:
    """`` (did you mean 'x'?)`` for a near miss, else the empty string."""
    import difflib

    match = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean '{match[0]}'?)" if match else ""
