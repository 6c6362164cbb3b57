"""``heap chunks``: which chunks are these?"""

from __future__ import annotations

from gdbheap.answers import chunks
from gdbheap.commands.surface.declaration import Command, Option, Options, Shown
from gdbheap.heap import Heap
from gdbheap.report.chunks import render
from gdbheap.report.numbers import parse_size

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Options) -> chunks.Chunks:
    states = options.states or chunks.STATES
    selection = chunks.Selection(states, options.minimum, options.maximum, options.arena, options.type)
    return chunks.chunks(heap, selection, options.sort, options.top)


def _render(shown: Shown[chunks.Chunks]) -> str:
    return render(shown.answer, shown.style)


def _states(text: str) -> tuple[str, ...]:
    states = tuple(text.split(","))
    for state in states:
        if state not in chunks.STATES:
            raise ValueError(f"{state!r} is none of {', '.join(chunks.STATES)}")
    return states


def _arena(text: str) -> int:
    if text == "main":
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 9):
        raise ValueError(f"{text!r} is no arena: main, or an index of 'heap arenas'")
    return int(text)


OPTIONS = (
    Option(
        "--state", "states", "STATES",
        f"only chunks in these states, with commas between them: {', '.join(chunks.STATES)} (free: in a bin)", _states,
    ),
    Option("--min", "minimum", "SIZE", "leave out chunks that are smaller, headers included", parse_size),
    Option("--max", "maximum", "SIZE", "leave out chunks that are larger", parse_size),
    Option("--arena", "arena", "INDEX", "only chunks of this arena: main, or an index of 'heap arenas'", _arena),
    Option(
        "--type", "type", "GLOB",
        "only chunks that hold a live Python object of a type whose whole name matches, with *, ? and [...]",
    ),
)  # fmt: skip

COMMAND = Command(
    noun="chunks",
    question="Which chunks are these?",
    text="""A row a chunk: malloc's pointer, the size with the header, its state, the free list it is on, and for a used
    one what it is: the Python object in it, the object that owns it, or what its bytes look like. A small bin holds
    one size, a large one is named by its least size, and what was freed last waits in the unsorted bin. The totals are
    those of all chunks that match, also when --top cuts the list.

    Python objects of up to 512 bytes lie in pymalloc's pools and not in chunks of their own, unless pymalloc is
    switched off. A chunk with a mapping of its own is mmapped and in no arena.""",
    example="heap chunks --state=used --min=1M",
    answer=_answer,
    render=_render,
    options=OPTIONS,
    listed="chunks",
    sorts={key: lambda row: row for key in chunks.ORDERS},
    top=20,
)
