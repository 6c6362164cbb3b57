"""``heap duplicates``: list Python values that are stored more than once."""

from __future__ import annotations

from gdbheap.answers import duplicates
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch, valued
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.words.duplicates import render

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of ``heap duplicates``: a pattern for the types to show, and whether to find what refers to the
    copies.
    """

    type: str | None = valued("--type", "GLOB", "show only types whose full name matches GLOB", None, str)
    holders: bool = switch("--holders", "show the types that refer to most copies (reads all references)")


def _answer(heap: Heap, options: Options) -> duplicates.Duplicates:
    return duplicates.duplicates(heap, options.type, options.top, options.holders)


def _render(shown: Shown[duplicates.Duplicates, Options]) -> str:
    return render(shown.answer, shown.style, shown.options.holders)


COMMAND = Command(
    noun="duplicates",
    summary="List values that are stored more than once (Python)",
    text="""Each row describes a value: how many copies exist, and how many bytes keeping only one copy would save. A
    value is a str, bytes, int, float or complex, or a tuple of these.""",
    example="heap duplicates --top=20 --holders",
    details="""The saving is the number of bytes of all copies except the largest copy. Objects of subclasses are left
    out, and so are values in the interpreter's static data. Equal values in two interpreters with separate arenas do
    not count as copies, because interpreters cannot share a value. gdbheap compares 128-bit hashes of the contents, not
    the values themselves.

    `--holders` names, for each listed value, the types that refer to most of its copies. A container is named by its
    holder, such as "dict of app.Session".""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="values",
    top=20,
)
