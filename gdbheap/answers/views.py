"""Find small views (such as slices of arrays, or memoryviews) that use a part of a large buffer and alone keep the
whole buffer alive."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import field

from gdbheap.answers.accounting.absent import absent_memory, absent_under
from gdbheap.contents.python.arrays.array_types import ArrayReader
from gdbheap.contents.python.arrays.columns import (
    ARROW_ARRAY,
    CHUNKED_ARRAY,
    DATAFRAME,
    NDARRAY,
    RECORD_BATCH,
    SERIES,
    TABLE,
    TENSOR,
)
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.heap import Heap
from gdbheap.targets.ranges import Ranges, joined

__all__ = ["MIN_BUFFER", "SmallViews", "Window", "kept_by_views", "small_views", "windows"]

# A buffer is large if it has at least MIN_BUFFER bytes. A view of it is small if it shows at most 1/MAX_SHARE_SHOWN of
# them.
MIN_BUFFER, MAX_SHARE_SHOWN = 64 << 10, 4
MOST_WINDOWS = 100_000
MEMORYVIEW = "memoryview"
# PyMemoryViewObject: view.buf and view.len (Objects/memoryobject.c).
BUF, LEN, BUF_OF_2, LEN_OF_2 = 56, 72, 24, 40
# pandas tables are not examined: the arrays in them are windows themselves.
PANDAS = "pandas."
Shown = tuple[str, int, Ranges]
KINDS = (NDARRAY, SERIES, DATAFRAME, ARROW_ARRAY, CHUNKED_ARRAY, TABLE, RECORD_BATCH, TENSOR)


@dataclass(frozen=True)
class Window:
    """An object at ``address`` that shows only ``shown`` bytes, a small part of large buffers.

    ``buffers``: the size of each buffer by its address; each buffer is a block in use.
    """

    address: int
    type: str
    shown: int
    buffers: dict[int, int]


@dataclass(frozen=True)
class SmallViews:
    """Objects of one ``type`` that show only a small part of large buffers, and alone keep these buffers alive.

    ``count``: the number of objects. ``shown``: the bytes of values that they show. ``kept``: the bytes that would be
    freed if all of them were removed; ``absent``: the part of ``kept`` that is not resident. ``address``: the address
    of the object that keeps the most. ``nodes``: the numbers of the objects in the graph. ``views``: maps the address
    of each buffer to the number of its views and the number of bytes that they show.
    """

    type: str
    count: int
    shown: int
    kept: int
    address: int
    nodes: list[int]
    absent: int = 0
    views: dict[int, tuple[int, int]] = field(default_factory=dict)


def windows(heap: Heap, frames: ArrayReader, most: int = MOST_WINDOWS) -> Iterator[Window]:
    """Yield the small views of large buffers in use. At most ``most`` objects are read."""
    for address, what in _instances(heap, frames, most):
        name, shown, spans = _memoryview(frames, address) if what == MEMORYVIEW else _frame(frames, address, what)
        buffers = _buffers(heap, shown, spans) if shown else {}
        if buffers:
            yield Window(address, name, shown, buffers)


def _instances(heap: Heap, frames: ArrayReader, most: int) -> Iterator[tuple[int, str]]:
    """Yield (address, name of the kind) of the objects that may be small views of large buffers."""
    census = heap.python.census
    kinds = {row.address: _what(frames, row.address) for row in census.rows}
    wanted = {address: what for address, what in kinds.items() if what is not None}
    if wanted:
        found = heap.python.objects.instances(
            dict.fromkeys(wanted, 0), set(census.contested), "together", most, heap.python.classifying
        )
        yield from ((row.address, wanted[row.type_address]) for row in found.rows)


def _what(frames: ArrayReader, kind: int) -> str | None:
    name, what = frames.fields.names.name(kind), frames.what(kind)
    if name == MEMORYVIEW:
        return name
    return what if what in KINDS and not name.startswith(PANDAS) else None


def _memoryview(frames: ArrayReader, address: int) -> Shown:
    fields = frames.fields
    start, size = (BUF_OF_2, LEN_OF_2) if fields.release.major == 2 else (BUF, LEN)
    try:
        first = fields.memory.word(address + fields.release.at(start))
        count = fields.memory.word(address + fields.release.at(size))
    except (Fault, OverflowError):
        return MEMORYVIEW, 0, []
    return MEMORYVIEW, count, [(first, first + count)]


def _frame(frames: ArrayReader, address: int, what: str) -> Shown:
    frame = frames.read(address, what)
    if frame is None or frame.bytes is None:
        return what, 0, []
    spans = joined(frame.spans)
    # The spans of a slice with strides contain items that it does not show.
    sizes = (frame.nbytes, frame.bytes, sum(end - start for start, end in spans))
    return frame.type, min(filter(None, sizes), default=0), spans


def _buffers(heap: Heap, shown: int, spans: Ranges) -> dict[int, int]:
    """Return {address: size} of the blocks in use that are large compared with ``shown``.

    ``shown``: the number of their bytes that a view shows.
    """
    blocks = [block for start, _end in spans if (block := heap.block_at(start)) is not None and block.state == "used"]
    sizes = {block.address: block.end - block.address for block in blocks}
    least = max(MIN_BUFFER, shown * MAX_SHARE_SHOWN)
    return {address: size for address, size in sizes.items() if size >= least}


def small_views(heap: Heap, found: Iterable[Window]) -> list[SmallViews]:
    """Return the views in ``found`` that alone keep large buffers alive, by type; the type that keeps most comes first.
    The graph of references is built for this. Raises Unsupported.
    """
    graph = heap.python.references.graph
    known = {window.address: (window, number) for window in found if (number := graph.find(window.address)) is not None}
    by_block: dict[int, list[int]] = defaultdict(list)
    for window, _number in known.values():
        for start in window.buffers:
            by_block[start].append(window.address)
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for start, members in by_block.items():
        together[tuple(sorted(set(members)))].append(start)
    sizes = graph.retained_together([[known[one][1] for one in members] for members in together])
    groups = [
        _Group([known[one][0] for one in members], [known[one][1] for one in members], size, blocks)
        for (members, blocks), size in zip(together.items(), sizes)
    ]
    return _by_type(heap, [group for group in groups if group.is_kept_for_little])


@dataclass(frozen=True)
class _Group:
    """Small views of the same buffers, with their nodes.

    ``blocks``: the buffers that the views keep alive. ``kept``: the bytes of these buffers that the views together
    retain.
    """

    windows: list[Window]
    nodes: list[int]
    kept: int
    blocks: list[int]

    @property
    def is_kept_for_little(self) -> bool:
        """Whether the views retain a large buffer and show only a small part of it."""
        return self.kept >= max(MIN_BUFFER, self.shown * MAX_SHARE_SHOWN)

    @property
    def shown(self) -> int:
        """The bytes of values that the views show."""
        return sum(window.shown for window in self.windows)


def _by_type(heap: Heap, groups: list[_Group]) -> list[SmallViews]:
    types = {number: group.windows[0].type for group in groups for number in group.nodes}
    absent = _absent(heap, groups, types) if groups else Counter[str]()
    rows = []
    for name in dict.fromkeys(types.values()):
        own = [group for group in groups if group.windows[0].type == name]
        most = max(own, key=lambda group: group.kept)
        views = {block: (len(group.windows), group.shown) for group in own for block in group.blocks}
        shown = sum(group.shown for group in own)
        count, kept = sum(len(group.windows) for group in own), sum(group.kept for group in own)
        nodes = [number for number, kind in types.items() if kind == name]
        rows.append(SmallViews(name, count, shown, kept, most.windows[0].address, nodes, absent[name], views))
    return sorted(rows, key=lambda row: (-row.kept, row.type))


def _absent(heap: Heap, groups: list[_Group], types: dict[int, str]) -> Counter[str]:
    """Return how many of the bytes that the views of each type keep are not resident. The number includes bytes of
    buffers that several views keep in common and no single view keeps.
    """
    found = absent_under(heap, types.get)
    together = {block: group.windows[0].type for group in groups if len(group.nodes) > 1 for block in group.blocks}
    for block in absent_memory(heap):
        if block.address in together:
            found[together[block.address]] += block.bytes
    return found


def kept_by_views(heap: Heap, frames: ArrayReader, most: int = MOST_WINDOWS) -> list[SmallViews]:
    """Return the small views of a target that alone keep large buffers alive, by type. At most ``most`` objects are
    read.

    Raises Unsupported.
    """
    found = list(windows(heap, frames, most))
    return small_views(heap, found) if found else []
