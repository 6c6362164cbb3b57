"""``heap pins``: list the small blocks that keep whole pages from being returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gdbheap.allocators.registry import KINDS
from gdbheap.answers import pins
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, one_of, root_paths, valued
from gdbheap.commands.surface.session import listed
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.pins import render

__all__ = ["COMMAND"]

NAMES = [kind.name for kind in KINDS]


@dataclass
class Options(Common):
    """The options of ``heap pins``: the fewest bytes that a pin's removal must free, and the allocator whose pins are
    listed.

    ``minimum``: None for one page. ``allocator``: None for all allocators.
    """

    minimum: int | None = valued(
        "--min", "SIZE", "skip groups that would free less than SIZE [default: 4K]", None, parse_size
    )
    allocator: str | None = valued(
        "--allocator", "NAME", f"show only {', '.join(NAMES[:-1])} or {NAMES[-1]}", None, one_of(NAMES)
    )
    path: bool = root_paths()


def _answer(heap: Heap, options: Options) -> pins.Pins:
    found = pins.pins(heap, options.minimum, options.allocator)
    return pins.with_paths(heap, found, listed(found.rows, SORTS, options)) if options.path else found


def _render(shown: Shown[pins.Pins, Options]) -> str:
    return render(shown.answer, shown.style)


SORTS: dict[str, Callable[[pins.Pin], Any]] = {
    "kept": lambda pin: pin.would_free - pin.size,
    "would_free": lambda pin: pin.would_free,
    "size": lambda pin: pin.size,
    "blocks": lambda pin: pin.blocks,
    "address": lambda pin: -pin.address,
    "allocator": lambda pin: pin.allocator,
}

COMMAND = Command(
    noun="pins",
    summary="List the small blocks that keep whole pages from being returned",
    text="""Each row describes a group of blocks, often a single block. The group keeps at least twice its own bytes
    from being returned. The column "would free" counts the resident pages that would be freed with the whole group. No
    block belongs to two groups, so the rows add up.""",
    example="heap pins --top=20",
    details="""The allocator determines which pages count. In glibc, a page counts if malloc_trim(0) can release it only
    after the group is freed. pymalloc returns an arena when its last block is freed, so all pages of the arena count.
    In mimalloc, mimalloc's own pages count: 64 KiB or more with blocks of one size. In jemalloc, slabs count. The
    groups that keep the most memory, apart from their own bytes, come first. A second table lists the blocks of all
    groups by type or owner. One column counts the groups that contain only blocks of the row's type or owner.

    glibc's blocks form a group if they share a page and fill at most half of the page. A fuller page counts if it
    contains only blocks of the group. A freed small chunk first goes to a thread's cache, and is returned only after it
    leaves the cache. Chunks in a cache are members of groups, too. malloc_trim() does not return the tops of threads'
    arenas. The last block below the top of a thread's arena is therefore not a pin. gdbheap does not predict whether
    the program reuses a freed block or an emptied pool.

    mimalloc makes an empty page available to other sizes at once, unless it is the last page of its size. The kernel
    gets the page later: when mimalloc returns another page of the segment, after 10 ms or more. A free-threaded build
    of Python may keep empty pages of objects for objects of the same size.

    `--path` reads all references. `--path` shows the paths to the first 20 blocks of each listed group. For each kind
    of block, only the most common path is shown. Two paths of a group count as one path if they differ only in
    bracketed numbers or the last key.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="groups",
    sorts=SORTS,
    top=20,
)
