"""Slabs, spans or pages, each for one block size, whose blocks would fit into fewer slabs, spans or pages."""

from __future__ import annotations

from collections import Counter

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator
from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.jemalloc_unused.rule import SERVERS
from gdbheap.targets.target import AT_ENTRY

# The finding names 'heap pins' if the blocks that it lists keep at least this percentage of RSS.
MIN_PERCENT_OF_PINS = 1


@dataclass(frozen=True)
class Fragmented(Figures):
    """The groups of blocks (``kind``: slabs, spans or pages) that would be empty after packing.

    ``groups``: the number of groups, out of ``all_groups``, that would be empty if their ``blocks`` moved into other
    groups. ``free``: the bytes of free blocks in all groups. ``sizes``: the number of block sizes for which packing
    frees at least a page. ``size``: the block size for which it frees the most, ``of_size`` bytes. ``server``: "redis"
    or "valkey" if the program has its own jemalloc and can move blocks; "" for all other programs. ``pins``: whether
    ``heap pins`` lists blocks that keep much of this memory.
    """

    ids = ("fragmented-*",)
    title: str
    kind: str
    groups: int
    all_groups: int
    blocks: int
    free: int
    sizes: int
    size: int
    of_size: int
    server: str = ""
    pins: bool = False


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding for each allocator, about the resident pages of the groups that packing would empty.

    The absent pages of the groups that packing would fill are subtracted. The list is empty if the finding's bytes are
    unknown or too few.
    """
    heap = evidence.heap
    if heap.target.pages is None:
        return []
    found = [(allocator, allocator.packing()) for allocator in heap.allocators]
    claims = [_claim(evidence, allocator, packing) for allocator, packing in found if packing is not None]
    return [claim for claim in claims if evidence.worth(claim.finding.bytes)]


def _claim(evidence: Evidence, allocator: Allocator, packing: _native.Packing) -> FindingClaim:
    rows, by_size = packing.sizes, Counter[int]()
    for row in rows:
        by_size[row.size] += row.freed
    page = evidence.heap.target.machine.page
    (size, most), *_others = by_size.most_common(1) or [(0, 0)]
    groups = allocator.pins(evidence.kept, page, 0)
    # Groups that fill more than half of their pages are no pins.
    has_pins = 100 * groups.totals.freed >= MIN_PERCENT_OF_PINS * evidence.rss and groups.totals.groups > 0
    figures = Fragmented(
        allocator.title,
        allocator.groups[1].partition(" ")[0],
        sum(row.spare for row in rows),
        sum(row.slabs for row in rows),
        sum(row.moved for row in rows),
        sum(row.free * row.size for row in rows),
        sum(freed >= page for freed in by_size.values()),
        size,
        most,
        _server(evidence, allocator),
        has_pins,
    )
    pins = evidence.line("pins", f"--allocator={allocator.name}") if has_pins else []
    lines = [*evidence.line("sizes"), *pins]
    freed = sum(by_size.values())
    return FindingClaim(Finding(f"fragmented-{allocator.name}", freed, figures, lines), lambda: packing.going)


def _server(evidence: Evidence, allocator: Allocator) -> str:
    """Return the id of the server if jemalloc is part of the server's own program; else "".

    If jemalloc is in a library, the server refuses to move blocks.
    """
    if not isinstance(allocator, JemallocLibraries):
        return ""
    program = evidence.heap.target.object_of(evidence.heap.target.auxv.get(AT_ENTRY, 0))
    return evidence.server(*SERVERS) if any(root.module is program for root in allocator.roots) else ""
