"""The text of ``heap growth``: the calls that made memory grow, by size and by stack."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gdbheap.following.growth import GROWS, RETURNS
from gdbheap.report.text import distribution
from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.stack_text import stack_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.following.growth import Growth, GrowthStack, OtherStacks, Unseen

__all__ = ["render"]

NAMES = {
    "brk": "heap grows (brk)",
    "mmap": "memory is mapped (mmap)",
    "mremap": "mapped memory grows (mremap)",
    "commit": "reserved memory is made usable (mprotect)",
    "reserve": "address space is reserved (mmap)",
    "mmap.file": "files or shared memory are mapped (mmap)",
    "brk.shrink": "heap shrinks (brk)",
    "mremap.shrink": "mapped memory shrinks (mremap)",
    "munmap": "memory is unmapped (munmap)",
    "madvise": "pages are returned (madvise)",
    "decommit": "memory is made unusable again (mprotect)",
    "other": "calls that change nothing",
    "failed": "calls that failed",
}
# RSS counts as unchanged if it changed by less than the larger of these two: bytes, and a share of RSS.
FLAT_BYTES, FLAT_SHARE = 64 << 10, 0.01
CUT = (
    "gdbheap lost track of the mappings, because unobserved calls unmapped too many ranges. It is unknown how much "
    "memory these calls mapped, and what mprotect did after that."
)
ENDS = {
    "gone": "gdbheap stopped following when the process ended.",
    "exec": "gdbheap stopped following when the process began to run another program.",
}


def render(answer: Growth, cut: int, with_stacks: bool, style: Style) -> str:
    """Return the text of the answer: the calls by size, the effect of all calls, the stacks, and the cost of following.

    ``cut``: how many stacks are not listed.
    ``with_stacks``: whether stacks were recorded.
    """
    parts = [
        style.filled(_sentence(answer, style)),
        style.heading("malloc's heap, by brk"),
        distribution.render(answer.brk.sizes, style, "malloc's heap did not grow."),
        style.heading("other private memory, by mmap, mremap and mprotect"),
        distribution.render(answer.mmap.sizes, style, "Other private memory did not grow."),
        style.heading("all calls"),
        _operations(answer, style),
    ]
    if with_stacks:
        parts += [_stack(stack, answer, style) for stack in answer.sites]
        parts += [f"{counted(cut, 'more stack')} not listed."] if cut else []
        parts += [_others(answer.other_stacks, style)] if answer.other_stacks is not None else []
    return join(*parts, *_notes(answer, with_stacks, style))


def _sentence(answer: Growth, style: Style) -> str:
    grown, shrunk = answer.brk.bytes + answer.mmap.bytes, answer.returned
    calls = counted(sum(row.calls for row in answer.operations if row.id in (*GROWS, *RETURNS)), "call")
    came = f"got {style.bytes(grown)} from the kernel" if grown else "got no memory from the kernel"
    went = f"returned {style.bytes(shrunk)}" if shrunk else "returned none"
    when, ends = f"in {answer.seconds:.1f} s", ENDS.get(answer.why_ended, "") if answer.pid is not None else ""
    who = "The program" if answer.pid is None else f"Process {answer.pid}"
    if answer.rss_before is None or answer.rss_after is None:
        return f"{who} {came} and {went}, by {calls} {when}. {ends}".rstrip()
    change = answer.rss_after - answer.rss_before
    now = style.bytes(answer.rss_after)
    if abs(change) < max(FLAT_BYTES, answer.rss_after * FLAT_SHARE):
        net = f"stayed at {now}"
    else:
        net = f"{'grew' if change > 0 else 'shrank'} by {style.bytes(abs(change))} to {now}"
    calls_made = f"The process {came} and {went}, by {calls}."
    return f"Anonymous RSS of process {answer.pid} {net} {when}. {calls_made} {ends}".rstrip()


def _operations(answer: Growth, style: Style) -> str:
    rows = [[NAMES[row.id], count_text(row.calls), style.size(row.bytes)] for row in answer.operations]
    if not rows:
        return "No system call for memory was made."
    calls = sum(row.calls for row in answer.operations)
    return table(
        (Column("what", True), Column("calls"), Column("bytes")), rows, style, ["total", count_text(calls), ""]
    )


def _stack(stack: GrowthStack, answer: Growth, style: Style) -> str:
    whole = answer.brk.bytes + answer.mmap.bytes
    share = f" ({100 * stack.bytes / whole:.1f} %)" if whole else ""
    head = f"{style.bytes(stack.bytes)}{share} by {counted(stack.calls, 'call')} from"
    return f"{style.heading(head)}\n{stack_text(stack.frames, style)}"


def _others(found: OtherStacks, style: Style) -> str:
    kept = f"{counted(found.calls, 'call')} for {style.bytes(found.bytes)} came from stacks that gdbheap did not keep"
    return style.filled(
        f"{kept}: there were too many stacks, or they were too deep, or reading them would have taken too long."
    )


def _notes(answer: Growth, with_stacks: bool, style: Style) -> list[str]:
    notes = [_unseen(answer.unseen, style)] if answer.unseen is not None else []
    notes += [CUT] if answer.is_cut else []
    if answer.unpatched:
        notes.append(
            f"gdbheap could not watch {answer.unpatched:,} of the "
            f"{counted(answer.places + answer.unpatched, 'place')} with these calls in the code."
        )
    if answer.status:
        code = os.waitstatus_to_exitcode(answer.status)
        notes.append(f"The program ended with status {code}." if code >= 0 else f"Signal {-code} ended the program.")
    notes += [_cost(answer, style)] if answer.lost is None else _told(answer.lost, with_stacks)
    return [style.filled(note) for note in notes]


def _cost(answer: Growth, style: Style) -> str:
    cost = answer.cost
    each = f", {1e6 * cost.stood / cost.stops:.0f} us each" if cost.stops else ""
    held = f"; the whole process for {1000 * cost.held:.1f} ms" if cost.held else ""
    stopped = (
        f"Cost: threads were stopped {counted(cost.stops, 'time')}, {1000 * cost.stood:.1f} ms in total{each}{held}."
    )
    if not answer.file_pages:
        return stopped
    pages = f"{style.bytes(answer.file_pages)} of the process's program and library files became resident"
    return f"{stopped} Because gdbheap read the code, {pages}; the kernel can reclaim these pages."


def _told(lost: int, with_stacks: bool) -> list[str]:
    """Return notes about following a process with the kernel's tracepoints. ``lost``: the number of the kernel's
    reports that were lost.
    """
    were = "1 call was" if lost == 1 else f"{count_text(lost)} calls were"
    notes = [f"{were} lost, because gdbheap could not read fast enough: all figures are too small."] if lost else []
    if with_stacks:
        notes.append(
            "Stacks have only C frames, from at most 8 KiB of the stack. Without --perf they also have Python frames."
        )
    return [*notes, "Cost: no thread was stopped, because the kernel reported each call."]


def _unseen(found: Unseen, style: Style) -> str:
    if not (found.came or found.went or found.by_stacks):
        return "The calls that were seen explain all changes of the mappings."
    parts = [f"{style.bytes(found.came)} was mapped"] if found.came else []
    parts += [f"{style.bytes(found.went)} was unmapped"] if found.went else []
    parts += [f"the first thread's stack grew by {style.bytes(found.by_stacks)}"] if found.by_stacks else []
    return f"The calls that were seen do not explain these changes of the mappings: {', '.join(parts)}."
