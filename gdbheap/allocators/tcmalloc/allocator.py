"""Implement ``Allocator`` for all tcmallocs (gperftools) of a target, preloaded or linked into a program or module."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import cached_property

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    Caching,
    FreeCache,
    KeepReason,
    LedgerLine,
    Purpose,
    State,
    Surroundings,
    WalkedBlocks,
    WalkedCounts,
)
from gdbheap.allocators.extents import ExtentLibraries, own_ranges
from gdbheap.allocators.line_ids import UNEXPLAINED, LineId, lines_below
from gdbheap.allocators.request_sizes import of_span
from gdbheap.allocators.tcmalloc.locate import LocatedTcmalloc, find_roots
from gdbheap.allocators.threads_inside import caught
from gdbheap.errors import Fault, NotInUse
from gdbheap.targets.target import Damage

NAME = LineId("tcmalloc")
USED, FREE, OVERHEAD = lines_below(NAME, "used", "free", "overhead")
SPANS, TRANSFER, CACHES, PAGES, RETURNED = lines_below(FREE, "spans", "transfer", "caches", "pages", "returned")
METADATA, REST = lines_below(OVERHEAD, "metadata", "rest")
CAUGHT = "caught inside tcmalloc"
FUNCTIONS = ("tc_", "tcmalloc::", "TCMalloc", "MallocExtension", "MallocHook", "SpinLock", "base::internal::SpinLock")
# Setting RELEASE_RATE is no remedy: the highest rate, 10, returns only one page for each hundred that are freed.
AT_ONCE, RELEASE_RATE = "TCMALLOC_AGGRESSIVE_DECOMMIT", "TCMALLOC_RELEASE_RATE"
# EXTENSION: the class name of the object that tcmalloc's own extension replaces. The object contains only a pointer to
# its vtable. MAX_SMALLEST: the most blocks of that size that are searched for the object.
EXTENSION, MAX_SMALLEST = b"15MallocExtension", 5_000
CACHE_BYTES = "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES"


class TcmallocLibraries(ExtentLibraries):
    """All tcmallocs of one target; ``roots``: the located structures of each tcmalloc. Raises NotInUse if there is
    none."""

    name = NAME
    title = "tcmalloc"
    walks = "tcmalloc"
    lines = (
        LedgerLine(USED, NAME, "blocks in use", None),
        LedgerLine(FREE, NAME, "freed, kept by tcmalloc", None),
        LedgerLine(SPANS, FREE, "central free lists", State.FREE, detail=True),
        LedgerLine(TRANSFER, FREE, "transfer caches", State.FREE, detail=True),
        LedgerLine(CACHES, FREE, "thread caches", State.FREE, detail=True),
        LedgerLine(PAGES, FREE, "free page heap", State.FREE, detail=True),
        LedgerLine(RETURNED, FREE, "returned address space", State.RESERVED, detail=True),
        LedgerLine(OVERHEAD, NAME, "metadata and padding", None),
        LedgerLine(METADATA, OVERHEAD, "metadata", State.OVERHEAD, detail=True),
        LedgerLine(REST, OVERHEAD, "span padding", State.OVERHEAD, detail=True),
    )
    returned_lines = (PAGES,)
    functions = FUNCTIONS
    roots: list[LocatedTcmalloc]
    parts = {
        "free": SPANS,
        "waiting": TRANSFER,
        "cached": CACHES,
        "free run": PAGES,
        "reserved": RETURNED,
        "header": METADATA,
        "padding": REST,
        "unexplained": UNEXPLAINED,
    }
    why_holes_stay = "tcmalloc returns only spans without a block in use, and only after a delay."
    groups = ("span is", "spans are")

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.roots = list(find_roots(self.target))
        if not self.roots:
            raise NotInUse("no tcmalloc: no loaded object's data holds a map of pages that leads to spans")
        for index, root in enumerate(self.roots):
            self._tell(index, root)

    def _tell(self, index: int, root: LocatedTcmalloc) -> None:
        what = f"a map of pages at {root.address:#x} in {self.owner(index)}"
        fit = (
            f"in {root.fit.fit} of {root.fit.spans} sampled spans the counts of free and other blocks add up to the "
            "number of all blocks"
        )
        self.add_fact(index, f"laid out as gperftools from 2.7 on, pages of {root.page >> 10} KiB", what, fit)

    @cached_property
    def store(self) -> _native.Tcmalloc:
        """The spans and blocks of all tcmallocs, as the native code has read them."""
        given = [(root.address, root.page, root.module.writable_ranges()) for root in self.roots]
        found = _native.read_tcmalloc(self.target.space, own_ranges(self.target), given)
        for index, caches in enumerate(found.caches):
            self._warn(self.owner(index), caches)
        return found

    def _warn(self, owner: str, caches: int | None) -> None:
        if caches is None:
            self._around.note("tcmalloc-no-lists", module=owner)

    @cached_property
    def damage(self) -> list[Damage]:
        """The inconsistencies that were found in spans."""
        return list(map(Damage.of, self.store.damage))

    def packing(self) -> _native.Packing:
        """Return the memory that packing would free in spans with several blocks. Blocks in caches are not moved."""
        return self.store.packing(self.target.pages)

    def free_caches(self) -> list[FreeCache]:
        """Return the central lists, the transfer caches and each thread's cache of all tcmallocs."""
        lists: Counter[tuple[int, str]] = Counter()
        for row in self.store.sizes():
            lists[row.root, "central"] += row.listed
            lists[row.root, "transfer"] += row.transfer
        found = []
        for root, sums in enumerate(self.store.sums()):
            for kind, size in (("central", sums.listed), ("transfer", sums.transfer)):
                found.append(FreeCache(self.name, self.owner(root), kind, None, lists[root, kind], size))
            own = (row for row in self.store.holding if row.root == root)
            found += [FreeCache(self.name, self.owner(root), "thread", r.address, r.blocks, r.bytes) for r in own]
        return found

    def variables(self) -> list[str]:
        """Return the environment variables for tcmalloc's settings, which are the same in all builds."""
        return [AT_ONCE, RELEASE_RATE, CACHE_BYTES]

    def remedy(self, purpose: Purpose, owner: str | None) -> dict[str, str]:
        """Return the setting for a purpose: return free pages at once, or limit thread caches.

        For the purpose "fewer arenas" the result is {}, because tcmalloc has no arenas. The advised limit is an eighth
        of the default, for all thread caches together.
        """
        found = {Purpose.UNUSED: {AT_ONCE: "1"}, Purpose.CACHES: {CACHE_BYTES: str(4 << 20)}}
        return found.get(purpose, {})

    def caching(self) -> Caching:
        """Return the free blocks in the caches of all tcmallocs, including transfer caches."""
        sizes, sums = self.store.sizes(), self.store.sums()
        caches = sum(count or 0 for count in self.store.caches)
        blocks = sum(row.cached + row.transfer for row in sizes)
        return Caching(caches, blocks, sum(row.transfer for row in sums), self.store.waiting())

    @cached_property
    def _classes(self) -> list[int]:
        """The sizes of blocks, in use or free, ascending."""
        return sorted({row.size for row in self.store.sizes()})

    def requests_for(self, block: Block) -> tuple[int, int]:
        """Return the least and the most bytes for which tcmalloc hands out a block of this size.

        The least is too small by a few bytes if tcmalloc has handed out no block of the size class below."""
        return of_span(block.size, max(root.page for root in self.roots), self._classes)

    def structures(self) -> dict[int, str]:
        """Return the blocks that tcmalloc made for its own purposes, as {address: purpose}."""
        return self._extensions

    def loose_blocks(self) -> dict[int, str]:
        """Return the blocks that tcmalloc made for itself and to which it keeps no pointer, as {address: purpose}."""
        return self._extensions

    @cached_property
    def _extensions(self) -> dict[int, str]:
        """The first MallocExtension object, which tcmalloc replaces by its own when the library starts.

        Afterwards nothing points to the first object, so it would seem lost (malloc_extension.cc, InitModule, and
        MallocExtension::Register)."""
        space, word, data = self.target.space, self.target.machine.word, [root.module for root in self.roots]
        found: dict[int, str] = {}
        for address, _size in self.first_used(word, word, MAX_SMALLEST):
            with suppress(Fault):
                table = space.word(address)
                if self.target.object_of(table) in data:
                    name = space.word(space.word(table - word) + word)
                    if space.cstring(name, len(EXTENSION) + 1) == EXTENSION:
                        found[address] = "tcmalloc's first MallocExtension"
        return found

    def give(self, blocks: WalkedBlocks) -> None:
        """Add the blocks of all tcmallocs to ``blocks``."""
        blocks.general["spans of malloc"] = self.store

    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return the one reason why free bytes stay in the process. They are in spans with blocks in use, in caches, or
        in pages that tcmalloc keeps for later."""
        why = "in spans with blocks in use, in caches, and in pages that tcmalloc keeps for later"
        return [KeepReason(FREE, free, why)]

    def check(self) -> WalkedCounts:
        """Return how many spans were checked. The checks were made when the spans were read.

        If a thread is inside tcmalloc, one span or one list of free blocks may be half changed; it is then added
        to ``damage`` as transient.
        """
        store, known, inside = self.store, {damage.address for damage in self.damage}, self.inside
        off = [found for found in (*store.miscounted, *store.broken) if found.address not in known]
        passing = inside.excuses(max(len(store.miscounted), len(store.broken)))
        self.damage.extend(caught(found, CAUGHT) if passing else Damage.of(found) for found in off)
        if off and passing:
            moving = store.moving
            counts = {"locked": moving.locked, "chains": moving.chains, "astray": moving.astray}
            self._around.note("tcmalloc-spans-moving", **inside.told, **counts, spans=len(store.miscounted))
        elif inside.is_sure:
            self._around.note("tcmalloc-blocks-moving", **inside.told)
        return WalkedCounts({"spans": store.run_count})
