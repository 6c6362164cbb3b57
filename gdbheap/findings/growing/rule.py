"""The figures of growth since an earlier snapshot; gdbheap/snapshots/growing.py compares the snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.findings.finding import UNLISTED, Figures


@dataclass(frozen=True)
class Growing(Figures):
    """The growth since an earlier snapshot, ``seconds`` ago.

    ``more``: the additional bytes in use, in all allocators. The type that grew most gained ``count`` objects and
    ``gained`` bytes with their buffers. The block size that grew most gained ``blocks`` of ``size`` bytes. ``address``,
    ``path`` (as Python): the object that retains most of the growth, ``retained`` bytes more. ``limit_in``: seconds
    until RSS reaches the limit at this rate.
    """

    ids = ("growing",)
    seconds: int
    more: int = field(metadata=UNLISTED)
    type: str | None
    count: int
    gained: int
    allocator: str | None
    size: int
    blocks: int
    address: int | None
    path: str | None
    retained: int
    limit_in: int | None = field(metadata=UNLISTED)
