"""Sizes that a damaged target states for its structures: no answer has a byte that is not mapped."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from images.heap import HEAP_MAX, HEAPS, LIBC, MAPS, PAGE, STACKS, Image
from images.layouts import GLIBCS
from images.memory import Piece
from support import kernel
from support.library import heap_of

from gdbheap.answers.arenas import arenas
from gdbheap.first_page.ledger import ledger
from gdbheap.snapshots.file import read, write
from gdbheap.snapshots.snapshot import take

# The offset in an image of the fields stackblock, stackblock_size and guardsize of struct pthread.
STACK_BLOCK = 0x690
# The program header of libc's data, after the ELF header and the header of its read-only part.
LIBC_DATA = LIBC + 64 + 56
# The end of the addresses of programs, and the kernel's own page above it.
KERNEL, VSYSCALL = 1 << 63, 0xFFFFFFFFFF600000


def longer_stack(image: Image, rng: random.Random) -> None:
    """Let a thread's own record state a stack that is longer than its mapping."""
    _tid, pointer, _sp = rng.choice([thread for thread in image.memory.threads if thread[1] >= STACKS])
    size = image.memory.word(pointer + STACK_BLOCK + 8)
    image.memory.put(pointer + STACK_BLOCK + 8, size + PAGE * rng.randrange(1, 20))


def longer_heap(image: Image, rng: random.Random) -> None:
    """Let a thread's heap state a size beyond its mapping, without the rest of its reserve."""
    pieces = [piece for piece in image.memory.pieces if HEAPS <= piece.start < MAPS and piece.data]
    # A chunk with its own mapping may lie before the heap.
    heap, end = rng.choice([(-(-piece.start // HEAP_MAX) * HEAP_MAX, piece.end) for piece in pieces])
    assert image.memory.word(heap + 16) == end - heap
    image.memory.pieces = [piece for piece in image.memory.pieces if piece.start != end]
    image.memory.put(heap + 16, end - heap + PAGE * rng.randrange(1, 20))


def no_reserve(image: Image, rng: random.Random) -> None:
    """Unmap the unused part of a thread's heap."""
    reserves = [piece for piece in image.memory.pieces if not piece.data and HEAPS <= piece.start]
    gone = rng.choice(reserves)
    image.memory.pieces = [piece for piece in image.memory.pieces if piece is not gone]


def data_to_the_kernel(image: Image, rng: random.Random) -> None:
    """Let a library's program header state .bss that reaches beyond the kernel's own page."""
    image.memory.pieces.append(Piece(VSYSCALL, PAGE, 1, bytearray(PAGE)))
    start = LIBC + image.memory.word(LIBC_DATA + 16)
    image.memory.put(LIBC_DATA + 40, VSYSCALL + PAGE * rng.randrange(1, 20) - start)


def chunk_of_the_kernel(image: Image, rng: random.Random) -> None:
    """Let program headers state writable memory above the addresses of programs, which looks like an mmapped chunk."""
    size = PAGE * rng.randrange(2, 20)
    chunk = bytearray(size)
    chunk[8:16] = (size | 2).to_bytes(8, "little")
    image.memory.pieces.append(Piece(rng.choice((KERNEL, VSYSCALL)), size, 6, chunk))


DAMAGES = (longer_stack, longer_heap, no_reserve, data_to_the_kernel, chunk_of_the_kernel)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_nothing_beyond_the_mappings(
    damage: Callable[[Image, random.Random], None], rng: random.Random, tmp_path: Path
) -> None:
    """Check that the ledger's roots add up to the mappings, whatever sizes structures state."""
    for glibc in (GLIBCS[0], GLIBCS[-1]):
        image = Image(glibc, rng)
        damage(image, rng)
        core = image.save(tmp_path / "core")
        mapped = sum(segment.size for segment in kernel.segments(core) if segment.start < KERNEL)
        with heap_of(str(core)) as heap:
            answer = ledger(heap)
            assert sum(line.virtual for line in answer.ledger if line.parent is None) == mapped
            assert bool(heap.damage) == (damage in (longer_heap, chunk_of_the_kernel)), heap.damage


def test_counts_that_nothing_proves(rng: random.Random, tmp_path: Path) -> None:
    """Check that the bytes of arenas are those of the walked chunks, and that their snapshot can be read, even if
    malloc's own counts are wrong.
    """
    for glibc in (GLIBCS[0], GLIBCS[-1]):
        image = Image(glibc, rng)
        for place in [arena.address + glibc.state.system_mem for arena in image.arenas]:
            image.memory.put(place, rng.choice((1, 1 << 63, (1 << 64) - 16, rng.getrandbits(64))))
        image.memory.put(image.mp + glibc.par.mmapped_mem, (1 << 64) - PAGE, (1 << 64) - PAGE)
        with heap_of(str(image.save(tmp_path / "core"))) as heap:
            answer, line = arenas(heap), next(line for line in ledger(heap).ledger if line.id == "glibc")
            assert heap.damage
            write(str(tmp_path / "snapshot"), take(heap))
        assert all(0 <= row.in_use <= row.system for row in answer.arenas)
        assert answer.mmapped.bytes == sum(mapped.size for mapped in image.mapped)
        assert answer.total.system <= line.virtual
        assert read(str(tmp_path / "snapshot")).snapshot.arenas == answer
