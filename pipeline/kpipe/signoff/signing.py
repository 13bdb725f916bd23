"""Signatures of bundles with a key of one's own, by OpenSSF's ``model-signing``: nothing of it needs a network."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any

from kpipe.errors import UsageError
from kpipe.golden import sha256_of
from kpipe.signoff.manifest import SIGNATURE
from kpipe.text import first_line

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "KPIPE_KEY_PASSWORD"  # noqa: S105 - the name of a variable
"""Environment variable with the password of an encrypted private key."""


def sign(folder: Path, key: Path) -> str:
    """Sign all files of a bundle; return the SHA-256 of the signature's file.

    Args:
        folder: the bundle, complete.
        key: a private key, elliptic curve, PEM.

    Raises:
        UsageError: the library is not installed, or the key can't be used.
    """
    signing, hashing = _library("signing"), _library("hashing")
    target = folder / SIGNATURE
    try:
        signer = signing.Config().use_elliptic_key_signer(private_key=key, password=_password())
        signer.set_hashing_config(_hashing(hashing)).sign(folder, target)
    except (OSError, ValueError, TypeError, AttributeError) as error:  # AttributeError: a key of another kind
        if isinstance(error, OSError) and str(error.filename) != str(key):
            raise  # the bundle's place is full or read-only
        raise UsageError(
            f"--key {key} can't sign: {error}. Expected a private key on an elliptic curve as a PEM file, its password in {PASSWORD} if it has one."
        ) from error
    target.write_bytes(canonical(json.loads(target.read_bytes())))
    return sha256_of(target)


def verify_signature(folder: Path, key: Path) -> list[str]:
    """What is wrong with a bundle's signature, a message each; none where it is the key's and of exactly these files.

    Raises:
        UsageError: the library is not installed, or the key can't be used.
    """
    verifying, hashing = _library("verifying"), _library("hashing")
    try:
        verifier = verifying.Config().use_elliptic_key_verifier(public_key=key)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"--key {key} can't verify: {error}. Expected a public key on an elliptic curve as a PEM file.") from error
    try:
        verifier.set_hashing_config(_hashing(hashing)).verify(folder, folder / SIGNATURE)
    except Exception as error:  # noqa: BLE001 - whatever the library says of an altered signature: it does not verify
        return [f"the signature is not of these files by this key: {first_line(str(error)) if str(error) else type(error).__name__}"]
    return form_problems(folder / SIGNATURE)


def form_problems(signature: Path) -> list[str]:
    """What of a signature's file isn't as it was written; what no key is needed for."""
    try:
        data = signature.read_bytes()
        document = json.loads(data)
        envelope = document["dsseEnvelope"]
        texts = [envelope["payload"], *(one["sig"] for one in envelope["signatures"])]
        plain = all(base64.b64encode(base64.b64decode(text, validate=True)).decode() == text for text in texts)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return [f"the signature can't be read: {type(error).__name__}: {error}"]
    return [] if canonical(document) == data and plain else ["the signature's file was altered: it isn't in the form that it is written in"]


def canonical(document: Any) -> bytes:
    """The one text of a signature."""
    return (json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n").encode()


def _password() -> Any:
    """As bytes: the library hands it to `cryptography` as it is, which takes no text."""
    word = os.environ.get(PASSWORD)
    return word.encode() if word else None


def _hashing(hashing: Any) -> Any:
    from pathlib import Path

    return hashing.Config().use_file_serialization(hashing_algorithm="sha256").set_ignored_paths(paths=[Path(SIGNATURE)], ignore_git_paths=False)


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"model_signing.{name}")
    except ImportError as error:
        raise UsageError(
            f"a key needs the library model-signing, and it can't be imported ({error}). Install it: pip install 'keras-kpipe[signing]'."
        ) from error
