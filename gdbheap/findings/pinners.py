"""Find the variable that holds most of the blocks that pin free memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator
from gdbheap.answers.accounting.paths import in_a_line
from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.accounting.traced import name_tables
from gdbheap.dataclass import dataclass
from gdbheap.errors import or_none
from gdbheap.findings.finding import Evidence
from gdbheap.graph.roots import BY_STATIC

__all__ = ["MAX_GROUPS", "NO_PINNER", "Pinner", "PinnedGroups", "pinned_groups", "pinner_of"]

# The number of groups of pinning blocks that are examined, and of blocks in each of them.
MAX_GROUPS, MAX_OF_GROUP = 32, 3
# The offset of an address in a variable, and the rest of a path from the first item in a variable on.
INSIDE, ITEM = re.compile(r"(?<=')\+0x[0-9a-f]+"), re.compile(r" ?\[.*")


@dataclass(frozen=True)
class Pinner:
    """The variable at ``path``, which holds ``count`` of the ``examined`` blocks."""

    path: str
    count: int
    examined: int


NO_PINNER = Pinner("", 0, 0)


class PinnedGroups(NamedTuple):
    """All groups of pinning blocks of an allocator. ``free``: the free bytes in the pages that they pin, which are the
    bytes that freeing the groups would return, less the groups' own bytes. ``pinner``: the variable that holds most of
    the first blocks in the groups that pin the most.
    """

    free: int
    totals: _native.PinTotals
    pinner: Pinner


def pinned_groups(evidence: Evidence, allocator: Allocator) -> PinnedGroups | None:
    """Return the groups of blocks that pin pages of ``allocator``; None if they pin too little for a finding."""
    groups = allocator.pins(evidence.kept, evidence.heap.target.machine.page, MAX_GROUPS)
    free = max(0, groups.totals.freed - groups.totals.bytes)
    if not evidence.worth(free):
        return None
    rows = groups.rows[:MAX_GROUPS] if evidence.is_graph_quick else []
    members = (block for row in rows for block in allocator.members(row)[:MAX_OF_GROUP])
    pinner = pinner_of(evidence, [block.address for block in members if block.used])
    return PinnedGroups(free, groups.totals, pinner)


def pinner_of(evidence: Evidence, addresses: Sequence[int]) -> Pinner:
    """Return the variable that holds at least half of the blocks at these addresses.

    Return NO_PINNER if no variable does, or if pointers that may be stale are the only evidence. Return it also if
    building the graph of references would take longer than all other work.
    """
    if not addresses or not evidence.is_graph_quick:
        return NO_PINNER
    counts = Counter(or_none(lambda: _variables(evidence, addresses)) or ())
    path, count = max(counts.items(), key=lambda row: (row[1], row[0]), default=("", 0))
    return Pinner(path, count, len(addresses)) if path and 2 * count >= len(addresses) else NO_PINNER


def _variables(evidence: Evidence, addresses: Iterable[int]) -> list[str]:
    graph, paths = evidence.heap.references.graph, evidence.heap.paths
    name_tables(evidence.heap)
    numbers = [number for address in addresses if (number := graph.find(address)) is not None]
    phases = graph.phases(numbers) if numbers else []
    chains = (graph.chain(number) for number, phase in zip(numbers, phases) if phase == BY_STATIC)
    return [_variable(in_a_line(paths.path(paths.naming(chain)))) for chain in chains if len(chain) > 1]


def _variable(path: str) -> str:
    """Return the part of a path that names a variable. The step to an item in the variable is left out."""
    return INSIDE.sub("", ITEM.sub("", source_path(path)))
