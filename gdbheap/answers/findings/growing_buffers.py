"""Holes that buffers left behind as realloc moved them: they still hold what the buffers held then."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap import _native
from gdbheap.allocators.glibc.arenas import HEADER
from gdbheap.answers.describing import describe_blocks
from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.answers.findings.settings import MMAP_THRESHOLD
from gdbheap.answers.findings.thresholds import DEFAULT, MMAPPED_AGAIN, mmap_threshold
from gdbheap.words import counted, size_text

MOST_BUFFERS, MOST_HOLES = 64, 1024
# A copy as long as the buffer, or nearly, is none of when it was smaller.
SMALLER = 0.95
# Of a copy, what may have been handed out again at its beginning.
GONE = 0.5
LEAST_COPIES = 3


@dataclass(frozen=True)
class Copy:
    """[start, end): what is left of a copy of a buffer's (address, size with the header) first ``length`` bytes."""

    start: int
    end: int
    length: int
    buffer: tuple[int, int]


def find(evidence: Evidence) -> list[Claim]:
    """The resident pages of such copies, of 128 KiB or more."""
    holes = sorted(evidence.large_holes, key=lambda hole: hole[0] - hole[1])[:MOST_HOLES]
    if evidence.glibc is None or evidence.heap.target.remote and not evidence.detail:
        return []
    if not evidence.worth(evidence.released(holes)):
        return []
    copies = _copies(evidence, holes)
    kept = evidence.released((copy.start, copy.end) for copy in copies)
    if len(copies) < LEAST_COPIES or not evidence.worth(kept):
        return []
    buffers, par = {copy.buffer for copy in copies}, evidence.glibc.malloc.par
    address, size = largest = max(
        buffers, key=lambda buffer: sum(copy.end - copy.start for copy in copies if copy.buffer == buffer)
    )
    lengths = [copy.length for copy in copies if copy.buffer == largest]
    others = f" and {counted(len(buffers) - 1, 'other buffer')}" if len(buffers) > 1 else ""
    lengths_text = f"{size_text(min(lengths))} to {size_text(max(lengths))}"
    text = (
        f"in holes are {counted(len(copies), 'copy', 'copies')} of the beginnings of {_what(evidence, largest)} at "
        f"{address:#x} ({size_text(size)}, copies of {lengths_text}){others}: as realloc() leaves them where it moves "
        f"a buffer that grows; from mmap_threshold on, which is {mmap_threshold(par)}, it moves pages "
        "and leaves nothing"
    )
    advice = f"allocate such a buffer once, as large as it will be, or {MMAPPED_AGAIN}"
    figures = {"address": address, "size": size, "copies": len(copies), "buffers": len(buffers)}
    figures["mmap_threshold"] = par.mmap_threshold
    finding = Finding("growing-buffers", kept, text, advice, figures, environment=MMAP_THRESHOLD)
    return [Claim(finding, lambda: [(copy.start, copy.end) for copy in copies])]


def _copies(evidence: Evidence, holes: list[tuple[int, int]]) -> list[Copy]:
    """What of the holes was a buffer that is larger now; where two say that of the same bytes the one that more of the
    hole speaks for."""
    target = evidence.heap.target
    if target.pages is None:
        return []
    buffers = evidence.largest_blocks(DEFAULT, MOST_BUFFERS)
    places = [(address, address + size - HEADER) for address, size in buffers]
    found: list[Copy] = []
    for copied in _native.find_copies(target.space, target.pages, places, holes):
        start, end, base = copied.start, copied.end, copied.base
        length = end - base
        if not DEFAULT <= length <= SMALLER * buffers[copied.buffer][1] or start - base > GONE * length:
            continue
        for other in found:
            # Where a copy ends is known to the page.
            if start < other.end and other.start < end:
                start, end = (other.end, end) if base > other.start else (start, other.start)
        if end - start > target.machine.page:
            found.append(Copy(start, end, length, buffers[copied.buffer]))
    return found


def _what(evidence: Evidence, buffer: tuple[int, int]) -> str:
    """What a buffer is, as far as that is quickly said."""
    if evidence.objects is None:
        return "a buffer"
    return str(describe_blocks(evidence.heap, [buffer])[buffer[0]])
