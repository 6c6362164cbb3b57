"""Find the largest holders of a Python program in limited time. Only holders that reference counts prove are found."""

from __future__ import annotations

from dataclasses import field

from gdbheap._native import KeptNode
from gdbheap.answers.accounting.absent import share_of_rss
from gdbheap.answers.accounting.paths import in_words
from gdbheap.answers.accounting.smallest_row import least_of_row
from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.shared_out import MAX_PARTS, VARIABLE, HolderPart
from gdbheap.contents.python.names.paths import ObjectPaths
from gdbheap.contents.python.names.struct_fields import LRU_CACHE
from gdbheap.contents.python.objects.comparable import CacheLimit, cache_limit, length_of
from gdbheap.contents.python.objects.proven_holders import KeptObjects
from gdbheap.dataclass import dataclass
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.heap import Heap

__all__ = ["FirstHolders", "first_holders", "length_at", "limit_of"]

# How many adjacent blocks one CPU core examines in a second; a block that is not adjacent counts as three blocks.
LOOKED_AT_A_SECOND = 16_000_000
# The search in a core file ends after SLOWER times the given seconds plus MARGIN.
#
# A core file is read in parts, which takes longer than reading copied memory.
SLOWER, MARGIN = 1.25, 0.5


@dataclass(frozen=True)
class FirstHolders:
    """The holders that were found in the given time.

    ``rows``: the holders, the largest first; each holds at least the bytes that its row states. ``not_examined``: the
    bytes in use that no row includes.
    """

    rows: list[MainHolder] = field(default_factory=list)
    not_examined: int = 0


def first_holders(heap: Heap, seconds: float) -> FirstHolders:
    """Return the holders that can be found in ``seconds`` of CPU time, or in a little more.

    Raises NotAPython or Unsupported.
    """
    used = sum(size * count for allocator in heap.allocators for size, count in allocator.used_sizes())
    minimum = least_of_row(used)
    looking = heap.labelled("looking for holders")
    most, longest = int(seconds * LOOKED_AT_A_SECOND), SLOWER * seconds + MARGIN
    kept = KeptObjects(heap.python.objects, heap.python.interpreter.threads, most, longest, minimum, looking)
    paths = ObjectPaths(kept)
    found = kept.holders()
    rows = [_row(heap, paths, kept, row) for row in found]
    return FirstHolders(rows, max(0, used - sum(row.bytes for row in rows)))


def _row(heap: Heap, paths: ObjectPaths, kept: KeptObjects, row: KeptNode) -> MainHolder:
    path = paths.path(kept.chain(row))
    name, kind = source_path(path.expression or in_words(path)), paths.kind_name(row.type_address)
    limit = limit_of(heap, row.address, kind)
    if row.others:
        name += f" and {row.others:,} more reference{'s' * (row.others > 1)}"
    resident = _resident(heap, row)
    return MainHolder(
        row.bytes,
        resident,
        share_of_rss(heap, resident),
        name,
        kind,
        length_at(heap, row.address) if limit is None else limit.entries,
        VARIABLE,
        row.address,
        parts=[
            HolderPart(paths.kind_name(part.type_address), part.count, part.bytes) for part in row.parts[:MAX_PARTS]
        ],
        at_least=True,
        limit=None if limit is None else limit.maximum,
    )


def _resident(heap: Heap, row: KeptNode) -> int | None:
    """Return how many of a row's bytes are resident; None if unknown."""
    pages = heap.target.pages
    if pages is None:
        return None
    return row.bytes - sum(end - start - pages.count(start, end).resident for start, end in row.large)


def length_at(heap: Heap, address: int | None) -> int | None:
    """Return the length of a variable's object; None if it has no length, or if its length is unknown."""
    objects = heap.python.objects_or_none if address is not None else None
    return None if objects is None or address is None else length_of(objects.repr, address)


def limit_of(heap: Heap, address: int | None, kind: str | None) -> CacheLimit | None:
    """Return how many entries an lru_cache has and may have; None for another object."""
    objects = heap.python.objects_or_none if address is not None and kind == LRU_CACHE else None
    return None if objects is None or address is None else cache_limit(objects.repr, address)
