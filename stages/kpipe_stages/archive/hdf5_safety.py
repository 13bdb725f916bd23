"""The objects of an HDF5 file, visited by hard links only and judged before any of their data is read.

HDF5 can point out of the file (external links and storage, virtual datasets), load plugins (filters), and declare terabytes that are stored in
nothing. Keras writes none of that: groups, and datasets of plain numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kpipe_stages.archive.collecting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    import h5py

    from kpipe_stages.archive.collecting import Collector
    from kpipe_stages.protocol import ArchiveLimits

MOST_OBJECTS = 1_000_000
MOST_DEPTH = 64
MOST_TEXT = 4096
MOST_CHUNK = 64 * 2**20
SMALL = 2**20
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32"}
"""Filters built into HDF5 that load no plugin (`H5Z_FILTER_*`)."""
_OPAQUE = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
"""Dtypes that Keras keeps as opaque bytes and names in an attribute, with their size in bytes."""
_REMEDY = "Save the model again with Keras 3; don't load this file."
_FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)
"""What h5py raises for a damaged file."""


@dataclass(frozen=True)
class Stored:
    """One dataset whose data may be read."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    """A numpy dtype name or ``bfloat16``."""
    count: int
    nbytes: int
    """In memory."""


@dataclass(frozen=True)
class Contents:
    """What the weights file holds."""

    arrays: dict[str, Stored]
    groups: tuple[str, ...]


def read_contents(file: h5py.File, file_size: int, limits: ArchiveLimits, collector: Collector) -> Contents:
    """Visit every object: KP009 for what leads elsewhere or isn't plain numbers, KP003 for more declared than stored, KP008 for nothing stored."""
    visitor = _Visitor(limits, collector)
    try:
        visitor.visit(file)
    except _FAULTS as error:
        collector.refuse("KP001", f"The weights file is damaged: {shown(error)}.", "Save or copy the model again.", place="model.weights.h5")
    if visitor.stored_bytes > file_size:
        cause = f"The datasets claim {visitor.stored_bytes} stored bytes; the weights file has {file_size}: some bytes are counted more than once."
        collector.refuse("KP003", cause, _REMEDY, place="model.weights.h5", stored=visitor.stored_bytes, bytes=file_size)
    return Contents(visitor.arrays, tuple(visitor.groups))


def read_saved_names(file: h5py.File, contents: Contents, collector: Collector) -> dict[str, str]:
    """Group of a layer to the name of the layer it was saved from, where the file says so.

    Text lies in HDF5's global heap, whose reader can crash or hang on a forged one: call this last, for a file that nothing else speaks against.
    """
    names = dict[str, str]()
    try:
        for group in contents.groups:
            name = _text_attribute(file[group], "name") if group.endswith("/vars") else None
            if name is not None:
                names[group.removesuffix("/vars")] = name
    except _FAULTS as error:
        collector.refuse("KP001", f"The weights file is damaged: {shown(error)}.", "Save or copy the model again.", place="model.weights.h5")
    return names


class _Visitor:
    def __init__(self, limits: ArchiveLimits, collector: Collector) -> None:
        self._limits = limits
        self._collector = collector
        self._seen = dict[int, str]()
        self.arrays = dict[str, Stored]()
        self.groups = list[str]()
        self.stored_bytes = 0

    def visit(self, file: h5py.File) -> None:
        pending: list[tuple[Any, str, int]] = [(file, "", 0)]
        while pending:
            item, path, depth = pending.pop()
            if depth > MOST_DEPTH or len(self._seen) > MOST_OBJECTS:
                self._refuse("KP003", path, f"The weights file holds more than {MOST_OBJECTS} objects or {MOST_DEPTH} levels of groups.")
                return
            pending.extend((child, f"{path}/{name}" if path else name, depth + 1) for name, child in self._children(item, path))

    def _children(self, group: Any, path: str) -> Iterator[tuple[str, Any]]:
        import h5py

        for name in group:
            place = f"{path}/{name}"
            link = group.get(name, getlink=True)
            if link is None:
                raise KeyError(f"'{place}' is listed but can't be found")
            if not isinstance(link, h5py.HardLink):
                target = f" to '{shown(getattr(link, 'filename', ''))}' '{shown(link.path)}'"
                self._refuse(
                    "KP009", place, f"'{shown(place)}' is {'an external' if isinstance(link, h5py.ExternalLink) else 'a soft'} link{target}."
                )
                continue
            item = group[name]
            address = h5py.h5o.get_info(item.id).addr
            if address in self._seen:
                self._refuse("KP009", place, f"'{shown(place)}' is a second link to '{shown(self._seen[address])}'.")
                continue
            self._seen[address] = place
            if isinstance(item, h5py.Group):
                self.groups.append(place.strip("/"))
                yield name, item
            elif isinstance(item, h5py.Dataset):
                self._dataset(item, place.strip("/"))
            else:
                self._refuse("KP009", place, f"'{shown(place)}' is a {type(item).__name__}; only groups and datasets were expected.")

    def _dataset(self, dataset: h5py.Dataset, path: str) -> None:
        if fault := _storage_fault(dataset):
            self._refuse("KP009", path, f"Dataset '{shown(path)}' {fault}; a weight lies in the file itself, plain or deflated.")
            return
        dtype = _dtype_name(dataset)
        if dtype is None or dataset.shape is None:
            what = "has no shape" if dataset.shape is None else f"holds values of type {shown(dataset.id.get_type())}"
            self._refuse("KP009", path, f"Dataset '{shown(path)}' {what}; a weight is an array of plain numbers.")
            return
        count = math.prod(dataset.shape)
        stored = dataset.id.get_storage_size()
        self.stored_bytes += stored
        nbytes = count * dataset.id.get_type().get_size()
        chunk = math.prod(dataset.chunks or (0,)) * dataset.id.get_type().get_size()
        memory = max(nbytes, chunk)
        if chunk > MOST_CHUNK:
            self._refuse("KP003", path, f"Dataset '{shown(path)}' comes in chunks of {chunk} bytes; at most {MOST_CHUNK} are allowed.")
        elif memory > SMALL and memory > self._limits.max_ratio * stored:
            cause = f"Dataset '{shown(path)}' declares {memory} bytes (shape {dataset.shape}) and stores {stored}."
            self._collector.refuse("KP003", cause, _REMEDY, place=path, declared=memory, stored=stored)
        elif count and (not stored or _missing_chunks(dataset)):
            cause = f"Dataset '{shown(path)}' of shape {dataset.shape} was never written whole: the file stores {stored} bytes of it."
            self._collector.refuse("KP008", cause, "Save the model again; this file doesn't hold all its weights.", place=path, declared=nbytes)
        else:
            self.arrays[path] = Stored(path, tuple(dataset.shape), dtype, count, nbytes)

    def _refuse(self, code: str, place: str, cause: str) -> None:
        self._collector.refuse(code, cause, _REMEDY, place=place.strip("/"))


def _missing_chunks(dataset: h5py.Dataset) -> bool:
    """Whether parts of a chunked dataset aren't stored; HDF5 would read a fill value there."""
    if not dataset.chunks:
        return False
    grid = math.prod(-(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True))
    return bool(grid != dataset.id.get_num_chunks())


def _storage_fault(dataset: h5py.Dataset) -> str:
    import h5py

    properties = dataset.id.get_create_plist()
    if properties.get_external_count():
        return f"keeps its data in another file ('{shown(dataset.external[0][0])}')"
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        return "is virtual: its data lie in other files"
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if unknown := [number for number in filters if number not in _FILTERS]:
        return f"is packed by filter {unknown[0]}, which HDF5 would load as a plugin"
    return ""


def _dtype_name(dataset: h5py.Dataset) -> str | None:
    """The dtype that Keras reads; None for what isn't plain numbers."""
    import h5py

    kind, size = dataset.id.get_type().get_class(), dataset.id.get_type().get_size()
    if kind == h5py.h5t.OPAQUE:
        said = _text_attribute(dataset, "dtype")
        return said if said is not None and _OPAQUE.get(said) == size else None
    if "dtype" in dataset.attrs:
        return None  # Keras would read other numbers than are stored here
    if (kind in {h5py.h5t.INTEGER, h5py.h5t.ENUM} and size in {1, 2, 4, 8}) or (kind == h5py.h5t.FLOAT and size in {2, 4, 8}):
        return str(dataset.dtype.newbyteorder("=").name)
    return None


def _text_attribute(item: Any, name: str) -> str | None:
    if name not in item.attrs:
        return None
    attribute = item.attrs.get_id(name)
    if attribute.shape != () or attribute.get_storage_size() > MOST_TEXT or attribute.dtype.kind not in "OS":
        return None
    value = item.attrs[name]
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return text if isinstance(text, str) else None
