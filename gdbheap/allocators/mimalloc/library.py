"""Implement ``Allocator`` for all mimallocs of a target, whether preloaded or linked into the program or a module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    ExtentArena,
    KeepReason,
    LedgerLine,
    Member,
    Piece,
    PinRow,
    Purpose,
    State,
    Surroundings,
    WalkedBlocks,
    WalkedCounts,
)
from gdbheap.allocators.line_ids import UNEXPLAINED, LineId, lines_below
from gdbheap.allocators.mimalloc.allocator import is_pythons
from gdbheap.allocators.mimalloc.locate import LocatedMimalloc, anonymous_ranges, find_roots, is_in
from gdbheap.allocators.mimalloc.miscounted import FUNCTIONS, OWN_STATES, add_miscounted
from gdbheap.allocators.request_sizes import of_class
from gdbheap.allocators.runtimes import NAME_LIMIT, file_name
from gdbheap.allocators.several import SeveralAllocators
from gdbheap.allocators.threads_inside import Inside
from gdbheap.errors import NotInUse, one_line
from gdbheap.targets.ranges import Ranges, holds, joined, subtract
from gdbheap.targets.target import Damage

NAME = LineId("libmimalloc")
USED, FREE, SLACK, OVERHEAD = lines_below(NAME, "used", "free", "slack", "overhead")
BLOCKS, SPANS, RESERVE = lines_below(FREE, "blocks", "spans", "reserve")
# Releases before 2.1 call the setting OLD_DELAY.
OLD_DELAY, DELAY = "MIMALLOC_DECOMMIT_DELAY", "MIMALLOC_PURGE_DELAY"


def _delay(root: LocatedMimalloc) -> str:
    return OLD_DELAY if root.form.name.startswith("2.0") else DELAY


class MimallocLibraries(SeveralAllocators):
    """All mimallocs of one target except CPython's own copy; ``roots``: the located structures of each mimalloc.

    Raises NotInUse if there is none."""

    name = NAME
    title = "mimalloc"
    walks = "mimalloc"
    lines = (
        LedgerLine(USED, NAME, "blocks in use", None),
        LedgerLine(FREE, NAME, "freed, kept by mimalloc", None),
        LedgerLine(BLOCKS, FREE, "free blocks", State.FREE, detail=True),
        LedgerLine(SPANS, FREE, "free slices", State.FREE, detail=True),
        LedgerLine(RESERVE, FREE, "reserved address space", State.RESERVED, detail=True),
        LedgerLine(SLACK, NAME, "unused block ends", State.OVERHEAD),
        LedgerLine(OVERHEAD, NAME, "metadata and padding", State.OVERHEAD),
    )
    returned_lines = (SPANS,)
    shown_idle = False
    roots: list[LocatedMimalloc]
    parts = {
        "free": BLOCKS,
        "free run": SPANS,
        "reserved": RESERVE,
        "header": OVERHEAD,
        "padding": OVERHEAD,
        "slack": SLACK,
        "unexplained": UNEXPLAINED,
    }
    why_holes_stay = "mimalloc returns only slices without a block in use, and only after a delay."
    groups = ("page is", "pages are")
    emptied = "would be empty, and be returned later"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        found = find_roots(self.target)
        self.roots = [root for root in found.roots if not is_pythons(self.target, root)]
        for refused in found.refused:
            module = one_line(file_name(refused.module.path), NAME_LIMIT)
            around.note("mimalloc-not-known", module=module, nearest=str(refused.nearest))
        if not self.roots:
            raise NotInUse("no mimalloc: no segments of it, and no map of pages")
        for index, root in enumerate(self.roots):
            self._tell(index, root)

    def _tell(self, index: int, root: LocatedMimalloc) -> None:
        what = "a map of pages" if root.form.has_map else f"{len(root.places)} segments"
        fit = f"{root.fit.fit} of {root.fit.pages} sampled pages have this layout"
        self.add_fact(index, f"laid out as {root.form.name}", what, fit)

    @cached_property
    def store(self) -> _native.Mimalloc:
        """The pages of all mimallocs, as the native code has read them."""
        given = [(root.form.name, root.padded, root.places) for root in self.roots]
        return _native.read_mimalloc(self.target.space, given)

    @cached_property
    def areas(self) -> list[_native.Segment]:
        """Segments, arenas, and pages that are in neither, ascending. An area that is not completely mapped is left
        out."""
        mapped = anonymous_ranges(self.target)
        return [row for row in self.store.segments() if row.start < row.end and is_in(mapped, row.start, row.end)]

    @cached_property
    def damage(self) -> list[Damage]:
        """The inconsistencies that were found in segments and pages."""
        found = []
        for root in self.roots:
            wrong = ((address, cookie) for address, cookie in root.cookies.items() if cookie != root.cookie)
            for address, cookie in wrong:
                expected, met = f"{root.cookie ^ address:#x}", f"{cookie ^ address:#x}"
                found.append(Damage(address + root.form.cookie, "cookie of a segment", expected, met))
        return found + list(map(Damage.of, self.store.damage))

    @cached_property
    def _cached(self) -> list[tuple[int, Ranges]]:
        """The free segments that each mimalloc caches, as (index of the mimalloc, ranges).

        Cached segments inside a larger segment in use are left out."""
        mapped, taken = anonymous_ranges(self.target), sorted((one.start, one.end) for one in self.areas)
        return [
            (index, [pair for pair in root.cached if is_in(mapped, *pair) and subtract([pair], taken) == [pair]])
            for index, root in enumerate(self.roots)
        ]

    @cached_property
    def _kept_segments(self) -> Ranges:
        """The cached segments of all mimallocs, ascending."""
        return sorted(pair for _index, ranges in self._cached for pair in ranges)

    @cached_property
    def _beside(self) -> list[tuple[int, Ranges, Ranges]]:
        """Each mimalloc's memory outside segments, as (index of the mimalloc, memory of its arenas, its maps of pages).

        The maps of pages lie outside the arenas.
        """
        taken, found = [(segment.start, segment.end) for segment in self.areas], []
        taken = sorted(taken + self._kept_segments)
        for index, root in enumerate(self.roots):
            reserved = subtract(sorted(root.arenas), taken)
            maps = root.places if root.form.has_map else []
            pairs = [pair for place in maps for pair in _native.page_map_tables(self.target.space, place)]
            tables = subtract(joined(sorted(pairs)), sorted(taken + reserved))
            found.append((index, reserved, tables))
            taken = sorted(taken + reserved + tables)
        return found

    @cached_property
    def _reserved(self) -> Ranges:
        return sorted(pair for _index, reserved, _tables in self._beside for pair in reserved)

    def ranges(self) -> Ranges:
        """Return all memory of the mimallocs, ascending: segments, arenas, cached segments and maps of pages."""
        segments = [(segment.start, segment.end) for segment in self.areas]
        beside = [pair for _index, *both in self._beside for ranges in both for pair in ranges]
        return sorted(segments + beside + self._kept_segments)

    def pieces(self) -> Iterable[Piece]:
        """Yield the cached segments, the segments and arenas, the reserved memory, and the maps of pages."""
        for index, cached in self._cached:
            yield from (Piece(start, end, self.line_of(SPANS, index)) for start, end in cached)
        yield from (Piece(segment.start, segment.end, None) for segment in self.areas)
        for index, reserved, tables in self._beside:
            yield from (Piece(start, end, self.line_of(RESERVE, index)) for start, end in reserved)
            yield from (Piece(start, end, self.line_of(OVERHEAD, index)) for start, end in tables)

    def find(self, address: int) -> Block | None:
        """Return the block of a page that holds ``address``, with its free list; None if there is none."""
        found = self.store.find(self.target.space, address)
        if found is None:
            return None
        end = found.address + found.size
        return Block(
            found.address, found.size, found.state, self.name, found.arena, found.list, end, asked=found.asked
        )  # fmt: skip

    def requests_for(self, block: Block) -> tuple[int, int]:
        """Return the least and the most bytes for which mimalloc hands out a block of this size. Blocks that record the
        requested size do so in their last word."""
        padding = self.target.machine.word if block.asked is not None else 0
        least, most = of_class(block.size)
        return max(least - padding, 0), most - padding

    def own_part(self, address: int) -> str | None:
        """Return the use of an address in mimalloc's memory outside of blocks; None for other addresses."""
        if holds(self._kept_segments, address):
            return "segment that mimalloc keeps for later"
        if holds(self._reserved, address):
            return "reserve of mimalloc"
        return "overhead of mimalloc" if holds(self.ranges(), address) else None

    @property
    def tells_asked(self) -> bool:
        """Whether any mimalloc is a secure or debug build: blocks of such builds record the size that the program asked
        for."""
        return any(root.padded for root in self.roots)

    def packing(self) -> _native.Packing:
        """Return the memory that packing the pages of each thread's heap would free."""
        return self.store.packing(self.target.pages)

    def asked_sizes(self, root: int | None) -> dict[int, int] | None:
        """Return the bytes that the program asked for, by block size; None unless all chosen mimallocs record them.

        ``root``: the index of the chosen mimalloc, or None for all."""
        if not all(one.padded for index, one in enumerate(self.roots) if root in (None, index)):
            return None
        return {row.size: row.asked for row in self.store.asked_by_class(self.target.space, root)}

    def extent_arenas(self) -> list[ExtentArena]:
        """Return the heaps of the threads. The last rows count the pages without a heap.

        A page belongs to one heap, and only that heap allocates from it. Free memory outside pages belongs to no single
        heap."""
        return [
            ExtentArena(
                self.name, self.owner(row.root), row.number, row.active, row.empty, 0, 0, row.used, 0, row.root,
                row.heap or None,
            )
            for row in self.store.heap_use()
        ]  # fmt: skip

    def owner_at(self, address: int) -> str | None:
        """Return the module whose mimalloc owns ``address``; None if none does.

        If the target has only one mimalloc, its module is returned for every address."""
        if len(self.roots) == 1:
            return self.owner(0)
        found = next((row.root for row in self.areas if row.start <= address < row.end), None)
        kept = (index for index, ranges in self._cached if holds(ranges, address))
        root = next(kept, None) if found is None else found
        return None if root is None else self.owner(root)

    def variables(self) -> list[str]:
        """Return the environment variables that set the delay after which unused memory is returned."""
        return sorted({_delay(root) for root in self.roots})

    def remedy(self, purpose: Purpose, owner: str | None) -> dict[str, str]:
        """Return {environment variable: "0"}, which makes mimalloc return unused memory without delay; {} for other
        purposes."""
        roots = [root for index, root in enumerate(self.roots) if self.owner(index) == owner] or self.roots
        return {_delay(roots[0]): "0"} if purpose is Purpose.UNUSED else {}

    def give(self, blocks: WalkedBlocks) -> None:
        """Add the pages of all mimallocs to ``blocks``."""
        blocks.general["pages of malloc"] = self.store

    def members(self, row: PinRow) -> list[Member]:
        """Return the blocks in use in the page that ``row`` describes."""
        return self.store.used_in_page(row.start)

    def empty(self) -> Ranges:
        """Return the pages and slices without a block in use, and the cached segments, ascending.

        Most of this memory may never have been touched."""
        return joined(sorted([*self.store.empty_spans(), *self._kept_segments]))

    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return the one reason why free bytes stay in the process: a page stays while one of its blocks is in use."""
        return [KeepReason(FREE, free, "in pages with blocks in use, and in pages that mimalloc keeps for later")]

    @cached_property
    def _inside(self) -> Inside:
        known = [root.module for root in self.roots if root.module]
        # If no static data points to the segments, their module is unknown, so every module is tried.
        modules = known if len(known) == len(self.roots) else self.target.objects
        return Inside.of(self, modules, FUNCTIONS, OWN_STATES)

    def check(self) -> WalkedCounts:
        """Return how many pages were checked. The lists of each page were checked when the page was read.

        If a thread is inside mimalloc, one page may be half changed; it is then added to ``damage`` as
        transient.
        """
        inside = self._inside
        passing = add_miscounted(self.damage, self.store.miscounted, inside)
        if passing:
            self._around.note("mimalloc-pages-moving", **inside.told, pages=passing)
        elif inside.is_sure:
            self._around.note("mimalloc-lists-moving", **inside.told)
        return WalkedCounts({"pages": self.store.page_count})
