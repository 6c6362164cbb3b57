"""Holes that buffers left when realloc moved them. The holes still contain old copies of the buffers' contents."""

from __future__ import annotations

from dataclasses import field

from gdbheap import _native
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.arenas import HEADER
from gdbheap.answers.accounting.describing import BlockDescription, describe_blocks
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.settings import MMAP_THRESHOLD
from gdbheap.findings.thresholds import DEFAULT_THRESHOLD, MMAP, OWN, origin_in

MAX_BUFFERS, MAX_HOLES = 64, 1024
# The longest copy that counts, as a share of the buffer. A longer one does not prove that the buffer was smaller.
MAX_SHARE_OF_BUFFER = 0.95
# At most this share of a copy, at its beginning, may have been reused.
MAX_SHARE_REUSED = 0.5
MIN_COPIES = 3


@dataclass(frozen=True)
class GrowingBuffers(Figures):
    """Old contents of buffers in holes.

    ``copies``: the number of old copies. ``buffers``: how many buffers they are copies of. ``origin``: how
    ``mmap_threshold`` got its value. Fields about the buffer with the most copies: ``address``. ``size``. ``what``: its
    description, None if that takes long. ``shortest`` and ``longest``: the bytes of its shortest and its longest copy.
    """

    ids = ("growing-buffers",)
    address: int
    size: int
    copies: int
    buffers: int
    mmap_threshold: int
    origin: str
    what: BlockDescription | None
    shortest: int = field(metadata=UNLISTED)
    longest: int = field(metadata=UNLISTED)


@dataclass(frozen=True)
class Copy:
    """The remains of an old copy of a buffer's beginning, at [``start``, ``end``).

    ``length``: how many bytes of the buffer were copied. ``buffer``: the buffer's address, and its size with header."""

    start: int
    end: int
    length: int
    buffer: tuple[int, int]


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the resident pages of old copies of buffers, each copy of 128 KiB or more. The
    list is empty if the finding's bytes are unknown or too few.
    """
    holes = sorted(evidence.large_holes, key=lambda hole: hole[0] - hole[1])[:MAX_HOLES]
    if evidence.heap.target.remote and not evidence.detail:
        return []
    if not evidence.worth(evidence.released(holes)):
        return []
    copies = _copies(evidence, holes)
    kept = evidence.released((copy.start, copy.end) for copy in copies)
    if len(copies) < MIN_COPIES or not evidence.worth(kept):
        return []
    figures = _figures(evidence, copies)
    environment = {} if figures.origin == OWN else MMAP_THRESHOLD
    finding = Finding("growing-buffers", kept, figures, environment=environment)
    return [FindingClaim(finding, lambda: [(copy.start, copy.end) for copy in copies])]


def _figures(evidence: Evidence, copies: list[Copy]) -> GrowingBuffers:
    buffers, par = {copy.buffer for copy in copies}, evidence.heap.allocator(GlibcAllocator).malloc.par
    address, size = largest = max(
        buffers, key=lambda buffer: sum(copy.end - copy.start for copy in copies if copy.buffer == buffer)
    )
    lengths = [copy.length for copy in copies if copy.buffer == largest]
    counts, about = (len(copies), len(buffers)), (origin_in(evidence.heap.target, par, MMAP), _what(evidence, largest))
    return GrowingBuffers(address, size, *counts, par.mmap_threshold, *about, min(lengths), max(lengths))


def _copies(evidence: Evidence, holes: list[tuple[int, int]]) -> list[Copy]:
    """Return the parts of holes that contain old copies of buffers. Each of these buffers has grown since.

    If two copies claim the same bytes, the one that agrees with the hole in more places gets them. The native search
    returns it first."""
    target = evidence.heap.target
    if target.pages is None:
        return []
    buffers = evidence.heap.allocator(GlibcAllocator).largest_used(DEFAULT_THRESHOLD, MAX_BUFFERS)
    places = [(address, address + size - HEADER) for address, size in buffers]
    found: list[Copy] = []
    for copied in _native.find_copies(target.space, target.pages, places, holes):
        start, end, base = copied.start, copied.end, copied.base
        length = end - base
        if length < DEFAULT_THRESHOLD or length > MAX_SHARE_OF_BUFFER * buffers[copied.buffer][1]:
            continue
        if start - base > MAX_SHARE_REUSED * length:
            continue
        for other in found:
            # Only the page in which a copy ends is known.
            if start < other.end and other.start < end:
                start, end = (other.end, end) if base > other.start else (start, other.start)
        if end - start > target.machine.page:
            found.append(Copy(start, end, length, buffers[copied.buffer]))
    return found


def _what(evidence: Evidence, buffer: tuple[int, int]) -> BlockDescription | None:
    """Return a description of a buffer; None if computing it would take long."""
    return None if evidence.objects is None else describe_blocks(evidence.heap, [buffer])[buffer[0]]
