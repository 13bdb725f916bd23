"""Problems found in one archive: those that only get mentioned, and those that end the inspection at the next gate."""

from __future__ import annotations

import dataclasses
from typing import Any

from kpipe_stages.protocol import Observation, StageError

MOST_PER_CODE = 20
MOST_PLACES = 10


def shown(text: object, limit: int = 100) -> str:
    """Text of the file as it may stand in a message: control characters escaped (a terminal obeys them), lone surrogates too, cut at ``limit``."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in str(text)[: limit + 1])
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


class Collector:
    """Gathers observations, so that one look at a bad file tells all that is wrong with it.

    Equal problems (same ``key``) become one observation that counts its places; a code is repeated at most `MOST_PER_CODE` times,
    and its last observation says how many more there were.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Observation] = {}
        self._refused: list[tuple[str, str]] = []
        self._unlisted: dict[str, int] = {}

    def note(self, code: str, cause: str, remedy: str, place: str = "", *, key: str = "", **evidence: Any) -> None:
        """Add a problem that doesn't stop the inspection."""
        self._add(code, cause, remedy, place, key, evidence)

    def refuse(self, code: str, cause: str, remedy: str, place: str = "", *, key: str = "", **evidence: Any) -> None:
        """Add a problem that stops the inspection at the next `gate`."""
        self._refused.append(self._add(code, cause, remedy, place, key, evidence))

    def gate(self) -> None:
        """Go on only if nothing was refused.

        Raises:
            StageError: the first refusal; the others are in `others`.
        """
        if self._refused:
            raise StageError(self._complete(self._refused[0]))

    def stop(self, code: str, cause: str, remedy: str, place: str = "", **evidence: Any) -> StageError:
        """Add a problem after which nothing more can be looked at; raise what this returns."""
        self.refuse(code, cause, remedy, place, **evidence)
        return StageError(self._complete(self._refused[0]))

    @property
    def refused(self) -> bool:
        """Whether the next gate is closed."""
        return bool(self._refused)

    def others(self) -> list[Observation]:
        """Every observation but the one that `gate` raises."""
        return [self._complete(slot) for slot in self._found if not self._refused or slot != self._refused[0]]

    def _add(self, code: str, cause: str, remedy: str, place: str, key: str, evidence: dict[str, Any]) -> tuple[str, str]:
        slot = (code, key or f"{place}\0{cause}")
        same = [s for s in self._found if s[0] == code]
        if slot not in self._found and len(same) >= MOST_PER_CODE:
            self._unlisted[code] = self._unlisted.get(code, 0) + 1
            return same[-1]
        if slot not in self._found:
            self._found[slot] = Observation(code, cause, remedy, shown(place), {**evidence, "places": []} if key else evidence)
        if key:
            self._count(slot, place)
        return slot

    def _count(self, slot: tuple[str, str], place: str) -> None:
        evidence = self._found[slot].evidence
        evidence["count"] = evidence.get("count", 0) + 1
        if shown(place) not in evidence["places"] and len(evidence["places"]) < MOST_PLACES:
            evidence["places"].append(shown(place))

    def _complete(self, slot: tuple[str, str]) -> Observation:
        observation = self._found[slot]
        unlisted = self._unlisted.get(slot[0], 0)
        last = slot == [s for s in self._found if s[0] == slot[0]][-1]
        if not unlisted or not last:
            return observation
        return dataclasses.replace(observation, evidence={**observation.evidence, "not_listed": unlisted})
