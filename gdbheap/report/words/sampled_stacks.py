"""The text of ``heap chunks --by=stack``: the stacks of blocks that jemalloc sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.stack_text import stack_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import join

if TYPE_CHECKING:
    from gdbheap.answers.sampled_stacks import SampledRow, SampledStacks

__all__ = ["render"]


def render(answer: SampledStacks, style: Style) -> str:
    """Return the text of the answer: the sums of all stacks, then each stack below a line with its sums."""
    return join(style.filled(_sentence(answer, style)), *(_stack(row, style) for row in answer.rows))


def _stack(row: SampledRow, style: Style) -> str:
    """Return one stack with its sums. jemalloc's own frames are left out, unless the stack has no others."""
    frames = row.frames[: -row.allocator_frames] if 0 < row.allocator_frames < len(row.frames) else row.frames
    head = f"{style.size(row.bytes)} in {counted(row.count, 'sampled block')}{_likely(row, style)}"
    return f"{head}\n{stack_text(frames, style)}"


def _likely(sums: SampledRow | SampledStacks, style: Style) -> str:
    if sums.likely_count is None or sums.likely_bytes is None:
        return ""
    return f", standing for about {style.size(sums.likely_bytes)} in {count_text(sums.likely_count)} blocks"


def _sentence(answer: SampledStacks, style: Style) -> str:
    shown = len(answer.rows)
    listed = "" if shown == answer.matching else f", of which {shown:,} are listed"
    return (
        f"{counted(answer.matching, 'stack')}{listed} allocated {style.bytes(answer.bytes)} in "
        f"{counted(answer.count, 'sampled block')} in use{_likely(answer, style)}. jemalloc decides by "
        "chance which allocations are sampled (lg_prof_sample)."
    )
