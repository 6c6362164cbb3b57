"""The time of the first page from its start to its end, against the time to read the private memory once.

Targets of 2 and 18 million blocks, with --largest of 80 million too: C programs with glibc's malloc and with jemalloc,
which have freed half of them, and Python. Programs that are not on this machine are left out. Used by bench.py; by
itself it prints the table.

Usage: first_page.py [--rounds=5] [--largest] [--jemalloc=LIB]
"""

from __future__ import annotations

import argparse
import ctypes.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from measure import HERE, Series, compiled, median, preferred_python, subject
from stops import limit_of, private_memory

from gdbheap import _native
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.first_page.ledger import Ledger
from gdbheap.heap import Heap
from gdbheap.targets.process import stopped

SIZES, LARGEST = (2_000_000, 18_000_000), 80_000_000
# A chunk for this request has 32 bytes, in the target of 80 million blocks.
SMALL_CHUNK = "24"
HEAD = [
    "The first page, from its start to its end, compared with the time to read the private memory once, in one run:",
    "",
    "| process | blocks in use | private memory | times reading it once | smallest to largest | whole | CPU | bytes "
    "with a holder |",
    "| --- | ---: | ---: | ---: | --- | ---: | ---: | --- |",
]


@dataclass
class Pages:
    """The results for a target: its last page, and for each run the time and the processor time."""

    page: Ledger
    blocks: int
    series: Series = field(default_factory=Series)
    processor: list[float] = field(default_factory=list)


def _page(pid: int) -> tuple[Ledger, int]:
    """Return the answer of the shell command, and how many blocks are in use."""
    command = COMMANDS[""]
    with stopped(pid, None, copies=True) as process:
        heap = Heap(process)
        answer = command.answer(heap, parse(command, [])[0])
        return answer, heap.used_blocks


def _measured(pid: int, rounds: int) -> Pages:
    pages = None
    for _ in range(rounds):
        limit, began, processor = limit_of(pid), time.perf_counter(), time.process_time()
        page, blocks = _page(pid)
        whole, processor = time.perf_counter() - began, time.process_time() - processor
        pages = Pages(page, blocks) if pages is None else pages
        pages.series.limits.append(limit)
        pages.series.times.append(whole)
        pages.processor.append(processor)
    assert pages is not None
    return pages


def _told(page: Ledger) -> str:
    """Return the page's holders as text."""
    if not page.holders:
        return "none" if page.not_looked is None else "not looked for"
    share = sum(row.bytes for row in page.holders) / max(page.summary.used if page.summary else 0, 1)
    return f"{'at least ' if page.holders[0].at_least else ''}{100 * share:.0f} % of the bytes in use"


def _row(title: str, pid: int, rounds: int) -> str:
    with stopped(pid) as target:
        size = _native.read_once(target.space, private_memory(target))
    pages = _measured(pid, rounds)
    series = pages.series
    whole, processor = median(series.times), median(pages.processor)
    return (
        f"| {title} | {pages.blocks:,} | {size / (1 << 20):,.0f} MiB | {series.ratio:.1f} | {series.spread} |"
        f" {whole:.1f} s | {processor:.1f} s | {_told(pages.page)} |"
    )


def _targets(largest: bool, jemalloc: str | None) -> list[tuple[str, list[str]]]:
    """Return the name and the command of each target."""
    glibc, python = compiled("target_glibc.c"), preferred_python()
    preloaded = ["env", f"LD_PRELOAD={jemalloc}"]
    found = []
    for size in SIZES:
        found.append(("glibc's malloc", [glibc, str(size)]))
        found += [("jemalloc", [*preloaded, glibc, str(size)])] if jemalloc else []
        found.append(("Python", [python, str(HERE / "target_python.py"), str(size)]))
    if largest:
        found.append(("glibc's malloc", [glibc, str(LARGEST), "1", SMALL_CHUNK]))
        found += [("jemalloc", [*preloaded, glibc, str(LARGEST), "1", SMALL_CHUNK])] if jemalloc else []
        found.append(("Python, one list of floats", [python, str(HERE / "target_floats.py"), str(LARGEST)]))
    return found


def first_pages(rounds: int, largest: bool, jemalloc: str | None, say: Callable[[str], None]) -> str:
    """Return the table, as text."""
    rows = []
    for title, command in _targets(largest, jemalloc):
        say(f"the first page of {title}: {' '.join(command)}")
        with subject(command) as target:
            rows.append(_row(title, target.pid, rounds))
    return "\n".join([*HEAD, *rows])


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="how long the first page takes")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured; medians are shown")
    parser.add_argument("--largest", action="store_true", help="targets of 80 million blocks too (7 GiB of memory)")
    parser.add_argument("--jemalloc", metavar="LIB", help="the library of jemalloc; the system's if there is one")
    options = parser.parse_args(words)
    jemalloc = options.jemalloc or ctypes.util.find_library("jemalloc")
    print(first_pages(options.rounds, options.largest, jemalloc, lambda text: print(text, file=sys.stderr, flush=True)))


if __name__ == "__main__":
    main()
