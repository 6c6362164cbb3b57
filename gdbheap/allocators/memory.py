"""Find the owner of each part of a target's memory: an allocator, a stack, or a library that points to the part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from gdbheap.allocators.allocator import A, Allocator, Block, WalkedBlocks
from gdbheap.allocators.library_memory import LibraryMemory, find_held
from gdbheap.allocators.recognised import OtherAllocator, find_other
from gdbheap.allocators.registry import MALLOC
from gdbheap.allocators.runtimes import Runtime, find_runtimes
from gdbheap.errors import GdbheapError, NotAPython, NotInUse, one_line, or_none
from gdbheap.host.tmpfs import memory_devices
from gdbheap.layout.facts import Facts
from gdbheap.remarks import Remark, RemarkId
from gdbheap.targets.ended_stacks import EndedStack, find_ended
from gdbheap.targets.mappings import Mapping
from gdbheap.targets.parts import Parts, part
from gdbheap.targets.ranges import Ranges, joined, subtract, within
from gdbheap.targets.stack_mappings import LARGEST_GUARDED, Stack, find_stacks, live_parts, unbounded
from gdbheap.targets.target import Damage, Target

__all__ = ["AllocatedMemory", "LabelledProgress"]

LabelledProgress = Callable[[str, int, int], object]


class AllocatedMemory(Parts):
    """The allocators of one target, its stacks, and memory without an owner.

    ``progress``: called during long walks with (label, bytes done, bytes in all). ``kinds``: the allocators to search
    for, in this order.
    """

    def __init__(self, target: Target, progress: LabelledProgress | None, kinds: Sequence[type[Allocator]]) -> None:
        super().__init__(target)
        self.progress, self.kinds = progress, tuple(kinds)
        self.facts = Facts()
        self._allocators: dict[type[Allocator], Allocator] = {}
        self._remarks: list[Remark] = []

    def allocator(self, kind: type[A]) -> A:
        """Return the allocator of this kind. Raises NotAPython, NotInUse or Unsupported if the target lacks it."""
        if kind not in self._allocators:
            self._allocators[kind] = self.read(kind.name, lambda: kind(self))
        found = self._allocators[kind]
        assert isinstance(found, kind)
        return found

    def find_allocator(self, kind: type[A]) -> A | None:
        """Return the allocator of this kind; None if the target lacks it or its layout is unknown."""
        return or_none(lambda: self.allocator(kind))

    @property
    def unknown_allocators(self) -> dict[type[Allocator], GdbheapError]:
        """The allocators that the target seems to have but that could not be located, each with the error."""
        found: dict[type[Allocator], GdbheapError] = {}
        for kind in self.kinds:
            try:
                self.allocator(kind)
            except (NotAPython, NotInUse):
                continue
            except GdbheapError as error:
                found[kind] = error
        replaced = {type(allocator).replaces for allocator in self.allocators}
        return {kind: error for kind, error in found.items() if kind not in replaced}

    @property
    def malloc(self) -> Allocator:
        """The allocator of the C library, whichever C library the target has. Raises Unsupported if it is unknown."""
        other = next((found for found in self.standing_in if found.replaces is MALLOC), None)
        return self.allocator(MALLOC) if other is None else other

    def require_malloc(self) -> Allocator:
        """Return ``malloc``. Callers that do not use the result call this to raise Unsupported if the C library's
        allocator is unknown."""
        return self.malloc

    def _find_malloc(self) -> Allocator | None:
        return or_none(lambda: self.malloc)

    @property
    def allocators(self) -> list[Allocator]:
        """The allocators of the target. An allocator that lies inside another comes after it."""
        return [found for found in map(self.find_allocator, self.kinds) if found is not None]

    @property
    def walked(self) -> WalkedBlocks:
        """The blocks of all allocators, as the native code expects them."""
        return _walked(self.allocators)

    def block_at(self, address: int) -> Block | None:
        """Return the block, in use or free, that holds ``address``; None if there is none.

        If an allocator lies inside another's block, the inner allocator's block is returned."""
        found = (allocator.find(address) for allocator in reversed(self.allocators))
        return next((block for block in found if block is not None), None)

    def outside(self, ranges: Ranges, of: type[Allocator]) -> Ranges:
        """Return the parts of ``ranges`` outside stacks and outside the memory of every allocator that is searched
        before ``of``."""
        ranges = subtract(ranges, [(stack.start, stack.end) for stack in self.stacks])
        for allocator in filter(None, map(self.find_allocator, self.kinds[: self.kinds.index(of)])):
            ranges = allocator.leaves(ranges)
        return ranges

    @part("other allocator")
    def other_allocator(self) -> OtherAllocator | None:
        """An allocator whose blocks gdbheap does not walk, and which the target uses next to the C library's allocator
        or instead of it. None if none is recognised."""
        malloc = self.find_allocator(MALLOC)
        idle = malloc is None or malloc.idle
        walked = {found.walks for found in self.standing_in}
        return find_other(self.target, idle, walked)

    @property
    def standing_in(self) -> list[Allocator]:
        """The allocators whose blocks are read and that replace the C library's allocator or exist next to it."""
        found = (self.find_allocator(kind) for kind in self.kinds if kind.walks is not None)
        return [allocator for allocator in found if allocator is not None]

    @part("runtimes")
    def runtimes(self) -> list[Runtime]:
        """The runtimes and servers that were recognised, with the known facts about the location of their memory."""
        return find_runtimes(self.target, self.other_allocator is not None)

    def note_others(self, idle: bool) -> None:
        """Add the warning that a list of the C library's blocks lacks the blocks of other allocators.

        ``idle``: whether the C library's allocator has no memory.
        """
        other = self.other_allocator
        if other is None and idle and self.standing_in:
            self.note("served-by-others", malloc=MALLOC.name, titles=[found.title for found in self.standing_in])
        elif other is None and idle:
            self.note("malloc-holds-nothing", malloc=MALLOC.name)
        elif other is not None:
            shows = {"path": one_line(other.path), "evidence": other.evidence}
            self.note("other-malloc", malloc=MALLOC.name, name=other.kind.name, **shows, idle=idle)

    @part("used blocks")
    def used_blocks(self) -> int:
        """The number of blocks in use, of all allocators."""
        return _used(self.allocators)

    @property
    def used_of_c(self) -> int:
        """The number of blocks in use that C code allocated."""
        return _used(self._of_c)

    @property
    def blocks_of_c(self) -> WalkedBlocks:
        """The blocks of the allocators that C code uses: all but Python's own."""
        return _walked(self._of_c)

    @property
    def is_all_of_c(self) -> bool:
        """Whether none of the target's allocators is Python's own."""
        return self._of_c == self.allocators

    @property
    def _of_c(self) -> list[Allocator]:
        return [allocator for allocator in self.allocators if allocator.interpreter is None]

    @part("stacks")
    def stacks(self) -> list[Stack]:
        """The stacks of the target's threads, by ascending address."""
        return find_stacks(self.target)

    @part("stacks of ended threads")
    def ended_stacks(self) -> list[EndedStack]:
        """The stacks of ended threads that the C library keeps, ascending; stacks inside blocks of malloc are left
        out."""
        found = find_ended(self.target, self.stacks)
        malloc = self._find_malloc() if found else None
        blocks = [] if malloc is None else joined(sorted([*malloc.ranges(), *malloc.single_blocks()]))
        return [stack for stack in found if not within(blocks, stack.start, stack.end)]

    @property
    def stack_ranges(self) -> Ranges:
        """The threads' stacks, ascending. Stacks inside malloc's memory are left out, because they count as
        malloc's."""
        provided = [(stack.start, stack.end) for stack in self.stacks if stack.provided]
        if provided:
            malloc = self._find_malloc()
            if malloc is not None:
                provided = subtract(provided, sorted([*malloc.ranges(), *malloc.single_blocks()]))
        return sorted(self._own_stacks() + provided)

    def _own_stacks(self) -> Ranges:
        return [(stack.start, stack.end) for stack in self.stacks if not stack.provided]

    def live_stacks(self) -> tuple[Ranges, Ranges]:
        """Return the parts of threads' stacks that may be in use, and other memory to which stack pointers point.

        The second list has the memory above stack pointers that lie outside the known stacks: stacks of coroutines or
        of signal handlers. Inside a block of malloc, such a stack extends to the end of the block."""
        loose = []
        for start, end in unbounded(self.target, self.stacks):
            block = self.block_at(start)
            last = end if block is None else block.end
            loose.append((start, min(last, start + LARGEST_GUARDED)))
        return live_parts(self.target, self.stacks), loose

    def heap_ranges(self) -> Ranges:
        """Return the ranges in which blocks lie, ascending."""
        return sorted(self.single_blocks() + [pair for allocator in self.allocators for pair in allocator.ranges()])

    def books(self) -> Ranges:
        """Return the ranges of the allocators' own records in static data."""
        return [pair for allocator in self.allocators for pair in allocator.books()]

    def unowned_ranges(self) -> Ranges:
        """Return the writable private anonymous memory outside allocators, stacks and .bss.

        Mappings that hold a single block of an allocator are included."""
        return subtract(self.anonymous(), self.owned_ranges())

    def anonymous(self, writable: bool = True) -> Ranges:
        """Return the ranges of private anonymous memory: writable memory only, or all of it if ``writable`` is False.

        Adjacent mappings are joined: the kernel splits the mapping of an mmapped chunk when madvise (as by numpy) or
        mprotect is called for a part of it."""
        return joined([
            (mapping.start, mapping.end)
            for mapping in self.target.mappings
            if mapping.anonymous and mapping.private and mapping.readable and (mapping.writable or not writable)
            # Reading the kernel's vdso would make a page of it resident in the process.
            and not mapping.is_kernels
        ])  # fmt: skip

    def unwalked_ranges(self) -> Ranges:
        """Return the private anonymous memory in which an allocator that gdbheap does not walk may have its blocks.
        Only writable memory is returned."""
        return subtract(self.unowned_ranges(), self.single_blocks())

    def of_others(self) -> Ranges:
        """Return the parts of the allocators' ranges that other code, and not the allocators, got from the system,
        ascending."""
        return sorted(pair for allocator in self.allocators for pair in allocator.of_others())

    def single_blocks(self) -> Ranges:
        """Return the mappings that hold one block of an allocator each, ascending."""
        return sorted(pair for allocator in self.allocators for pair in allocator.single_blocks())

    def owned_ranges(self) -> Ranges:
        """Return the memory of stacks, allocators and .bss, ascending.

        Mappings that hold a single block of an allocator are not included."""
        ended = [(stack.start, stack.end) for stack in self.ended_stacks]
        return sorted(self.stack_ranges + ended + self._of_allocators())

    def taken(self) -> Ranges:
        """Return the ranges that already have an owner, ascending. They are .bss, the allocators' memory, and those
        thread stacks that lie in no block."""
        return sorted(self._own_stacks() + self._of_allocators())

    def _of_allocators(self) -> Ranges:
        owned = [pair for loaded in self.target.objects for pair in loaded.bss]
        return owned + [pair for allocator in self.allocators for pair in allocator.ranges()]

    @part("held")
    def held(self) -> list[LibraryMemory]:
        """Memory outside every heap, grouped by the library whose static data points to it.

        The list is empty if another allocator is recognised, or if the C library's allocator is unknown."""
        if self.other_allocator is not None or self._find_malloc() is None:
            return []
        return find_held(self.target, self.unwalked_ranges())

    def lacks_memory(self) -> bool:
        """Return whether gdbheap could not read some memory that may contain references to blocks."""
        is_absent = any(damage.is_absent and not damage.transient for damage in self.damage)
        return bool(is_absent or self.target.partial or self.target.lacking or self.target.cut_short)

    def is_shared_memory(self, mapping: Mapping) -> bool:
        """Return whether a mapping is shared memory without a file on a disk."""
        return mapping.is_shared_memory(() if self.target.proc is None else self._devices)

    @part("devices of memory")
    def _devices(self) -> Collection[str]:
        return () if self.target.proc is None else memory_devices(self.target.proc)

    def labelled(self, label: str) -> Callable[[int, int], None]:
        """Return a progress callback for long work, shown under the name ``label``."""

        def report(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(label, done, total)

        return report

    def note(self, id: RemarkId, **values: Any) -> None:
        """Add a remark to the answer, unless the answer already has the same remark; ``values`` fill in its
        sentence."""
        remark = Remark(id, values)
        if remark not in self._remarks:
            self._remarks.append(remark)

    @property
    def damage(self) -> list[Damage]:
        """The damage found so far.

        It is empty if reading ended early, or if memory without pointers was not copied, because unread memory looks
        like damage."""
        return [] if self.target.cut_short or self.target.space.left_out else self.all_damage

    @property
    def all_damage(self) -> list[Damage]:
        """The damage found so far, including memory that only looks damaged because it was not read."""
        return self.target.damage + [damage for allocator in self.asked_allocators for damage in allocator.damage]

    @property
    def asked_allocators(self) -> list[Allocator]:
        """The target's allocators that answers have used so far."""
        return [self._allocators[kind] for kind in self.kinds if kind in self._allocators]


def _walked(allocators: Sequence[Allocator]) -> WalkedBlocks:
    blocks = WalkedBlocks()
    for allocator in allocators:
        allocator.give(blocks)
    return blocks


def _used(allocators: Sequence[Allocator]) -> int:
    return sum(count for allocator in allocators for _size, count in allocator.used_sizes())
