"""Find the variables that hold most of the blocks that pin free memory."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
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

# The number of pinning blocks that are examined, and of groups of pinning blocks that are listed for the sample.
MAX_GROUPS, MAX_LISTED = 32, 100_000
# A second variable is named if it holds at least 1/LEAST_PART of the examined blocks.
LEAST_PART = 10
# Patterns for the offset of an address in a variable, and for the part of a path that begins with the first subscript.
INSIDE, ITEM = re.compile(r"(?<=')\+0x[0-9a-f]+"), re.compile(r" ?\[.*")


@dataclass(frozen=True)
class Pinner:
    """The variable that holds the most of the blocks that were examined, by its ``path``.

    ``examined``: the number of examined blocks; ``count``: how many of them it holds. ``next_path``: the variable that
    holds the second most, ``next_count`` of them; "" if no variable does."""

    path: str
    count: int
    examined: int
    next_path: str = ""
    next_count: int = 0


NO_PINNER = Pinner("", 0, 0)


class PinnedGroups(NamedTuple):
    """All groups of pinning blocks of an allocator. ``free``: the free bytes in the pages that the groups pin: the
    bytes that freeing the groups would return, less the groups' own bytes. ``pinner``: the variables that hold most
    blocks of a sample.
    """

    free: int
    totals: _native.PinTotals
    pinner: Pinner


def pinned_groups(evidence: Evidence, allocator: Allocator) -> PinnedGroups | None:
    """Return the groups of blocks that pin pages of ``allocator``; None if they pin too little for a finding."""
    groups = allocator.pins(evidence.kept, evidence.heap.target.machine.page, MAX_LISTED)
    free = max(0, groups.totals.freed - groups.totals.bytes)
    if not evidence.worth(free):
        return None
    rows = _sample(groups.rows, MAX_GROUPS) if evidence.is_graph_quick else []
    return PinnedGroups(free, groups.totals, pinner_of(evidence, list(_blocks_of(allocator, rows))))


def _sample(rows: Sequence[_native.Pin], most: int) -> list[_native.Pin]:
    """Return ``most`` of the groups, or all if there are fewer.

    The free bytes that the groups pin are summed up in the order of the groups' addresses. A group is chosen at each of
    ``most`` equal steps of this sum. Therefore groups that pin more bytes are more likely to be chosen, in all parts of
    memory alike.
    """
    if len(rows) <= most:
        return list(rows)
    rows = sorted(rows, key=lambda row: row.start)
    ends = list(accumulate(max(0, row.freed - row.bytes) for row in rows))
    places = (bisect_right(ends, (2 * number + 1) * ends[-1] // (2 * most)) for number in range(most))
    return [rows[place] for place in dict.fromkeys(places)]


def _blocks_of(allocator: Allocator, rows: Iterable[_native.Pin]) -> Iterator[int]:
    """Yield the address of the middle one of the used blocks of each group."""
    for row in rows:
        used = [block.address for block in allocator.members(row) if block.used]
        yield from used[len(used) // 2 :][:1]


def pinner_of(evidence: Evidence, addresses: Sequence[int]) -> Pinner:
    """Return the one or two variables that hold at least half of the blocks at these addresses.

    Return NO_PINNER if no two variables do, or if pointers that may be stale are the only evidence. Return it also if
    building the graph of references would take longer than all other work.
    """
    if not addresses or not evidence.is_graph_quick:
        return NO_PINNER
    counts = Counter(or_none(lambda: _variables(evidence, addresses)) or ())
    counts.pop("", None)
    most = sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:2]
    most = most[:1] + [row for row in most[1:] if row[1] * LEAST_PART >= len(addresses)]
    (path, count), (next_path, next_count) = [*most, ("", 0), ("", 0)][:2]
    is_most = 2 * (count + next_count) >= len(addresses)
    return Pinner(path, count, len(addresses), next_path, next_count) if path and is_most else NO_PINNER


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
