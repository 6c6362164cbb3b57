"""The other mallocs, stopped at random instants of a busy program: each held pointer is a block in use of
``malloc_usable_size`` bytes, and each freed one is free or cached. The number of blocks that a thread is just taking
or giving back is bounded, and noted.

Each allocator is tested in the builds that are here: the system's, and those made by ``scripts/jemallocs.sh`` and
similar scripts. GDBHEAP_INSTANTS is the number of instants for each.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support import jemallocs, mallocng, mimallocs, oldmalloc, tables, tcmallocs
from support.instants import INSTANTS, seen
from support.subjects import IN_HAND, KINDS

# Blocks that are in no table of the program: a vector for thread-local data of each thread, and some others.
BESIDE, OF_A_THREAD = 8, 3
# With fewer instants, two that are off mean nothing; only all of them do.
ENOUGH = 20
MINUTES = 60
Command = Callable[[int, random.Random, Path], list[str]]


PRELOADED: dict[str, tuple[list[str], Callable[[str], str]]] = {
    "jemalloc": (jemallocs.NAMES, jemallocs.library),
    "tcmalloc": (tcmallocs.NAMES, tcmallocs.library),
    "mimalloc": (mimallocs.NAMES, mimallocs.library),
}
BUILDS = [
    *((kind, name, ()) for kind, (names, _library) in PRELOADED.items() for name in names),
    *(("mallocng", name, flags) for name, flags in mallocng.BUILDS),
    *(("oldmalloc", oldmalloc.RELEASE, flags) for flags in ((), mallocng.STATIC)),
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
        return lambda folder: mallocng.program(name, flags, threads, 0, rng, folder), {}
    return lambda folder: oldmalloc.program(flags, threads, 0, rng, folder), {}


@pytest.mark.timeout(MINUTES * 60)
@pytest.mark.in_turn("threads", 1)
@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("build", BUILDS, ids=map(name_of, BUILDS))
def test_instants(build: tuple[str, str, tuple[str, ...]], threads: int, rng: random.Random, tmp_path: Path) -> None:
    """Check instants of processes, and of their cores."""
    kind = KINDS[build[0]]
    if threads > 1 and build[0] == "mimalloc":
        mimallocs.need_threads(build[1])
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
