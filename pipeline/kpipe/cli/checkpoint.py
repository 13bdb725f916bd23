"""``kpipe checkpoint``: where an unfinished training stands, and what is kept of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kpipe.cli.train import preserved_lines
from kpipe.errors import Exit, KpipeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kpipe_stages.checkpointing.record import CheckpointRecord


def run_checkpoint(path: Path, *, as_json: bool) -> int:
    """Check every byte of the newest whole checkpoint and print its table; 1 where a newer one is damaged."""
    from kpipe_stages.checkpointing.files import RECORD, DamagedError, checkpoints, folder_of, read
    from kpipe_stages.codec import encode
    from kpipe_stages.protocol import StageError

    folder = path if path.is_dir() and path.suffix != ".keras" else folder_of(path)
    places = [path] if (path / RECORD).is_file() else checkpoints(folder)
    if not places:
        raise UsageError(f"there is no checkpoint in {folder}: the training has ended, has not written one yet, or was started elsewhere.")
    damaged: list[str] = []
    for place in places:
        try:
            record, _ = read(place)
        except DamagedError as error:
            damaged.append(f"{place.name}: {error}")
            continue
        except StageError as error:
            raise KpipeError(f"{error.observation.cause}. {error.observation.remedy}") from error
        if as_json:
            print(json.dumps({"checkpoint": str(place), "damaged": damaged, **encode(record)}, ensure_ascii=False, indent=1))
        else:
            print("\n".join(_lines(place, record, damaged)))
        return Exit.FAIL if damaged else Exit.PASS
    raise KpipeError(f"every checkpoint in {folder} is damaged: {'; '.join(damaged)}. The training has to begin anew.")


def _lines(place: Path, record: CheckpointRecord, damaged: list[str]) -> Iterator[str]:
    yield from (f"damaged: {line}" for line in damaged)
    yield f"{place}: written {record.written}, every byte as it was written"
    yield from preserved_lines(record.preserved)
    yield from (f"not bit for bit an uninterrupted run: {note}" for note in record.notes)
