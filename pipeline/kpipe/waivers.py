"""``waivers.toml``: findings that somebody answers for, one by one, in numbers, until a day.

A waiver covers a finding of one code, on one target and one input, output or limit, of one artifact, while its value lies in a range that was
looked at, and until a day. Anything else is not covered.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kpipe.codes import CODES
from kpipe.errors import WaiverError, nearest

if TYPE_CHECKING:
    from pathlib import Path

WAIVERS_NAME = "waivers.toml"

PLACE_OF = {
    "KP106": "place",
    "KP401": "output",
    "KP404": "input",
    "KP408": "output",
    "KP418": "output",
    "KP501": "place",
    "KP502": "place",
    "KP503": "place",
    "KP504": "place",
}
"""The codes that can be waived, each with the key that says where: those whose findings are a number. ``place`` is a model input or a limit."""

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Waiver(BaseModel):
    """``[[waiver]]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    code: str
    target: Text
    """A target's name, or ``reference``."""
    input: Text | None = None
    """Golden id."""
    output: Text | None = None
    place: Text | None = None
    """A limit (``p50_ms``) or a model input."""
    artifact: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the target's artifact; of the candidate where the target runs the ``.keras`` file."""
    observed: Number
    """The value that was looked at."""
    allowed: tuple[Number, Number]
    """The smallest and the largest value that is covered."""
    owner: Text
    reason: Text
    expires: date
    """The last day on which it covers anything."""

    @model_validator(mode="after")
    def _whole(self) -> Waiver:
        if self.code not in PLACE_OF:
            known = f"is no finding code{nearest(self.code, list(CODES))}" if self.code not in CODES else "has no number that a waiver could bound"
            raise ValueError(f"code: {self.code} {known}; those that can be waived are {', '.join(PLACE_OF)}")
        given = [key for key in ("input", "output", "place") if getattr(self, key) is not None]
        if given != [PLACE_OF[self.code]]:
            raise ValueError(f"a waiver of {self.code} needs '{PLACE_OF[self.code]}', and it alone; it has {', '.join(given) or 'none'}")
        low, high = self.allowed
        if not low <= self.observed <= high:
            raise ValueError(f"observed is {self.observed:g}, which is outside of allowed = [{low:g}, {high:g}]")
        return self

    @property
    def where(self) -> str:
        """The input, output, limit or model input."""
        return self.input or self.output or self.place or ""

    def covers(self, value: float) -> bool:
        """Whether a value is one that was looked at; NaN and infinities never are."""
        return math.isfinite(value) and self.allowed[0] <= value <= self.allowed[1]


class _File(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Literal[1]
    waiver: tuple[Waiver, ...] = ()


@dataclass(frozen=True)
class WaiverSet:
    """The waivers in force, and the day that they are held against."""

    waivers: tuple[Waiver, ...] = ()
    source: str = ""
    """The file, as given; empty where there is none."""
    text: str = ""
    today: date | None = None
    """UTC; None only where there are no waivers."""

    @property
    def sha256(self) -> str:
        """Of the file; empty where there is none."""
        return hashlib.sha256(self.text.encode()).hexdigest() if self.source else ""


NO_WAIVERS = WaiverSet()


def load_waivers(path: Path, today: date) -> WaiverSet:
    """Read a file of waivers.

    Raises:
        WaiverError: it can't be read, or a waiver is off; every problem is listed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise WaiverError(str(path), [f"it can't be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise WaiverError(str(path), [f"it isn't UTF-8 text (byte {error.start})"]) from error
    return parse_waivers(text, str(path), today)


def parse_waivers(text: str, source: str, today: date) -> WaiverSet:
    """Validate a text of waivers; raise `WaiverError` with every problem."""
    try:
        file = _File.model_validate(_prepared(tomllib.loads(text)))
    except ValidationError as error:
        raise WaiverError(source, [_message(detail) for detail in error.errors()]) from error
    except (ValueError, RecursionError) as error:  # TOMLDecodeError among them
        raise WaiverError(source, [f"it isn't a TOML file: {error}"]) from error
    if double := _double(file.waiver):
        raise WaiverError(source, [double])
    return WaiverSet(file.waiver, source, text, today)


def _double(waivers: tuple[Waiver, ...]) -> str:
    """Two waivers of one thing: which of them was meant is not known."""
    seen: set[tuple[str, ...]] = set()
    for number, one in enumerate(waivers, start=1):
        key = (one.code, one.target, one.where, one.artifact)
        if key in seen:
            return f"waiver {number} is about {one.code} of target '{one.target}' at '{one.where}', and so is one before it. Keep one of them"
        seen.add(key)
    return ""


def _prepared(data: dict[str, Any]) -> dict[str, Any]:
    """Arrays as tuples, and whole numbers where floats are meant, which strict mode wants."""
    waivers = data.get("waiver")
    if isinstance(waivers, list):
        data = {**data, "waiver": tuple(_numbers(w) if isinstance(w, dict) else w for w in waivers)}
    return data


def _numbers(waiver: dict[str, Any]) -> dict[str, Any]:
    def real(value: Any) -> Any:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    changed = dict(waiver)
    if "observed" in changed:
        changed["observed"] = real(changed["observed"])
    if isinstance(changed.get("allowed"), list):
        changed["allowed"] = tuple(real(value) for value in changed["allowed"])
    return changed


def _message(detail: Any) -> str:
    place = [str(part) for part in detail["loc"]]
    if place[:1] == ["waiver"] and len(place) > 1:
        place = [f"waiver {int(place[1]) + 1}", *place[2:]]
    where = ": ".join(place)
    if detail["type"] == "extra_forbidden":
        return f"{where}: unknown key{nearest(place[-1], [*Waiver.model_fields])}; a waiver has {', '.join(Waiver.model_fields)}"
    if detail["type"] == "missing":
        return f"{where} is missing; it has to be given"
    return f"{where}: {detail['msg'].removeprefix('Value error, ')}"
