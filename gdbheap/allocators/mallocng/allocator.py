"""Implement ``Allocator`` for musl's malloc since 1.2.1, called mallocng, whose groups have slots of one size.

gdbheap finds mallocng without symbols, by a secret: the first word of mallocng's context. It is also the first word of
each page of metadata to which the context points. The first word of each group points to the structure that describes
the group (src/malloc/mallocng/meta.h)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    DrawnArea,
    KeepReason,
    LedgerLine,
    ListingAllocator,
    Member,
    Piece,
    PinRow,
    SizeClassUse,
    State,
    StoreAllocator,
    Surroundings,
    WalkedBlocks,
    WalkedCounts,
)
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.line_ids import LineId, lines_below
from gdbheap.allocators.recognised import MUSL
from gdbheap.allocators.request_sizes import of_slot
from gdbheap.allocators.runtimes import NAME_LIMIT
from gdbheap.allocators.threads_inside import in_hands
from gdbheap.errors import NotInUse, Unsupported, one_line
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges, holds, joined
from gdbheap.targets.target import Damage, Target

NAME = LineId("mallocng")
USED, FREE, SLACK, OVERHEAD = lines_below(NAME, "used", "free", "slack", "overhead")
SLOT_HEADER = "header of a slot in use"
PARTS = {
    "header": "header of a group of mallocng",
    "slack": "rest of a slot of mallocng",
    "free": "free slot of mallocng",
}


def find_context(target: Target) -> tuple[LoadedObject, _native.FoundContext] | None:
    """Return mallocng's context, and the loaded object whose static data holds it; None if there is none.

    The loaded object is the C library, or a program that is statically linked with it."""
    for loaded in target.objects:
        for found in _native.find_contexts(target.space, joined(sorted(loaded.writable_ranges()))):
            # Each thread may be making or freeing one group at that moment; such a group does not fit the layout.
            if found.fit and found.fit + len(target.threads) >= found.groups:
                return loaded, found
    return None


def need_musl(around: Surroundings) -> None:
    """Raise NotInUse if the process has glibc: it can then have no other C library."""
    try:
        around.allocator(GlibcAllocator)
    except Unsupported:
        return
    raise NotInUse("the C library is glibc")


class MallocngAllocator(ListingAllocator, StoreAllocator):
    """musl's mallocng in one target; ``context`` is its ``__malloc_context``.

    Raises NotInUse if mallocng is absent, or was never called."""

    name = NAME
    title = "musl malloc"
    walks = MUSL.name
    replaces = GlibcAllocator
    lines = (
        LedgerLine(USED, NAME, "blocks in use", State.USED),
        LedgerLine(FREE, NAME, "freed, kept by musl", State.FREE),
        LedgerLine(SLACK, NAME, "unused slot ends", State.OVERHEAD),
        LedgerLine(OVERHEAD, NAME, "metadata and padding", State.OVERHEAD),
    )
    shown_idle = False
    parts = {
        "used": USED,
        "free": FREE,
        "padding": SLACK,
        "header": OVERHEAD,
    }
    why_holes_stay = "mallocng returns only mappings in which no slot is in use."
    groups = ("mapping is", "mappings are")
    emptied = "would be returned, except mappings of frequently requested sizes"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        need_musl(around)
        found = find_context(self.target)
        if found is None:
            raise NotInUse("no mallocng: no static data points to metadata pages with its secret")
        self.module, self.context = found
        source = (
            f"{one_line(self.module.path, NAME_LIMIT)}, {self.context.address:#x}: found by the secret in its metadata"
        )
        groups = f"{self.context.fit} of {self.context.groups} groups of the first page name their metadata"
        around.facts.add("musl malloc", "mallocng", source, groups)

    @cached_property
    def store(self) -> _native.Mallocng:
        """The groups of mallocng, as the native code has read them.

        Reading it adds a remark if there are blocks of other allocators, which are not included.
        """
        found = _native.read_mallocng(self.target.space, self.context.address)
        self._around.note_others(False)
        return found

    @cached_property
    def damage(self) -> list[Damage]:
        """The inconsistencies that were found in groups and slots.

        In a live process a bad slot header may be transient, because mallocng writes the header after it has released
        the lock. A bad header is transient if a thread has an address of the slot in its registers. All other bad
        headers are transient if there are no more of them than threads inside malloc (``_inside``).
        """
        damage = self.store.damage
        broken = [row for row in damage if self.target.kind == "process" and row.what == SLOT_HEADER]
        passing = list(filter(self._is_in_hands, broken))
        others = [row for row in broken if row not in passing]
        if others and len(others) <= self._inside:
            passing += others
        found = [Damage.of(row, transient=row in passing) for row in damage]
        return found + [Damage.of(row.damage) for row in self.store.misfits if not row.transient]

    def _is_in_hands(self, damage: _native.Damage) -> bool:
        slot = self.store.find(damage.address)
        if slot is None:
            return False
        # The header lies right before the slot.
        reach = range(damage.address - self.target.machine.word, damage.address + slot.size)
        return any(value in reach for thread in self.target.threads for value in thread.registers)

    @property
    def _inside(self) -> int:
        """The number of threads that are in malloc or about to leave it.

        A thread counts if an address of mallocng's structures is in its registers or on its stack: no other thread has
        one."""
        areas = self.store.areas()
        hands = (in_hands(self.target, thread) for thread in self.target.threads)
        return sum(any(holds(areas, word) for word in words) for words in hands)

    @cached_property
    def _ranges(self) -> Ranges:
        return joined(sorted([*self.store.stretches(), *self.store.areas()]))

    def ranges(self) -> Ranges:
        """Return the mappings of groups, the parts of modules' data that the dynamic linker donated, and the metadata
        pages."""
        return self._ranges

    def pieces(self) -> Iterable[Piece]:
        """Yield the memory of ``ranges`` as pieces. Adjacent groups are one piece, because there may be a million
        groups."""
        yield from (Piece(start, end, None) for start, end in self.store.stretches())
        yield from (Piece(start, end, OVERHEAD) for start, end in self.store.areas())

    def drawn(self) -> Iterable[DrawnArea]:
        """Return the areas that ``heap map`` draws, with adjacent mappings joined."""
        return (DrawnArea(start, end, self.title, self.name) for start, end in self.store.stretches())

    def find(self, address: int) -> Block | None:
        """Return the block of the slot that holds ``address``; None if there is none.

        ``list`` names the bit mask that marks a free block. ``size`` is the size of the slot. ``end`` is the end of the
        bytes that the program asked for."""
        found = self.store.find(address)
        if found is None:
            return None
        asked = found.end - found.address if found.state == "used" else None
        return Block(found.address, found.size, found.state, self.name, None, found.list, found.end, asked=asked)

    def requests_for(self, block: Block) -> tuple[int, int]:
        """Return the least and the most bytes for which mallocng hands out a slot of this size."""
        return of_slot(self.target.machine, block.size)

    def own_part(self, address: int) -> str | None:
        """Return the use of an address in the unused end of a slot or outside slots; None for other addresses."""
        part = self.store.own_part(address)
        if part is not None:
            return PARTS[part]
        return "metadata of mallocng" if holds(self.store.areas(), address) else None

    def size_classes(self, root: int | None = None) -> list[SizeClassUse]:
        """Return a row for each size class; its ``size`` is the size of the class's slots."""
        asked = {row.size: row.asked for row in self.store.asked_by_class()}
        rows = self.store.classes()
        return [SizeClassUse(row.block_size, row.groups, row.used, row.free, asked[row.block_size]) for row in rows]

    @property
    def tells_asked(self) -> bool:
        """True: each slot in use records how many of its bytes are unused."""
        return True

    def give(self, blocks: WalkedBlocks) -> None:
        """Add all slots to ``blocks``, under the name "slots"."""
        blocks.general["slots"] = self.store

    def members(self, row: PinRow) -> list[Member]:
        """Return the blocks in use in the mapping that ``row`` describes."""
        return self.store.used_with(row.start)

    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return the one reason why free bytes stay in the process. mallocng keeps a mapping while one of its blocks is
        in use, and sometimes for later use."""
        return [
            KeepReason(FREE, free, "in mappings with blocks in use, and in empty mappings that musl's malloc keeps")
        ]

    def check(self) -> WalkedCounts:
        """Return how many mappings and slots were checked. The headers of slots were checked when the groups were read.

        Groups or slots that a thread inside malloc may have half changed are added to ``damage`` as transient."""
        known = {damage.address for damage in self.damage}
        passing = [row.damage for row in self.store.misfits if row.transient and row.damage.address not in known]
        self.damage.extend(Damage.of(row, transient=True) for row in passing)
        if self.store.moving or any(row.transient for row in self.damage):
            self._around.note("mallocng-moving", slots=self.store.moving)
        slots = sum(row.used + row.free for row in self.store.classes())
        return WalkedCounts({"regions": len(self.store.regions()), "chunks": slots})
