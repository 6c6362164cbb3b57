"""The text of ``heap growth``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
    "mmap.file": "files and shared memory (mmap)",
    "brk.shrink": "heap shrinks (brk)",
    "mremap.shrink": "mapped memory shrinks (mremap)",
    "munmap": "memory is unmapped (munmap)",
    "madvise": "pages are given back (madvise)",
    "decommit": "memory is made reserve again (mprotect)",
    "other": "nothing changes",
    "failed": "calls that failed",
}
CUT = (
    "gdbheap no longer followed the mappings, because calls that it did not see unmapped very many ranges: how much "
    "grew by unseen calls is unknown, and so is what mprotect did from then on."
)
ENDS = {
    "gone": "It ended when the process did.",
    "exec": "It ended when the process began to run another program.",
}


def render(answer: Growth, cut: int, with_stacks: bool, style: Style) -> str:
    """Return both distributions, the effect of all calls, the stacks, and the cost. ``cut``: the number of stacks that
    are not listed."""
    parts = [
        style.filled(_sentence(answer, style)),
        style.heading("malloc's heap, by brk"),
        distribution.render(answer.brk.sizes, style, "It did not grow."),
        style.heading("other private memory, by mmap, mremap and mprotect"),
        distribution.render(answer.mmap.sizes, style, "None was mapped."),
        style.heading("all calls"),
        _operations(answer, style),
    ]
    if with_stacks:
        parts += [_stack(stack, answer, style) for stack in answer.sites]
        parts += [f"{counted(cut, 'more stack')} not listed."] if cut else []
        parts += [_others(answer.other_stacks, style)] if answer.other_stacks is not None else []
    return join(*parts, *_notes(answer, with_stacks, style))


def _sentence(answer: Growth, style: Style) -> str:
    grown = answer.brk.bytes + answer.mmap.bytes
    calls = counted(answer.brk.calls + answer.mmap.calls, "call")
    who = "The program" if answer.pid is None else f"Process {answer.pid}"
    ends = ENDS.get(answer.why_ended, "") if answer.pid is not None else ""
    return f"{who} got {style.bytes(grown)} from the kernel by {calls} in {answer.seconds:.1f} s. {ends}".rstrip()


def _operations(answer: Growth, style: Style) -> str:
    rows = [[NAMES[row.id], count_text(row.calls), style.size(row.bytes)] for row in answer.operations]
    if not rows:
        return "There was none."
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
    kept = f"{counted(found.calls, 'call')} of {style.bytes(found.bytes)} came from stacks that were not kept"
    return style.filled(f"{kept}: there were too many different ones.")


def _notes(answer: Growth, with_stacks: bool, style: Style) -> list[str]:
    notes = [_unseen(answer.unseen, style)] if answer.unseen is not None else []
    notes += [CUT] if answer.is_cut else []
    if answer.unpatched:
        notes.append(
            f"Calls could not be seen at {counted(answer.unpatched, 'place')} of {answer.places + answer.unpatched}."
        )
    if answer.status:
        code = os.waitstatus_to_exitcode(answer.status)
        notes.append(f"It ended with status {code}." if code >= 0 else f"It was ended by signal {-code}.")
    notes += [_cost(answer)] if answer.lost is None else _told(answer.lost, with_stacks)
    return [style.filled(note) for note in notes]


def _cost(answer: Growth) -> str:
    cost = answer.cost
    each = f", {1e6 * cost.stood / cost.stops:.0f} us each" if cost.stops else ""
    held = f"; all of it for {1000 * cost.held:.1f} ms" if cost.held else ""
    return (
        f"What it cost: threads stood {count_text(cost.stops)} times, {1000 * cost.stood:.1f} ms together{each}{held}."
    )


def _told(lost: int, with_stacks: bool) -> list[str]:
    """Return notes about calls that the kernel reported by a tracepoint."""
    were = "1 call was" if lost == 1 else f"{count_text(lost)} calls were"
    notes = [f"{were} lost, faster than they could be read: all numbers are too small."] if lost else []
    if with_stacks:
        notes.append("Stacks are C's alone, as far as 8 KiB of them go: without --perf they have Python's frames, too.")
    return [*notes, "What it cost: no thread stood; the kernel told of each call."]


def _unseen(found: Unseen, style: Style) -> str:
    if not (found.came or found.went or found.by_stacks):
        return "The mappings before and after agree with the calls that were seen."
    parts = [f"{style.bytes(found.came)} that came past this"] if found.came else []
    parts += [f"{style.bytes(found.went)} less"] if found.went else []
    parts += [f"{style.bytes(found.by_stacks)} by which the first thread's stack grew"] if found.by_stacks else []
    return f"Beside the calls that were seen the mappings have {', '.join(parts)}."
