"""Two libraries of one kind in a process with glibc: the ledger and the table of sizes distinguish their memory."""

from __future__ import annotations

import ctypes.util
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from support import kernel, programs
from support.ledger_lines import check_families, roots
from support.other_sizes import others
from support.programs import ask, gdbheap, running

# By default there is not enough room for the thread-local data of two such libraries.
ROOM = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=65536"}
NAMES = {"jemalloc": "jemalloc", "tcmalloc_minimal": "tcmalloc", "mimalloc": "libmimalloc"}
# Blocks that a library makes for itself.
BESIDE = 12
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("library", NAMES)
def test_told_apart(library: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each library's blocks in use, by size, are those that the program holds from it. Free memory and
    overhead, each on its own line, add up to the kernel's figures. For jemalloc they equal the counts of each library.
    """
    original = None if programs.ROOT_FOLDER else ctypes.util.find_library(library)
    if original is None:
        pytest.skip(f"no lib{library} here")
    folder = Path("/usr/lib") / os.uname().machine.join(("", "-linux-gnu"))
    copies = [tmp_path / "libfirst.so", tmp_path / "libsecond.so"]
    for copy in copies:
        shutil.copy(folder / original if (folder / original).exists() else original, copy)
    table = tmp_path / "table"
    command = programs.c_program("two_roots", *copies, rng.getrandbits(30), table)
    with running(command, tmp_path, ROOM) as target:
        pid, rows = str(target.pid), [line.split() for line in table.read_text().splitlines()]
        answer, sizes = ask("", pid, "--detail"), others(ask("sizes", pid, "--top=0"))
        arenas, shown = ask("arenas", pid), gdbheap("sizes", pid).stdout
        assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "swapped")) == kernel.rollup(target.pid)
        check_families(answer["ledger"])
        check_arenas(pid, rows, [row for row in arenas["rows"] if row["choice"] and row["module"]], NAMES[library])
    lines = {line["id"]: line for line in answer["ledger"]}
    order = [lines[f"{NAMES[library]}.used.{index}"]["name"].removeprefix("of ") for index in range(2)]
    assert sorted(order) == [copy.name for copy in copies] == sorted(row["module"] for row in sizes)
    for number, copy in enumerate(copies):
        index, own = order.index(copy.name), [row for row in rows if row[0] == str(number)]
        usable = Counter(int(size) for _number, name, *rest in own if name == "held" for size in rest[1:])
        (found,) = [row for row in sizes if row["module"] == copy.name]
        used = Counter({row["size"]: row["used_count"] for row in found["sizes"]})
        if NAMES[library] != "libmimalloc":
            # An aligned pointer may be inside its block there; none is aligned here, but padding is not usable.
            assert not usable - used and (used - usable).total() <= BESIDE, used - usable
        assert usable.total() <= found["total"]["used_count"] <= usable.total() + BESIDE
        assert lines[f"{NAMES[library]}.used.{index}"]["virtual"] == found["total"]["used"]
        assert copy.name in shown
        said = {name: int(value) for _number, name, value in (row for row in own if len(row) == 3)}
        if said:
            of = {part: f"jemalloc.free.{part}.{index}" for part in ("dirty", "muzzy", "retained")}
            size = {part: lines[name]["virtual"] if name in lines else 0 for part, name in of.items()}
            assert size["dirty"] == said["stats.arenas.4096.pdirty"] * PAGE
            assert (
                size["muzzy"] == said["stats.arenas.4096.pmuzzy"] * PAGE and size["retained"] == said["stats.retained"]
            )


def check_arenas(pid: str, rows: list[list[str]], arenas: list[dict[str, object]], allocator: str) -> None:
    """Check that an arena is named by its module, and has that module's blocks."""
    for row in arenas:
        assert row["choice"] == f"{row['module']}:{row['index']}"
    if not arenas:
        done = gdbheap("chunks", pid, f"--arena={allocator}:0")
        assert done.returncode == 2 and "has none" in done.stderr
        return
    for number, module in enumerate(("libfirst.so", "libsecond.so")):
        held = {int(rest[0]) for own, name, *rest in rows if own == str(number) and name == "held"}
        listed: set[int] = set()
        for row in (row for row in arenas if row["module"] == module):
            chunks = ask("chunks", pid, f"--arena={row['choice']}", "--state=used", "--top=0")["rows"]
            listed.update(chunk["address"] for chunk in chunks)
        assert held <= listed and len(listed) <= len(held) + BESIDE
