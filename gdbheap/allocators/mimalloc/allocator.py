"""Implement ``Allocator`` for CPython's own mimalloc, with its segments and pages."""

from __future__ import annotations

from collections.abc import Iterable

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    DrawnArea,
    HoleRow,
    KeepReason,
    LedgerLine,
    Member,
    Piece,
    PinRow,
    State,
    StoreAllocator,
    Surroundings,
    WalkedBlocks,
    WalkedCounts,
)
from gdbheap.allocators.line_ids import UNEXPLAINED, LineId, lines_below
from gdbheap.allocators.mimalloc.locate import LocatedMimalloc, find_roots
from gdbheap.allocators.mimalloc.miscounted import FUNCTIONS, OWN_STATES, add_miscounted
from gdbheap.allocators.mimalloc.segments import Mimalloc
from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.allocators.python_modules import need_python, python_modules
from gdbheap.allocators.threads_inside import Inside
from gdbheap.errors import NotInUse, Unsupported
from gdbheap.targets.ranges import Ranges, holds
from gdbheap.targets.target import Damage, Target

NAME = LineId("mimalloc")
USED, FREE, OVERHEAD = lines_below(NAME, "used", "free", "overhead")
BLOCKS, SPANS, RESERVE = lines_below(FREE, "blocks", "spans", "reserve")


class MimallocAllocator(StoreAllocator):
    """CPython's mimalloc in one target; ``mimalloc``: its located structures. A target with this mimalloc has no
    pymalloc.

    Raises NotAPython, NotInUse or Unsupported."""

    name = NAME
    title = "Python's mimalloc"
    lines = (
        LedgerLine(USED, NAME, "blocks in use", State.USED),
        LedgerLine(FREE, NAME, "freed, kept by mimalloc", None),
        LedgerLine(BLOCKS, FREE, "free blocks", State.FREE, detail=True),
        LedgerLine(SPANS, FREE, "free spans", State.FREE, detail=True),
        LedgerLine(RESERVE, FREE, "reserved address space", State.RESERVED, detail=True),
        LedgerLine(OVERHEAD, NAME, "metadata and padding", State.OVERHEAD),
    )
    shown_idle = False
    replaces = PymallocAllocator
    parts = {
        "used": USED,
        "free": BLOCKS,
        "free run": SPANS,
        "header": OVERHEAD,
        "padding": OVERHEAD,
        "slack": OVERHEAD,
        "unexplained": UNEXPLAINED,
    }
    why_holes_stay = "mimalloc returns only pages without a block in use, and only after a delay."
    groups = ("page is", "pages are")
    emptied = "would be empty, and be returned later, with another page of the segment"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        need_python(self.target)
        if _is_in_use(around):
            raise NotInUse("Python's blocks are pymalloc's")
        root = next((root for root in find_roots(self.target).roots if is_pythons(self.target, root)), None)
        if root is None:
            raise NotInUse(
                "no segments of mimalloc: no memory at a multiple of 32 MiB has a table of slices that covers it"
            )
        self.mimalloc = Mimalloc(self.target, around.facts, root)

    @property
    def is_free_threaded(self) -> bool:
        """Whether mimalloc's heaps have tags, which only free-threaded builds use."""
        return self.mimalloc.is_free_threaded

    @property
    def store(self) -> _native.Mimalloc:
        """The pages of the segments, as the native code has read them."""
        return self.mimalloc.blocks

    @property
    def damage(self) -> list[Damage]:
        """The inconsistencies that were found in segments and pages."""
        return self.mimalloc.damage

    def ranges(self) -> Ranges:
        """Return the segments, and the arenas from which they are cut."""
        return self.mimalloc.ranges()

    def pieces(self) -> Iterable[Piece]:
        """Yield the segments, and the reserved memory outside the segments, as pieces of address space."""
        yield from (Piece(segment.start, segment.end, None) for segment in self.mimalloc.segments)
        yield from (Piece(start, end, RESERVE) for start, end in self.mimalloc.reserved())

    def drawn(self) -> Iterable[DrawnArea]:
        """Return the segments as areas that ``heap map`` draws. Reserved memory outside the segments is not drawn."""
        places = sorted((segment.start, segment.end) for segment in self.mimalloc.segments)
        return (DrawnArea(start, end, "mimalloc's segments", self.name) for start, end in places)

    def find(self, address: int) -> Block | None:
        """Return the block of a page that holds ``address``, with its free list; None if there is none."""
        found = self.store.find(self.target.space, address)
        if found is None:
            return None
        return Block(found.address, found.size, found.state, self.name, None, found.list, found.address + found.size)

    def own_part(self, address: int) -> str | None:
        """Return the purpose of the memory at an address in reserved memory, or in a segment outside of blocks; None
        for other addresses."""
        if holds(self.mimalloc.reserved(), address):
            return "reserve of mimalloc"
        return "overhead of mimalloc" if holds(self.ranges(), address) else None

    def largest_used(self, least: int, most: int) -> list[tuple[int, int]]:
        """Return (the program's pointer, size in bytes) of the largest blocks in use. Only pages with blocks of such
        sizes are read.

        ``least``: leave out blocks of fewer bytes. ``most``: the largest number of blocks to return.
        """
        return [(row.address, row.size) for row in self.store.largest_used(least, most)]

    def give(self, blocks: WalkedBlocks) -> None:
        """Add the pages of the segments to ``blocks``. Python objects lie in no other store."""
        blocks.own["pages"], blocks.replacing = self.store, True

    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """Return the holes of at least ``minimum`` bytes inside segments. Reserved memory outside segments has no
        holes, because it holds no blocks.
        """
        return self.store.holes(max(minimum, 1))

    def members(self, row: PinRow) -> list[Member]:
        """Return the blocks in use in the page that ``row`` describes."""
        return self.store.used_in_page(row.start)

    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return the one reason why free bytes stay in the process: a page stays while one of its blocks is in use."""
        why = "in pages with blocks in use, and in pages that Python's mimalloc keeps for later"
        return [KeepReason(FREE, free, why)]

    def check(self) -> WalkedCounts:
        """Return how many pages were checked. The lists of each page were checked when the page was read.

        If a thread is inside Python's mimalloc, one page may be half changed; it is then added to ``damage``
        as transient.
        """
        if self.store.miscounted:
            module = self.mimalloc.root.module
            modules = [module] if module else python_modules(self.target)
            inside = Inside.of(self, modules, FUNCTIONS, OWN_STATES)
            if passing := add_miscounted(self.damage, self.store.miscounted, inside):
                self._around.note("mimalloc-pages-moving", **inside.told, pages=passing)
        return WalkedCounts({"pages": self.store.page_count})


def is_pythons(target: Target, root: LocatedMimalloc) -> bool:
    """Return whether a mimalloc is CPython's own copy.

    A mimalloc is CPython's if no release of the library has its layout of structures, or if a loaded object with
    CPython contains it. If the module of the segments is unknown, the mimalloc counts as CPython's in a program with
    Python. A mimalloc with a map of pages (3.0 and later) is never CPython's.
    """
    if root.form.has_map:
        return False
    known = python_modules(target)
    return root.form.only_pythons or bool(known) and root.module in (None, *known)


def _is_in_use(around: Surroundings) -> bool:
    """Return whether pymalloc has blocks in use. If so, CPython's mimalloc is not in use."""
    try:
        return around.allocator(PymallocAllocator).pymalloc.in_use
    except Unsupported:
        return False
