"""Token ids of a text, by a ``tokenizers`` file or by a vocabulary file, a token a line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe_stages.preprocessing.assets import file_text
from kpipe_stages.preprocessing.errors import PreprocessError
from kpipe_stages.preprocessing.libraries import library

if TYPE_CHECKING:
    from collections.abc import Callable

    from kpipe_stages.preprocessing.kinds import Context, Options

Array = np.ndarray[Any, np.dtype[Any]]

MAX_DEPTH = 64
MAX_TOKENS = 4_000_000
MAX_BYTES = 256 * 2**20
_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_SPACE = re.compile(r"[ \t\n\v\f\r]+")


def prepare_tokenize(name: Any, options: Options, context: Context) -> Callable[[Array], Array]:
    """Load the file once; the function makes an int64 vector of a text.

    Raises:
        PreprocessError: the file isn't among the input's, is damaged, or needs a library that isn't there.
    """
    words = file_text(name, context.files, "tokenize", MAX_BYTES)
    encode = _library_encoder(name, words, options) if name.endswith(".json") else _vocabulary_encoder(name, words, options)

    def apply(array: Array) -> Array:
        if array.dtype.kind != "U" or array.size != 1:
            raise PreprocessError("tokenize", f"{array.dtype.name} values of shape {array.shape}", "one text", "Give the input one text.", "KP104")
        return np.array(encode(array.ravel()[0].item()), dtype=np.int64).reshape(-1)

    return apply


def _library_encoder(name: str, words: str, options: Options) -> Callable[[str], list[int]]:
    _check_depth(name, words)
    tokenizers = library("tokenizers", "text", f"tokenize = {name!r}")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(words)
    except BaseException as error:  # the library raises plain Exception, and Rust's panics are BaseException
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise PreprocessError(
            "tokenize", f"{name} can't be loaded: {str(error)[:200]}", "a file that tokenizers' Tokenizer.save wrote", "Save it anew.", "KP104"
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()  # what the file says of lengths is overridden: the contract says it
    if options["max_length"]:
        direction = "left" if options["truncation"] == "start" else "right"
        tokenizer.enable_truncation(options["max_length"], direction=direction)

    def encode(value: str) -> list[int]:
        encoding = tokenizer.encode(value, add_special_tokens=options["special_tokens"])
        given: list[int] = {"ids": encoding.ids, "mask": encoding.attention_mask, "types": encoding.type_ids}[options["give"]]
        return given

    return encode


def _check_depth(name: str, words: str) -> None:
    depth = 0
    for token in _BRACKETS.finditer(words):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            raise PreprocessError(
                "tokenize", f"{name} is nested more than {MAX_DEPTH} levels deep", "a tokenizer's JSON file", "Save it anew.", "KP104"
            )


def _vocabulary_encoder(name: str, words: str, options: Options) -> Callable[[str], list[int]]:
    ids = vocabulary(name, words)
    unknown = options["unknown"]
    if unknown != "refuse" and unknown not in ids:
        raise PreprocessError("tokenize", f"unknown = {unknown!r} is no line of {name}", "a token of the file", "Mend unknown.", "KP104")

    def encode(value: str) -> list[int]:
        tokens = list(value) if options["split"] == "character" else [token for token in _SPACE.split(value) if token]
        if unknown == "refuse" and (strange := next((token for token in tokens if token not in ids), None)) is not None:
            raise PreprocessError(
                "tokenize", f"the token {strange[:60]!r} is no line of {name}", "known tokens", 'Say unknown = "[UNK]", if training did.'
            )
        found = [ids[token] if token in ids else ids[unknown] for token in tokens]
        if options["max_length"]:
            found = found[-options["max_length"] :] if options["truncation"] == "start" else found[: options["max_length"]]
        return {"ids": found, "mask": [1] * len(found), "types": [0] * len(found)}[options["give"]]

    return encode


def vocabulary(name: str, words: str) -> dict[str, int]:
    """Token to id: the number of its line, from 0. A last line break ends the last token; an empty line is the empty token.

    Raises:
        PreprocessError: a token stands twice, or there are too many.
    """
    lines = [line.removesuffix("\r") for line in words.removesuffix("\n").split("\n")]
    if len(lines) > MAX_TOKENS:
        raise PreprocessError("tokenize", f"{name} has {len(lines):,} lines", f"at most {MAX_TOKENS:,}", "Name the vocabulary file.", "KP104")
    ids: dict[str, int] = {}
    for number, token in enumerate(lines):
        if token in ids:
            raise PreprocessError(
                "tokenize", f"{name} has {token[:60]!r} in lines {ids[token] + 1} and {number + 1}", "each token once", "Mend it.", "KP104"
            )
        ids[token] = number
    return ids
