"""The figures of growth since an earlier snapshot; gdbheap/snapshots/growing.py compares the snapshots."""

from __future__ import annotations

from dataclasses import field

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Figures


@dataclass(frozen=True)
class Growing(Figures):
    """The growth since an earlier snapshot, ``seconds`` ago.

    ``more``: the additional bytes in use, over all allocators. ``type``: the type that grew most, by ``count`` objects
    and ``gained`` bytes with their buffers. ``size``: the block size that grew most, by ``blocks`` blocks of
    ``allocator``. ``address``, ``path`` (as Python): the object that retains most of the growth, ``retained`` bytes
    more than before. ``limit_in``: the seconds until RSS reaches the limit at this rate.
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
