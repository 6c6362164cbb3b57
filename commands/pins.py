"""``heap pins``: which few blocks, if they were gone, would free the most pages?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gdbheap.allocators.finding import KINDS
from gdbheap.answers import pins
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, one_of, root_paths, valued
from gdbheap.commands.surface.session import listed
from gdbheap.heap import Heap
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.pins import render

__all__ = ["COMMAND"]

NAMES = [kind.name for kind in KINDS]


@dataclass
class Options(Common):
    """The options of heap pins."""

    minimum: int | None = valued(
        "--min", "SIZE",
        "leave out what would free less (the default is a page, 4K; K, M, G and T are powers of 1024)",
        None, parse_size,
    )  # fmt: skip
    allocator: str | None = valued(
        "--allocator", "NAME", f"only the pins of {', '.join(NAMES[:-1])} or {NAMES[-1]}", None, one_of(NAMES)
    )
    path: bool = root_paths()


def _answer(heap: Heap, options: Options) -> pins.Pins:
    found = pins.pins(heap, options.minimum, options.allocator)
    return pins.with_paths(heap, found, listed(found.pins, SORTS, options)) if options.path else found


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
    question="Which few blocks, if they were gone, would free the most pages?",
    text="""Each row is a group of blocks, often a single one, that keeps at least twice its own bytes from going back.
    "would free" is the resident pages that go when the whole group is gone: in glibc's arenas the whole pages that
    malloc_trim(0) could release then and cannot now, by the rule of heap trim; in pymalloc, which gives an arena back
    with its last block, the pages of that arena; in mimalloc those of a page of its own, 64 KiB or more with
    blocks of one size; in jemalloc those of a slab. No block is in two groups, so that the rows add up. Groups that
    keep the most beyond their own bytes come first. Below are the blocks of all groups by type or owner, and how many
    groups have nothing else.

    In glibc's arenas blocks are a group if they share a page of which they fill at most half; fuller pages count if
    nothing outside the group touches them. A small chunk that is freed goes to a thread's cache first, and is given
    back only after it has left that; chunks that are in a cache now are members of groups too. malloc_trim() gives
    nothing back of the tops of threads' arenas, nor of what borders on them when the last block below them goes: that
    block is no pin. That an emptied pool or a freed block might be used again for other objects is not taken into
    account.

    mimalloc makes an empty page available to blocks of other sizes at once, unless it is the last one of its size, and
    gives it back to the kernel later: when another page of its segment goes, after 10 ms and one more for each that
    went in between. In free-threaded builds empty pages of objects may stay, for objects of the same size.

    With --path each group that is listed has the paths by which roots keep its first 20 blocks, and each kind has the
    most common of those: as Python where there is an expression, else in words. In a group of several blocks, paths
    that differ only in numbers in brackets or in the last key count as one.""",
    example="heap pins --top=20",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="pins",
    listed="groups",
    sorts=SORTS,
    top=20,
)
