"""The summary of ``heap``: used and free bytes as malloc and the program report them, and the reason why the rest
stays."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.library import heap_of
from support.programs import GCORE, KERNEL_CORE, ask, c_program, gdbheap, interpreter_of, release_program, running

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.first_page import ledger
from gdbheap.targets.mappings import HUGE_PAGES, Mappings

MAPPED = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_size_t]
ctypes.memset(libc.mmap(None, 48 << 20, 3, 0x22, -1, 0), 120, 48 << 20)
sys.stdin.readline()
"""
NO_CACHES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}


def scraps(rng: random.Random, folder: Path, threads: int) -> list[str]:
    """Return the command that runs scraps.c; its own figures are in ``folder``/table."""
    return c_program("scraps", rng.getrandbits(30), rng.randrange(2000, 4000), threads, folder / "table")


def figures(folder: Path) -> tuple[int, int, int, int]:
    """Return mallinfo2()'s used, mmapped and free bytes, and the bytes of the chunks that the program holds."""
    used, mapped, free, held = struct.unpack("<4Q", (folder / "table").read_bytes())
    return used, mapped, free, held


def pages_of(target: int, line: str) -> dict[str, Any]:
    """Return a line of the ledger."""
    (found,) = [row for row in ask("", str(target))["ledger"] if row["id"] == line]
    return dict(found)


def heads(target: str) -> int:
    """Return the bytes of the threads' heaps before their first chunks, which mallinfo2() counts as used."""
    with heap_of(target) as heap:
        return sum(part.chunks - part.start for part in heap.allocator(GlibcAllocator).malloc.heaps if part.arena)


@pytest.mark.parametrize("threads", [0, 3])
def test_to_the_byte(threads: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that used and free bytes are those of mallinfo2(), that the program holds nearly all used ones, and that
    bytes that malloc_trim(0) would not give back have a reason. A core gives the same bytes."""
    with running(scraps(rng, tmp_path, threads), tmp_path, NO_CACHES) as target:
        answer, trim = ask("", str(target.pid)), ask("trim", str(target.pid), "--dry-run")
        before = heads(str(target.pid))
        text = gdbheap("", str(target.pid), "--bytes").stdout
        core = ask("", target.as_form(KERNEL_CORE))["summary"]
    used, mapped, free, held = figures(tmp_path)
    told = answer["summary"]
    assert told["used"] + before == used + mapped and told["free"] == free
    # The rest are caches of threads and blocks of the C library itself.
    assert held <= told["used"] <= held + 4096 * (threads + 1)
    assert told["returnable"] == trim["predicted"] == answer["reclaimable"]
    assert sum(row["bytes"] for row in told["stays"]) + told["returnable"] == told["free_resident"]
    assert sum(line["reclaimable"] or 0 for line in answer["ledger"]) == told["returnable"]
    assert told["stays"][0]["id"] == "glibc.fragments" and told["stays"][0]["bytes"] > free // 2
    assert told["allocators"] == ["glibc"] and told["not_walked"] is None
    assert (core["used"], core["free"]) == (told["used"], told["free"])
    assert f"{told['free_resident']:,} bytes is free and resident" in text and "(fragmentation)" in text
    assert f"{told['used']:,} bytes is in use by the program" in text


def test_memory_beside_every_malloc(tmp_path: Path) -> None:
    """Check that the summary does not say what "the program" uses if the program maps most of its memory itself."""
    with running([interpreter_of("stripped"), "-I", "-c", MAPPED], tmp_path) as target:
        answer, text = ask("", str(target.pid)), gdbheap(str(target.pid)).stdout
    (rest,) = [line["resident"] for line in answer["ledger"] if line["id"] == "other"]
    unknown = answer["summary"]["not_walked"]
    assert unknown["id"] == "other.rest" and 48 << 20 <= unknown["bytes"] <= rest
    assert "In glibc malloc and Python's pymalloc, " in text and "in use by the program" not in text
    assert "of other anonymous memory is free." in text and "It is unknown how much of" in text


@pytest.mark.parametrize(("path", "expected"), [(None, "glibc.locked"), (HUGE_PAGES, "glibc.hugetlb")])
def test_why_whole_free_pages_stay(path: str | None, expected: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the reasons why locked pages and pages of hugetlbfs stay.

    This machine may have no hugetlbfs: the same arenas are tested as locked memory, and as mappings to which the kernel
    gives such names.
    """
    with running(c_program("faults", rng.getrandbits(30), "chunks", tmp_path / "none"), tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            if path is None:
                heap.target.locked = [(row.start, row.end) for row in heap.allocator(GlibcAllocator).malloc.stretches]
            else:
                rows = [m if m.path != "[heap]" else replace(m, path=path) for m in heap.target.mappings]
                heap.target.mappings = Mappings(rows)
            found = ledger.ledger(heap).summary
    assert found is not None
    kept = {row.id: row.bytes for row in found.kept}
    assert set(kept) & {"glibc.locked", "glibc.hugetlb"} == {expected} and kept[expected] > 30 << 20


def test_resident_part(rng: random.Random, tmp_path: Path) -> None:
    """Check that exactly the whole pages that the kernel took back are no longer resident."""
    command = c_program("holes", rng.getrandbits(30), 120, 300_000, 0, 2, tmp_path / "table")
    with running(command, tmp_path, NO_CACHES) as target:
        told = ask("", str(target.pid))["summary"]
        lines = [pages_of(target.pid, name) for name in ("glibc.free", "glibc.top")]
        holes = ask("holes", str(target.pid), "--min=16")["rows"]
        absent = 0
        for hole in holes:
            first, end = hole["address"] - 16, hole["address"] - 16 + hole["size"]
            low, high = -(-first // kernel.PAGE) * kernel.PAGE, end // kernel.PAGE * kernel.PAGE
            absent += kernel.PAGE * sum(not page.is_there for page in kernel.pages(target.pid, low, max(low, high)))
    in_top = lines[1]["virtual"] - lines[1]["resident"]
    assert absent > 0 and told["free"] - told["free_resident"] == absent + in_top


def test_unknown_residency(rng: random.Random, tmp_path: Path) -> None:
    """Check that the bytes are stated if residency is unknown, without those that could be given back."""
    with running(scraps(rng, tmp_path, 0), tmp_path, NO_CACHES) as target:
        core = target.as_form(GCORE)
    told = ask("", core)["summary"]
    used, mapped, free, _held = figures(tmp_path)
    assert (told["used"], told["free"]) == (used + mapped, free)
    assert told["used_resident"] is told["free_resident"] is told["returnable"] is None and told["stays"] == []
    assert "how much of this memory is resident is unknown" in gdbheap("", core).stdout


@pytest.mark.parametrize(
    ("release", "mode", "allocator"),
    [("3.13", "mimalloc", "mimalloc"), ("3.13", "pymalloc", "pymalloc"), ("3.12", "malloc", "glibc")],
)
def test_whatever_python_allocates_with(
    release: str, mode: str, allocator: str, rng: random.Random, tmp_path: Path
) -> None:
    """Check that the sum has the blocks of each allocator, CPython's mimalloc too: those of ``heap pyobjects``."""
    program = release_program(release, "blocks", rng.getrandbits(30), 60_000, 0, tmp_path / "told")
    with running(program, tmp_path, {"PYTHONMALLOC": mode}) as target:
        answer, objects = ask("", str(target.pid)), ask("pyobjects", str(target.pid), "--top=1")
        text = gdbheap("", str(target.pid)).stdout
    told, lines = answer["summary"], {line["id"]: line["virtual"] for line in answer["ledger"]}
    assert allocator in told["allocators"] and lines[f"{allocator}.used"] > 1 << 20
    assert told["used"] == sum(size for name, size in lines.items() if name.endswith((".used", ".mmapped")))
    assert told["used"] == objects["all_used"]["bytes"] and told["not_walked"] is None
    assert "is in use by the program" in text
