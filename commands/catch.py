"""``heap catch``: stop at a malloc call of a given size and show its stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.interruption import until_told
from gdbheap.commands.surface.needs import CALLED
from gdbheap.commands.surface.options import Called, duration, switch, under_seccomp, valued, whole_number
from gdbheap.commands.surface.progress import tell_aside
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.report.text.numbers import parse_address, parse_size
from gdbheap.report.words.catch import render

if TYPE_CHECKING:
    from gdbheap.following.catch import Catch
    from gdbheap.targets.following import LocalProcess

__all__ = ["COMMAND"]


@dataclass
class Options(Called):
    """The options of ``heap catch``: which calls of the function match, and when to stop catching.

    A call must meet all conditions that are given; None means any. ``count`` is 0 for no limit.
    """

    size: int | None = valued("--size", "SIZE", "match calls that request exactly SIZE", None, parse_size)
    min: int | None = valued("--min", "SIZE", "match calls that request at least SIZE", None, parse_size)
    max: int | None = valued("--max", "SIZE", "match calls that request at most SIZE", None, parse_size)
    address: int | None = valued(
        "--block", "ADDRESS", "match realloc and free of the block at ADDRESS", None, parse_address
    )
    grows: bool = switch("--grows", "match calls for which malloc gets memory from the kernel")
    count: int | None = valued("--count", "N", "end after N matching calls; 0: no limit [default: 1]", 1, whole_number)
    duration: float | None = duration("end after TIME, even if fewer calls matched")
    seccomp: bool = under_seccomp()


def _answer(process: LocalProcess, options: Options) -> Catch:
    from gdbheap.following.catch import FUNCTIONS, CatchRequest, catch

    if options.function not in FUNCTIONS:
        raise UsageError(f"heap catch: {options.function!r} is not one of {', '.join(FUNCTIONS)}")
    sizes = (options.size, options.min, options.max, options.address)
    if options.grows and (options.function == "free" or any(value is not None for value in sizes)):
        raise UsageError(
            "heap catch: --grows works only with malloc, calloc and realloc, and without a size or --block"
        )
    if options.address is not None and options.function not in ("realloc", "free"):
        raise UsageError(f"heap catch: {options.function} does not take a block: leave out --block")
    with until_told() as is_told:
        wanted = CatchRequest(
            options.function, options.size, options.min, options.max, options.address, options.grows,
            options.count or None, options.duration, options.seccomp, is_told,
        )  # fmt: skip
        return catch(process, wanted, lambda: _begun(process.pid, options.function))


def _begun(pid: int, function: str) -> None:
    tell_aside(f"waiting for {function} in process {pid}; Ctrl-C ends it")


def _render(shown: Shown[Catch, Options]) -> str:
    return render(shown.answer, shown.left_out, shown.style)


COMMAND = Command(
    noun="catch",
    summary="Stop at a malloc call of a given size and show its stack",
    text="""In a shell, the process runs on after the call; in gdb, it stays stopped at the call. The process itself
    compares the sizes. A call that does not match therefore takes only about 2 ns longer.""",
    example="heap catch realloc --size=8880819",
    details="""The stack contains frames of Python and of C, in the order of the calls. gdbheap adds a few instructions
    at the beginning of the function; these instructions compare the sizes. A conditional breakpoint of gdb would slow
    down each call by a tenth of a millisecond or more. gdbheap removes the instructions when it ends. If gdbheap is
    killed with kill -9, the instructions may stay. The instructions then cost a few system calls each time a thread
    reaches them (docs/growth.md).

    SIZE is the requested size; for calloc, it is the product of the two arguments. A call of free does not contain the
    requested size. For free, SIZE matches if malloc would serve a request of SIZE bytes with a chunk of the block's
    size. Each chunk size serves several requested sizes. A request of 128 KiB or more gets whole pages: all
    requests that need the same number of pages share one chunk size.""",
    needs=CALLED,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="calls",
    sorts={"time": lambda row: -row.seconds, "size": lambda row: row.asked},
)
