"""Cores that Linux wrote on another machine, checked against the output of their programs.

The cores are in tests/foreign: programs of Debian 12 for aarch64, on kernels with pages of 4 KiB (blocks.c) and of 16
KiB (service.py). The files of these programs are not on this machine, so everything comes from the core alone.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.library import heap_of
from support.pool_figures import answered, told
from support.programs import ask

import gdbheap as library
from gdbheap.targets.stack_mappings import find_stacks

FOREIGN = Path(__file__).resolve().parent / "foreign"
BLOCKS, SERVICE = (str(FOREIGN / f"{name}.core.xz") for name in ("blocks", "service"))


def stats(text: str) -> list[tuple[int, int]]:
    """Return (system bytes, bytes in use) of each arena, and of all together, from the text of malloc_stats()."""
    return [
        (int(system), int(used)) for system, used in re.findall(r"system bytes += +(\d+)\nin use bytes += +(\d+)", text)
    ]


@pytest.mark.parametrize("core", [BLOCKS, SERVICE])
def test_arenas(core: str) -> None:
    """Check each arena against malloc_stats(), which counts arenas in the order of their creation."""
    *arenas, total = stats(Path(core.replace(".core.xz", ".err")).read_text())
    answer = ask("arenas", core)
    assert sorted((row["system"], row["in_use"]) for row in answer["rows"]) == sorted(arenas)
    mapped = answer["mmapped_chunks"]["bytes"]
    assert total == (sum(system for system, _used in arenas) + mapped, sum(used for _system, used in arenas) + mapped)
    assert ask("check", core)["ok"] is True


def test_every_block() -> None:
    """Check that each block that the program holds is in use and as large as requested."""
    rows = [line.split() for line in (FOREIGN / "blocks.out").read_text().splitlines()]
    held = {int(address, 16): int(size) for address, size in rows}
    with library.open(BLOCKS) as heap:
        found = {block.address: block.size for block in heap.blocks(min=0, state=["used", "mmapped"])}
    assert [hex(address) for address, size in held.items() if found.get(address, -1) < size] == []


def test_threads_have_their_stacks() -> None:
    """Check that the C library's records below the thread pointers give each stack its bounds."""
    with heap_of(BLOCKS) as heap:
        threads = heap.target.threads
        assert len(threads) == 5 and heap.target.machine.name == "aarch64" and heap.target.machine.page == 4096
        pointers = {thread.tid: thread.sp for thread in threads}
        stacks = [stack for stack in find_stacks(heap.target) if stack.tid != heap.target.pid]
        assert len(stacks) == 4 and all(stack.start < pointers[stack.tid] < stack.end for stack in stacks)
        assert all(stack.end - stack.start > 8 << 20 for stack in stacks)


def test_pools_and_objects() -> None:
    """Check pools against sys._debugmallocstats(), and objects against the collector."""
    said = json.loads((FOREIGN / "service.out").read_text())
    answer = ask("pools", SERVICE)
    assert answered(answer) == told((FOREIGN / "service.err").read_text())
    with heap_of(SERVICE) as heap:
        assert heap.target.machine.page == said["page"] == 16 << 10 and heap.target.pid == said["pid"]
    rows = {row["type"]: row for row in ask("pyobjects", SERVICE, "--top=0")["rows"]}
    assert rows["__main__.Order"]["count"] == said["orders"] and rows["list"]["count"] == said["lists"]


def test_page_names_the_holders() -> None:
    """Check that the page names the variables of the script, and the variable of a function that two threads run."""
    answer = ask("heap", SERVICE)
    holders = {row["path"].partition(" at ")[0] for row in answer["holders"]}
    assert {"CACHE", "ORDERS", "local variable kept in waits()"} <= holders


def test_frames() -> None:
    """Check that both threads wait in a function of the script, whose line is known without any file."""
    rows = ask("threads", SERVICE)["rows"]
    inner = sorted((row["running"][0]["function"], row["running"][0]["line"]) for row in rows)
    source = (FOREIGN / "service.py").read_text().splitlines()
    assert [function for function, _line in inner] == ["main", "waits", "waits"]
    assert [source[line - 1].strip() for _function, line in inner] == [
        "signal.pause()", "with lock:", "with lock:",
    ]  # fmt: skip
