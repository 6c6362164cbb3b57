"""mimalloc as a library, preloaded or linked into the program or a module: all those of a target as one of the
allocators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    Drawn,
    Kept,
    LedgerLine,
    ListingAllocator,
    Looked,
    Member,
    Piece,
    PinRow,
    Purpose,
    SizeClassUse,
    State,
    StoreAllocator,
    Surroundings,
    WalkedBlocks,
)
from gdbheap.allocators.inside import Inside
from gdbheap.allocators.mimalloc.allocator import is_pythons
from gdbheap.allocators.mimalloc.miscounted import CAUGHT, FUNCTIONS, add_miscounted
from gdbheap.allocators.mimalloc.roots import Root, find_roots, is_mapped
from gdbheap.allocators.runtimes import NAME_LIMIT, file_name
from gdbheap.errors import NotInUse, one_line
from gdbheap.target.ranges import Ranges, holds, joined, subtract
from gdbheap.target.target import Damage

NAME = "libmimalloc"
USED, RESERVE, OVERHEAD = f"{NAME}.used", f"{NAME}.free.reserve", f"{NAME}.overhead"
# Releases before 2.1 have the setting under another name.
OLD_DELAY, DELAY = "MIMALLOC_DECOMMIT_DELAY", "MIMALLOC_PURGE_DELAY"


def _delay(root: Root) -> str:
    return OLD_DELAY if root.form.name.startswith("2.0") else DELAY


class MimallocLibraries(ListingAllocator, StoreAllocator):
    """Every mimalloc of one target but CPython's own; ``roots`` are what was located.

    Raises NotInUse where there is none."""

    name = NAME
    title = "mimalloc"
    walks = "mimalloc"
    lines = (
        LedgerLine(USED, NAME, "blocks in use", None),
        LedgerLine(f"{NAME}.free", NAME, "free blocks, pages and segments, and address space reserved for them", None),
        LedgerLine(f"{NAME}.free.blocks", f"{NAME}.free", "free blocks of pages", State.FREE, detail=True),
        LedgerLine(f"{NAME}.free.spans", f"{NAME}.free", "slices without a page", State.FREE, detail=True),
        LedgerLine(RESERVE, f"{NAME}.free", "reserved, and never used so far", State.RESERVED, detail=True),
        LedgerLine(OVERHEAD, NAME, "headers, tables and padding", State.OVERHEAD),
    )
    shown_idle = False
    parts = {
        "free": f"{NAME}.free.blocks",
        "free run": f"{NAME}.free.spans",
        "reserved": RESERVE,
        "header": OVERHEAD,
        "padding": OVERHEAD,
        "unexplained": "unexplained",
    }
    why_holes_stay = "mimalloc gives back only slices in which no page has a block in use, and those not at once."
    groups = ("page is", "pages are")
    emptied = "would be empty, and go back some time later"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.roots = [root for root in find_roots(self.target) if not is_pythons(self.target, root)]
        if not self.roots:
            raise NotInUse("no mimalloc: no segments of it, and no map of pages")
        for index, root in enumerate(self.roots):
            self._tell(index, root)

    def _tell(self, index: int, root: Root) -> None:
        what = "a map of pages" if root.form.has_map else f"{len(root.places)} segments"
        fit = f"{root.fit.fit} of {root.fit.pages} pages of a sample are so"
        title = f"mimalloc of {self._owner(root)}" if len(self.roots) > 1 else "mimalloc"
        self._around.facts.add(title, f"laid out as {root.form.name}", what, fit)

    @staticmethod
    def _owner(root: Root) -> str:
        """The module that a mimalloc is in, in words."""
        return "an unknown module" if root.module is None else one_line(file_name(root.module.path), NAME_LIMIT)

    @cached_property
    def store(self) -> _native.Mimalloc:
        """The pages of all."""
        given = [(root.form.name, root.padded, root.places) for root in self.roots]
        return _native.read_mimalloc(self.target.space, given)

    @cached_property
    def segments(self) -> list[_native.Segment]:
        """Segments, arenas, and pages that lie in none, ascending; without what is not wholly mapped."""
        return [
            row for row in self.store.segments() if row.start < row.end and is_mapped(self.target, row.start, row.end)
        ]

    @cached_property
    def damage(self) -> list[Damage]:
        """What was damaged in segments and pages."""
        found = []
        for root in self.roots:
            wrong = ((address, cookie) for address, cookie in root.cookies.items() if cookie != root.cookie)
            for address, cookie in wrong:
                expected, met = f"{root.cookie ^ address:#x}", f"{cookie ^ address:#x}"
                found.append(Damage(address + root.form.cookie, "cookie of a segment", expected, met))
        return found + list(map(Damage.of, self.store.damage))

    @cached_property
    def _reserved(self) -> Ranges:
        arenas = sorted(pair for root in self.roots for pair in root.arenas)
        return subtract(arenas, [(segment.start, segment.end) for segment in self.segments])

    @cached_property
    def _tables(self) -> Ranges:
        """The maps of pages, which lie in no arena."""
        space, maps = self.target.space, [place for root in self.roots if root.form.has_map for place in root.places]
        tables = joined(sorted(pair for place in maps for pair in _native.page_map_tables(space, place)))
        return subtract(tables, [(segment.start, segment.end) for segment in self.segments])

    def ranges(self) -> Ranges:
        """The segments and arenas, the areas that segments are cut from, and the maps of pages."""
        segments = [(segment.start, segment.end) for segment in self.segments]
        return sorted([*segments, *self._reserved, *self._tables])

    def pieces(self) -> Iterable[Piece]:
        """The segments and arenas, and what is reserved beside segments."""
        yield from (Piece(segment.start, segment.end, None) for segment in self.segments)
        yield from (Piece(start, end, RESERVE) for start, end in self._reserved)
        yield from (Piece(start, end, OVERHEAD) for start, end in self._tables)

    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[str], int]) -> int:
        """The parts of a segment; blocks in use count for the library whose they are."""
        root = next(segment.root for segment in self.segments if segment.start == start)
        owners = {part: number(line) for part, line in self.parts.items()}
        owners["used"] = number(f"{USED}.{root}")
        return sweep.add_blocks(self.target.space, self.store, start, owners)

    def all_lines(self) -> Iterator[LedgerLine]:
        """With a line for each library's blocks in use."""
        for line in self.lines:
            yield line
            if line.id == USED:
                for index, root in enumerate(self.roots):
                    yield LedgerLine(f"{USED}.{index}", USED, f"of {self._owner(root)}", State.USED, detail=True)

    def drawn(self) -> Iterable[Drawn]:
        """Each segment and arena; what is reserved beside segments is not drawn."""
        for segment in self.segments:
            title = f"mimalloc of {self._owner(self.roots[segment.root])}"
            yield Drawn(segment.start, segment.end, title, self.name)

    def find(self, address: int) -> Block | None:
        """The block of a page, with the list it is on."""
        found = self.store.find(self.target.space, address)
        if found is None:
            return None
        end = found.address + found.size
        return Block(found.address, found.size, found.state, self.name, None, found.list, end, asked=found.asked)

    def own_part(self, address: int) -> str | None:
        """What a segment has beside blocks, and what is reserved."""
        if holds(self._reserved, address):
            return "reserve of mimalloc"
        return "overhead of mimalloc" if holds(self.ranges(), address) else None

    @property
    def tells_asked(self) -> bool:
        """As secure and debug builds do."""
        return any(root.padded for root in self.roots)

    def packing(self) -> _native.Packing:
        """Of the pages of each heap of a thread."""
        return self.store.packing(self.target.pages)

    def size_classes(self) -> list[SizeClassUse]:
        """Of all, by size, with what was asked for where all of them tell that."""
        asked = None
        if all(root.padded for root in self.roots):
            asked = {row.size: row.asked for row in self.store.asked_by_class(self.target.space)}
        return self._packed_classes(self.packing(), asked)

    def owner_at(self, address: int) -> str | None:
        """The module whose mimalloc has an address."""
        if len(self.roots) == 1:
            return self._owner(self.roots[0])
        found = next((row for row in self.segments if row.start <= address < row.end), None)
        return None if found is None else self._owner(self.roots[found.root])

    def variables(self) -> list[str]:
        """The one that says when unused memory goes back."""
        return sorted({_delay(root) for root in self.roots})

    def remedy(self, purpose: Purpose, owner: str | None) -> dict[str, str]:
        """Without a delay."""
        roots = [root for root in self.roots if self._owner(root) == owner] or self.roots
        return {_delay(roots[0]): "0"} if purpose is Purpose.UNUSED else {}

    def give(self, blocks: WalkedBlocks) -> None:
        """The pages of all."""
        blocks.general["pages of malloc"] = self.store

    def members(self, row: PinRow) -> list[Member]:
        """The blocks in use of a page."""
        return self.store.used_in_page(row.start)

    def empty(self) -> Ranges:
        """Pages and slices in which no block is in use, ascending; most of that may never have been touched."""
        return joined(self.store.empty_spans())

    def kept(self, free: int, whole: int) -> list[Kept]:
        """All that is free: a page stays while a block of it is in use."""
        return [Kept(f"{NAME}.free", free, "in pages of mimalloc that hold blocks in use, or that it keeps for later")]

    @cached_property
    def _inside(self) -> Inside:
        known = [root.module for root in self.roots if root.module]
        # Of segments that nobody's data leads to it is not known whose they are.
        return Inside.of(self.target, known if len(known) == len(self.roots) else self.target.objects, FUNCTIONS)

    def check(self) -> Looked:
        """Each page's lists were followed when it was read. A thread inside mimalloc leaves one page half changed."""
        inside, passing = self._inside, add_miscounted(self.damage, self.store.miscounted, self._inside)
        if passing:
            pages = "1 page" if passing == 1 else f"{passing} pages"
            self._around.note(f"{CAUGHT}: {inside} may be just changing a page ({pages} whose count or lists are off)")
        elif inside.is_sure:
            self._around.note(f"{CAUGHT}: {inside} may be just moving a list of free blocks, which count as used")
        return Looked({"pages": self.store.page_count})
