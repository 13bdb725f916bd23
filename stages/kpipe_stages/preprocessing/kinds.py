"""What a step is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kpipe_stages.preprocessing.checks import Check

Array = np.ndarray[Any, np.dtype[Any]]
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Context:
    """What a step may need to know besides its own table."""

    rate: int = 0
    """Samples a second of what was decoded; 0 where it has no rate."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The files that the input table names, by their names without folder."""


NO_CONTEXT = Context()


@dataclass(frozen=True)
class Kind:
    """A step: how its value is checked, its options, what it does."""

    check: Check
    apply: Callable[[Array, Any, Options], Array] | None
    """None for ``cast``, which `kpipe_stages.preprocess` does so that a changed value is noted, and where ``prepare`` is given."""
    options: dict[str, tuple[Check, Any]] = field(default_factory=dict)
    """Name to check and default; a default of None makes it required."""
    needs_image: bool = False
    """Only before ``layout = "chw"`` and ``flatten``."""
    needs_levels: bool = False
    """Only on the 0 to 255 scale: before scale, offset, normalize and cast."""
    changes_scale: bool = False
    needs_text: bool = False
    """Only on text."""
    any_values: bool = False
    """On text and on numbers."""
    ends_text: bool = False
    """Makes numbers of text."""
    prepare: Callable[[Any, Options, Context], Callable[[Array], Array]] | None = None
    """Binds the step once, for what is costly: tables of filters, a vocabulary."""
    also: Callable[[Any, Options], str] | None = None
    """What is wrong with value and options together; empty where nothing is."""
    needs_rate: bool = False
    """Samples a second have to be known: of the decoder, or in the option ``rate``."""
    file: bool = False
    """The value names one of the input's ``files``."""
