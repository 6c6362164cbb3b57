"""Choose the commands that the first page suggests to type next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gdbheap.allocators.allocator import KeepReason
from gdbheap.findings.finding import Evidence
from gdbheap.first_page.main_holders import MainHolders, most_is_imported, seconds_for
from gdbheap.heap import Heap
from gdbheap.host.procfs import PROC
from gdbheap.text import Sentence

__all__ = ["next_lines", "next_of_snapshot"]

MOST = 3
# If the memory in use has a smaller percentage of RSS, no command about it is suggested.
MIN_PERCENT = 1
FILE = "before.heap"
# The id of the reason for glibc's free memory on pages that are partly in use, and the least percentage of RSS at which
# this memory matters.
FRAGMENTS, MIN_PERCENT_KEPT = "glibc.fragments", 20
KEEPS = "would another malloc keep less of the free memory?"
# The most bytes that are read of the list of children. The kernel prints at most ten bytes for each child; a larger
# number of children does not have to be exact.
CHILDREN_BYTES = 64 << 10


def next_lines(evidence: Evidence, held: MainHolders, kept: Sequence[KeepReason] = ()) -> list[str]:
    """Return at most MOST command lines, each with its reason as a comment.

    Up to two more lines measure how much of the free memory another malloc would keep. They come first if much of it is
    ``kept`` on partly used pages."""
    heap = evidence.heap
    lines: list[str] = []
    if held.finishing:
        lines += _commented(held.finishing[:1], "the holders of the remaining memory")
    elif held.not_looked is not None:
        budget = f"--budget={seconds_for(held.not_looked)}"
        rest = (
            "the holders of the remaining memory" if held.rows else "this page, with the holders of the memory in use"
        )
        lines += _commented(evidence.line("", budget), rest)
    elif most_is_imported(held.imported, heap.target.rss.bytes):
        lines += _commented(evidence.line("pyobjects"), "its types")
    elif not held.rows and 100 * evidence.in_use >= MIN_PERCENT * (heap.target.rss.bytes or 0):
        lines += _commented(evidence.line("owners"), "the holders of the memory in use")
    parent = evidence.parent
    reason = f"memory shared with {parent}, from which it was forked, and memory copied since"
    shared = _commented([f"gdbheap {parent} --children"], reason) if parent is not None else []
    lines += shared if evidence.python_parent is not None else []
    children = children_of(heap)
    if children:
        what = "child" if children == 1 else "children"
        lines += _commented(evidence.line("", "--children"), f"with its {children:,} {what}")
    if held.rows and heap.target.kind == "process":
        lines += _commented(evidence.line("snapshot", FILE), "does it grow? Run this now, and the next line later:")
        lines += evidence.line(f"diff {FILE}")
    lines += shared if evidence.python_parent is None else []
    size = sum(row.bytes for row in kept if row.id == FRAGMENTS)
    measuring = evidence.measuring() if 100 * size >= MIN_PERCENT_KEPT * (heap.target.rss.bytes or size + 1) else []
    first = _commented(measuring[:1], KEEPS)
    return [*first, *measuring[1:], *lines[:MOST]]


def _commented(lines: list[str], reason: str) -> list[str]:
    return [Sentence(f"{line}  # {reason}") for line in lines]


def children_of(heap: Heap) -> int:
    """Return how many children a process on this machine has now; 0 if the kernel does not say."""
    target = heap.target
    if target.proc is None or target.pid is None:
        return 0
    with suppress(OSError), open(f"{PROC}/{target.proc}/task/{target.pid}/children", "rb") as stream:
        return len(stream.read(CHILDREN_BYTES).split())
    return 0


def next_of_snapshot(target: Mapping[str, Any], path: str) -> list[str]:
    """Return the command lines for a page from a snapshot of ``target``, which is in the file ``path``."""
    file, pid = shlex.quote(path), target.get("pid")
    later = f"gdbheap diff {file} {pid}  # what grew since then, if the process still runs" if pid else ""
    return [line for line in (later, f"gdbheap report {file} -o report.html") if line]
