"""``heap growth``: show which calls make a process's memory grow, and their stacks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.interruption import until_told
from gdbheap.commands.surface.needs import FOLLOWED
from gdbheap.commands.surface.options import Pictured, duration, switch, under_seccomp, valued, whole_number
from gdbheap.commands.surface.pictures import draw
from gdbheap.commands.surface.progress import tell_aside
from gdbheap.dataclass import dataclass
from gdbheap.report.formats.flame import CALLS
from gdbheap.report.formats.pprof import OF_CALLS, pprof_of_tree
from gdbheap.report.formats.weighted import OTHER_STACKS
from gdbheap.report.words.growth import render
from gdbheap.stack_frames import StackFrame

if TYPE_CHECKING:
    from gdbheap.following.growth import Growth
    from gdbheap.stacks import Weighted
    from gdbheap.targets.following import Live

__all__ = ["COMMAND"]


@dataclass
class Options(Pictured):
    """The options of ``heap growth``: when to stop following the process, and how to record calls.

    ``no_stacks``: only count calls, which is ten times faster. ``perf``: use a tracepoint of the kernel, which stops no
    thread.
    """

    duration: float | None = duration("end after TIME [default: at Ctrl-C or the process's end]")
    count: int | None = valued("--count", "N", "end after N calls that make memory grow", None, whole_number)
    no_stacks: bool = switch("--no-stacks", "count calls without recording their stacks, which is ten times faster")
    perf: bool = switch("--perf", "use a kernel tracepoint (CAP_PERFMON): stop no thread, show no Python frames")
    seccomp: bool = under_seccomp()


def _answer(live: Live, options: Options) -> Growth:
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.following.following_growth import FollowRequest, follow

    with until_told() as is_told:
        with_stacks = not options.no_stacks
        request = FollowRequest(options.duration, options.count, with_stacks, options.seccomp, options.perf, is_told)
        found = follow(live, request, lambda places: _begun(live.pid, places, options.perf))
    stacks = drawn_stacks(found)
    draw(options, stacks, _title(live.pid), CALLS, lambda: pprof_of_tree(stacks, OF_CALLS))
    return found


def drawn_stacks(found: Growth) -> list[Weighted]:
    """Return the stacks to draw. All calls whose stacks were not kept share one stack with a single frame."""
    stacks: list[Weighted] = [(stack.frames, stack.bytes, stack.calls) for stack in found.sites]
    others = found.other_stacks
    if others is not None:
        stacks.append(([StackFrame(OTHER_STACKS, "", None, "rest")], others.bytes, others.calls))
    return stacks


def _title(pid: int | None) -> str:
    return (
        "Memory that the program got from the kernel"
        if pid is None
        else f"Memory that process {pid} got from the kernel"
    )


def _begun(pid: int | None, places: int, perf: bool) -> None:
    """Print that gdbheap now follows the process, because nothing else is printed for a long time."""
    where = "by a tracepoint" if perf else f"at {places} places"
    if pid is not None:
        tell_aside(f"process {pid} is followed {where}; Ctrl-C ends it", anyway="GDBHEAP_DEBUG" in os.environ)


def _render(shown: Shown[Growth, Options]) -> str:
    return render(shown.answer, shown.left_out, not shown.options.no_stacks, shown.style)


COMMAND = Command(
    noun="growth",
    summary="Show which calls make the memory grow (live)",
    text="""The process runs on. growth follows its calls until Ctrl-C, the end of the process, --duration or --count.
    growth prints its cost: how often it stopped a thread, and for how long.""",
    example="heap growth --duration=10",
    details="""gdbheap follows the system calls brk, mmap, mprotect, munmap, mremap and madvise. The answer shows the
    sizes of the calls that made memory grow. Calls for malloc's heap (brk) and all other calls (mmap) are listed
    separately. A table then shows how many calls of each kind mapped, unmapped or returned memory, and how many bytes.
    The stacks of the calls that made memory grow follow; the stacks with the most bytes come first. A stack contains
    frames of Python and of C, in the order of the calls. No other code of the process slows down.

    gdbheap puts a jump after each of these calls in libc, the dynamic linker and other code. Some calls may bypass the
    jumps. A separate line shows the bytes of these calls. gdbheap computes them from the mappings before and after.
    gdbheap removes the jumps when it ends. If gdbheap is killed with kill -9, the jumps may stay. Each use of a jump
    then costs a few system calls (docs/growth.md).

    If a command follows `--`, gdbheap starts it. A filter of the kernel then reports every call, from any code. Calls
    of processes that the command starts count, too. If the command has not ended a second after Ctrl-C, it runs on. A
    helper process (gdbheap guard) then stays, and lets the command's calls pass.

    `--perf` uses a tracepoint of the kernel: no thread stops, nothing in the process is changed, and no call bypasses
    it. Recorded stacks have only C frames, read from at most 8 KiB of a thread's stack. Calls that come faster than
    gdbheap reads them are lost; gdbheap counts the lost calls. `--perf` needs root or CAP_PERFMON, and a process that
    already runs.

    gdbheap keeps the first 10,000 stacks, or fewer if these have more than 400,000 frames together. The calls of all
    other stacks are counted as one. Pictures show them as `[other stacks]`. Folded stacks take at most 64 MiB; all
    further lines are counted as `[other stacks]`, too. A flame graph takes at most 1 MiB.""",
    needs=FOLLOWED,
    options=Options,
    answer=_answer,
    render=_render,
    rows="sites",
    listed="stacks",
    sorts={"bytes": lambda row: row.bytes, "calls": lambda row: row.calls},
    top=5,
    writes=True,
)
