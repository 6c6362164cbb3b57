"""List the mappings of a target, with their resident and swapped bytes."""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.targets.target import Target

__all__ = ["ListedMapping", "mappings"]


@dataclass(frozen=True)
class ListedMapping:
    """One mapping [start, end). ``path``: its file, or the kernel's name for it.

    ``resident`` and ``swapped``: bytes, None if unknown.
    """

    start: int
    end: int
    size: int
    perms: str
    offset: int
    path: str | None
    resident: int | None
    swapped: int | None


def mappings(target: Target) -> list[ListedMapping]:
    """Return the mappings, ascending. Residency comes from smaps, or from pagemap if smaps was not read."""
    rows, pages = [], target.pages
    for one in target.mappings:
        resident, swapped = one.rss, one.swap
        if resident is None and pages is not None:
            counted = pages.count(one.start, one.end)
            resident, swapped = counted.resident, counted.swapped
        rows.append(
            ListedMapping(one.start, one.end, one.size, one.perms, one.offset, one.path or None, resident, swapped)
        )
    return rows
