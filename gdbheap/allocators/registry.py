"""The list of all allocators, in the order in which they are searched."""

from __future__ import annotations

from gdbheap.allocators.allocator import Allocator
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.allocators.mallocng.allocator import MallocngAllocator
from gdbheap.allocators.mimalloc.allocator import MimallocAllocator
from gdbheap.allocators.mimalloc.library import MimallocLibraries
from gdbheap.allocators.oldmalloc.allocator import OldmallocAllocator
from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.allocators.tcmalloc.allocator import TcmallocLibraries

__all__ = ["KINDS", "MALLOC", "OF_C_LIBRARIES"]

MALLOC: type[Allocator] = GlibcAllocator
"""The C library's allocator. Answers that need malloc's heap ask for this one."""
KINDS: tuple[type[Allocator], ...] = (
    GlibcAllocator,
    MallocngAllocator,
    OldmallocAllocator,
    JemallocLibraries,
    TcmallocLibraries,
    MimallocLibraries,
    PymallocAllocator,
    MimallocAllocator,
)
"""All allocators, in the order of the search. An allocator that lies inside another comes after that one. If several
allocators have a block at an address, the block of the last one counts."""
OF_C_LIBRARIES = frozenset(kind.name for kind in KINDS if MALLOC in (kind, kind.replaces))
"""The names of the allocators that belong to a C library."""
