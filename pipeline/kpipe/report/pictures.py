"""Small pictures of the golden inputs that a report shows: ``data:`` URIs, made by Pillow from headers-checked files."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from kpipe.report.ledger import unapproved

if TYPE_CHECKING:
    from pathlib import Path

    from kpipe.record import RunRecord

MOST = 200
"""Pictures in one report; failures come first."""
SIDE = 96
MAX_PIXELS = 64_000_000


def pictures(record: RunRecord, folder: Path) -> dict[str, str]:
    """Golden id to a ``data:`` URI, for raw images: the flipped inputs, the ones that differ from what was approved, then the smallest margins.

    Args:
        record: the run.
        folder: the golden folder; one that has gone leaves the report without pictures.
    """
    if record.golden.kind != "raw":
        return {}
    files = {row.id: row.file for row in record.golden.rows if row.file}
    wanted = [flip.input for flip in record.flips]
    wanted += [row.id for row in record.golden.rows if row.decision and unapproved(row)]
    wanted += [row.id for row in sorted(record.golden.rows, key=lambda row: row.margin)[:24]]
    found = {name: _picture(folder / files[name]) for name in list(dict.fromkeys(wanted))[:MOST] if name in files}
    return {name: uri for name, uri in found.items() if uri}


def _picture(path: Path) -> str:
    """Empty where the file is no picture, or too large to open for a report."""
    import warnings

    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning), Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                return ""
            shown = ImageOps.exif_transpose(image)
            if shown.mode.startswith("I"):
                shown = shown.convert("F").point(lambda v: v * (1 / 257)).convert("L")
            shown = shown.convert("RGBA")
            factor = SIDE / max(shown.size)
            shown = shown.resize(
                (max(1, round(shown.width * factor)), max(1, round(shown.height * factor))),
                Image.Resampling.NEAREST if factor > 1 else Image.Resampling.LANCZOS,
            )
            data = io.BytesIO()
            shown.save(data, "PNG", optimize=True)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return ""  # the report goes without; whether the input decodes is the prepare stage's business
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
