"""Text from file to ids: strict UTF-8, Keras' and tokenizers' own answers, and what can't be read refused by name."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe_stages.preprocess import PreprocessError, Preprocessor, check_steps
from kpipe_stages.preprocessing import text as reading
from kpipe_stages.preprocessing.decoders import check_read
from kpipe_stages.preprocessing.tokens import vocabulary
from kpipe_stages.protocol import InputSpec

if TYPE_CHECKING:
    from pathlib import Path

WORDS = "\n[UNK]\nthe\ncat\nsat\n"


@pytest.fixture
def words(tmp_path: Path) -> str:
    path = tmp_path / "words.txt"
    path.write_bytes(WORDS.encode())
    return str(path)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A word-piece tokenizer with special tokens around each text, and settings of its own for lengths."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    ids = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "sat"])}
    made = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))  # noqa: S106 - a token of text
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.enable_padding(length=64)
    made.enable_truncation(2)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return str(path)


def tensor(data: bytes, *steps: dict[str, Any], files: tuple[str, ...] = (), **read: Any) -> np.ndarray[Any, Any]:
    return Preprocessor(InputSpec("text", "text", steps, files=dict.fromkeys(files, ""), read=read)).from_bytes(data, "a.txt")


def ids(text: str, words: str, **options: Any) -> list[int]:
    return list(tensor(text.encode(), {"tokenize": "words.txt", "unknown": "[UNK]", **options}, files=(words,)))


# ---------------------------------------------------------------- decoding


def test_a_text_is_one_string_as_it_stands() -> None:
    made = tensor("  Grüße, 世界 🙂\r\n".encode())
    assert (made.shape, made.dtype.kind, made.item()) == ((), "U", "  Grüße, 世界 🙂\r\n")
    assert tensor(b"a\r\n", final_newline="drop").item() == "a"
    assert tensor(b"a\n\n", final_newline="drop").item() == "a\n"
    assert tensor(b"hi", {"reshape": [1]}).shape == (1,)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"abc\xff", r"a\.txt: byte 0xff at position 3 is no UTF-8"),
        (b"\xed\xa0\x80", "is no UTF-8"),
        (b"\xc0\xaf", "is no UTF-8"),
        (b"ab\xe2\x82", "unexpected end of data"),
        ("a".encode("utf-16"), "is no UTF-8"),
        (b"\xef\xbb\xbfhi", "begins with a byte order mark"),
        (b"a\0b", "a NUL character at position 1"),
        (b"a" * (2**20 + 1), "1,048,577 bytes of text .expected at most 1,048,576"),
    ],
)
def test_what_is_no_text_is_refused_by_name(data: bytes, words: str) -> None:
    with pytest.raises(PreprocessError, match=words):
        tensor(data)


def test_a_byte_order_mark_is_dropped_or_kept_where_that_is_said() -> None:
    assert tensor(b"\xef\xbb\xbfhi", bom="drop").item() == "hi"
    assert tensor(b"\xef\xbb\xbfhi", bom="keep").item() == "\ufeffhi"


@given(st.text(max_size=60))
def test_any_text_comes_back_or_is_refused(text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    refused = "\0" in text or text.startswith("\ufeff")
    try:
        assert tensor(data).item() == text
        assert not refused
    except PreprocessError:
        assert refused


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_unicode_forms_are_those_of_the_standard(form: str) -> None:
    text = "ﬁ Å Å a\u0301 ①"
    assert tensor(text.encode(), {"unicode": form}).item() == unicodedata.normalize(form, text)


def test_case_is_lowered_in_three_ways() -> None:
    text = "STRASSE Straße İ É"
    assert tensor(text.encode(), {"lower": "unicode"}).item() == text.lower()
    assert tensor(text.encode(), {"lower": "fold"}).item() == text.casefold()
    assert tensor(text.encode(), {"lower": "ascii"}).item() == "strasse straße İ É"


def test_standardising_and_splitting_are_keras_own(words: str) -> None:
    keras = pytest.importorskip("keras")
    texts = ["The CAT, sat!", "the  cat's\tÉ _sat_", 'a~b`c\'d "the"', "cat\nsat\r\nthe", "THE\u00a0CAT"]
    layer = keras.layers.TextVectorization(vocabulary=["the", "cat", "sat"], output_mode="int")
    chain = ({"lower": "ascii"}, {"strip_punctuation": True}, {"tokenize": "words.txt", "unknown": "[UNK]"})
    for text in texts:
        known = np.asarray(layer(np.array([text]))).ravel().tolist()
        assert tensor(text.encode(), *chain, files=(words,)).tolist() == known, text
    assert layer.get_vocabulary() == WORDS.removesuffix("\n").split("\n")


def test_ids_are_line_numbers_and_a_mask_says_which_are_tokens(words: str) -> None:
    assert ids("the cat sat", words) == [2, 3, 4]
    assert ids("the dog", words) == [2, 1]
    assert ids("", words) == []
    pad = {"length": 4, "truncation": "end", "padding": "end"}
    assert tensor(b"the cat", {"tokenize": "words.txt"}, pad, files=(words,)).tolist() == [2, 3, 0, 0]
    assert tensor(b"the cat", {"tokenize": "words.txt", "give": "mask"}, pad, files=(words,)).tolist() == [1, 1, 0, 0]


def test_the_side_that_is_cut_is_the_contracts(words: str) -> None:
    assert ids("the cat sat", words, max_length=2, truncation="end") == [2, 3]
    assert ids("the cat sat", words, max_length=2, truncation="start") == [3, 4]


def test_characters_can_be_tokens(tmp_path: Path) -> None:
    path = tmp_path / "letters.txt"
    path.write_text("a\nb\n \n", encoding="utf-8")
    assert tensor(b"ab a", {"tokenize": "letters.txt", "split": "character"}, files=(str(path),)).tolist() == [0, 1, 2, 0]


def test_an_unknown_token_is_refused_unless_something_stands_for_it(words: str) -> None:
    with pytest.raises(PreprocessError, match=r"the token 'dog' is no line of words\.txt"):
        tensor(b"the dog", {"tokenize": "words.txt"}, files=(words,))
    with pytest.raises(PreprocessError, match=r"unknown = '<unk>' is no line of words\.txt"):
        tensor(b"the dog", {"tokenize": "words.txt", "unknown": "<unk>"}, files=(words,))


def test_a_tokenizer_file_gives_the_librarys_ids_and_the_contract_the_lengths(tokenizer: str) -> None:
    import tokenizers

    plain = tokenizers.Tokenizer.from_file(tokenizer)
    plain.no_padding()
    plain.no_truncation()
    text = "The cats sat, cats"
    known = plain.encode(text)
    make = lambda **options: tensor(text.encode(), {"tokenize": "tokenizer.json", **options}, files=(tokenizer,)).tolist()  # noqa: E731
    assert make() == known.ids == [2, 4, 5, 6, 7, 1, 5, 6, 3]
    assert make(give="mask") == [1] * 9
    assert make(give="types") == [0] * 9
    assert make(special_tokens=False) == [4, 5, 6, 7, 1, 5, 6]
    assert make(max_length=4, truncation="end") == [2, 4, 5, 3], "the last special token survives the cut"
    assert make(max_length=4, truncation="start") == [2, 5, 6, 3]


# ---------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "can't be loaded"),
        (b"[]", "can't be loaded"),
        (b'{"model": {"type": "Spell"}}', "can't be loaded"),
        (b"[" * 100_000, "nested more than 64 levels deep"),
        (b'{"a":' * 100_000, "nested more than 64 levels deep"),
        (b"\xff\xfe", "isn't UTF-8 at byte 0"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark"),
    ],
)
def test_a_tokenizer_file_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(PreprocessError, match=words) as caught:
        tensor(b"x", {"tokenize": "tokenizer.json"}, files=(str(path),))
    assert "tokenizer.json" in str(caught.value)
    assert caught.value.code == "KP104"


def test_a_vocabulary_with_a_token_twice_is_refused() -> None:
    assert vocabulary("v", "a\r\nb") == {"a": 0, "b": 1}
    with pytest.raises(PreprocessError, match="has 'a' in lines 1 and 3"):
        vocabulary("v", "a\nb\na\n")


def test_a_file_that_changed_or_is_missing_is_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(PreprocessError, match=r"has SHA-256 .* as when the run began") as caught:
        Preprocessor(InputSpec("text", "text", ({"tokenize": "words.txt"},), files={words: "0" * 64}))
    assert caught.value.code == "KP112"
    with pytest.raises(PreprocessError, match="does not exist"):
        Preprocessor(InputSpec("text", "text", ({"tokenize": "gone.txt"},), files={str(tmp_path / "gone.txt"): ""}))
    with pytest.raises(PreprocessError, match=r"'other\.txt' is none of the input's files \(words\.txt\)"):
        Preprocessor(InputSpec("text", "text", ({"tokenize": "other.txt"},), files={words: ""}))


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, tokenizer: str) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(PreprocessError, match=r"pip install 'keras-kpipe\[text\]'") as caught:
        tensor(b"x", {"tokenize": "tokenizer.json"}, files=(tokenizer,))
    assert caught.value.code == "KP113"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{"unicode": "nfc"}], "one of NFC"),
        ([{"lower": True}], "one of unicode, fold, ascii"),
        ([{"scale": 2.0}], "comes on text"),
        ([{"tokenize": "v.txt"}, {"lower": "ascii"}], None),
        ([{"tokenize": "v.txt", "max_length": 5}], "max_length and truncation go together"),
        ([{"tokenize": "v.txt", "truncation": "end"}], "max_length and truncation go together"),
        ([{"tokenize": "v.txt", "special_tokens": False}], "a tokenizer .json only"),
        ([{"tokenize": "v.json", "unknown": "x"}], "a tokenizer file says it itself"),
        ([{"tokenize": 3}], "expected a text"),
        ([{"length": 4, "truncation": "end", "padding": "end"}], "comes on text"),
        ([{"resize": [2, 2]}], "expected an image"),
        ([{"reshape": [-1, -1]}], "one may be -1"),
    ],
)
def test_a_wrong_step_is_named(steps: list[dict[str, Any]], words: str | None) -> None:
    problems = check_steps(steps, "text")
    assert problems
    assert words is None or words in problems[0]


def test_a_wrong_read_is_named() -> None:
    assert "one of refuse, drop, keep" in check_read("text", {"bom": True})[0]
    assert reading.OPTIONS.keys() == {"bom", "final_newline"}
    assert "Did you mean 'bom'?" in check_read("text", {"bomb": "drop"})[0]


def test_a_shape_that_the_values_do_not_have_is_refused() -> None:
    with pytest.raises(PreprocessError, match=r"3 values of shape \(3,\) .expected as many as \[2, 2\] has"):
        Preprocessor(InputSpec("x", "npy", ({"reshape": [2, 2]},))).apply(np.zeros(3))


def test_columns_files_are_json(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps([{"name": "a"}]), encoding="utf-8")
    spec = InputSpec("x", "table", files={str(path): ""}, read={"columns": "c.json"})
    assert Preprocessor(spec).from_bytes(b"a\n3\n", "t.csv").tolist() == [3.0]
