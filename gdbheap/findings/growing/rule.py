"""What has grown since an earlier look: its figures. No rule: gdbheap/snapshots/growing.py compares the two."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.findings.finding import UNLISTED, Figures


@dataclass(frozen=True)
class Growing(Figures):
    """``more``: bytes in use, in all allocators, beyond those of the earlier look, which was ``seconds`` ago. Of them
    the type that grew the most, by ``count`` objects and ``gained`` bytes with their buffers; the block size that did,
    by ``blocks`` of ``size`` bytes; and the object that retains the most of what came: its ``address``, its ``path`` as
    Python, and how many bytes more it retains. ``limit_in``: seconds until RSS reaches the limit, at this rate."""

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
