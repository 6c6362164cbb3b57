"""``gdbheap trace``: each call of a program's allocator, in a file."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import STARTED
from gdbheap.commands.surface.options import Writing, one_of, switch, valued, whole_number
from gdbheap.errors import UsageError
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.trace import render, sentence
from gdbheap.text import printable_record

if TYPE_CHECKING:
    from gdbheap.tracing.traced_command import Traced

__all__ = ["COMMAND"]

ATTACH = (
    "gdbheap trace: process {0} is not touched: to record it a library would have to be loaded into it, which takes the"
    " dynamic linker's lock and allocates in the middle of whatever it does, and nothing can take it out again; record"
    " it from its start (gdbheap trace -- COMMAND), or look without a log: gdbheap growth {0}, gdbheap record {0}"
)


MOST = 1 << 40


def _every(text: str) -> int:
    """Every how many bytes. Raises ValueError."""
    if text == "all":
        return 1
    size = parse_size(text)
    if not 0 < size < MOST:
        raise ValueError(f"{text!r} is not every how many bytes a stack could be recorded")
    return size


@dataclass
class Options(Writing):
    """The options of gdbheap trace."""

    file: str = valued("-o", "FILE", "where to write it", "", str, needed=True)
    order: str = valued(
        "--order",
        "lock|time",
        "how the order of several threads' calls is known (the default is lock)",
        "lock",
        one_of(("lock", "time")),
    )
    pymalloc: bool = switch(
        "--pymalloc", "also record what Python asks of its own allocator, which serves most blocks without malloc"
    )
    attach: int | None = valued(
        "--attach", "PID", "refused, with what to do instead: a program is recorded from its start, or not at all",
        None, whole_number,
    )  # fmt: skip
    stacks: int = valued(
        "--stacks", "SIZE", "also record stacks of C and Python: one every SIZE bytes that are asked for, on average"
        " (the default is 512K), or with each call that allocates (1, or all)", 0, _every, bare="512K",
    )  # fmt: skip
    finish: bool = switch("--finish", "put what a recording that was killed has left into its FILE")


def _answer(command: tuple[str, ...], options: Options) -> Traced:
    # Imported where it is needed: a command's start is mostly imports.
    from gdbheap.tracing.traced_command import finish, trace

    if options.attach is not None:
        raise UsageError(ATTACH.format(options.attach))
    if not options.file:
        raise UsageError("gdbheap trace: where to? -o FILE")
    path = os.path.expanduser(options.file)
    if options.finish:
        if command or options.pymalloc:
            raise UsageError("gdbheap trace: --finish starts no command, and takes what there is")
        return finish(path, options.mode)
    if not command:
        raise UsageError("gdbheap trace: which command? It follows --")
    found = trace(path, list(command), options.order, options.pymalloc, options.stacks, options.mode)
    if not options.json and sys.stderr is not None:
        # Standard output is the command's.
        print(f"gdbheap: {sentence(printable_record(found))}", file=sys.stderr)
    return found


def _render(shown: Shown[Traced, Options]) -> str:
    return render(shown.answer, shown.style) if shown.options.finish else ""


COMMAND = Command(
    noun="trace",
    question="Which calls does a program make of its allocator? Each of them, in a file",
    text="""Starts the command with a library that writes down each call of malloc, calloc, realloc, reallocarray,
    memalign, aligned_alloc, posix_memalign, valloc, pvalloc and free (C++'s new and delete call these), of mmap,
    munmap and mremap, mallopt and malloc_trim: what was asked for, the address, the thread, and in which order all of
    them were made. Processes that the command starts are recorded too, each by itself. Nothing is lost when one is
    killed. The command's exit status is passed on, or is 1 where that is 0 and calls are missing because the disk is
    full; it ends when the command and all that it started have ended.

    The calls of several threads are made one after the other, which is how their order is known. With --order=time
    nobody waits: each thread writes for itself, with the processor's clock, for programs that live from allocating in
    many threads at once; a replay is then alike, not equal. A program that is
    linked statically, is set-uid, clears its environment or brings its own malloc is not seen. docs/calls.md describes
    the file, gdbheap replay runs the calls again.

    Python asks malloc for large blocks alone. With --pymalloc what it asks of its own allocator is in the log too
    (PyMem_Malloc, PyObject_Malloc and the like: size, address, thread), for CPython 3.7 to 3.13 with a GIL; pymalloc
    lays out its blocks as without. These are not counted as calls, and gdbheap replay leaves them out.

    With --stacks the stacks are recorded that gdbheap stacks shows: those of a sample of the calls, by bytes, which
    costs next to nothing, or of each call, which costs some microseconds for C and some tens of them for Python.""",
    example="gdbheap trace -o calls.log",
    needs=STARTED,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
