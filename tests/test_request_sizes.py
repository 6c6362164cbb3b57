"""The range of 'heap catch malloc' for lost blocks: it has exactly the requests that lead to blocks of their size, for
each malloc."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support import jemallocs, mimallocs, tcmallocs
from support.musls import BUILT, SYSTEM, built
from support.oldmalloc import RELEASE
from support.programs import Running, ask, build, gdbheap, running

from gdbheap.allocators.request_sizes import of_class, of_span

GLIBC, TCMALLOC, MUSL, OLD_MUSL = "glibc", "tcmalloc", "musl", "musl before 1.2.1"
LIBRARIES = {"jemalloc": jemallocs, TCMALLOC: tcmallocs, "mimalloc": mimallocs}
MALLOCS = [GLIBC, *LIBRARIES, MUSL, OLD_MUSL]
# So many blocks are lost; for a finding, so many bytes.
FEW, BYTES = 60, 6 << 20


def program(malloc: str) -> tuple[str, dict[str, str]]:
    """Return the program that loses blocks of this malloc, and its environment; skip the test without this malloc."""
    if malloc in LIBRARIES:
        library = LIBRARIES[malloc].library(LIBRARIES[malloc].NAMES[0])
        return str(build("lost_sizes")), {"LD_PRELOAD": library}
    if malloc == OLD_MUSL and RELEASE not in BUILT:
        pytest.skip(f"no musl {RELEASE} (scripts/musls.sh)")
    if malloc == GLIBC:
        return str(build("lost_sizes")), {}
    return built("lost_sizes", SYSTEM if malloc == MUSL else RELEASE), {}


def lost(target: Running) -> tuple[int, int, int]:
    """Return the size of the lost blocks of a program, and the least and the most bytes of the requests that lead to
    such blocks."""
    row = max(ask("unreachable", str(target.pid))["rows"], key=lambda row: row["bytes"])
    assert row["group"] == "lost_blocks" and row["count"] > FEW // 2
    return row["size"], row["least_request"], row["most_request"]


@pytest.mark.cases(3)
@pytest.mark.parametrize("most", [200, 2000, 20_000, 400_000])
@pytest.mark.parametrize("malloc", MALLOCS)
def test_range(malloc: str, most: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that the range has the lost request, that both of its ends lead to blocks of the same size, and that the
    next larger request does not (where that is certain)."""
    executable, environment = program(malloc)

    def size_of(request: int) -> tuple[int, int, int]:
        with running([executable, str(request), str(FEW)], tmp_path, environment) as target:
            return lost(target)

    size = rng.randrange(most // 10, most)
    block, least, largest = size_of(size)
    assert least <= size <= largest, (size, block)
    # mallocng chooses among several sizes for a request, depending on how many blocks of each size there are.
    assert malloc == MUSL or size_of(largest)[0] == block and size_of(largest + 1)[0] != block, (size, block, largest)
    # tcmalloc's classes below a class without blocks are not known.
    assert malloc in (TCMALLOC, MUSL) or size_of(max(least, 1))[0] == block, (size, block, least)


@pytest.mark.cases(2)
@pytest.mark.parametrize("malloc", MALLOCS)
def test_advice(malloc: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the finding and 'heap unreachable' advise to catch calls of the same range, which has the request."""
    size = rng.randrange(100, 2000)
    executable, environment = program(malloc)
    with running([executable, str(size), str(BYTES // size)], tmp_path, environment) as target:
        _block, least, most = lost(target)
        assert least <= size <= most
        (finding,) = (one for one in ask("", str(target.pid))["findings"] if one["id"] == "lost-blocks")
        options = f"catch malloc --min={least} --max={most}"
        assert options in finding["advice"] and f"--min={least}" in " ".join(finding["commands"])
        assert options in " ".join(gdbheap("unreachable", str(target.pid)).stdout.split())


def test_extension_of_tcmalloc(tmp_path: Path) -> None:
    """Check that the object to which tcmalloc itself keeps no pointer is not lost, but still is tcmalloc's."""
    executable, environment = program(TCMALLOC)
    with running([executable, "1000", "9000"], tmp_path, environment) as target:
        rows = ask("unreachable", str(target.pid))["rows"]
        assert not [row for row in rows if row["type"] == "MallocExtension"] and rows[0]["count"] > 8000
        (block,) = [
            row for row in ask("chunks", str(target.pid), "--max=8", "--state=used", "--top=all")["rows"]
            if "MallocExtension" in str(row)
        ]  # fmt: skip
        assert block["size"] == 8


def test_classes_follow_one_another(rng: random.Random) -> None:
    """Check that the ranges of neighbouring size classes neither overlap nor leave a gap."""
    size = rng.randrange(1, 1 << rng.randrange(4, 24))
    seen = []
    for _ in range(9):
        least, most = of_class(size)
        assert least <= most == size
        seen.append((least, most))
        size = least - 1
        if not size:
            break
    assert all(below[1] + 1 == above[0] for above, below in zip(seen, seen[1:]))
    assert of_class(384) == (321, 384) and of_class(704 + 64) == (641, 768) and of_class(16) == (9, 16)
    page = 8192
    assert of_class(6 * page, page) == (5 * page + 1, 6 * page) and of_class(9 * page, page)[0] == 8 * page + 1
    assert of_span(1152, page, [8, 1024, 1152, 1280]) == (1025, 1152)
