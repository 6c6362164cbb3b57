"""``heap holes``: which free memory is not given back, where is it, and what pins it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gdbheap.answers import holes
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, minimum_size, recorded_calls, root_paths, valued
from gdbheap.commands.surface.session import listed
from gdbheap.heap import Heap
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.holes import render

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of heap holes."""

    minimum: int = minimum_size()
    fit: int | None = valued(
        "--fit", "SIZE",
        "also say whether malloc(SIZE) would be served from what malloc has, by which chunk, and what it would take if"
        " not",
        None, parse_size,
    )  # fmt: skip
    path: bool = root_paths()
    calls: str | None = recorded_calls()


def _answer(heap: Heap, options: Options) -> holes.Holes:
    """Neighbours are described only for what is listed, which takes the list in the answer's own order: by size."""
    found = holes.holes(heap, options.minimum, options.top if options.sort == "size" else None, options.fit)
    if options.path:
        found = holes.with_paths(heap, found, listed(found.holes, SORTS, options))
    if options.calls is None:
        return found
    # Imported where it is needed: a command's start is mostly imports.
    from gdbheap.tracing.block_makers import makers

    rows = listed(found.holes, SORTS, options)
    return holes.with_makers(found, makers(options.calls, heap.target.pid, holes.beside(rows)))


def _render(shown: Shown[holes.Holes, Options]) -> str:
    return render(shown.answer, shown.style, shown.options.minimum)


SORTS: dict[str, Callable[[holes.Hole], Any]] = {
    "size": lambda hole: hole.size,
    "resident": lambda hole: hole.resident,
    "address": lambda hole: -hole.address,
    "arena": lambda hole: None if hole.arena is None else -hole.arena,
    "allocator": lambda hole: hole.allocator,
}

COMMAND = Command(
    noun="holes",
    question="Which free memory is not given back, where is it, and what pins it?",
    text="""A hole is a maximal run of bytes inside an arena that nobody holds, whatever lists its pieces are on; the
    top of a heap is not a hole. Each row says how much of a hole is resident, and which held blocks are below and
    above it. The figures in the total are those of all holes that match, also when --top cuts the list.

    malloc takes a single free chunk for a request, and a hole may consist of several: chunks in thread caches and fast
    bins are not merged with their neighbours. --fit=SIZE looks at single chunks as malloc does: in a thread's cache
    and the fast bin for exactly this size, then for the smallest in bins that suffices, then the top chunk, then a
    larger heap or, from mmap_threshold on, a mapping of its own. Before a request of more than 1,000 bytes malloc
    merges the chunks in fast bins. Among chunks of equal size, and where the last request left a remainder, malloc may
    take another chunk than the one that is named.

    With --path each of these blocks has the path by which a root keeps it, as Python where there is an expression,
    else in words. With --calls and the log of a process that gdbheap trace --stacks records they have the stack of the
    call that gave them, as in heap at.""",
    example="heap holes --min=1M",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="holes",
    listed="holes",
    top=20,
    sorts=SORTS,
)
