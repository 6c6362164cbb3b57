"""``heap growth``: what makes the memory of a process grow, from where?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.interruption import until_told
from gdbheap.commands.surface.needs import FOLLOWED
from gdbheap.commands.surface.options import Pictured, duration, switch, under_seccomp, valued, whole_number
from gdbheap.commands.surface.pictures import draw
from gdbheap.commands.surface.progress import tell
from gdbheap.report.formats.flame import CALLS
from gdbheap.report.formats.pprof import OF_CALLS, pprof_of_tree
from gdbheap.report.words.growth import render

if TYPE_CHECKING:
    from gdbheap.following.growth import Growth
    from gdbheap.targets.following import Live

__all__ = ["COMMAND"]


@dataclass
class Options(Pictured):
    """The options of heap growth."""

    duration: float | None = duration("for how long (the default is until Ctrl-C, or the end of the process)")
    count: int | None = valued("--count", "N", "end after N calls that make memory grow", None, whole_number)
    no_stacks: bool = switch(
        "--no-stacks", "only count: no stacks are taken, which costs the process a tenth of the time"
    )
    perf: bool = switch(
        "--perf",
        "by a tracepoint of the kernel's: no thread stands, and nothing is changed in the process; without Python's"
        " frames; for root, or with CAP_PERFMON",
    )
    seccomp: bool = under_seccomp()


def _answer(live: Live, options: Options) -> Growth:
    # Imported where it is needed: a command's start is mostly imports.
    from gdbheap.following.following_growth import Course, follow

    with until_told() as is_told:
        course = Course(options.duration, options.count, not options.no_stacks, options.seccomp, options.perf, is_told)
        found = follow(live, course, lambda places: _begun(live.pid, places, options.perf))
    stacks = [(tuple(stack.frames), stack.bytes, stack.calls) for stack in found.stacks]
    draw(options, stacks, _title(live.pid), CALLS, lambda: pprof_of_tree(stacks, OF_CALLS))
    return found


def _title(pid: int | None) -> str:
    return "What the program got from the kernel" if pid is None else f"What process {pid} got from the kernel"


def _begun(pid: int | None, places: int, perf: bool) -> None:
    """Nothing is printed for a long time after this."""
    where = "by a tracepoint" if perf else f"at {places} places"
    if pid is not None:
        tell(f"process {pid} is followed {where}; Ctrl-C ends it", anyway="GDBHEAP_DEBUG" in os.environ)


def _render(shown: Shown[Growth, Options]) -> str:
    return render(shown.answer, shown.left_out, not shown.options.no_stacks, shown.style)


COMMAND = Command(
    noun="growth",
    question="What makes the memory of a process grow, from where? (live)",
    text="""Follows the process while it runs: each of its system calls brk, mmap, mprotect, munmap, mremap and
    madvise, until Ctrl-C, the end of the process, --duration or --count. Then it prints how the calls that made memory
    grow are distributed by size, those for malloc's heap (brk) and the others (mmap) apart; what all calls did; and
    the stacks from which memory grew, those of most bytes first, Python's frames and C's in one. Nothing else of the
    process is slowed down. What it cost is said: how often a thread stood, and for how long.

    Calls are seen at a jump behind each such system call in the code of libc, the dynamic linker and whatever else
    makes it by a constant number; what came past that is a line of its own, by the mappings before and after. The
    jumps are taken out when this ends; after kill -9 they may stay, and cost a few system calls (docs/growth.md). Of a
    command that is started (after --) each call is seen, whoever makes it, with all processes that it starts, by a
    filter of the kernel's. The command runs on if it has not ended a second after Ctrl-C; a process that stays behind
    (gdbheap guard) then lets its calls pass.

    With --perf the kernel tells of each call, by a tracepoint: nothing of the process stands, nothing in it is
    changed, and no call is missed, whoever makes it; stacks are C's alone, as far as 8 KiB of them go. What came
    faster than it could be read is lost, and counted. It takes root or CAP_PERFMON, and is for a process that runs.
    The first 10,000 stacks are kept.""",
    example="heap growth --duration=10",
    needs=FOLLOWED,
    options=Options,
    answer=_answer,
    render=_render,
    rows="stacks",
    listed="stacks",
    sorts={"bytes": lambda row: row.bytes, "calls": lambda row: row.calls},
    top=5,
    writes=True,
)
