"""The text of ``heap unreachable``: uncollected cycles, lost blocks, and what each group of them means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, Shares, join, table
from gdbheap.report.text.unfinished import unfinished

if TYPE_CHECKING:
    from gdbheap.answers.unreachable import Lost, LostHead, Unreachable

__all__ = ["render_unreachable"]

LOST = Column("group", True), Column("type", True), Column("why", True)
CLOSINGS = (Column("groups"), Column("bytes"), Column("closed by", True))
GROUP_NAMES = {
    "cycles": "cycle", "lost_references": "lost reference", "lost_blocks": "lost block", "doubtful": "doubtful",
}  # fmt: skip
WEAKLY = {
    True: "stack words, interior pointers or tagged pointers",
    False: "interior pointers, tagged pointers or words after a container's last item",
}
HEADS = Column("blocks"), Column("first address"), Column("type", True), Column("", True)
SHOWN_HEADS = 20
SHOWN_CLOSINGS = 5
# ctypes and cffi give addresses to programs as integers.
INTEGERS = ", or Python integers"
# Such blocks are usually handed out by Python's own allocator.
PYTHONS_OWN = " Blocks of up to 512 bytes come from malloc only if the program was started with PYTHONMALLOC=malloc."


def render_unreachable(answer: Unreachable, style: Style, left_out: int) -> str:
    """Return the text of ``heap unreachable``: what each group of lost blocks means, then a row for each reason, type
    and size.

    ``left_out``: how many rows are not listed.
    """
    if answer.not_examined:
        return join(_cycles(answer, style), unfinished(answer.not_examined, answer.next, style))
    if not answer.rows:
        return style.filled("Everything that is in use is reached from a root.")
    shown = _heads(answer, style) if answer.heads else ""
    return join(*_told_of_groups(answer, style), shown, _lost_table(answer, style, left_out, True))


def _lost_table(answer: Unreachable, style: Style, left_out: int, has_total: bool) -> str:
    """Return the table of lost blocks: a row for each reason, type and size. A row's bytes include the bytes of the
    blocks' buffers."""
    size = sum(part.bytes for part in (answer.cycles, answer.lost_references, answer.lost_blocks, answer.doubtful))
    shares = Shares(style, [(size, answer.absent), *((row.bytes, row.absent) for row in answer.rows)])
    has_buffers = any(row.buffers for row in answer.rows)
    buffers = [[style.size(row.buffers)] if has_buffers else [] for row in answer.rows]
    rows = [
        [count_text(row.count), style.size(row.size), *cells, style.size(row.bytes),
         *shares.cells(row.bytes, row.absent), GROUP_NAMES.get(row.group, row.group), _what(row), row.why]
        for row, cells in zip(answer.rows, buffers)
    ]  # fmt: skip
    blank = ["", "", *([""] if has_buffers else [])]
    if left_out:
        rows.append([*blank, "", *shares.blank, "", f"({counted(left_out, 'more row')})", ""])
    total = [*blank, style.size(size), *shares.cells(size, answer.absent), "total", "", ""]
    before = Column("count"), Column("each"), *([Column("buffers")] if has_buffers else []), Column("bytes")
    return table((*before, *shares.columns, *LOST), rows, style, total if has_total else None)


def _cycles(answer: Unreachable, style: Style) -> str:
    """Return a sentence about uncollected cycles, and their table. The cycles are garbage, even if some references
    could not be read."""
    found = answer.cycles
    if not answer.rows:
        return "No object and no block is proven unreachable."
    forms = counted(found.objects, "object forms", "objects form")
    told = f"At least {forms} uncollected cycles ({style.bytes(found.bytes)})."
    return join(style.filled(told), _lost_table(answer, style, 0, False))


def _heads(answer: Unreachable, style: Style) -> str:
    groups = _alike(answer.heads)
    sizes = [(sum(row.retained for row in group), sum(row.absent for row in group)) for group in groups[:SHOWN_HEADS]]
    shares = Shares(style, sizes)
    heads = [
        [count_text(len(group)), style.size(group[0].size), style.size(size), *shares.cells(size, absent),
         count_text(sum(row.count for row in group)), address_text(group[0].address), _what(group[0]),
         "one of a cycle" if group[0].in_circle else ""]
        for group, (size, absent) in zip(groups, sizes)
    ]  # fmt: skip
    more = answer.head_count - sum(map(len, groups[:SHOWN_HEADS]))
    if more > 0:
        heads.append([count_text(more), "", "", *shares.blank, "", "", "(more)", ""])
    return table((Column("heads"), Column("each"), Column("retained"), *shares.columns, *HEADS), heads, style)


def _told_of_groups(answer: Unreachable, style: Style) -> Iterator[str]:
    """Yield a paragraph for each group that has blocks: the meaning of the group, and advice."""
    if answer.cycles.bytes:
        yield from _told_of_cycles(answer, style)
    lost, blocks, doubtful = answer.lost_references, answer.lost_blocks, answer.doubtful
    if lost.bytes:
        yield style.filled(
            f"Lost references keep {counted(lost.objects, 'object')} ({style.bytes(lost.bytes)}): a reference "
            "count is higher than the number of references that exist. gc.collect() does not free these objects: a "
            "library took a reference and never released it."
        )
    if blocks.blocks:
        yield style.filled(_told_of_lost(answer, style))
    if doubtful.blocks:
        what = f"{counted(doubtful.blocks, 'block')} ({style.bytes(doubtful.bytes)})"
        yield style.filled(f"{what} may be in use or lost: only {WEAKLY[answer.is_python]} point to them.")
    if answer.lacking:
        yield style.filled(
            f"The core lacks {style.bytes(answer.lacking)} of the program's memory. These blocks may be in use, if "
            "that memory points to them."
        )


def _told_of_cycles(answer: Unreachable, style: Style) -> Iterator[str]:
    cycles = answer.cycles
    forms = counted(cycles.objects, "object forms", "objects form")
    all_of_it = f"{forms} uncollected cycles ({style.bytes(cycles.bytes)})"
    freed = f"{cycles.collectable_objects:,} of them ({style.bytes(cycles.collectable_bytes)})"
    does = "frees all of them" if cycles.collectable_bytes == cycles.bytes else f"frees {freed}"
    does = does if cycles.collectable_bytes else "frees none of them"
    if cycles.possible_bytes:
        may = f"may free {style.bytes(cycles.possible_bytes)}" + " more of them" * bool(cycles.collectable_bytes)
        does = f"{does}, and {may}" if cycles.collectable_bytes else may
    yield style.filled(
        f"{all_of_it}. gc.collect() {does}. References that close the cycles, and how many groups of objects they "
        "connect:"
    )
    shown = [[count_text(one.count), style.size(one.bytes), one.what] for one in answer.closings[:SHOWN_CLOSINGS]]
    more = len(answer.closings) - len(shown)
    yield table(CLOSINGS, [*shown, *([["", "", f"({more:,} more)"]] if more else [])], style)


def _told_of_lost(answer: Unreachable, style: Style) -> str:
    lost = answer.lost_blocks
    heads = (
        f"; {counted(answer.head_count, 'of them, the head, keeps', 'of them, the heads, keep')} the others"
        if 0 < answer.head_count < lost.blocks
        else ""
    )
    blocks = f"{counted(lost.blocks, 'block is', 'blocks are')} lost ({style.bytes(lost.bytes)})"
    if answer.lacking:
        return f"No pointer to {counted(lost.blocks, 'block')} was found ({style.bytes(lost.bytes)}){heads}."
    integers, of_python = (INTEGERS, PYTHONS_OWN) if answer.is_python else ("", "")
    them = "it" if lost.blocks == 1 else "them"
    catch = "'heap catch malloc --size=N' stops at the next call that requests N bytes"
    row = next((row for row in answer.rows if row.group == "lost_blocks" and row.most_request is not None), None)
    if row is not None:
        its = "its" if lost.blocks == 1 else "their"
        same = f"of {its} size" if row.count == lost.blocks else f"of the size of {row.count:,} of them"
        catch = (
            f"'heap catch malloc --min={row.least_request} --max={row.most_request}' stops at the next call for a "
            f"block {same}"
        )
    return (
        f"{blocks}: no pointer to {them} was found{heads}. The program cannot free {them}, unless it computes "
        f"addresses (tagged, compressed or hidden pointers{integers}). {catch}; 'gdbheap trace --stacks=1' records "
        f"which code allocates the blocks.{of_python}"
    )


def _what(row: Lost | LostHead) -> str:
    """Return the type of a row's blocks; if it is unknown, a description of their bytes."""
    return row.type or (f"({row.content})" if row.content else "")


def _alike(heads: Sequence[LostHead]) -> list[list[LostHead]]:
    """Group the heads: lost blocks to which no other lost block points, and one block of each cycle.

    The heads of a group differ only in their addresses, and in how much of them is resident. The groups that retain the
    most come first.
    """
    groups: dict[tuple[object, ...], list[LostHead]] = {}
    for row in heads:
        groups.setdefault((row.type, row.content, row.size, row.count, row.retained, row.in_circle), []).append(row)
    return sorted(groups.values(), key=lambda group: -sum(row.retained for row in group))
