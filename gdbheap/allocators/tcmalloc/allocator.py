"""gperftools' tcmalloc as an allocator: all tcmallocs of a target, preloaded or linked into the program or a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    Caching,
    Drawn,
    FreeCache,
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
from gdbheap.allocators.line_ids import UNEXPLAINED, LineId, lines_below
from gdbheap.allocators.runtimes import NAME_LIMIT, file_name
from gdbheap.allocators.several import SeveralAllocators
from gdbheap.allocators.tcmalloc.roots import Root, find_roots
from gdbheap.errors import NotInUse, one_line
from gdbheap.targets.ranges import Ranges, containing
from gdbheap.targets.target import Damage

NAME = LineId("tcmalloc")
USED, FREE, OVERHEAD = lines_below(NAME, "used", "free", "overhead")
SPANS, TRANSFER, CACHES, PAGES, RETURNED = lines_below(FREE, "spans", "transfer", "caches", "pages", "returned")
METADATA, REST = lines_below(OVERHEAD, "metadata", "rest")
CAUGHT = "caught inside tcmalloc"
FUNCTIONS = ("tc_", "tcmalloc::", "TCMalloc", "MallocExtension", "MallocHook", "SpinLock", "base::internal::SpinLock")
# Setting RELEASE_RATE is no remedy: the highest rate, 10, returns only one page for each hundred that are freed.
AT_ONCE, RELEASE_RATE = "TCMALLOC_AGGRESSIVE_DECOMMIT", "TCMALLOC_RELEASE_RATE"
CACHE_BYTES = "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES"


class TcmallocLibraries(SeveralAllocators):
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
    shown_idle = False
    roots: list[Root]
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
    why_holes_stay = "tcmalloc gives back only spans without a block in use, and those not at once."
    groups = ("span is", "spans are")
    emptied = "would be empty, and go back some time later"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.roots = list(find_roots(self.target))
        if not self.roots:
            raise NotInUse("no tcmalloc: no loaded object's data holds a map of pages that leads to spans")
        for index, root in enumerate(self.roots):
            self._tell(index, root)

    def _tell(self, index: int, root: Root) -> None:
        what = f"a map of pages at {root.address:#x} in {self.owner(index)}"
        fit = f"{root.fit.fit} of {root.fit.spans} spans of a sample add up"
        title = f"{self.title} of {self.owner(index)}" if len(self.roots) > 1 else self.title
        self._around.facts.add(title, f"laid out as gperftools from 2.7 on, pages of {root.page >> 10} KiB", what, fit)

    def owner(self, index: int) -> str:
        """Return the name of the module that contains tcmalloc number ``index``."""
        return one_line(file_name(self.roots[index].module.path), NAME_LIMIT)

    @cached_property
    def store(self) -> _native.Tcmalloc:
        """The native store of the spans and blocks of all tcmallocs."""
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

    @cached_property
    def areas(self) -> list[_native.TcmallocArea]:
        """The areas, ascending: runs of adjacent spans and of tcmalloc's own memory."""
        return self.store.areas()

    @cached_property
    def _root_at(self) -> dict[int, int]:
        return {area.start: area.root for area in self.areas}

    def ranges(self) -> Ranges:
        """Return all areas, including pages that were returned to the kernel."""
        return [(area.start, area.end) for area in self.areas]

    def pieces(self) -> Iterable[Piece]:
        """Return the areas, each as a piece of address space."""
        return (Piece(area.start, area.end, None) for area in self.areas)

    def root_of_piece(self, start: int) -> int:
        """Return the index of the tcmalloc whose area starts at ``start``."""
        return self._root_at[start]

    def drawn(self) -> Iterable[Drawn]:
        """Return the areas in the form in which the map shows them."""
        return (Drawn(area.start, area.end, f"tcmalloc of {self.owner(area.root)}", self.name) for area in self.areas)

    def find(self, address: int) -> Block | None:
        """Return the block that holds ``address``, or another use of a span; None if there is none.

        The block's ``list`` says where a free block is kept."""
        found = self.store.find(address)
        if found is None:
            return None
        return Block(found.address, found.size, found.state, self.name, None, found.list, found.address + found.size)

    def own_part(self, address: int) -> str | None:
        """Return the use of an address in tcmalloc's own memory, or in a span without a block; None for other
        addresses."""
        found = self.store.find(address)
        return None if found is None else f"{found.state} of tcmalloc"

    def packing(self) -> _native.Packing:
        """Return what packing the spans that hold several blocks would free. Blocks in caches are not moved."""
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

    @cached_property
    def _area_ranges(self) -> Ranges:
        return self.ranges()

    def owner_at(self, address: int) -> str | None:
        """Return the module whose tcmalloc owns ``address``; None if none does.

        If the target has only one tcmalloc, its module is returned for every address."""
        if len(self.roots) == 1:
            return self.owner(0)
        area = containing(self._area_ranges, address)
        return None if area is None else self.owner(self._root_at[area[0]])

    def variables(self) -> list[str]:
        """Return the environment variables for tcmalloc's settings, which are the same in all builds."""
        return [AT_ONCE, RELEASE_RATE, CACHE_BYTES]

    def remedy(self, purpose: Purpose, owner: str | None) -> dict[str, str]:
        """Return the setting for a purpose: return free pages at once, or limit thread caches. Return {} for the
        purpose "fewer arenas", because tcmalloc has no arenas.

        The limit is an eighth of the default, for all thread caches together."""
        found = {Purpose.UNUSED: {AT_ONCE: "1"}, Purpose.CACHES: {CACHE_BYTES: str(4 << 20)}}
        return found.get(purpose, {})

    def caching(self) -> Caching:
        """Return the free blocks in the caches of all tcmallocs, including transfer caches."""
        sizes, sums = self.store.sizes(), self.store.sums()
        caches = sum(count or 0 for count in self.store.caches)
        blocks = sum(row.cached + row.transfer for row in sizes)
        return Caching(caches, blocks, sum(row.transfer for row in sums), self.store.waiting())

    def give(self, blocks: WalkedBlocks) -> None:
        """Add the blocks of all tcmallocs to ``blocks``."""
        blocks.general["spans of malloc"] = self.store

    def members(self, row: PinRow) -> list[Member]:
        """Return the blocks in use in the span ``row``."""
        return self.store.used_in_run(row.start)

    def kept(self, free: int, whole: int) -> list[Kept]:
        """Return one entry, which gives the same reason for all free bytes.

        A span stays while one of its blocks is in use or in a cache; free pages stay for a while."""
        why = "in spans of tcmalloc that hold blocks in use, in its caches, or in pages that it keeps for later"
        return [Kept(FREE, free, why)]

    @cached_property
    def _inside(self) -> Inside:
        return Inside.of(self, [root.module for root in self.roots], FUNCTIONS)

    def check(self) -> Looked:
        """Return how many spans were checked. The checks were made when the spans were read.

        If a thread is inside tcmalloc, one span or one list of free blocks may be half changed; ``damage`` has it as
        transient."""
        store, known, inside = self.store, {damage.address for damage in self.damage}, self._inside
        off = [found for found in (*store.miscounted, *store.broken) if found.address not in known]
        passing = inside.excuses(max(len(store.miscounted), len(store.broken)))
        self.damage.extend(caught(found, CAUGHT) if passing else Damage.of(found) for found in off)
        if off and passing:
            moving = store.moving
            counts = {"locked": moving.locked, "chains": moving.chains, "astray": moving.astray}
            self._around.note("tcmalloc-spans-moving", **inside.told, **counts, spans=len(store.miscounted))
        elif inside.is_sure:
            self._around.note("tcmalloc-blocks-moving", **inside.told)
        return Looked({"spans": store.run_count})
