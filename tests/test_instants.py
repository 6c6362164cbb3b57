"""The other mallocs, stopped at random instants of a busy program: each held pointer is a block in use of
``malloc_usable_size`` bytes, and each freed one is free or cached. The number of blocks that a thread is just taking
or giving back is bounded, and noted.

Each allocator is tested in the builds that are here: the system's, and those made by ``scripts/jemallocs.sh`` and
similar scripts. GDBHEAP_INSTANTS is the number of instants for each.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import test_jemalloc_library
import test_mallocng
import test_mimalloc_library
import test_oldmalloc
import test_tcmalloc_library
from support import tables
from support.instants import INSTANTS, Held, Subject, seen

from gdbheap.allocators.allocator import Block
from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.allocators.mallocng.allocator import MallocngAllocator
from gdbheap.allocators.mimalloc.library import MimallocLibraries
from gdbheap.allocators.oldmalloc.allocator import OldmallocAllocator
from gdbheap.allocators.tcmalloc.allocator import TcmallocLibraries

# Blocks that are in no table of the program: a vector for thread-local data of each thread, and some others.
BESIDE, OF_A_THREAD = 8, 3
# With fewer instants, two that are off mean nothing; only all of them do.
ENOUGH = 20
MINUTES = 60
# A thread may be taking or giving back one block, and two inside realloc.
IN_HAND = 2
Command = Callable[[int, random.Random, Path], list[str]]


def is_block(row: Held, block: Block | None) -> bool:
    """Return whether a block begins at the pointer."""
    return block is not None and (block.address, block.size, block.state) == (row[0], row[1], "used")


def holds(row: Held, block: Block | None) -> bool:
    """Return whether a block contains the pointer and ends after the usable bytes, or after the requested ones."""
    if block is None or block.state != "used" or block.address > row[0]:
        return False
    return (block.end if block.asked is None else block.address + block.asked) - row[0] == row[1] >= row[2]


def ends(row: Held, block: Block | None) -> bool:
    """Return whether a block begins at the pointer and ends after the usable bytes."""
    return block is not None and (block.address, block.state, block.end - row[0]) == (row[0], "used", row[1])


@dataclass(frozen=True)
class Kind:
    """An allocator: its builds, and how many blocks beyond its own each thread may be taking or giving back if that
    is noted; ``off``: how many of each thread's held blocks may still count as cached."""

    subject: Subject
    most: int
    off: int = 0


KINDS = {
    # The number of blocks with which a cache is filled at once, and the number that it returns at once.
    "jemalloc": Kind(Subject(JemallocLibraries, is_block), 100, 100),
    # TCMALLOC_TRANSFER_NUM_OBJ.
    "tcmalloc": Kind(Subject(TcmallocLibraries, is_block), 32),
    "mimalloc": Kind(Subject(MimallocLibraries, holds), 100),
    "mallocng": Kind(Subject(MallocngAllocator, ends), IN_HAND),
    "oldmalloc": Kind(Subject(OldmallocAllocator, ends), IN_HAND),
}
PRELOADED: dict[str, tuple[list[str], Callable[[str], str]]] = {
    "jemalloc": (test_jemalloc_library.NAMES, test_jemalloc_library.library),
    "tcmalloc": (test_tcmalloc_library.NAMES, test_tcmalloc_library.library),
    "mimalloc": (test_mimalloc_library.NAMES, test_mimalloc_library.library),
}
BUILDS = [
    *((kind, name, ()) for kind, (names, _library) in PRELOADED.items() for name in names),
    *(("mallocng", name, flags) for name, flags in test_mallocng.BUILDS),
    *(("oldmalloc", test_oldmalloc.RELEASE, flags) for flags in ((), test_mallocng.STATIC)),
]


def name_of(build: tuple[str, str, tuple[str, ...]]) -> str:
    """Return the name of a case."""
    kind, name, flags = build
    return "-".join([kind, *Path(name).parts[-5:-4], Path(name).name, *flags])


def started(
    build: tuple[str, str, tuple[str, ...]], threads: int, rng: random.Random
) -> tuple[Callable[[Path], list[str]], dict[str, str]]:
    """Return the command of the busy program, as a function of its folder, and its environment."""
    kind, name, flags = build
    if kind in PRELOADED:
        library = PRELOADED[kind][1](name)
        return lambda folder: tables.program(threads, 0, rng, folder, library), {"LD_PRELOAD": library}
    if kind == "mallocng":
        return lambda folder: test_mallocng.program(name, flags, threads, 0, rng, folder), {}
    return lambda folder: test_oldmalloc.program(flags, threads, 0, rng, folder), {}


@pytest.mark.timeout(MINUTES * 60)
@pytest.mark.in_turn("threads", 1)
@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("build", BUILDS, ids=map(name_of, BUILDS))
def test_instants(build: tuple[str, str, tuple[str, ...]], threads: int, rng: random.Random, tmp_path: Path) -> None:
    """Check instants of processes, and of their cores."""
    kind = KINDS[build[0]]
    if threads > 1 and build[0] == "mimalloc":
        test_mimalloc_library.need_threads(build[1])
    command, environment = started(build, threads, rng)
    programs = seen(kind.subject, command, environment, rng, tmp_path)
    for program in programs:
        assert len(program.resting()) <= BESIDE + OF_A_THREAD * threads
        for instant, moving in program.moving():
            assert instant.noted or not instant.off, instant.off
            assert len(instant.off) <= kind.off * threads, instant.off
            assert moving <= threads * (kind.most + IN_HAND if instant.noted else IN_HAND), moving
    instants = [instant for program in programs for instant in program.instants]
    assert len(instants) == INSTANTS
    # A block that is just being taken is rare; few instants hardly show one.
    most = len(instants) // 3 if len(instants) >= ENOUGH else len(instants) - 1
    assert sum(bool(instant.off) for instant in instants) <= most
