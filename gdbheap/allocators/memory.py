"""The memory that allocators handed out, and what else is around it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from gdbheap.allocators.allocator import A, Allocator, Block, WalkedBlocks
from gdbheap.allocators.finding import MALLOC
from gdbheap.allocators.library_memory import Held, find_held
from gdbheap.allocators.recognised import OtherAllocator, find_other
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
    """The allocators of one target, with the stacks and the memory that is nobody's. ``progress`` and ``kinds`` as of
    ``Heap``."""

    def __init__(self, target: Target, progress: LabelledProgress | None, kinds: Sequence[type[Allocator]]) -> None:
        super().__init__(target)
        self.progress, self.kinds = progress, tuple(kinds)
        self.facts = Facts()
        self._allocators: dict[type[Allocator], Allocator] = {}
        self._remarks: list[Remark] = []

    def allocator(self, kind: type[A]) -> A:
        """An allocator of this target. Raises NotAPython, NotInUse, or Unsupported."""
        if kind not in self._allocators:
            self._allocators[kind] = self.read(kind.name, lambda: kind(self))
        found = self._allocators[kind]
        assert isinstance(found, kind)
        return found

    def find_allocator(self, kind: type[A]) -> A | None:
        """An allocator of this target, None where it is not there or not known."""
        return or_none(lambda: self.allocator(kind))

    @property
    def unknown_allocators(self) -> dict[type[Allocator], GdbheapError]:
        """The allocators that should be there and could not be found, with the reasons."""
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
        """The C library's, whichever that is. Raises Unsupported when it is not known."""
        other = next((found for found in self.standing_in if found.replaces is MALLOC), None)
        return self.allocator(MALLOC) if other is None else other

    def require_malloc(self) -> Allocator:
        """As ``malloc``, for its error alone."""
        return self.malloc

    def _find_malloc(self) -> Allocator | None:
        return or_none(lambda: self.malloc)

    @property
    def allocators(self) -> list[Allocator]:
        """The allocators that the target has, those inside of others after them."""
        return [found for found in map(self.find_allocator, self.kinds) if found is not None]

    @property
    def walked(self) -> WalkedBlocks:
        """The blocks of all allocators, for the native half."""
        return _walked(self.allocators)

    def block_at(self, address: int) -> Block | None:
        """The innermost allocator's block that holds ``address``, used or free."""
        found = (allocator.find(address) for allocator in reversed(self.allocators))
        return next((block for block in found if block is not None), None)

    def outside(self, ranges: Ranges, of: type[Allocator]) -> Ranges:
        """The parts of ranges that are no stack, and not known to be that of an allocator looked for before ``of``."""
        ranges = subtract(ranges, [(stack.start, stack.end) for stack in self.stacks])
        for allocator in filter(None, map(self.find_allocator, self.kinds[: self.kinds.index(of)])):
            ranges = allocator.leaves(ranges)
        return ranges

    @part("other allocator")
    def other_allocator(self) -> OtherAllocator | None:
        """The allocator that is there beside the C library's, or in its place; None when none shows."""
        malloc = self.find_allocator(MALLOC)
        idle = malloc is None or malloc.idle
        walked = {found.walks for found in self.standing_in}
        return find_other(self.target, idle, walked)

    @property
    def standing_in(self) -> list[Allocator]:
        """The allocators that take the place of the C library's, or are there beside it, and are walked."""
        found = (self.find_allocator(kind) for kind in self.kinds if kind.walks is not None)
        return [allocator for allocator in found if allocator is not None]

    @part("runtimes")
    def runtimes(self) -> list[Runtime]:
        """The runtimes and servers that were recognised, with what is known of where their memory lies."""
        return find_runtimes(self.target, self.other_allocator is not None)

    def note_others(self, idle: bool) -> None:
        """Warn of allocators whose blocks are not walked, as the C library's are listed, which holds nothing if
        ``idle``."""
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
        """Blocks in use of all allocators."""
        return _used(self.allocators)

    @property
    def used_of_c(self) -> int:
        """Blocks of C code in use."""
        return _used(self._of_c)

    @property
    def blocks_of_c(self) -> WalkedBlocks:
        """The blocks of allocators that are not Python's own, in which C code asks for memory."""
        return _walked(self._of_c)

    @property
    def is_all_of_c(self) -> bool:
        """Whether no allocator is Python's own."""
        return self._of_c == self.allocators

    @property
    def _of_c(self) -> list[Allocator]:
        return [allocator for allocator in self.allocators if allocator.interpreter is None]

    @part("stacks")
    def stacks(self) -> list[Stack]:
        """The threads' stacks, ascending."""
        return find_stacks(self.target)

    @part("stacks of ended threads")
    def ended_stacks(self) -> list[EndedStack]:
        """The stacks of ended threads that the C library keeps, ascending, without what a block of malloc has."""
        found = find_ended(self.target, self.stacks)
        malloc = self._find_malloc() if found else None
        blocks = [] if malloc is None else joined(sorted([*malloc.ranges(), *malloc.single_blocks()]))
        return [stack for stack in found if not within(blocks, stack.start, stack.end)]

    @property
    def stack_ranges(self) -> Ranges:
        """The threads' stacks, ascending, without those that lie in blocks of malloc: that memory is malloc's."""
        provided = [(stack.start, stack.end) for stack in self.stacks if stack.provided]
        if provided:
            malloc = self._find_malloc()
            if malloc is not None:
                provided = subtract(provided, sorted([*malloc.ranges(), *malloc.single_blocks()]))
        return sorted(self._own_stacks() + provided)

    def _own_stacks(self) -> Ranges:
        return [(stack.start, stack.end) for stack in self.stacks if not stack.provided]

    def live_stacks(self) -> tuple[Ranges, Ranges]:
        """What may be in use of the threads' stacks, and above stack pointers outside all of them: those are on stacks
        of coroutines or of signals, in a block of malloc up to its end."""
        loose = []
        for start, end in unbounded(self.target, self.stacks):
            block = self.block_at(start)
            last = end if block is None else block.end
            loose.append((start, min(last, start + LARGEST_GUARDED)))
        return live_parts(self.target, self.stacks), loose

    def heap_ranges(self) -> Ranges:
        """The ranges in which blocks lie, ascending."""
        return sorted(self.single_blocks() + [pair for allocator in self.allocators for pair in allocator.ranges()])

    def books(self) -> Ranges:
        """Return the allocators' own records in static data."""
        return [pair for allocator in self.allocators for pair in allocator.books()]

    def unowned_ranges(self) -> Ranges:
        """Writable private anonymous memory that is no allocator's, no stack and no .bss; mappings of single blocks are
        among it."""
        return subtract(self.anonymous(), self.owned_ranges())

    def anonymous(self, writable: bool = True) -> Ranges:
        """Private anonymous memory, what may not be written too if not ``writable``. The kernel keeps an mmapped chunk
        as several mappings when a part of it was given to madvise (numpy does so) or mprotect."""
        return joined([
            (mapping.start, mapping.end)
            for mapping in self.target.mappings
            if mapping.anonymous and mapping.private and mapping.readable and (mapping.writable or not writable)
            # To read the kernel's vdso would put a page of it into the process.
            and not mapping.is_kernels
        ])  # fmt: skip

    def unwalked_ranges(self) -> Ranges:
        """Writable private anonymous memory that may be that of an allocator whose blocks are not walked."""
        return subtract(self.unowned_ranges(), self.single_blocks())

    def of_others(self) -> Ranges:
        """Return what of the allocators' ranges somebody else got from the system, ascending."""
        return sorted(pair for allocator in self.allocators for pair in allocator.of_others())

    def single_blocks(self) -> Ranges:
        """The mappings that hold one block of an allocator each, ascending."""
        return sorted(pair for allocator in self.allocators for pair in allocator.single_blocks())

    def owned_ranges(self) -> Ranges:
        """The memory of stacks, allocators and .bss, ascending; the mappings of single blocks are not among it."""
        ended = [(stack.start, stack.end) for stack in self.ended_stacks]
        return sorted(self.stack_ranges + ended + self._of_allocators())

    def taken(self) -> Ranges:
        """What .bss, the allocators and those stacks have that lie in no block, ascending."""
        return sorted(self._own_stacks() + self._of_allocators())

    def _of_allocators(self) -> Ranges:
        owned = [pair for loaded in self.target.objects for pair in loaded.bss]
        return owned + [pair for allocator in self.allocators for pair in allocator.ranges()]

    @part("held")
    def held(self) -> list[Held]:
        """Memory that is no heap, by the library whose static data points there; none where another allocator is known,
        or the C library's is not."""
        if self.other_allocator is not None or self._find_malloc() is None:
            return []
        return find_held(self.target, self.unwalked_ranges())

    def lacks_memory(self) -> bool:
        """Return whether memory that may lead to blocks is missing."""
        is_absent = any(damage.is_absence and not damage.transient for damage in self.damage)
        return bool(is_absent or self.target.partial or self.target.lacking or self.target.cut_short)

    def is_shared_memory(self, mapping: Mapping) -> bool:
        """Return whether a mapping is shared and no file on a disk is behind it."""
        return mapping.is_shared_memory(() if self.target.proc is None else self._devices)

    @part("devices of memory")
    def _devices(self) -> Collection[str]:
        return () if self.target.proc is None else memory_devices(self.target.proc)

    def labelled(self, label: str) -> Callable[[int, int], None]:
        """Progress of long work under a name."""

        def report(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(label, done, total)

        return report

    def note(self, id: RemarkId, **values: Any) -> None:
        """Add a remark to the answer, once; ``values`` are what its sentence needs."""
        remark = Remark(id, values)
        if remark not in self._remarks:
            self._remarks.append(remark)

    @property
    def damage(self) -> list[Damage]:
        """All damage met so far. None is listed where reading ended early, or where memory without pointers was not
        copied: what was not read looks the same."""
        return [] if self.target.cut_short or self.target.space.left_out else self.all_damage

    @property
    def all_damage(self) -> list[Damage]:
        """All damage met so far, and what was not read."""
        return self.target.damage + [damage for allocator in self.asked_allocators for damage in allocator.damage]

    @property
    def asked_allocators(self) -> list[Allocator]:
        """The allocators that were asked for so far, and are there."""
        return [self._allocators[kind] for kind in self.kinds if kind in self._allocators]


def _walked(allocators: Sequence[Allocator]) -> WalkedBlocks:
    blocks = WalkedBlocks()
    for allocator in allocators:
        allocator.give(blocks)
    return blocks


def _used(allocators: Sequence[Allocator]) -> int:
    return sum(count for allocator in allocators for _size, count in allocator.used_sizes())
