"""``heap catch``: stop at exactly these calls of malloc's functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.interruption import until_told
from gdbheap.commands.surface.needs import CALLED
from gdbheap.commands.surface.options import Called, duration, switch, under_seccomp, valued, whole_number
from gdbheap.commands.surface.progress import tell
from gdbheap.errors import UsageError
from gdbheap.report.text.numbers import parse_address, parse_size
from gdbheap.report.words.catch import render

if TYPE_CHECKING:
    from gdbheap.following.catch import Catch
    from gdbheap.targets.following import LocalProcess

__all__ = ["COMMAND"]


@dataclass
class Options(Called):
    """The options of heap catch."""

    size: int | None = valued("--size", "SIZE", "calls that ask for exactly this many bytes", None, parse_size)
    min: int | None = valued("--min", "SIZE", "calls that ask for at least this many bytes", None, parse_size)
    max: int | None = valued("--max", "SIZE", "calls that ask for at most this many bytes", None, parse_size)
    address: int | None = valued(
        "--block", "ADDRESS", "calls of realloc and free about the block at this address", None, parse_address
    )
    grows: bool = switch("--grows", "calls in which malloc gets memory from the kernel, of whatever size")
    count: int | None = valued("--count", "N", "end after N calls (the default is 1; 0: no limit)", 1, whole_number)
    duration: float | None = duration("end after this time, however many calls came")
    seccomp: bool = under_seccomp()


def _answer(process: LocalProcess, options: Options) -> Catch:
    from gdbheap.following.catch import FUNCTIONS, Wanted, catch

    if options.function not in FUNCTIONS:
        raise UsageError(f"heap catch: {options.function!r} is none of {', '.join(FUNCTIONS)}")
    sizes = (options.size, options.min, options.max, options.address)
    if options.grows and (options.function == "free" or any(value is not None for value in sizes)):
        raise UsageError("heap catch: --grows is about malloc, calloc and realloc, of whatever size and block")
    if options.address is not None and options.function not in ("realloc", "free"):
        raise UsageError(f"heap catch: {options.function} is about no block that there is: leave out --block")
    with until_told() as is_told:
        wanted = Wanted(
            options.function, options.size, options.min, options.max, options.address, options.grows,
            options.count or None, options.duration, options.seccomp, is_told,
        )  # fmt: skip
        return catch(process, wanted, lambda: _begun(process.pid, options.function))


def _begun(pid: int, function: str) -> None:
    tell(f"waiting for {function} in process {pid}; Ctrl-C ends it")


def _render(shown: Shown[Catch, Options]) -> str:
    return render(shown.answer, shown.left_out, shown.style)


COMMAND = Command(
    noun="catch",
    question="Who calls malloc, calloc, realloc or free in exactly this way? (live)",
    text="""Waits until the process makes such a call, and prints the stack, Python's frames and C's in one; in a shell
    the process then goes on, in gdb it stands at the call. The comparison is done by the process itself, by a few
    instructions at the function's beginning, so that all other calls take about 2 ns longer, where gdb's
    conditional breakpoint costs each of them a tenth of a millisecond and more. They are taken out when this ends;
    after kill -9 they may stay, and cost a few system calls until they are met (docs/growth.md).

    The size is the one that is asked for, of calloc the product. free does not know it: there it is that of a request
    whose chunk may be as large as the block's, which are a few, of 128 KiB and more those of a page.""",
    example="heap catch realloc --size=8880819",
    needs=CALLED,
    options=Options,
    answer=_answer,
    render=_render,
    rows="calls",
    listed="calls",
    sorts={"time": lambda row: -row.seconds, "size": lambda row: row.size},
)
