"""Open a heap with the library, for questions that no command answers, such as the state of hundreds of thousands of
pointers at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from gdbheap import _native
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.heap import Heap
from gdbheap.report.words.remarks import sentence_of
from gdbheap.targets.core import Core
from gdbheap.targets.process import stopped
from support.programs import program_of


@contextlib.contextmanager
def heap_of(target: str) -> Iterator[Heap]:
    """Yield the Heap of a pid (stopped until the block ends) or of a core's path."""
    if target.isdigit():
        with stopped(int(target)) as process:
            yield Heap(process)
    else:
        yield Heap(Core(target, program_of(target)))


def warnings_of(heap: Heap) -> list[str]:
    """Return the warnings of a heap, as a reader gets them."""
    return [sentence_of(warning) for warning in heap.warnings]


def blocks(chunks: _native.Chunks, addresses: Sequence[int]) -> list[tuple[int, int, str] | None]:
    """Return (header, size, state) of the chunk at each address, None outside of all arenas."""
    found = chunks.find_many(addresses)
    return [None if block is None else (block.address, block.size, block.state) for block in found]


def chunks_at(heap: Heap, addresses: Sequence[int]) -> list[tuple[int, int, str | None]]:
    """Return (header, size, state) of the chunk at each address; the state may be "mmapped". (0, 0, None) if there is
    none.
    """
    glibc = heap.allocator(GlibcAllocator)
    assert glibc.mapped is not None
    found = blocks(glibc.chunks, addresses)
    return [row or _mapped_at(heap, address) for row, address in zip(found, addresses)]


def _mapped_at(heap: Heap, address: int) -> tuple[int, int, str | None]:
    """Return (header, size, state) of an aligned mmapped chunk, without the part of its mapping before its header."""
    found = heap.allocator(GlibcAllocator).malloc.mapped_at(address)
    if found is None or address < found.chunk:
        return 0, 0, None
    return found.chunk, found.end - found.chunk, "tcache" if found.cached else "mmapped"
