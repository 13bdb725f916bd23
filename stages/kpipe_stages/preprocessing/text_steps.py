"""Steps on text, a single string or an array of strings, and the one that makes numbers of it."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.checks import natural, one_of, switch, text, true
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.kinds import Kind
from kpipe_stages.preprocessing.tokens import prepare_tokenize

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.preprocessing.kinds import Options

Array = np.ndarray[Any, np.dtype[Any]]

PUNCTUATION = re.compile(r"""[!"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']""")
"""What Keras' TextVectorization strips."""
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
SPACE = " \t\n\v\f\r"
"""ASCII white space."""


def each(array: Array, change: Callable[[str], str], step: str) -> Array:
    """Every string changed.

    Raises:
        PreprocessError: the values aren't text.
    """
    if array.dtype.kind != "U":
        raise PreprocessError(step, f"{array.dtype.name} values", "text", f"Put {step!r} before tokenize, or leave it out.", "KP104")
    return np.array([change(value) for value in array.ravel().tolist()], dtype=np.str_).reshape(array.shape)


def _unicode(array: Array, value: Any, _: Options) -> Array:
    return each(array, lambda words: unicodedata.normalize(value, words), "unicode")


def _lower(array: Array, value: Any, _: Options) -> Array:
    change = {"unicode": str.lower, "fold": str.casefold, "ascii": lambda words: words.translate(_ASCII_LOWER)}[value]
    return each(array, change, "lower")


def _strip(array: Array, _: Any, __: Options) -> Array:
    return each(array, lambda words: words.strip(SPACE), "strip")


def _punctuation(array: Array, _: Any, __: Options) -> Array:
    return each(array, lambda words: PUNCTUATION.sub("", words), "strip_punctuation")


def _check_tokenize(value: Any, options: Options) -> str:
    library = str(value).endswith(".json")
    if library and (options["split"] != "whitespace" or options["unknown"] != "refuse"):
        return f"split or unknown beside {value!r} (expected neither: a tokenizer file says it itself). Drop them."
    if not library and options["special_tokens"] is False:
        return f"special_tokens beside {value!r} (expected it beside a tokenizer .json only). Drop it."
    if (options["max_length"] > 0) != (options["truncation"] != "refuse"):
        return "max_length and truncation go together (expected both or neither): which side is cut is part of what training did. Add the other."
    return ""


TEXT_KINDS: dict[str, Kind] = {
    "unicode": Kind(one_of("NFC", "NFD", "NFKC", "NFKD"), _unicode, needs_text=True),
    "lower": Kind(one_of("unicode", "fold", "ascii"), _lower, needs_text=True),
    "strip": Kind(true, _strip, needs_text=True),
    "strip_punctuation": Kind(true, _punctuation, needs_text=True),
    "tokenize": Kind(
        text,
        None,
        {
            "give": (one_of("ids", "mask", "types"), "ids"),
            "split": (one_of("whitespace", "character"), "whitespace"),
            "unknown": (text, "refuse"),
            "special_tokens": (switch, True),
            "max_length": (lambda value: "" if value == 0 and not isinstance(value, bool) else natural(value), 0),
            "truncation": (one_of("start", "end", "refuse"), "refuse"),
        },
        needs_text=True,
        ends_text=True,
        changes_scale=True,
        prepare=prepare_tokenize,
        also=_check_tokenize,
        file=True,
    ),
}
