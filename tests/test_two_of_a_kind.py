"""Two copies of one allocator in a process, each with its own blocks: every block is in use, with its owner."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from support import jemallocs, mimallocs, tcmallocs
from support.library import heap_of
from support.programs import KERNEL_CORE, ask, c_program, running
from support.subjects import KINDS

LIBRARIES = {
    "jemalloc": jemallocs.newest,
    "tcmalloc": lambda: tcmallocs.library("tcmalloc_minimal"),
    "mimalloc": mimallocs.newest,
}
# Blocks of the C library, of the loader, and of C++.
BESIDE = 16


def check(target: str, kind: str, rows: list[tuple[int, int, int]], names: tuple[str, str]) -> None:
    """Check that each row's block is in use, has the size that its library reports, and is that library's; few
    others are."""
    subject = KINDS[kind].subject
    with heap_of(target) as heap:
        found = heap.allocator(subject.allocator)
        assert len(found.roots) == 2
        blocks = [(row, found.find(row[0])) for row in rows]
        assert [row for row, block in blocks if not subject.fits((row[0], row[1], 0), block)] == []
        assert [found.owner_at(pointer) for pointer, *_ in rows] == [names[which] for *_, which in rows]
        beyond = {address for address, _size in found.first_used(0, 1 << 62, 1 << 62)}
        assert len(beyond - {block.address for _row, block in blocks if block is not None}) <= BESIDE
        found.check()
        assert found.damage == []


def path_of(library: str) -> str:
    """Return the file of a library that may be named as the loader finds it."""
    shown = subprocess.run(
        ["cat", "/proc/self/maps"], env={"LD_PRELOAD": library}, capture_output=True, text=True, check=True
    )
    return next(line.split()[5] for line in shown.stdout.splitlines() if Path(library).name in line)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_both(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a library and a copy of it, which the loader treats as another one, in a process and in a core."""
    names = ("libfirst.so", "libsecond.so")
    first, second = (str(tmp_path / name) for name in names)
    for copy in (first, second):
        shutil.copy(path_of(LIBRARIES[kind]()), copy)
    command = c_program("two_mallocs", rng.getrandbits(30), tmp_path / "table", second)
    # A library that is loaded later needs room for its threads' variables.
    environment = {"LD_PRELOAD": first, "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=16384"}
    with running(command, tmp_path, environment) as target:
        rows = [row for row in struct.iter_unpack("<QQQ", (tmp_path / "table").read_bytes()) if row[0]]
        assert {which for *_, which in rows} == {0, 1}
        check(str(target.pid), kind, rows, names)
        # Each has its own line in the ledger.
        titles = [line["name"] for line in ask("", str(target.pid), "--detail")["ledger"]]
        assert {f"of {name}" for name in names} <= set(titles)
        core = target.as_form(KERNEL_CORE)
    check(core, kind, rows, names)
