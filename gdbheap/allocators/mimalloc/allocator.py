"""CPython's own mimalloc as one of the allocators: its segments and pages in the words of all."""

from __future__ import annotations

from collections.abc import Iterable

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    Drawn,
    HoleRow,
    Kept,
    LedgerLine,
    Looked,
    Member,
    Piece,
    PinRow,
    State,
    StoreAllocator,
    Surroundings,
    WalkedBlocks,
)
from gdbheap.allocators.carriers import carriers, need_python
from gdbheap.allocators.inside import Inside
from gdbheap.allocators.line_ids import UNEXPLAINED, LineId, lines_below
from gdbheap.allocators.mimalloc.miscounted import FUNCTIONS, OWN_STATES, add_miscounted
from gdbheap.allocators.mimalloc.roots import Root, find_roots
from gdbheap.allocators.mimalloc.segments import Mimalloc
from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.errors import NotInUse, Unsupported
from gdbheap.targets.ranges import Ranges, holds
from gdbheap.targets.target import Damage, Target

NAME = LineId("mimalloc")
USED, FREE, OVERHEAD = lines_below(NAME, "used", "free", "overhead")
BLOCKS, SPANS, RESERVE = lines_below(FREE, "blocks", "spans", "reserve")


class MimallocAllocator(StoreAllocator):
    """CPython's mimalloc in one target; ``mimalloc`` is what was located. It takes pymalloc's place where it is there.

    Raises NotAPython, NotInUse, or Unsupported."""

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
    why_holes_stay = "mimalloc gives back only what no page with blocks in use has, and a free page not at once."
    groups = ("page is", "pages are")
    emptied = "would be empty, and go back some time later, when another page of the segment goes"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        need_python(self.target)
        if _is_in_use(around):
            raise NotInUse("Python's blocks are pymalloc's")
        root = next((root for root in find_roots(self.target).roots if is_pythons(self.target, root)), None)
        if root is None:
            raise NotInUse("no segments of mimalloc: nothing at a multiple of 32 MiB is tiled by a table of slices")
        self.mimalloc = Mimalloc(self.target, around.facts, root)

    @property
    def is_free_threaded(self) -> bool:
        """Whether its heaps have the tags that only such builds use."""
        return self.mimalloc.is_free_threaded

    @property
    def store(self) -> _native.Mimalloc:
        """The pages of the segments."""
        return self.mimalloc.blocks

    @property
    def damage(self) -> list[Damage]:
        """What was damaged in segments and pages."""
        return self.mimalloc.damage

    def ranges(self) -> Ranges:
        """The segments and the areas that they are cut from."""
        return self.mimalloc.ranges()

    def pieces(self) -> Iterable[Piece]:
        """The segments, and what is reserved beside them."""
        yield from (Piece(segment.start, segment.end, None) for segment in self.mimalloc.segments)
        yield from (Piece(start, end, RESERVE) for start, end in self.mimalloc.reserved())

    def drawn(self) -> Iterable[Drawn]:
        """Each segment; what is reserved beside them is not drawn."""
        places = sorted((segment.start, segment.end) for segment in self.mimalloc.segments)
        return (Drawn(start, end, "mimalloc's segments", self.name) for start, end in places)

    def find(self, address: int) -> Block | None:
        """The block of a page, with the list it is on."""
        found = self.store.find(self.target.space, address)
        if found is None:
            return None
        return Block(found.address, found.size, found.state, self.name, None, found.list, found.address + found.size)

    def own_part(self, address: int) -> str | None:
        """What a segment has beside blocks, and what is reserved."""
        if holds(self.mimalloc.reserved(), address):
            return "reserve of mimalloc"
        return "overhead of mimalloc" if holds(self.ranges(), address) else None

    def largest_used(self, least: int, most: int) -> list[tuple[int, int]]:
        """Of the pages whose blocks are as large."""
        return [(row.address, row.size) for row in self.store.largest_used(least, most)]

    def give(self, blocks: WalkedBlocks) -> None:
        """The pages of the segments."""
        blocks.own["pages"], blocks.replacing = self.store, True

    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """Inside of segments; what is reserved beside them holds no blocks."""
        return self.store.holes(max(minimum, 1))

    def members(self, row: PinRow) -> list[Member]:
        """The blocks in use of a page."""
        return self.store.used_in_page(row.start)

    def kept(self, free: int, whole: int) -> list[Kept]:
        """All that is free: a page stays while a block of it is in use."""
        why = "in pages of Python's mimalloc that hold blocks in use, or that it keeps for later"
        return [Kept(FREE, free, why)]

    def check(self) -> Looked:
        """Each page's lists were followed when it was read. A thread inside of Python's mimalloc leaves one page half
        changed."""
        if self.store.miscounted:
            module = self.mimalloc.root.module
            modules = [module] if module else carriers(self.target)
            inside = Inside.of(self, modules, FUNCTIONS, OWN_STATES)
            if passing := add_miscounted(self.damage, self.store.miscounted, inside):
                self._around.note("mimalloc-pages-moving", **inside.told, pages=passing)
        return Looked({"pages": self.store.page_count})


def is_pythons(target: Target, root: Root) -> bool:
    """Whether a mimalloc is CPython's own copy: no library has that form, or an object that carries CPython has it. Of
    segments that no module is known to have it is believed where the program has Python."""
    if root.form.has_map:
        return False
    known = carriers(target)
    return root.form.only_pythons or bool(known) and root.module in (None, *known)


def _is_in_use(around: Surroundings) -> bool:
    """Whether pymalloc hands out blocks."""
    try:
        return around.allocator(PymallocAllocator).pymalloc.in_use
    except Unsupported:
        return False
