"""The other mallocs, stopped anywhere: each pointer that a program that never rests holds is a block in use of
``malloc_usable_size`` bytes, and each that it has freed is free or cached. What a thread has in its hands is bounded,
and noted.

Of each allocator the builds that are here: the system's, and those that ``scripts/jemallocs.sh`` and its kin have made.
GDBHEAP_INSTANTS is how many instants of each are looked at.
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

# What a program has in no table: of each thread a vector for thread-local data, and some others.
BESIDE, OF_A_THREAD = 8, 3
# Of fewer instants two that are off are no sign of anything; all of them are.
ENOUGH = 20
MINUTES = 60
# A thread has a block that it takes or gives back, and inside realloc two.
IN_HAND = 2
Command = Callable[[int, random.Random, Path], list[str]]


def is_block(row: Held, block: Block | None) -> bool:
    """A block begins at the pointer."""
    return block is not None and (block.address, block.size, block.state) == (row[0], row[1], "used")


def holds(row: Held, block: Block | None) -> bool:
    """A block holds the pointer, and ends as far behind it; or it was asked for so much."""
    if block is None or block.state != "used" or block.address > row[0]:
        return False
    return (block.end if block.asked is None else block.address + block.asked) - row[0] == row[1] >= row[2]


def ends(row: Held, block: Block | None) -> bool:
    """A block begins at the pointer, and ends as far behind it."""
    return block is not None and (block.address, block.state, block.end - row[0]) == (row[0], "used", row[1])


@dataclass(frozen=True)
class Kind:
    """An allocator: its builds, and how many blocks each thread may have in its hands beyond its own where that is
    noted; ``off``: how many held ones of each it may still have in its cache."""

    subject: Subject
    most: int
    off: int = 0


KINDS = {
    # A cache is filled with, and gives back, so many at once.
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
    """Name a case."""
    kind, name, flags = build
    return "-".join([kind, *Path(name).parts[-5:-4], Path(name).name, *flags])


def started(
    build: tuple[str, str, tuple[str, ...]], threads: int, rng: random.Random
) -> tuple[Callable[[Path], list[str]], dict[str, str]]:
    """Return the command that never rests, by its folder, and its environment."""
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
    """In processes, and in their cores."""
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
    # What a thread has in its hands is rare, which few instants hardly show.
    most = len(instants) // 3 if len(instants) >= ENOUGH else len(instants) - 1
    assert sum(bool(instant.off) for instant in instants) <= most
