"""The text of ``heap catch``: each call that matched, with its stack, and the cost of catching."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.stack_text import stack_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import join

if TYPE_CHECKING:
    from gdbheap.following.catch import Catch, Caught

__all__ = ["render"]

ENDS = {"gone": "The process ended.", "exec": "The process began to run another program."}


def render(answer: Catch, cut: int, style: Style) -> str:
    """Return the text of the answer: how many calls matched, each call with its stack, and the cost of catching.

    ``cut``: how many calls are not listed.
    """
    count = len(answer.rows) + cut
    made = counted(count, "matching call was", "matching calls were") if count else "No matching call was"
    parts = [f"{made} made in {answer.seconds:.1f} s."]
    parts += [_call(call, style) for call in answer.rows]
    parts += [f"{counted(cut, 'more call')} not listed."] if cut else []
    cost = answer.cost
    told = f"Cost: threads were stopped for {1000 * cost.stood:.1f} ms in total, the whole process for "
    told += f"{1000 * cost.held:.1f} ms. {ENDS.get(answer.why_ended, '')}"
    return join(*parts, style.filled(told.rstrip()))


def _call(call: Caught, style: Style) -> str:
    words = [address_text(call.address)] if call.address is not None else []
    words += [f"{count_text(call.asked)} bytes"] if call.asked is not None else []
    grown = f" got {style.bytes(call.grown)} from the kernel" if call.grown is not None else ""
    head = f"{call.function}({', '.join(words)}){grown} after {call.seconds:.3f} s in thread {call.tid}"
    return f"{style.heading(head)}\n{stack_text(call.frames, style)}"
