"""Decisions by the user's own code."""

from __future__ import annotations

from dataclasses import dataclass

from kpipe_stages.protocol.inputs import DecisionSpec


@dataclass(frozen=True)
class SavedAnswers:
    """One worker's outputs that have to be decided."""

    stage: str
    """``reference``, ``run.litert``, ..."""
    folder: str
    """Its outputs lie in ``<folder>/outputs/<mode>/<position of the output>``."""
    outputs: tuple[str, ...]
    """Output names in that order."""
    modes: tuple[str, ...]
    digests: dict[str, str]
    """Mode to the digest that its folder must have."""


@dataclass(frozen=True)
class DecideJob:
    """Take decisions by the user's own code."""

    rules: tuple[DecisionSpec, ...]
    """Each ``module:function``, with its files."""
    answers: tuple[SavedAnswers, ...]
    ids: tuple[str, ...]
    """Golden ids, a row each."""


@dataclass(frozen=True)
class DecidedMode:
    """What one rule made of one worker's answers in one way of running: a decision for every input, or none and why."""

    rule: str
    """Its name; empty for the only one."""
    function: str
    """``module:function``."""
    stage: str
    mode: str
    outputs_sha256: str
    """Digest of the outputs that were decided on."""
    file: str
    """Below ``<folder>/decisions``: a list of text and margin (written as a text, ``inf`` too), an input each. Empty where there are none."""
    sha256: str
    """Digest of that file."""
    failure: str
    """Why there are none; empty where there are."""


@dataclass(frozen=True)
class DecideResult:
    """All of them."""

    decided: tuple[DecidedMode, ...]
