"""Which allocators there are: the one place that names them, in the order in which they are looked for."""

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
"""The C library's: answers that say that they need malloc's heap need it."""
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
"""Those inside of others come after them: a block is the last one's that has it."""
OF_C_LIBRARIES = frozenset(kind.name for kind in KINDS if MALLOC in (kind, kind.replaces))
"""The names of those that are a C library's own."""
