"""List chunks by state, size, arena and type."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import ClassVar, NamedTuple, Union

from gdbheap import _native
from gdbheap.allocators.allocator import MMAPPED, Allocator, BlockRequest, ExtentArena
from gdbheap.allocators.glibc.allocator import ChunkRequest, GlibcAllocator
from gdbheap.allocators.glibc.arenas import HEADER
from gdbheap.answers.accounting.describing import describe_blocks
from gdbheap.answers.arenas import ArenaChoice, chosen, other_arenas
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.heap import Heap

FREE, CACHED = "free", "tcache"
STATES = ("used", MMAPPED, FREE, "fast", CACHED, "top", "fencepost")
"""The states of a chunk. "free": in a bin; for an allocator other than glibc's, in a slab, span, page, group or bin.
"tcache": in a thread's cache."""
OBJECT_STATES = ("used", MMAPPED)


class MappedRow(NamedTuple):
    """An mmapped chunk of glibc. It belongs to no arena. The fields are those of the native code's ListedChunk."""

    address: int
    size: int
    state: str
    arena: None = None


class OtherRow(NamedTuple):
    """A block of an allocator other than glibc's, without a header.

    ``allocator``: the allocator's name. ``arena``: the number of the block's arena, or None if the allocator has no
    arenas.
    """

    address: int
    size: int
    allocator: str
    state: str = "used"
    arena: int | None = None


Row = Union[_native.ListedChunk, MappedRow, OtherRow]
ORDERS: dict[str, Callable[[Row], tuple[int, ...]]] = {
    "size": lambda row: (-row.size, row.address),
    "address": lambda row: (row.address,),
    "arena": lambda row: (sys.maxsize if row.arena is None else row.arena, -row.size, row.address),
}


@dataclass(frozen=True)
class Selection:
    """The selection of the chunks to list: by state, size, arena and type.

    ``minimum`` and ``maximum``: bytes, header included. ``type``: a pattern that must match the type of the Python
    object in a chunk. For a block of C code, the pattern must match its class or the description of its kind."""

    states: tuple[str, ...] = STATES
    minimum: int = 0
    maximum: int | None = None
    arena: ArenaChoice | None = None
    type: str | None = None

    def takes_mapped(self, size: int) -> bool:
        """Return whether an mmapped chunk of ``size`` bytes is selected. If the selection names an arena, no mmapped
        chunk is selected, because mmapped chunks belong to no arena."""
        return MMAPPED in self.states and self.arena is None and self.minimum <= size <= self.wanted.maximum

    @property
    def wanted(self) -> ChunkRequest:
        """The selection as the native walk expects it."""
        states = sum(1 << code for code, state in enumerate(_native.STATES) if state in self.states)
        arena = None if self.arena is None else self.arena.index
        return ChunkRequest(states, self.minimum, sys.maxsize if self.maximum is None else self.maximum, arena)


@dataclass  # not frozen: there may be millions of rows, and making a frozen one takes three times as long
class Chunk:
    """A chunk, or a block of another allocator. ``arena`` is None if it has its own mapping or its allocator has no
    arenas."""

    address: int
    size: int
    state: str
    list: str | None
    arena: int | None
    what: str | None
    allocator: str = GlibcAllocator.name
    asked: int | None = None


@dataclass(frozen=True)
class Chunks:
    """The answer of ``heap chunks``. The sums count all selected chunks, even if rows were cut."""

    sums: ClassVar[tuple[str, ...]] = ("bytes",)
    rows: list[Chunk]
    count: int
    bytes: int


def chunks(heap: Heap, selection: Selection, order: str = "size", top: int | None = None) -> Chunks:
    """Return the first ``top`` selected chunks, sorted by one of ORDERS.

    Raises UsageError for an unknown arena, or if a type is given with states in which a chunk holds no object. Raises
    Unsupported if malloc is unknown.
    """
    if not _is_of_glibc(heap, selection.arena):
        return _of_others(heap, selection, order, top)
    glibc = heap.allocator(GlibcAllocator)
    _check(glibc, selection)
    if selection.type is None:
        listed = _native.list_chunks(glibc.chunks, selection.wanted, order, top)
        others = [row for row in _mapped(glibc) if selection.takes_mapped(row.size)]
        standing_in, count, size = _standing_in(heap, selection, order, top) if selection.arena is None else ([], 0, 0)
        found: list[Row] = [*listed.rows, *others, *standing_in]
        count += listed.count + len(others)
        size += listed.bytes + sum(row.size for row in others)
    else:
        standing_in = _standing_in_of_type(heap, selection, selection.type) if selection.arena is None else []
        found = [*_of_type(heap, selection, selection.type), *standing_in]
        count, size = len(found), sum(row.size for row in found)
    if selection.type is not None or others or standing_in:
        found.sort(key=ORDERS[order])
    return Chunks(_described(heap, glibc, found[:top]), count, size)


def _is_of_glibc(heap: Heap, arena: ArenaChoice | None) -> bool:
    """Return whether chunks of glibc are requested: all chunks, or the chunks of one of glibc's arenas."""
    if not isinstance(heap.malloc, GlibcAllocator):
        return False
    return arena is None or arena.of == GlibcAllocator.name or (arena.of is None and not heap.malloc.idle)


def _arenas(heap: Heap, arena: ArenaChoice) -> list[ExtentArena]:
    """Return the arenas of allocators other than glibc that match ``arena``. Raises UsageError if there is none."""
    rows = other_arenas(heap)
    found = chosen(rows, arena)
    if found:
        return found
    if arena.of == GlibcAllocator.name:
        raise UsageError(f"there is no arena {arena}: {heap.malloc.title} has none")
    if rows:
        raise UsageError(f"there is no arena {arena}: 'heap arenas' lists {rows[0].choice} to {rows[-1].choice}")
    titles = " and ".join(allocator.title for allocator in heap.standing_in) or heap.malloc.title
    raise UsageError(f"there is no arena {arena}: {titles} has none; all threads share its memory ('heap arenas')")


def _of_others(heap: Heap, selection: Selection, order: str, top: int | None) -> Chunks:
    """Return the blocks of allocators other than glibc. Raises UsageError for an unknown arena."""
    if selection.type is not None:
        _check_states(selection)
        found = _standing_in_of_type(heap, selection, selection.type)
        count, size = len(found), sum(row.size for row in found)
    else:
        found, count, size = _standing_in(heap, selection, order, top)
    found.sort(key=ORDERS[order])
    used = [(row.address, row.size) for row in found[:top] if row.state == "used"]
    words = describe_blocks(heap, used) if used else {}
    what = {address: str(each) for address, each in words.items()}
    asked = _asked(heap, found[:top])
    lists = _other_lists(heap, found[:top])
    rows = [_chunk(row, lists.get(row.address), what.get(row.address), asked.get(row.address)) for row in found[:top]]
    return Chunks(rows, count, size)


def _matching(heap: Heap, rows: list[OtherRow], pattern: str) -> list[OtherRow]:
    """Return the blocks of the list ``rows`` whose contents match the glob ``pattern``.

    A block that holds a live Python object matches by the name of the object's type. A block of C code matches by the
    name of its kind. A block that is an object's buffer does not match by the type of an object in it.
    """
    kinds = _kinds_of(heap, pattern)
    structures = heap.structures_of_c
    named = [0] * len(rows) if structures is None else structures.native.kinds_at([row.address for row in rows])
    of_c = [row for row, kind in zip(rows, named) if kind in kinds]
    if not heap.is_python:
        return of_c
    objects = heap.python.objects
    rows = [row for row, kind in zip(rows, named) if kind not in kinds]
    types = {row.address for row in heap.python.census.rows if fnmatchcase(objects.names.name(row.address), pattern)}
    inside = objects.objects_in([(row.address, row.size) for row in rows])
    rows = [row for row, found in zip(rows, inside) if found and found.alive and found.type_address in types]
    owners = heap.python.owners_of([row.address for row in rows])
    return [*of_c, *(row for row in rows if owners[row.address] is None)]


def _standing_in_of_type(heap: Heap, selection: Selection, pattern: str) -> list[OtherRow]:
    """Return the blocks in use of allocators other than glibc's whose contents match ``pattern``."""
    used = replace(selection, states=tuple(state for state in selection.states if state == "used"))
    rows = _standing_in(heap, used, "address", None)[0]
    return _matching(heap, rows, pattern) if rows else []


def _standing_in(heap: Heap, selection: Selection, order: str, top: int | None) -> tuple[list[OtherRow], int, int]:
    """Return selected blocks of allocators other than glibc's: the rows, the count of all of them, and their bytes.

    There are at most ``top`` rows for each allocator and state. Raises UsageError for an unknown arena.
    """
    rows: list[OtherRow] = []
    count = size = 0
    for allocator, asked in _asked_of(heap, selection, order, sys.maxsize if top is None else top):
        found = allocator.list_blocks(asked)
        if found is not None:
            state = "used" if asked.used else CACHED if asked.cached else FREE
            rows += [OtherRow(row.address, row.size, allocator.name, state, row.arena) for row in found.rows]
            count, size = count + found.count, size + found.bytes
    return rows, count, size


def _asked_of(heap: Heap, selection: Selection, order: str, most: int) -> Iterator[tuple[Allocator, BlockRequest]]:
    """Yield each allocator other than glibc's, with a query for each selected arena and state."""
    by_name: dict[str, Allocator] = {found.name: found for found in heap.standing_in}
    arenas: list[tuple[Allocator, tuple[int, int] | None]] = [(found, None) for found in by_name.values()]
    if selection.arena is not None:
        arenas = [(by_name[row.allocator], (row.root, row.index)) for row in _arenas(heap, selection.arena)]
    for allocator, arena in arenas:
        for state in ("used", FREE, CACHED):
            if state in selection.states:
                is_used, is_cached, largest = state == "used", state == CACHED, selection.wanted.maximum
                yield allocator, BlockRequest(selection.minimum, largest, is_used, is_cached, arena, order, most)


def _pointer(row: Row) -> int:
    return row.address if isinstance(row, OtherRow) else row.address + HEADER


def _check(glibc: GlibcAllocator, selection: Selection) -> None:
    arenas = len(glibc.malloc.arenas)
    if selection.arena is not None and selection.arena.index >= arenas:
        raise UsageError(f"there is no arena {selection.arena}: the last one is {arenas - 1}")
    _check_states(selection)


def _check_states(selection: Selection) -> None:
    if selection.type is not None and not set(OBJECT_STATES) & set(selection.states):
        raise UsageError("only used and mmapped chunks hold objects: leave out --state or --type")


def _mapped(glibc: GlibcAllocator) -> list[MappedRow]:
    return [MappedRow(chunk.chunk, chunk.end - chunk.chunk, MMAPPED) for chunk in glibc.mapped]


def _of_type(heap: Heap, selection: Selection, pattern: str) -> list[Row]:
    rows = _of_kind(heap, selection, pattern)
    if not heap.is_python:
        return rows
    found = {row.address: row for row in [*rows, *_objects(heap, selection, pattern)]}
    return [found[address] for address in sorted(found)]


def _of_kind(heap: Heap, selection: Selection, pattern: str) -> list[Row]:
    """Return the chunks of C code that match ``pattern`` by their class or by the description of their kind."""
    structures, kinds = heap.structures_of_c, _kinds_of(heap, pattern)
    if structures is None or not kinds:
        return []
    rows: list[Row] = [*structures.native.chunks_of(kinds, selection.wanted)]
    mapped = [row for row in _mapped(heap.allocator(GlibcAllocator)) if selection.takes_mapped(row.size)]
    found = structures.native.kinds_at([row.address + HEADER for row in mapped])
    return rows + [row for row, kind in zip(mapped, found) if kind in kinds]


def _kinds_of(heap: Heap, pattern: str) -> set[int]:
    """Return the numbers of the kinds of C blocks that match ``pattern`` by class or description."""
    structures = heap.structures_of_c
    return {
        row.number
        for row in ([] if structures is None else structures.sums)
        if fnmatchcase(row.kind.text, pattern) or (row.kind.type is not None and fnmatchcase(row.kind.type, pattern))
    }


def _objects(heap: Heap, selection: Selection, pattern: str) -> list[Row]:
    """Return the chunks that hold a live object of a matching type. A chunk that is another object's buffer does not
    match."""
    objects = heap.python.objects
    kinds = {row.address for row in heap.python.census.rows if fnmatchcase(objects.names.name(row.address), pattern)}
    rows: list[Row] = [*objects.chunks_of(kinds, selection.wanted, heap.python.classifying)]
    mapped = [row for row in _mapped(heap.allocator(GlibcAllocator)) if selection.takes_mapped(row.size)]
    inside = objects.objects_in([(row.address + HEADER, row.size) for row in mapped])
    rows += [row for row, found in zip(mapped, inside) if found and found.alive and found.type_address in kinds]
    owners = heap.python.owners_of([row.address + HEADER for row in rows])
    return [row for row in rows if owners[row.address + HEADER] is None]


def _described(heap: Heap, glibc: GlibcAllocator, rows: list[Row]) -> list[Chunk]:
    held = [(_pointer(row), row.size) for row in rows if row.state in OBJECT_STATES]
    found = describe_blocks(heap, held) if held else {}
    words = {address: str(what) for address, what in found.items()}
    own = [row for row in rows if not isinstance(row, OtherRow)]
    lists = dict(zip((row.address for row in own), glibc.lists_of(own))) | _other_lists(heap, rows)
    asked = _asked(heap, rows)
    return [_chunk(row, lists.get(row.address), words.get(_pointer(row)), asked.get(row.address)) for row in rows]


def _other_lists(heap: Heap, rows: Sequence[Row]) -> dict[int, str | None]:
    """Return the free list of each free block of allocators other than glibc's, by the block's address; None for a
    block that is on no named list.
    """
    known: dict[str, Allocator] = {allocator.name: allocator for allocator in heap.standing_in}
    free = [row for row in rows if isinstance(row, OtherRow) and row.state != "used"]
    found = ((row.address, known[row.allocator].find(row.address)) for row in free)
    return {address: block.list for address, block in found if block is not None}


def _asked(heap: Heap, rows: Sequence[Row]) -> dict[int, int | None]:
    """Return the sizes that the program asked for, by block address, for blocks whose allocator records these sizes."""
    telling: dict[str, Allocator] = {one.name: one for one in heap.standing_in if one.tells_asked}
    used = [row for row in rows if isinstance(row, OtherRow) and row.state == "used"]
    own = [row for row in used if row.allocator in telling]
    found = ((row.address, telling[row.allocator].find(row.address)) for row in own)
    return {address: block.asked for address, block in found if block is not None}


def _chunk(row: Row, name: str | None, what: str | None, asked: int | None = None) -> Chunk:
    found = Chunk(_pointer(row), row.size, row.state, name, row.arena, what, asked=asked)
    return replace(found, allocator=row.allocator) if isinstance(row, OtherRow) else found
