"""Blocks to which nothing points, or to which only other lost blocks point."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from gdbheap import _native
from gdbheap.answers.unreachable import LOST_BLOCKS, requests_for
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding
from gdbheap.findings.lost_blocks.counted import CountedCycles, find_counted_cycles


@dataclass(frozen=True)
class LostBlocks(Figures):
    """Lost blocks. ``blocks``: their number. ``heads``: how many of them no other lost block points to.

    ``largest``: the bytes of the block size that has the most bytes. malloc serves requests of ``least`` to ``most``
    bytes with blocks of this size. ``by_kernel``: whether the kernel may have the only pointers to some of the blocks.
    ``cycles``: objects that keep one another alive by their reference counts. ``beside_malloc``: whether Python's own
    allocator handed out the blocks without calling malloc. ``is_python``: whether the program runs Python, whose
    integers may be addresses of blocks from ctypes or cffi."""

    ids = ("lost-blocks",)
    blocks: int
    heads: int
    largest: int = field(metadata=UNLISTED)
    least: int = field(metadata=UNLISTED)
    most: int = field(metadata=UNLISTED)
    by_kernel: bool = field(default=False, metadata=UNLISTED)
    cycles: CountedCycles = field(default=CountedCycles(), metadata=UNLISTED)
    beside_malloc: bool = field(default=False, metadata=UNLISTED)
    is_python: bool = field(default=False, metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with one finding about all lost blocks, from the graph of references. The graph is built only for
    few blocks, or with ``detail``.

    The list is empty if the lost bytes are too few, or if references that may reach the blocks were not read.
    """
    found = evidence.unreachable
    if found is None:
        return []
    causes = found.causes
    rows = [row for row in found.rows if causes[row.cause].group == LOST_BLOCKS]
    size = sum(row.bytes + row.buffers for row in rows) - evidence.absent_unreached
    if not evidence.worth(size):
        return []
    figures = _figures(evidence, causes, rows, size)
    catch = evidence.line("catch", "malloc", f"--min={figures.least}", f"--max={figures.most}", calls=True)
    commands = [*evidence.line("unreachable"), *([] if figures.beside_malloc else catch)]
    return [Finding("lost-blocks", size, figures, commands)]


def _figures(
    evidence: Evidence, causes: list[_native.Cause], rows: list[_native.LostGroup], all_bytes: int
) -> LostBlocks:
    sizes: Counter[int] = Counter()
    for row in rows:
        sizes[row.size] += row.bytes
    (size, largest), *_others = sizes.most_common(1)
    heads = sum(cause.count for cause in causes if cause.group == LOST_BLOCKS)
    same = [address for row in rows if row.size == size for address in row.addresses]
    asked = requests_for(evidence.heap, same)
    beside_malloc = asked is None or evidence.is_beside_malloc(same)
    least, most = asked or (0, size)
    return LostBlocks(
        sum(row.count for row in rows),
        heads,
        largest,
        least,
        most,
        not evidence.heap.kernel_pointers.is_whole,
        find_counted_cycles(evidence, all_bytes),
        beside_malloc,
        evidence.heap.is_python,
    )
