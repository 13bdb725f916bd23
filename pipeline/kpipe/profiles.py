"""How much is asked of every target and of the reference: the ``default`` profile for each change, ``signoff`` before a release. Pure.

What a profile owes and a run did not do is unchecked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kpipe_stages.arrangement import arrangements

if TYPE_CHECKING:
    from kpipe.contract import Contract
    from kpipe.evidence import Evidence

ALONE = "alone"


@dataclass(frozen=True)
class Profile:
    """One profile."""

    name: str
    repeats: int
    """How many extra times every input is run alone, compared bit for bit."""
    exact: bool
    """Any other bit in them is an error, not just a difference beyond the tolerance."""
    batches: tuple[int, ...]
    """Batch sizes besides the contract's."""
    arrangements: bool
    """Every input at the positions of a batch, and beside others (`kpipe_stages.arrangement`)."""
    one_thread: bool
    """The reference once more on one thread, where tolerances are derived."""

    def sizes(self, contract: Contract) -> tuple[int, ...]:
        """All batch sizes that are run: the contract's, then the profile's own."""
        return tuple(dict.fromkeys((*contract.golden.batches, *self.batches)))

    def arranged(self, contract: Contract, fixed: int | None = None) -> tuple[str, ...]:
        """The modes by position and neighbours; ``fixed`` is an artifact's only batch size."""
        return tuple(a.mode for a in arrangements(contract.golden.batches, fixed)) if self.arrangements else ()

    def asks_one_thread(self, contract: Contract) -> bool:
        """Whether the reference has to be run on one thread too."""
        return self.one_thread and contract.agreement.tolerance == "auto"

    def modes(self, contract: Contract, fixed: int | None = None) -> tuple[str, ...]:
        """The ways of running that are owed; with a ``fixed`` batch size only those that it allows."""
        sizes = self.sizes(contract) if fixed is None else (fixed,)
        return (ALONE, *(f"batch_{size}" for size in sizes if size > 1), *self.arranged(contract, fixed))


DEFAULT = Profile("default", repeats=1, exact=False, batches=(), arrangements=False, one_thread=False)
SIGNOFF = Profile("signoff", repeats=5, exact=True, batches=(2, 5, 16), arrangements=True, one_thread=True)
PROFILES = {profile.name: profile for profile in (DEFAULT, SIGNOFF)}


def owed_profile(contract: Contract, evidence: Evidence) -> Profile:
    """What a run is judged by: sign-off where the contract asks for it or the run was made in it; nothing takes that back."""
    return SIGNOFF if SIGNOFF.name in {contract.run.profile, evidence.profile} else DEFAULT
