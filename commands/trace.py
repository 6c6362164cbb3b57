"""``gdbheap trace``: record every malloc and free of a program."""

from __future__ import annotations

import os
import sys

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import STARTED
from gdbheap.commands.surface.options import Writing, one_of, switch, valued, whole_number
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.trace import render, sentence
from gdbheap.text import printable_record
from gdbheap.tracing.traced_command import TracedCommand, finish, trace

__all__ = ["COMMAND"]

ATTACH = (
    "gdbheap trace: process {0} was not changed. A trace needs a library in the process. Loading a library into a "
    "running process takes the dynamic linker's lock, allocates memory at an arbitrary point of the program, and "
    "cannot be undone. Trace the program from its start (gdbheap trace -- COMMAND), or follow it without a trace: "
    "gdbheap growth {0}, gdbheap record {0}"
)


MOST = 1 << 40


def _every(text: str) -> int:
    """Parse how many bytes the program allocates, on average, between two recorded stacks. Return 1 for "all". Raises
    ValueError."""
    if text == "all":
        return 1
    size = parse_size(text)
    if not 0 < size < MOST:
        raise ValueError(f"{text!r} is not a distance between recorded stacks: give a size, such as 64K, or 'all'")
    return size


@dataclass
class Options(Writing):
    """The options of ``gdbheap trace``: the file, which calls and stacks to record, and how to order the calls of
    threads.

    ``stacks``: the mean number of bytes between two recorded stacks; 1: a stack with each call, 0: none.
    ``attach``: a running process, for which the command only explains why it cannot be traced.
    """

    file: str = valued("-o", "FILE", "write the trace to FILE", "", str, needed=True)
    order: str = valued(
        "--order",
        "lock|time",
        "order the calls of threads by lock or by time [default: lock]",
        "lock",
        one_of(("lock", "time")),
    )
    pymalloc: bool = switch("--pymalloc", "record Python's own allocator, too")
    attach: int | None = valued("--attach", "PID", "explain why a running process cannot be traced", None, whole_number)
    stacks: int = valued(
        "--stacks",
        "SIZE",
        "record a stack every SIZE requested bytes, or all stacks [default: 512K]",
        0,
        _every,
        bare="512K",
    )
    finish: bool = switch("--finish", "complete the FILE of a trace that was killed while recording")


def _answer(command: tuple[str, ...], options: Options) -> TracedCommand:
    if options.attach is not None:
        raise UsageError(ATTACH.format(options.attach))
    if not options.file:
        raise UsageError("gdbheap trace: say where to write: -o FILE")
    path = os.path.expanduser(options.file)
    if options.finish:
        if command or options.pymalloc:
            raise UsageError("gdbheap trace: --finish starts no command: leave out the command and --pymalloc")
        return finish(path, options.mode)
    if not command:
        raise UsageError("gdbheap trace: which command? Type it after --")
    found = trace(path, list(command), options.order, options.pymalloc, options.stacks, options.mode)
    if not options.json and sys.stderr is not None:
        # Standard output belongs to the traced command.
        print(f"gdbheap: {sentence(printable_record(found))}", file=sys.stderr)
    return found


def _render(shown: Shown[TracedCommand, Options]) -> str:
    return render(shown.answer, shown.style) if shown.options.finish else ""


COMMAND = Command(
    noun="trace",
    summary="Record every malloc and free of a program",
    text="""Processes that the command starts are recorded, too. A program is not recorded if it is static or set-uid,
    clears its environment or brings its own malloc.""",
    example="gdbheap trace -o calls.log",
    details="""The command is started with a library that records malloc, calloc, realloc, reallocarray and free. The
    library also records memalign, aligned_alloc, posix_memalign, valloc and pvalloc. C++'s new and delete call these
    functions.
    mmap, munmap, mremap, mallopt and malloc_trim are recorded, too. The trace contains the requested size, address,
    thread and number of each call; the numbers give the order of all calls. Nothing is lost when a process is killed.
    gdbheap passes on the command's exit status. The status is 1 instead of 0 if calls are missing because the disk is
    full. Recording ends when the command and all processes that it started have ended.

    The calls of several threads are made one after the other, so their order is known. If `--order=time` is given,
    no thread waits for another: each thread records its own calls, with the time of the processor's clock.
    `--order=time` suits programs that allocate in many threads at once. A replay is then similar to the program, but
    not equal. docs/calls.md describes the file, and `gdbheap replay` makes the calls again.

    Python requests only large blocks from malloc. `--pymalloc` also records the requests to Python's own allocator:
    size, address and thread (PyMem_Malloc, PyObject_Malloc and the like). `--pymalloc` needs CPython 3.7 to 3.13 with a
    GIL; pymalloc places its blocks as it does without the recorder. Requests to Python's allocator do not count as
    calls, and `gdbheap replay` leaves them out.

    `--stacks` records stacks of C and Python for `gdbheap stacks`. Recording one stack for every SIZE requested bytes
    costs next to nothing. `--stacks=all` records a stack for each call that allocates. Each stack then takes some
    microseconds in C, and some tens of microseconds in Python. `--attach` records nothing, because a program must be
    recorded from its start. `--attach` only explains what to do instead.""",
    needs=STARTED,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
