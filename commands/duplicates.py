"""``heap duplicates``: what is held twice?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import duplicates
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch, valued
from gdbheap.heap import Heap
from gdbheap.report.words.values import render_duplicates

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of heap duplicates."""

    type: str | None = valued(
        "--type", "GLOB", "only types whose whole name matches, of str, bytes, int, float, complex and tuple", None, str
    )
    holders: bool = switch("--holders", "also who refers to most of the copies (reads all references)")


def _answer(heap: Heap, options: Options) -> duplicates.Duplicates:
    return duplicates.duplicates(heap, options.type, options.top, options.holders)


def _render(shown: Shown[duplicates.Duplicates, Options]) -> str:
    return render_duplicates(shown.answer, shown.style, shown.options.holders)


COMMAND = Command(
    noun="duplicates",
    question="What is held twice? (Python)",
    text="""Python's strings, bytes, numbers, and tuples of these, that several objects in the heaps hold: a row for
    each value, with how many copies there are, and what one of them would save: the blocks of all copies but the
    largest. Objects of subclasses are left out, and so are values in static data of the interpreter. Objects of
    two interpreters with arenas of their own are no copies: they cannot share one. Values are compared by a hash of
    their contents, of 128 bits.

    With --holders there are, for each value that is listed, the types of those that refer to the most of its copies;
    containers by what holds them, as in "dict of app.Session".""",
    example="heap duplicates --top=20 --holders",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="values",
    top=20,
)
