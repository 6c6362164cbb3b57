"""Where did the memory go? Every byte of the address space, and every resident page, in exactly one line.

A resident page that several owners touch belongs to one of them, in this order (the last wins): free memory, top,
an allocator's own overhead, other memory, shared memory, stacks, files, mmapped chunks, blocks in use. So what is
resident under "free" are whole pages that nobody holds.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.allocators.other import OtherAllocator
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap
from gdbheap.target.mappings import Mapping
from gdbheap.target.ranges import subtract

# Ascending rank: the later owner gets a page that both touch.
OWNERS = (
    "glibc.free",
    "pymalloc.free",
    "mimalloc.free",
    "glibc.top",
    "glibc.overhead",
    "pymalloc.overhead",
    "mimalloc.overhead",
    "other",
    "other.allocator",
    "shared",
    "stacks",
    "file",
    "glibc.mmapped",
    "glibc.used",
    "pymalloc.used",
    "mimalloc.used",
    "unexplained",
)
RANK = {owner: rank for rank, owner in enumerate(OWNERS)}
STATES = {
    "used": "glibc.used",
    "free": "glibc.free",
    "tcache": "glibc.free",
    "fast": "glibc.free",
    "top": "glibc.top",
    "fencepost": "glibc.overhead",
    "foreign": "other",
    "unexplained": "unexplained",
}
NAMES = (
    ("file", None, "files: programs, libraries, mapped files"),
    ("stacks", None, "stacks of threads"),
    ("shared", None, "shared memory"),
    ("glibc", None, "glibc malloc"),
    ("glibc.used", "glibc", "chunks in use"),
    ("glibc.mmapped", "glibc", "chunks with a mapping of their own"),
    ("glibc.free", "glibc", "free chunks, also in thread caches and fast bins"),
    ("glibc.top", "glibc", "top chunks"),
    ("glibc.overhead", "glibc", "arenas' own data, and address space reserved for them"),
    ("pymalloc", None, "Python's pymalloc"),
    ("pymalloc.used", "pymalloc", "blocks in use"),
    ("pymalloc.free", "pymalloc", "free blocks and pools"),
    ("pymalloc.overhead", "pymalloc", "pool headers and padding"),
    ("mimalloc", None, "Python's mimalloc"),
    ("mimalloc.used", "mimalloc", "blocks in use"),
    ("mimalloc.free", "mimalloc", "free blocks, pages and segments, and address space reserved for them"),
    ("mimalloc.overhead", "mimalloc", "segment headers and padding"),
    ("other", None, "other memory that a program or library mapped"),
    ("unexplained", None, "unexplained"),
)


@dataclass(frozen=True)
class Rss:
    """What the kernel says: resident and swapped bytes, and where that was read."""

    bytes: int | None
    swap: int | None
    source: str


@dataclass(frozen=True)
class Line:
    """One line of the ledger; sizes in bytes, None where residency is not known."""

    id: str
    parent: str | None
    name: str
    virtual: int
    resident: int | None
    swapped: int | None


@dataclass(frozen=True)
class Finding:
    """Something worth knowing, with the bytes it is about and what to do next."""

    id: str
    bytes: int
    text: str
    advice: str


@dataclass(frozen=True)
class Ledger:
    """The answer of ``heap``."""

    rss: Rss
    ledger: list[Line]
    findings: list[Finding]


# Above it is the kernel's half; [vsyscall] lies there, which is in every process's maps and nobody's memory.
USER_END = 1 << 63

REST = "other.rest"

Sums = dict[str, tuple[int, int, int]]


def ledger(heap: Heap) -> Ledger:
    """The whole address space. What cannot be looked into (no glibc, no memory) stays under files, stacks and other."""
    sums = _settle(heap, _sweep(heap))
    known = heap.target.pages is not None
    lines = [_line(name, parent, text, sums, known) for name, parent, text in _names(heap)]
    rss = Rss(heap.target.rss.bytes, heap.target.rss.swap, heap.target.rss.source)
    found = findings(lines) + _other_finding(heap, lines)
    return Ledger(rss, [line for line in lines if line.virtual or not line.parent], found)


def _names(heap: Heap) -> list[tuple[str, str | None, str]]:
    """``NAMES``, mimalloc's only where it is in use; the other memory is told apart where an allocator is known to be
    in it."""
    absent = "mimalloc" if heap.mimalloc is None else " "
    names: list[tuple[str, str | None, str]] = [row for row in NAMES if not row[0].startswith(absent)]
    other = _other_allocator(heap)
    if other is None:
        return names
    place = [name for name, _parent, _text in names].index("other") + 1
    children = ((f"other.{other.id}", "other", other.title), (REST, "other", "the rest"))
    return [*names[:place], *children, *names[place:]]


def _other_allocator(heap: Heap) -> OtherAllocator | None:
    return heap.other_allocator if heap.target.refusal is None else None


def _line(name: str, parent: str | None, text: str, sums: Sums, known: bool) -> Line:
    if parent == "other":
        members = [sums["other" if name == REST else "other.allocator"]]
    else:
        members = [values for owner, values in sums.items() if owner == name or owner.startswith(name + ".")]
    virtual, resident, swapped = (sum(values[place] for values in members) for place in range(3))
    return Line(name, parent, text, virtual, resident if known else None, swapped if known else None)


def findings(lines: list[Line]) -> list[Finding]:
    """Free memory that malloc keeps resident, if it is a tenth of what it holds or more."""
    by_id = {line.id: line for line in lines}
    kept, whole = by_id["glibc.free"].resident or 0, by_id["glibc"].resident or 0
    if not whole or kept * 10 < whole:
        return []
    text = f"{100 * kept / whole:.0f} % of what glibc's malloc keeps resident are free pages"
    return [Finding("glibc-free", kept, text, "heap holes shows the largest holes and what pins them")]


def _other_finding(heap: Heap, lines: list[Line]) -> list[Finding]:
    """Another allocator's memory, of which no more is known here."""
    other = _other_allocator(heap)
    line = next((line for line in lines if line.parent == "other" and line.id != REST), None)
    if other is None or line is None:
        return []
    text = f"{other.title}: what {other.kind.name} holds free in there is not known here"
    return [Finding("other-allocator", line.resident or 0, text, other.kind.advice)]


class _Layout:
    """The address space as ascending pieces, each with an owner or with blocks that say theirs."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self.pieces: list[tuple[int, int, str]] = []
        self.regions: set[int] = set()
        self.arenas: set[int] = set()

    def build(self) -> None:
        """Allocators first; what they leave of each mapping belongs to the mapping's own owner."""
        heap = self._heap
        self.pieces = [(stack.start, stack.end, "stacks") for stack in heap.stacks]
        try:
            self._add_glibc()
        except GdbheapError as error:
            heap.note(str(error))
        python = heap.python_or_none
        if python is not None:
            self.arenas = {start for start, _end in python.ranges()}
            self.pieces += [(start, end, "arena") for start, end in python.ranges()]
        if heap.mimalloc is not None:
            self.pieces += [(segment.start, segment.end, "segment") for segment in heap.mimalloc.segments]
            self.pieces += [(start, end, "mimalloc.free") for start, end in heap.mimalloc.reserved()]
        for loaded in heap.target.objects:
            self.pieces += [(start, end, "file") for start, end in loaded.bss]
        self._add_rest()

    def _add_glibc(self) -> None:
        heap = self._heap
        _chunks, glibc = heap.chunks, heap.glibc
        stretches = sorted((stretch.start, stretch.end) for stretch in glibc.stretches)
        self.regions = {start for start, _end in stretches}
        self.pieces += [(start, end, "region") for start, end in stretches]
        reserved = subtract(sorted(glibc.owned_ranges()), stretches)
        self.pieces += [(start, end, "glibc.overhead") for start, end in reserved]
        owners = {True: "glibc.free", False: "glibc.mmapped"}
        self.pieces += [(chunk.base, chunk.end, owners[chunk.cached]) for chunk in heap.mapped]

    def _add_rest(self) -> None:
        self.pieces.sort()
        taken = [(start, end) for start, end, _owner in self.pieces]
        mappings = list(self._heap.target.mappings)
        whole = [(mapping.start, mapping.end) for mapping in mappings if mapping.start < USER_END]
        starts = [mapping.start for mapping in mappings]
        other = _other_allocator(self._heap)
        for start, end in subtract(whole, taken):
            mapping = mappings[bisect_right(starts, start) - 1]
            self.pieces.append((start, end, _owner_of(mapping, other)))
        self.pieces.sort()


def _owner_of(mapping: Mapping, other: OtherAllocator | None) -> str:
    if not mapping.private:
        return "shared"
    if not mapping.anonymous:
        return "file"
    return "other.allocator" if other is not None and other.owns(mapping) else "other"


def _sweep(heap: Heap) -> Sums:
    layout = _Layout(heap)
    if heap.target.refusal is None:
        layout.build()
    else:
        heap.note(str(heap.target.refusal))
        layout._add_rest()
    sweep = _native.Sweep(heap.target.pages, len(OWNERS))
    states = {state: RANK[owner] for state, owner in STATES.items()}
    parts = (RANK["pymalloc.used"], RANK["pymalloc.free"], RANK["pymalloc.overhead"])
    names = ("mimalloc.used", "mimalloc.free", "mimalloc.overhead", "unexplained")
    segment_parts = (RANK[names[0]], RANK[names[1]], RANK[names[2]], RANK[names[3]])
    at = 0
    for start, end, owner in layout.pieces:
        if start < at:
            heap.note(f"two owners claim the bytes at {start:#x} ({owner} is the second)")
            start = at
        if start >= end:
            continue
        if owner == "region" and start in layout.regions:
            at = sweep.add_chunks(heap.chunks, start, states)
        elif owner == "arena" and start in layout.arenas:
            at = sweep.add_arena(heap.target.space, heap.python.pools, start, parts)
        elif owner == "segment" and heap.mimalloc is not None:
            at = sweep.add_segment(heap.mimalloc.blocks, start, segment_parts)
        else:
            sweep.add(start, end, RANK.get(owner, RANK["unexplained"]))
            at = end
    return dict(zip(OWNERS, sweep.finish()))


def _settle(heap: Heap, sums: Sums) -> Sums:
    """Sets the pages found beside what the kernel says; what it says beyond them is unexplained."""
    rss = heap.target.rss
    if heap.target.pages is None or rss.bytes is None:
        return sums
    missing = rss.bytes - sum(resident for _, resident, _ in sums.values())
    swapped = (rss.swap or 0) - sum(swap for _, _, swap in sums.values())
    if missing < 0:
        heap.note(
            f"the pages found are {-missing} bytes more than the kernel's Rss (zero pages that cannot be told apart)"
        )
    virtual, resident, swap = sums["unexplained"]
    return {**sums, "unexplained": (virtual, resident + max(0, missing), swap + max(0, swapped))}
