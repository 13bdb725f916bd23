"""Golden inputs that a gate may meet: arrays that don't fit, files that lie about their size, pictures that inflate."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .build_archives import Touch

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]

GIGA = 10**9


def misfits(image: Array) -> dict[str, tuple[dict[str, Array], str]]:
    """Arrays for a model with one float32 input ``image`` of 16 x 16 x 3, and a word that the finding's cause must have."""
    return {
        "float64": ({"image": image.astype(np.float64)}, "float64"),
        "float16": ({"image": image.astype(np.float16)}, "float16"),
        "int32": ({"image": (image * 3).astype(np.int32)}, "int32"),
        "uint8": ({"image": (np.abs(image) * 50).astype(np.uint8)}, "uint8"),
        "bool": ({"image": image > 0}, "bool"),
        "no_batch_axis": ({"image": image[0]}, "[16, 3]"),
        "channels_first": ({"image": image.transpose(0, 3, 1, 2)}, "[3, 16, 16]"),
        "smaller": ({"image": image[:, :8, :8]}, "[8, 8, 3]"),
        "larger": ({"image": np.concatenate([image, image], axis=1)}, "[32, 16, 3]"),
        "one_channel": ({"image": image[..., :1]}, "[16, 16, 1]"),
        "flattened": ({"image": image.reshape(len(image), -1)}, "[768]"),
        "extra_axis": ({"image": image[None]}, "[5, 16, 16, 3]"),
        "wrong_name": ({"picture": image}, "picture"),
        "extra_array": ({"image": image, "other": image}, "other"),
    }


def unusable(image: Array, folder: Path) -> dict[str, tuple[bytes, str]]:
    """Bytes of ``.npz`` files that hold no golden set at all, and a word of the message."""
    return {
        "zero_rows": (_npz(image=image[:0]), "no row"),
        "scalar": (_npz(image=np.float32(1)), "no row"),
        "no_array": (_zipped({}), "array"),
        "rows_differ": (_npz(image=image, other=image[:1]), "rows"),
        "not_npz": (b"hello", "zip"),
        "pickle": (_pickled(folder), "dtype"),
        "declared_size": (_zipped({"image.npy": _header((10**12,)) + bytes(16)}), "bytes"),
        "negative_size": (_zipped({"image.npy": _header((-1, 4)) + bytes(16)}), "shape"),
        "member_of_another_kind": (_zipped({"image.npy": _header((1, 4)) + bytes(16), "run.sh": b"true"}), "run.sh"),
        "bomb": (_zipped({"image.npy": _header((1, 500 * 2**20)) + bytes(4 * 500 * 2**20)}, level=1), "bytes"),
        "truncated": (_npz(image=image)[:-200], "zip"),
    }


def _npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _zipped(members: dict[str, bytes], level: int = 1) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _header(shape: tuple[int, ...]) -> bytes:
    """An ``.npy`` header that declares float32 of any shape."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _pickled(folder: Path) -> bytes:
    """An object array whose element leaves a file behind when it is unpickled."""
    header = f"{{'descr': '|O', 'fortran_order': False, 'shape': (1,), }}".encode()  # noqa: F541 - braces as in `_header`
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    payload = pickle.dumps([Touch(folder / "MARKER_unpickled")])
    return _zipped({"image.npy": b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload})


# ------------------------------------------------------------ pictures


def png(width: int, height: int) -> bytes:
    """A black 1-bit PNG, a few kilobytes for gigapixels."""
    deflate, row = zlib.compressobj(9), bytes(1 + (width + 7) // 8)
    data = b"".join(deflate.compress(row * 100) for _ in range(height // 100)) + deflate.compress(row * (height % 100)) + deflate.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in ((b"IHDR", header), (b"IDAT", data), (b"IEND", b"")))


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def pictures() -> dict[str, bytes]:
    """Bombs, cut-off pictures and sound ones."""
    warned = png(15_000, 10_000)
    return {
        "good.png": png(20, 20),
        "beyond_pillows_limit.png": png(50_000, 50_000),
        "below_pillows_limit.png": warned,
        "cut_short.png": warned[:9000],
        "bitmap_of_nothing.bmp": _bitmap(60_000, 60_000),
    }


def _bitmap(width: int, height: int) -> bytes:
    """A BMP whose header promises pixels that aren't there."""
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)


def golden_folder(folder: Path, files: dict[str, bytes]) -> Path:
    """A golden folder with these raw files, each approved by its digest."""
    folder.mkdir()
    entries = []
    for name, data in files.items():
        (folder / name).write_bytes(data)
        entries.append(f'[[golden]]\nid = "{name}"\nfile = "{name}"\nsha256 = "{hashlib.sha256(data).hexdigest()}"\nchosen = "mined"\n')
    (folder / "manifest.toml").write_text("version = 1\n" + "\n".join(entries), encoding="utf-8")
    return folder
