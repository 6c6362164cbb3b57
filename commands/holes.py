"""``heap holes``: list free memory that is not returned to the kernel, and the blocks next to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gdbheap.answers import holes
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, minimum_size, recorded_calls, root_paths, valued
from gdbheap.commands.surface.session import listed
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.holes import render

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of ``heap holes``: the smallest hole to list, and what to find out about the blocks next to each
    hole.

    ``fit``: the size of a request that may fit into free memory, None for none.
    """

    minimum: int = minimum_size()
    fit: int | None = valued(
        "--fit", "SIZE", "show whether malloc(SIZE) would find a free chunk, and which", None, parse_size
    )
    path: bool = root_paths()
    calls: str | None = recorded_calls()


def _answer(heap: Heap, options: Options) -> holes.Holes:
    """Return the holes that the options ask for.

    Describing the blocks next to a hole is slow. If the list is sorted by size, only the --top largest holes are
    requested and described.
    """
    found = holes.holes(heap, options.minimum, options.top if options.sort == "size" else None, options.fit, True)
    if options.path:
        found = holes.with_paths(heap, found, listed(found.rows, SORTS, options))
    if options.calls is None:
        return found
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.tracing.block_makers import makers

    rows = listed(found.rows, SORTS, options)
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
    summary="List free memory not returned to the kernel, and blocks around it",
    text="""A hole is an unbroken run of free bytes inside an arena; the top of a heap is not a hole. The total also
    counts the holes that --top leaves out.""",
    example="heap holes --min=1M",
    details="""Each row shows how much of a hole is resident, and which used blocks are before and after the hole.

    malloc serves a request from a single free chunk, but a hole may consist of several chunks. Chunks in thread
    caches and fast bins are not merged with their neighbours. `--fit` examines single chunks in malloc's order.
    malloc first tries the thread's cache and the fast bin of exactly this size. The smallest sufficient chunk in a
    bin comes next, and then the top chunk. As a last step, malloc enlarges the heap. For a request of
    mmap_threshold or more, it creates a mapping instead. malloc merges the chunks in fast bins before a request of
    more than 1,000 bytes. malloc may choose a different chunk of the same size. malloc may also choose a different
    chunk after a request that left a remainder.

    `--path` reads all references. `--path` shows the path to each block next to a hole, as a Python expression or as
    text. `--calls` takes a trace of this process that `gdbheap trace --stacks` wrote. `--calls` then shows the stack
    that allocated each block next to a hole.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="holes",
    top=20,
    sorts=SORTS,
)
