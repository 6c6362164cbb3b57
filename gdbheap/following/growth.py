"""Interpret the system calls that change a process's memory, and sum the calls that make it grow."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from gdbheap.answers.distribution import SizeShare, SizeSums
from gdbheap.dataclass import dataclass
from gdbheap.host.headroom import mappings_limit
from gdbheap.machines.machine import Machine
from gdbheap.stack_frames import StackFrame
from gdbheap.targets.mappings import Mappings
from gdbheap.targets.ranges import Ranges, joined, subtract

__all__ = [
    "GROWS",
    "IDS",
    "Cost",
    "Counted",
    "Growth",
    "GrowthStack",
    "ReservedMemory",
    "MemoryCall",
    "Operation",
    "Unseen",
    "counted",
    "unseen",
]

HEAP, STACK = "[heap]", "[stack]"

MAP_SHARED, MAP_FIXED, MAP_ANONYMOUS = 0x01, 0x10, 0x20
PROT_WRITE = 2
MREMAP_FIXED, MREMAP_DONTUNMAP = 2, 4
# MADV_DONTNEED, MADV_FREE, MADV_REMOVE: the kinds of advice that return memory to the kernel.
GIVES_BACK = (4, 8, 9)
NO_ACCESS = "---p"
MAX_ENDS = 1 << 21
GROWS = ("brk", "mmap", "mremap", "commit")
RETURNS = ("brk.shrink", "mremap.shrink", "munmap", "madvise", "decommit")
IDS = (*GROWS, "mmap.file", "reserve", *RETURNS, "other", "failed")


@dataclass(frozen=True)
class Counted:
    """The calls that made memory grow by brk, or by the other system calls: their bytes and number, in total and by
    size.
    """

    bytes: int
    calls: int
    sizes: list[SizeShare]


@dataclass(frozen=True)
class Operation:
    """All calls of one kind, which ``id`` names.

    Memory grows by "brk", "mmap" (private anonymous memory), "mremap" and "commit" (an mprotect call that makes
    reserved memory usable). "reserve" maps memory without access, "mmap.file" a file or shared memory. "brk.shrink",
    "mremap.shrink", "munmap", "madvise" and "decommit" (an mprotect call) return memory. "other" changes nothing;
    "failed" calls have no bytes."""

    id: str
    calls: int
    bytes: int


@dataclass(frozen=True)
class GrowthStack:
    """All calls that made memory grow and have the same stack."""

    bytes: int
    calls: int
    frames: list[StackFrame]


@dataclass(frozen=True)
class OtherStacks:
    """The calls that made memory grow and whose stacks were not kept.

    Stacks are not kept if there are too many, or if reading them would take too long. The limits are MAX_STACKS stacks,
    and MAX_FRAMES frames in them."""

    bytes: int
    calls: int


@dataclass(frozen=True)
class Unseen:
    """Bytes by which the actual mappings at the end differ from the mappings that result from the observed calls.

    ``came``: the bytes mapped without an observed call; ``went``: the bytes unmapped without an observed call;
    ``by_stacks``: the growth of the main thread's stack, which takes no call.
    """

    came: int
    went: int
    by_stacks: int


@dataclass(frozen=True)
class Cost:
    """The delays that following caused in the process.

    ``stops``: how often a thread was stopped. ``stood``: the total of these stops in seconds. ``held``: the seconds for
    which the whole process was stopped, at the beginning and at the end.
    """

    stops: int
    stood: float
    held: float


@dataclass(frozen=True)
class Growth:
    """The growth of a process's memory, and the calls that caused it.

    ``pid``: None for a program that gdbheap started. The figures then include all processes that this program started.
    ``mmap``: the growth by mmap, mremap and mprotect.
    ``is_cut``: some "commit" and "decommit" calls may be missing, because the reserved ranges were too many to track.
    ``rss_before``, ``rss_after``: the resident anonymous bytes.
    ``file_pages``: the bytes of file pages that became resident because gdbheap read the code.

    The last three are None if they are unknown, and for a program that gdbheap started.
    """

    pid: int | None
    seconds: float
    brk: Counted
    mmap: Counted
    operations: list[Operation]
    sites: list[GrowthStack]
    unseen: Unseen | None
    cost: Cost
    why_ended: str
    places: int
    unpatched: int
    status: int | None
    lost: int | None
    other_stacks: OtherStacks | None = None
    is_cut: bool = False
    rss_before: int | None = None
    rss_after: int | None = None
    file_pages: int | None = None

    @property
    def returned(self) -> int:
        """The bytes of the calls that returned memory to the kernel."""
        return sum(row.bytes for row in self.operations if row.id in RETURNS)


class MemoryCall(NamedTuple):
    """A system call that changes memory.

    ``id``: the id of its ``Operation``.
    ``bytes``: by how much memory grew or shrank.
    ``mapped``, ``unmapped``: the ranges that the call mapped and unmapped, else None.
    ``replaces``: whether it replaced older mappings in its range (MAP_FIXED).
    """

    id: str
    bytes: int
    mapped: tuple[int, int] | None = None
    unmapped: tuple[int, int] | None = None
    replaces: bool = False


class ReservedMemory:
    """The state of a process that is needed to interpret its calls.

    It consists of the end of the process's brk heap (None: unknown), and of the reserved ranges (mapped without
    access).
    """

    def __init__(self, machine: Machine, before: Mappings) -> None:
        self._machine = machine
        self._brk = next((mapping.end for mapping in before if mapping.path == HEAP), None)
        closed = [(one.start, one.end) for one in before if one.perms == NO_ACCESS and one.anonymous]
        self._reserved = _Ranges(joined(sorted(closed)))

    @property
    def is_cut(self) -> bool:
        """Whether the reserved ranges are no longer known, because there were too many."""
        return self._reserved.is_cut

    def read(self, number: int, registers: Sequence[int]) -> MemoryCall:
        """Return the effect of system call ``number``.

        ``registers``: the thread's registers right after the call, in the kernel's order (as in ``machine.notes``).
        """
        known = self._machine.system_calls
        name, result = known.of_memory.get(number, ""), registers[known.result]
        arguments = [registers[place] for place in known.arguments]
        if name == "brk":
            return self._read_brk(result)
        if self._machine.is_error(result):
            return MemoryCall("failed", 0)
        read = {
            "mmap": self._read_mmap, "munmap": self._read_munmap, "mremap": self._read_mremap,
            "madvise": self._read_madvise, "mprotect": self._read_mprotect,
        }.get(name)  # fmt: skip
        return MemoryCall("other", 0) if read is None else read(arguments, result)

    def _read_brk(self, result: int) -> MemoryCall:
        before, self._brk = self._brk, result
        if before is None or result == before:
            return MemoryCall("other", 0)
        low, high = sorted((self._machine.page_up(before), self._machine.page_up(result)))
        if result > before:
            return MemoryCall("brk", result - before, mapped=(low, high))
        return MemoryCall("brk.shrink", before - result, unmapped=(low, high))

    def _read_mmap(self, arguments: Sequence[int], result: int) -> MemoryCall:
        size, flags = self._machine.page_up(arguments[1]), arguments[3]
        is_private = flags & MAP_ANONYMOUS and not flags & MAP_SHARED
        is_reserve = bool(is_private) and not arguments[2]
        self._reserved.change(result, result + size, is_reserve)
        kind = "reserve" if is_reserve else "mmap" if is_private else "mmap.file"
        return MemoryCall(kind, size, mapped=(result, result + size), replaces=bool(flags & MAP_FIXED))

    def _read_munmap(self, arguments: Sequence[int], _result: int) -> MemoryCall:
        start, size = arguments[0], self._machine.page_up(arguments[1])
        self._reserved.change(start, start + size, False)
        return MemoryCall("munmap", size, unmapped=(start, start + size))

    def _read_mremap(self, arguments: Sequence[int], result: int) -> MemoryCall:
        old, before, after = arguments[0], *map(self._machine.page_up, arguments[1:3])
        stays = not before or arguments[3] & MREMAP_DONTUNMAP
        grown = after if stays else after - before
        unmapped = None if stays else (old, old + before)
        kind = "mremap" if grown > 0 else "mremap.shrink" if grown < 0 else "other"
        replaces = bool(arguments[3] & MREMAP_FIXED)
        return MemoryCall(kind, abs(grown), mapped=(result, result + after), unmapped=unmapped, replaces=replaces)

    def _read_madvise(self, arguments: Sequence[int], _result: int) -> MemoryCall:
        return MemoryCall("madvise" if arguments[2] in GIVES_BACK else "other", self._machine.page_up(arguments[1]))

    def _read_mprotect(self, arguments: Sequence[int], _result: int) -> MemoryCall:
        start, end = arguments[0], arguments[0] + self._machine.page_up(arguments[1])
        if self.is_cut:
            return MemoryCall("other", 0)
        reserved = size_of(self._reserved.within(start, end))
        if arguments[2] & PROT_WRITE:
            self._reserved.change(start, end, False)
            return MemoryCall("commit" if reserved else "other", reserved)
        if arguments[2]:
            return MemoryCall("other", 0)
        self._reserved.change(start, end, True)
        return MemoryCall("decommit", end - start - reserved)


def unseen(expected: ExpectedMappings, after: Mappings) -> Unseen:
    """Return the differences between the expected and the actual mappings, except in doubtful ranges."""
    found, left_out = joined(sorted(after.ranges())), expected.doubtful()
    grown = subtract(subtract(found, expected.ranges()), left_out)
    gone = subtract(subtract(expected.ranges(), found), left_out)
    stacks = sum(end - start for start, end in grown if _is_stack(after, start))
    return Unseen(size_of(grown) - stacks, size_of(gone), stacks)


def _is_stack(mappings: Mappings, address: int) -> bool:
    mapping = mappings.find(address)
    return mapping is not None and mapping.path == STACK


def size_of(ranges: Ranges) -> int:
    """Return the total size of disjoint ranges, in bytes."""
    return sum(end - start for start, end in ranges)


class ExpectedMappings:
    """The mappings that should exist after the calls seen so far. The calls themselves are not stored.

    The calls of several threads may arrive in an order that is not the kernel's. If a call maps memory that still
    counts as mapped, the call that unmapped it must arrive later: the unmapping is then expected.
    """

    def __init__(self, ranges: Ranges) -> None:
        self._mapped, self._owed, self._doubtful = _Ranges(joined(sorted(ranges))), _Ranges([]), _Ranges([])

    @property
    def is_cut(self) -> bool:
        """Whether the expected mappings are no longer known, because there were too many ranges."""
        return any(ranges.is_cut for ranges in (self._mapped, self._owed, self._doubtful))

    def add(self, call: MemoryCall, is_doubtful: bool) -> None:
        """Apply a call. ``is_doubtful``: the call was made while the mappings were read, so that the state of its
        ranges is unknown."""
        # A call that unmaps and maps (mremap) unmaps first.
        if call.unmapped is not None:
            self.unmap(call.unmapped)
        if call.mapped is not None:
            self.map(call.mapped, call.replaces)
        for found in (call.mapped, call.unmapped) if is_doubtful else ():
            if found is not None:
                self._doubtful.change(*found, True)

    def doubtful(self) -> Ranges:
        """Return the ranges for which gdbheap does not know whether they are mapped, ascending."""
        return self._doubtful.ranges()

    def map(self, new: tuple[int, int], replaces: bool) -> None:
        """Mark a range as mapped.

        If the range still counts as mapped, a call that unmaps it is expected later, unless this call ``replaces``
        older mappings (MAP_FIXED)."""
        if not replaces:
            for start, end in self._mapped.within(*new):
                self._owed.change(start, end, True)
        self._mapped.change(*new, True)

    def unmap(self, old: tuple[int, int]) -> None:
        """Mark a range as unmapped.

        Parts whose unmapping was expected stay mapped, because a newer mapping has replaced them. Their unmapping is no
        longer expected."""
        owed = self._owed.within(*old)
        for start, end in owed:
            self._owed.change(start, end, False)
        for start, end in subtract([old], owed):
            self._mapped.change(start, end, False)

    def ranges(self) -> Ranges:
        """Return all mapped ranges, ascending."""
        return self._mapped.ranges()


class _Ranges:
    """Disjoint ranges, stored as one ascending list of their starts and ends, so that a change moves only a few of
    them.

    Ranges whose unmapping was not seen stay in the list. If there are more than twice as many ranges as a process may
    have mappings, all are dropped, and ``is_cut`` is set."""

    def __init__(self, ranges: Ranges) -> None:
        self._ends = [end for found in ranges for end in found]
        # Two ends for each range. MAX_ENDS, because the kernel's limit of mappings can be set to any value.
        self._most = min(4 * mappings_limit(), MAX_ENDS)
        self.is_cut = False

    def change(self, start: int, end: int, is_in: bool) -> None:
        """Add [start, end) to the ranges if ``is_in``, else remove it from them."""
        if start >= end or self.is_cut:
            return
        low, high = bisect_left(self._ends, start), bisect_right(self._ends, end)
        # An odd number of ends below an address means that the address is inside a range.
        kept = [start] * (low % 2 != is_in) + [end] * (high % 2 != is_in)
        self._ends[low:high] = kept
        if len(self._ends) > self._most:
            self._ends, self.is_cut = [], True

    def within(self, start: int, end: int) -> Ranges:
        """Return the parts of the ranges that lie in [start, end)."""
        low, high = bisect_right(self._ends, start), bisect_left(self._ends, end)
        inside = [start] * (low % 2) + self._ends[low:high] + [end] * (high % 2)
        return list(zip(inside[::2], inside[1::2]))

    def ranges(self) -> Ranges:
        """Return all ranges, ascending."""
        return list(zip(self._ends[::2], self._ends[1::2]))


def counted(sizes: SizeSums) -> Counted:
    """Return the bytes and the number of the calls in ``sizes``, in total and for each range of sizes."""
    return Counted(sizes.bytes, sizes.calls, sizes.shares())
