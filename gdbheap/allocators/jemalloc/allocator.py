"""Implement ``Allocator`` for all jemallocs of a target, whether preloaded or linked into the program or a module."""

from __future__ import annotations

from functools import cached_property

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    Caching,
    ExtentArena,
    KeepReason,
    LedgerLine,
    Purpose,
    State,
    Surroundings,
    WalkedBlocks,
    WalkedCounts,
)
from gdbheap.allocators.extents import ExtentLibraries, own_ranges
from gdbheap.allocators.jemalloc.locate import LocatedJemalloc, find_roots, thread_storage
from gdbheap.allocators.jemalloc.settings_variable import PLAIN, variable_of
from gdbheap.allocators.line_ids import UNEXPLAINED, LineId, lines_below
from gdbheap.allocators.request_sizes import of_class
from gdbheap.allocators.threads_inside import caught
from gdbheap.errors import NotInUse
from gdbheap.targets.target import Damage

NAME = LineId("jemalloc")
USED, FREE, OVERHEAD = lines_below(NAME, "used", "free", "overhead")
SLABS, CACHES, DIRTY, MUZZY, RETAINED = lines_below(FREE, "slabs", "caches", "dirty", "muzzy", "retained")
CAUGHT = "caught inside jemalloc"
# A split may turn one extent into three, and a merge may turn three extents into one.
EXTENTS_AT_ONCE = 3
# With this setting, thread caches take only blocks of up to 4 KiB. It has this name in jemalloc 5.1; 5.3 still accepts
# the name.
SMALL_CACHES = "lg_tcache_max:12"
GIVE_BACK = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0"


class JemallocLibraries(ExtentLibraries):
    """All jemallocs of one target; ``roots``: the located structures of each jemalloc. Raises NotInUse if there is
    none."""

    name = NAME
    title = "jemalloc"
    walks = "jemalloc"
    lines = (
        LedgerLine(USED, NAME, "blocks in use", None),
        LedgerLine(FREE, NAME, "freed, kept by jemalloc", None),
        LedgerLine(SLABS, FREE, "free slab regions", State.FREE, detail=True),
        LedgerLine(CACHES, FREE, "thread caches", State.FREE, detail=True),
        LedgerLine(DIRTY, FREE, "dirty extents", State.FREE, detail=True),
        LedgerLine(MUZZY, FREE, "muzzy extents", State.FREE, detail=True),
        LedgerLine(RETAINED, FREE, "retained address space", State.RESERVED, detail=True),
        LedgerLine(OVERHEAD, NAME, "metadata and padding", State.OVERHEAD),
    )
    returned_lines = (DIRTY, MUZZY)
    functions = ("je_", "_rjem_", "mallocx")
    roots: list[LocatedJemalloc]
    parts = {
        "free": SLABS,
        "cached": CACHES,
        "free run": DIRTY,
        "muzzy": MUZZY,
        "reserved": RETAINED,
        "header": OVERHEAD,
        "padding": OVERHEAD,
        "unexplained": UNEXPLAINED,
    }
    why_holes_stay = "jemalloc returns only extents without a block in use, and only after a delay."
    groups = ("slab is", "slabs are")

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.roots = list(find_roots(self.target))
        if not self.roots:
            raise NotInUse("no jemalloc: no loaded object's data holds a tree of extents")
        for index, root in enumerate(self.roots):
            self._tell(index, root)

    def _tell(self, index: int, root: LocatedJemalloc) -> None:
        what = f"a tree of {root.bits} bits at {root.address:#x} in {self.owner(index)}"
        fit = f"{root.fit.fit} of {root.fit.extents} sampled extents have this layout"
        self.add_fact(index, f"laid out as {root.form}", what, fit)

    @cached_property
    def store(self) -> _native.Jemalloc:
        """The extents and blocks of all jemallocs, as the native code has read them."""
        given = [(root.form, root.address, root.bits, root.module.writable_ranges()) for root in self.roots]
        storage = thread_storage(self.target)
        found = _native.read_jemalloc(self.target.space, own_ranges(self.target), given, storage)
        for index, astray in enumerate(found.astray):
            if astray:
                self._around.note("jemalloc-of-huge-pages", astray=astray, module=self.owner(index))
        for index, caches in enumerate(found.caches):
            if not caches:
                self._around.note("jemalloc-no-cache", module=self.owner(index))
        return found

    @cached_property
    def damage(self) -> list[Damage]:
        """The inconsistencies that were found in extents.

        Extents that contradict their size class are transient damage if threads inside jemalloc can explain all
        inconsistencies."""
        unfit = self.store.unfit
        found = [caught(row, CAUGHT) if self._is_passing else Damage.of(row) for row in unfit] if unfit else []
        return [*map(Damage.of, self.store.damage), *found]

    def extent_arenas(self) -> list[ExtentArena]:
        """Return the arenas of all jemallocs, in the order of their numbers."""
        return [
            ExtentArena(
                self.name, self.owner(row.root), row.arena, row.active, row.dirty, row.muzzy, row.retained, row.used,
                row.cached, row.root,
            )
            for row in self.store.arena_use()
        ]  # fmt: skip

    def packing(self) -> _native.Packing:
        """Return the memory that packing the slabs of each arena would free. Blocks in thread caches are not moved."""
        return self.store.packing(self.target.pages)

    def packing_of(self, arenas: int) -> _native.Packing:
        """Return the memory that packing would free if the blocks had been allocated from only ``arenas`` arenas."""
        return self.store.packing(self.target.pages, arenas)

    @cached_property
    def _variables(self) -> dict[str, str | None]:
        # Over a connection to another machine, reading a module's data to find the variable's name takes too long.
        roots = [] if self.target.remote else self.roots
        return {self.owner(index): variable_of(self.target, root.module) for index, root in enumerate(roots)}

    def variable(self, owner: str | None) -> str | None:
        """Return the environment variable from which the jemalloc of the module ``owner`` reads its settings; None if
        unknown."""
        return self._variables.get(owner or "")

    def variables(self) -> list[str]:
        """Return the environment variables from which the jemallocs read their settings; their prefixes may differ."""
        return sorted({name or PLAIN for name in self._variables.values()}) or [PLAIN]

    def remedy(self, purpose: Purpose, owner: str | None) -> dict[str, str]:
        """Return {environment variable: one setting}. Users can join several settings with commas.

        The setting for fewer arenas names a quarter of the arenas in use.
        """
        fewer = f"narenas:{self.fewer_arenas}"
        value = {Purpose.UNUSED: GIVE_BACK, Purpose.CACHES: SMALL_CACHES, Purpose.ARENAS: fewer}[purpose]
        return {self.variable(owner) or PLAIN: value}

    @cached_property
    def fewer_arenas(self) -> int:
        """A quarter of the number of arenas that have slabs. By default jemalloc makes four arenas for each
        processor."""
        return max(1, len({(row.root, row.arena) for row in self.store.class_use() if row.slabs}) // 4)

    def caching(self) -> Caching:
        """Return the free blocks in the thread caches of all jemallocs."""
        blocks = sum(row.cached for row in self.store.class_use())
        return Caching(sum(self.store.caches), blocks, 0, self.store.waiting())

    def requests_for(self, block: Block) -> tuple[int, int]:
        """Return the least and the most bytes for which jemalloc hands out a block of this size. Since 5.3.1, a large
        block may have any number of pages."""
        return of_class(block.size, self.target.machine.page)

    def give(self, blocks: WalkedBlocks) -> None:
        """Add the blocks of all jemallocs to ``blocks``."""
        blocks.general["slabs of malloc"] = self.store

    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return the one reason why free bytes stay in the process.

        A slab stays while one of its blocks is in use; dirty and muzzy extents stay for a while.
        """
        why = "in slabs with blocks in use, in thread caches, and in extents that jemalloc keeps for later"
        return [KeepReason(FREE, free, why)]

    @cached_property
    def samples(self) -> list[_native.SampledStack]:
        """The stacks that allocated the sampled blocks in use (``prof:true``), those with the most bytes first."""
        return self.store.samples(self.target.space)

    @cached_property
    def _slabs_off(self) -> int:
        """The number of slabs whose header contradicts their size class or their bitmap."""
        return len(self.store.miscounted) + len(self.store.unfit)

    @cached_property
    def _is_passing(self) -> bool:
        """Whether all inconsistencies are transient, because threads inside jemalloc can explain them.

        Each thread may have half changed one slab or one bin of a cache. It may also have half changed up to
        EXTENTS_AT_ONCE extents that it splits or merges, or the linked extents that it returns together.
        """
        moving = self.store.moving
        return self.inside.excuses(max(self._slabs_off, moving.bins, -(-moving.lists // EXTENTS_AT_ONCE)))

    def check(self) -> WalkedCounts:
        """Return how many slabs were checked, and add inconsistencies to ``damage``.

        The extents were checked when they were read."""
        store, known, inside = self.store, {damage.address for damage in self.damage}, self.inside
        off = [found for found in (*store.miscounted, *store.unfinished) if found.address not in known]
        self.damage.extend(caught(found, CAUGHT) if self._is_passing else Damage.of(found) for found in off)
        if (off or store.unfit) and self._is_passing:
            moving = store.moving
            counts = {"extents": moving.extents, "both": moving.both, "astray": moving.astray, "slabs": self._slabs_off}
            self._around.note("jemalloc-extents-moving", **inside.told, **counts)
        elif inside.is_sure:
            self._around.note("jemalloc-blocks-moving", **inside.told)
        return WalkedCounts({"slabs": store.run_count})
