"""jemalloc as an allocator: all jemallocs of a target, whether preloaded or linked into the program or a module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    Caching,
    Drawn,
    ExtentArena,
    Kept,
    LedgerLine,
    Looked,
    Member,
    Piece,
    PinRow,
    Purpose,
    State,
    Surroundings,
    WalkedBlocks,
)
from gdbheap.allocators.extents import own_ranges
from gdbheap.allocators.inside import Inside, caught
from gdbheap.allocators.jemalloc.roots import Root, find_roots, thread_storage
from gdbheap.allocators.jemalloc.settings import PLAIN, variable_of
from gdbheap.allocators.line_ids import UNEXPLAINED, LineId, lines_below
from gdbheap.allocators.runtimes import NAME_LIMIT, file_name
from gdbheap.allocators.several import SeveralAllocators
from gdbheap.errors import NotInUse, one_line
from gdbheap.targets.ranges import Ranges, containing
from gdbheap.targets.target import Damage

NAME = LineId("jemalloc")
USED, FREE, OVERHEAD = lines_below(NAME, "used", "free", "overhead")
SLABS, CACHES, DIRTY, MUZZY, RETAINED = lines_below(FREE, "slabs", "caches", "dirty", "muzzy", "retained")
CAUGHT = "caught inside jemalloc"
FUNCTIONS = ("je_", "_rjem_", "mallocx")
# A split may make three extents of one, and a merge may make one of three.
EXTENTS_AT_ONCE = 3
# With this setting, thread caches take only blocks of up to 4 KiB. It has this name in jemalloc 5.1; 5.3 still accepts
# the name.
SMALL_CACHES = "lg_tcache_max:12"
GIVE_BACK = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0"


class JemallocLibraries(SeveralAllocators):
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
    shown_idle = False
    roots: list[Root]
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
    why_holes_stay = "jemalloc gives back only extents without a block in use, and those not at once."
    groups = ("slab is", "slabs are")
    emptied = "would be empty, and go back some time later"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.roots = list(find_roots(self.target))
        if not self.roots:
            raise NotInUse("no jemalloc: no loaded object's data holds a tree of extents")
        for index, root in enumerate(self.roots):
            self._tell(index, root)

    def _tell(self, index: int, root: Root) -> None:
        what = f"a tree of {root.bits} bits at {root.address:#x} in {self.owner(index)}"
        fit = f"{root.fit.fit} of {root.fit.extents} extents of a sample are so"
        title = f"{self.title} of {self.owner(index)}" if len(self.roots) > 1 else self.title
        self._around.facts.add(title, f"laid out as {root.form.name}", what, fit)

    def owner(self, index: int) -> str:
        """Return the name of the module that contains jemalloc number ``index``."""
        return one_line(file_name(self.roots[index].module.path), NAME_LIMIT)

    @cached_property
    def store(self) -> _native.Jemalloc:
        """The native store of the extents and blocks of all jemallocs."""
        given = [(root.form.name, root.address, root.bits, root.module.writable_ranges()) for root in self.roots]
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

        If an extent contradicts its size class, a thread may be giving it that class at the moment; the damage is then
        transient."""
        unfit = self.store.unfit
        found = [caught(row, CAUGHT) if self._is_passing else Damage.of(row) for row in unfit] if unfit else []
        return [*map(Damage.of, self.store.damage), *found]

    @cached_property
    def areas(self) -> list[_native.JemallocArea]:
        """The areas, ascending: runs of adjacent extents and of jemalloc's own memory."""
        return self.store.areas()

    @cached_property
    def _root_at(self) -> dict[int, int]:
        return {area.start: area.root for area in self.areas}

    def ranges(self) -> Ranges:
        """Return all areas, including address space that jemalloc only retains."""
        return [(area.start, area.end) for area in self.areas]

    def pieces(self) -> Iterable[Piece]:
        """Return the areas, each as a piece of address space."""
        return (Piece(area.start, area.end, None) for area in self.areas)

    def root_of_piece(self, start: int) -> int:
        """Return the index of the jemalloc whose area starts at ``start``."""
        return self._root_at[start]

    def drawn(self) -> Iterable[Drawn]:
        """Return the areas in the form in which the map shows them."""
        return (Drawn(area.start, area.end, f"jemalloc of {self.owner(area.root)}", self.name) for area in self.areas)

    def find(self, address: int) -> Block | None:
        """Return the block that holds ``address``: a slab's block, a large block, or a free or other part of an extent.

        None if there is none. The block's ``list`` says where a free block is kept."""
        found = self.store.find(address)
        if found is None:
            return None
        end = found.address + found.size
        return Block(found.address, found.size, found.state, self.name, found.arena, found.list, end)

    def own_part(self, address: int) -> str | None:
        """Return the use of an address in jemalloc's own memory, or in an extent without a block; None for other
        addresses."""
        found = self.store.find(address)
        return None if found is None else f"{found.state} of jemalloc"

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
        """Return what packing the slabs of each arena would free. Blocks in thread caches are not moved."""
        return self.store.packing(self.target.pages)

    def packing_of(self, arenas: int) -> _native.Packing:
        """Return what packing would free if the blocks had been allocated from only ``arenas`` arenas."""
        return self.store.packing(self.target.pages, arenas)

    @cached_property
    def _area_ranges(self) -> Ranges:
        return self.ranges()

    def owner_at(self, address: int) -> str | None:
        """Return the module whose jemalloc owns ``address``; None if none does.

        If the target has only one jemalloc, its module is returned for every address."""
        if len(self.roots) == 1:
            return self.owner(0)
        area = containing(self._area_ranges, address)
        return None if area is None else self.owner(self._root_at[area[0]])

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
        """Return the environment variable with its value, which is one setting. Several settings can be joined by
        commas.

        The setting for fewer arenas names a quarter of the arenas in use."""
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

    def give(self, blocks: WalkedBlocks) -> None:
        """Add the blocks of all jemallocs to ``blocks``."""
        blocks.general["slabs of malloc"] = self.store

    def members(self, row: PinRow) -> list[Member]:
        """Return the blocks in use in the slab ``row``."""
        return self.store.used_in_run(row.start)

    def kept(self, free: int, whole: int) -> list[Kept]:
        """Return one entry, which gives the same reason for all free bytes.

        A slab stays while one of its blocks is in use; dirty and muzzy extents stay for a while."""
        why = "in slabs of jemalloc that hold blocks in use, in threads' caches, or in extents that it keeps for later"
        return [Kept(FREE, free, why)]

    @cached_property
    def samples(self) -> list[_native.SampledStack]:
        """The stacks that allocated the sampled blocks in use (``prof:true``), those with the most bytes first."""
        return self.store.samples(self.target.space)

    @cached_property
    def _inside(self) -> Inside:
        return Inside.of(self, [root.module for root in self.roots], FUNCTIONS)

    @cached_property
    def _slabs_off(self) -> int:
        """The number of slabs whose header contradicts their size class or their bitmap."""
        return len(self.store.miscounted) + len(self.store.unfit)

    @cached_property
    def _is_passing(self) -> bool:
        """Whether threads inside jemalloc can explain all inconsistencies, so that these are transient.

        Each thread may have half changed one slab or one bin of a cache, up to EXTENTS_AT_ONCE extents that it splits
        or merges, and the extents that it returns together, which point to each other."""
        moving = self.store.moving
        return self._inside.excuses(max(self._slabs_off, moving.bins, -(-moving.lists // EXTENTS_AT_ONCE)))

    def check(self) -> Looked:
        """Return how many slabs were checked, and add inconsistencies to ``damage``.

        The extents were checked when they were read."""
        store, known, inside = self.store, {damage.address for damage in self.damage}, self._inside
        off = [found for found in (*store.miscounted, *store.unfinished) if found.address not in known]
        self.damage.extend(caught(found, CAUGHT) if self._is_passing else Damage.of(found) for found in off)
        if (off or store.unfit) and self._is_passing:
            moving = store.moving
            counts = {"extents": moving.extents, "both": moving.both, "astray": moving.astray, "slabs": self._slabs_off}
            self._around.note("jemalloc-extents-moving", **inside.told, **counts)
        elif inside.is_sure:
            self._around.note("jemalloc-blocks-moving", **inside.told)
        return Looked({"slabs": store.run_count})
