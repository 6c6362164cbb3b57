"""The text of ``heap retained``, ``unreachable``, ``owners`` and ``threads``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.retained import NAMED_BY_WORDS
from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, Shares, join, left_over, table
from gdbheap.report.text.unfinished import at_least, unfinished
from gdbheap.report.words.arrays import column_text, render_arrays, shape_text
from gdbheap.stack_frames import PYTHON
from gdbheap.text import file_name

if TYPE_CHECKING:
    from gdbheap.answers.owners import HeldTogether, Owners
    from gdbheap.answers.retained import Kept, Retained
    from gdbheap.answers.threads import PythonThread, Running, ThreadLines, Threads
    from gdbheap.answers.unreachable import Head, Lost, Unreachable

__all__ = [
    "held_at", "render_owners", "render_retained", "render_threads", "render_unreachable", "thread_name",
]  # fmt: skip

RETAINED = Column("own"), Column("address"), Column("type", True), Column("path", True)
GROUPED = Column("own"), Column("count"), Column("name", True)
LOST = Column("group", True), Column("type", True), Column("why", True)
CLOSINGS = (Column("groups"), Column("bytes"), Column("closed by", True))
GROUP_NAMES = {
    "cycles": "cycle", "lost_references": "lost reference", "lost_blocks": "lost block", "doubtful": "doubtful",
}  # fmt: skip
WEAKLY = {
    True: "stack words, interior or tagged pointers",
    False: "interior or tagged pointers, or words after a container's last item",
}
HEADS = Column("blocks"), Column("first address"), Column("type", True), Column("", True)
PROVEN = "examined"
NO_HOLDER = "No holder is proven."
SHOWN_HEADS = 20
SHOWN_CLOSINGS = 5
SHOWN_PARTS = 2
SHOWN_THREADS = 5
SHARED_OUT = Column("count"), Column("holder", True), Column("largest parts", True)
TOGETHER = Column("what", True), Column("holder", True)
HELD = Column("what", True), Column("type", True), Column("path", True)
VARIABLES = (Column("retained"), Column("size"), Column("variable", True), Column("type", True), Column("address"))
SHARED = (
    "A shared mapping is unmapped when its object is freed. Its pages are freed only if no other process maps them and "
    "no file keeps them."
)
# Stands between the path of an object and the path on to what retains the same blocks.
ALL_IN = ": all in "


def render_retained(answer: Retained, style: Style, by: str) -> str:
    """Return the text of ``heap retained``: a row for each object with its path, or a row for each group."""
    if answer.address is not None:
        return join(_retained_set(answer, answer.address, style), _rest_of(answer, style))
    if answer.not_examined:
        return join(_rows_of_objects(answer, style) if answer.rows else NO_HOLDER, _rest_of(answer, style))
    if not answer.rows:
        return style.filled("Nothing retains more than its own block.")
    if by == "object":
        return _rows_of_objects(answer, style)
    shares = _shares(answer.rows, style)
    grouped = [
        [style.size(row.retained), *shares.cells(row.retained, row.absent), style.size(row.own),
         count_text(row.count), row.type]
        for row in answer.rows
    ]  # fmt: skip
    return table((Column("retained"), *shares.columns, *GROUPED), grouped, style)


def _shares(rows: Sequence[Kept], style: Style) -> Shares:
    return Shares(style, ((row.most, row.absent) for row in rows))


def _retained(row: Kept, style: Style) -> str:
    if row.at_most is not None and not row.at_least:
        return f"at most {style.size(row.at_most)}"
    return at_least(style.size(row.retained), row.at_least)


def _rows_of_objects(answer: Retained, style: Style) -> str:
    shares = _shares(answer.rows, style)
    rows = [
        [_retained(row, style), *shares.cells(row.most, row.absent), style.size(row.own),
         "" if row.address is None else address_text(row.address), _type(row),
         held_at(row) + (f" ({style.bytes(row.shared)} of it shared)" if row.shared else "")]
        for row in answer.rows
    ]  # fmt: skip
    told = style.filled(SHARED) if any(row.shared for row in answer.rows) else ""
    shown = table((Column("retained"), *shares.columns, *RETAINED), rows, style)
    return join(style.filled(_retains_most(answer, style)), shown, told)


def _type(row: Kept) -> str:
    """Return the type of a row's object.

    If the row stands for several objects, their number comes first; if it stands for no object, return the kind of the
    row.
    """
    is_one = row.address is not None or row.type in NAMED_BY_WORDS
    return row.type if is_one and row.count == 1 else f"{row.count:,} x {row.type}"


def _retains_most(answer: Retained, style: Style) -> str:
    """Return a sentence about the row that retains the most, or that may do so.

    The sentence begins with gdbheap's own words, so that no name begins a line.
    """
    first = max(answer.rows, key=lambda row: row.most)
    size = f"{_retained(first, style)}{style.of_rss(first.most, first.absent)}"
    belongs = "belongs" if first.at_most is None else "may belong"
    return f"The largest retained size {belongs} to {_named(first)}: {size}."


def _named(row: Kept) -> str:
    """Return the path of a row's object with its type; for several objects, their number and type."""
    if row.address is None and row.type not in NAMED_BY_WORDS:
        return f"{row.count:,} x {row.type}"
    what = source_path(held_at(row)) or "an object"
    if row.address is None:
        return what
    path, inside, rest = what.partition(ALL_IN) if row.same else (what, "", "")
    named = f"class {path}" if row.type == "type" else f"{path} ({row.type})"
    return f"{named}{inside}{rest}"


def _rest_of(answer: Owners | Retained | Unreachable, style: Style) -> str:
    return unfinished(answer.not_examined, answer.next, style)


def held_at(row: Kept) -> str:
    """Return the path of a row's object, and the path on to the innermost object that retains the same blocks.

    If the row stands for several objects, return their holders. Holders that share the object's memory are added.
    """
    way, inner = row.path or row.chain or "", row.innermost
    # A part of the object itself is not another holder.
    others = [name for name in row.other_holders if not (way and name.startswith((f"{way}[", f"{way}.")))]
    if row.at_most is not None and others:
        return f"{way}, shared with {' and '.join(others)}"
    if row.same:
        return f"{way}{ALL_IN}{_rest(row, inner)}"
    is_named = row.address is not None or row.count == 1 or row.type == "module"
    return way if is_named else " and ".join(row.other_holders) or f"many places, such as {way}"


def _rest(row: Kept, inner: Kept) -> str:
    """Return the path from a row's object to the innermost object that retains the same blocks.

    If no object below the row's object has a name, return "its" with the type of the innermost object.
    """
    way, to_inner = (row.path, inner.path) if row.path and inner.path else (row.chain or "", inner.chain or "")
    rest = to_inner[len(way) :].strip() if to_inner.startswith(way) else to_inner
    return f"{rest} ({inner.type})" if rest else f"its {row.same[-1].type}"


def _retained_set(answer: Retained, address: int, style: Style) -> str:
    count, size, absent = (sum(getattr(row, name) for row in answer.rows) for name in ("count", "own", "absent"))
    shares = Shares(style, [(size, absent), *((row.own, row.absent) for row in answer.rows)])
    rows = [
        [count_text(row.count), style.size(row.own), *shares.cells(row.own, row.absent), row.type]
        for row in answer.rows
    ]
    told = f"Removing the block at {address_text(address)} would free:"
    total = [count_text(count), style.size(size), *shares.cells(size, absent), "total"]
    columns = Column("count"), Column("bytes"), *shares.columns, Column("type", True)
    return join(style.filled(told), table(columns, rows, style, total))


def render_unreachable(answer: Unreachable, style: Style, left_out: int) -> str:
    """Return the text of ``heap unreachable``: what each group of lost blocks means, then a row for each reason, type
    and size.

    ``left_out``: how many rows are not listed.
    """
    if answer.not_examined:
        return join(_cycles(answer, style), _rest_of(answer, style))
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
    """Return the table of uncollected cycles. The cycles are garbage, even if some references could not be read."""
    found = answer.cycles
    if not answer.rows:
        return "No object and no block is proven unreachable."
    forms = counted(found.objects, "object forms", "objects form")
    told = f"At least {forms} uncollected cycles ({style.bytes(found.bytes)})."
    return join(_lost_table(answer, style, 0, False), style.filled(told))


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


# ctypes and cffi give addresses to programs as integers.
INTEGERS = ", or Python integers"
# Such blocks are usually handed out by Python's own allocator.
PYTHONS_OWN = " Blocks of up to 512 bytes come from malloc only if the program was started with PYTHONMALLOC=malloc."


def _told_of_lost(answer: Unreachable, style: Style) -> str:
    lost = answer.lost_blocks
    heads = (
        f"; {counted(answer.head_count, 'of them, the head, keeps', 'of them, the heads, keep')} the others"
        if answer.head_count
        else ""
    )
    blocks = f"{counted(lost.blocks, 'block is', 'blocks are')} lost ({style.bytes(lost.bytes)})"
    if answer.lacking:
        return f"No pointer to {counted(lost.blocks, 'block')} was found ({style.bytes(lost.bytes)}){heads}."
    integers, of_python = (INTEGERS, PYTHONS_OWN) if answer.is_python else ("", "")
    them = "it" if lost.blocks == 1 else "them"
    return (
        f"{blocks}: no pointer to {them} was found{heads}. The program cannot free {them}, unless it computes "
        f"addresses (tagged, compressed or hidden pointers{integers}). 'heap catch malloc --size=N' stops at the next "
        f"call that requests N bytes; 'gdbheap trace --stacks=1' records which code allocates the blocks.{of_python}"
    )


def _what(row: Lost | Head) -> str:
    """Return the type of a row's blocks; if it is unknown, a description of their bytes."""
    return row.type or (f"({row.content})" if row.content else "")


def _alike(heads: Sequence[Head]) -> list[list[Head]]:
    """Return lists of heads. The heads of a list differ only in their addresses, and in how much of them is resident.

    The lists that retain the most come first.
    """
    groups: dict[tuple[object, ...], list[Head]] = {}
    for row in heads:
        groups.setdefault((row.type, row.content, row.size, row.count, row.retained, row.in_circle), []).append(row)
    return sorted(groups.values(), key=lambda group: -sum(row.retained for row in group))


def render_owners(answer: Owners, style: Style, by_array: bool = False) -> str:
    """Return the text of ``heap owners``: a row for each block, group or array, then sentences about what the list
    leaves out."""
    return join(_owners(answer, style, by_array), _left_outside(answer, style))


def _left_outside(answer: Owners, style: Style) -> str:
    if not answer.outside:
        return ""
    size = f"{style.bytes(answer.outside)}{style.resident_of_rss(answer.outside)}"
    return style.filled(
        f"Not in this list: {size} that no allocator handed out. Its largest holder: {answer.outside_most}."
    )


def _owners(answer: Owners, style: Style, by_array: bool) -> str:
    if answer.arrays:
        return render_arrays(answer.arrays, answer.count, answer.bytes, answer.absent, style)
    if answer.not_examined:
        shown = _held_together(answer, style) if answer.groups else NO_HOLDER
        return join(shown, _rest_of(answer, style))
    if not answer.count:
        return style.filled(
            "No DataFrame, table or array is large enough (see --min)."
            if by_array
            else "No block in use is large enough (see --min)."
        )
    if answer.groups:
        return _held_together(answer, style)
    shares = Shares(style, ((row.size, row.absent) for row in answer.owners))
    rows = [
        [address_text(row.address), style.size(row.size), *shares.cells(row.size, row.absent), row.what, row.type or "",
         row.path or row.chain]
        for row in answer.owners
    ]  # fmt: skip
    large = counted(answer.count, "block in use has", "blocks in use have")
    least = "" if answer.least is None else f" at least {style.bytes(answer.least)} each and"
    whole = f"{style.bytes(answer.bytes)} together{style.of_rss(answer.bytes, answer.absent)}"
    columns = Column("address"), Column("size"), *shares.columns, *HELD
    return join(style.filled(f"{large}{least} {whole}."), table(columns, rows, style))


def _held_together(answer: Owners, style: Style) -> str:
    if any(row.parts for row in answer.groups):
        return _shared_out(answer, style)
    shares = Shares(style, ((row.bytes, row.absent) for row in answer.groups))
    rows = [
        [count_text(row.count), style.size(row.bytes), *shares.cells(row.bytes, row.absent), row.what or "",
         row.root or ""]
        for row in answer.groups
    ]  # fmt: skip
    columns = Column("blocks"), Column("bytes"), *shares.columns, *TOGETHER
    whole = f"{style.bytes(answer.bytes)} together{style.of_rss(answer.bytes, answer.absent)}"
    told = f"The groups contain {counted(answer.count, 'block')} in use, {whole}."
    return join(style.filled(told), table(columns, rows, style))


def _shared_out(answer: Owners, style: Style) -> str:
    sizes = [(row.bytes, row.absent) for row in answer.groups]
    shares = Shares(style, [(answer.bytes, answer.absent), *sizes])
    rows = [
        [at_least(style.size(row.bytes), row.at_least), *shares.cells(row.bytes, row.absent), count_text(row.count),
         _holder(row), _most(row, style)]
        for row in answer.groups
    ]  # fmt: skip
    count, size, absent = left_over(answer, answer.groups, ("count", "bytes", "absent"))
    if size:
        rows.append([style.size(size), *shares.cells(size, absent), count_text(count), "(more)", ""])
    share, is_cut = shares.cells(answer.bytes, answer.absent), answer.not_examined > 0
    total = [style.size(answer.bytes), *share, count_text(answer.count), PROVEN if is_cut else "in use", ""]
    told = style.filled(shared_text(answer.shared, style)) if answer.shared else ""
    shown = table((Column("bytes"), *shares.columns, *SHARED_OUT), rows, style, total)
    return join(style.filled(_holds_most(answer, style)), shown, told)


def _holds_most(answer: Owners, style: Style) -> str:
    """Return a sentence that names the largest holder.

    The sentence begins with gdbheap's own words, so that no name begins a line.
    """
    first = max(answer.groups, key=lambda row: row.bytes)
    size = f"{at_least(style.bytes(first.bytes), first.at_least)}{style.of_rss(first.bytes, first.absent)}"
    name = source_path(first.root or "") or first.what or "one holder"
    is_one = first.variables <= 1
    largest = f"The largest {'holder is' if is_one else 'holders are'} {name}"
    return f"{largest}: {size} of {style.bytes(answer.bytes)} in use."


def shared_text(size: int, style: Style) -> str:
    """Return a sentence about shared mappings and what happens to them once their objects are freed."""
    return f"Shared mappings are {style.bytes(size)} of that. {SHARED}"


def _holder(row: HeldTogether) -> str:
    """Return a holder's name. For a DataFrame or an array, add its type and shape."""
    if row.array is None:
        return row.root or ""
    return f"{row.array.what} {shape_text(row.array.shape, row.array.dtype)} of {row.root}"


def _most(row: HeldTogether, style: Style) -> str:
    """Return a holder's contents: the largest columns of a DataFrame; for other holders, the largest kinds of
    blocks.
    """
    if row.array is not None and row.array.columns:
        return ", ".join(column_text(column, style) for column in row.array.columns[:SHOWN_PARTS])
    return ", ".join(f"{part.count:,} x {part.what}" if part.count else part.what for part in row.parts[:SHOWN_PARTS])


def render_threads(answer: Threads, style: Style) -> str:
    """Return the text of ``heap threads``: a paragraph for each stack, and a table for each frame. Threads at the same
    lines share a paragraph."""
    if not answer.rows:
        return style.filled("No thread runs Python.")
    if not any(frame.kind == PYTHON for thread in answer.rows for frame in thread.running):
        return join(*(_c_stack(thread, style) for thread in answer.rows))
    stacks: dict[tuple[object, ...], list[PythonThread]] = {}
    for thread in answer.rows:
        key = tuple((frame.function, frame.file, frame.line) for frame in thread.running)
        stacks.setdefault(key, []).append(thread)
    return join(*(_stack(threads, style) for threads in stacks.values()))


def _c_stack(thread: PythonThread, style: Style) -> str:
    head = style.heading(f"Thread {thread_name(thread)}: {counted(len(thread.running), 'frame')}")
    return "\n".join([head, *(_frame(frame, style)[0] for frame in thread.running)])


def _stack(threads: list[PythonThread], style: Style) -> str:
    first, kept = threads[0], sum(thread.retained for thread in threads)
    names = ", ".join(thread_name(thread) for thread in threads[:SHOWN_THREADS])
    more = f", and {len(threads) - SHOWN_THREADS:,} more" if len(threads) > SHOWN_THREADS else ""
    which = f"Thread {names}" if len(threads) == 1 else f"{len(threads):,} threads at the same lines, {names}{more}"
    keep = "keeps" if len(threads) == 1 else "keep"
    parts = [style.heading(f"{which}: {counted(len(first.running), 'frame')}, {keep} {style.bytes(kept)}")]
    if len(threads) > 1 and any(frame.locals for frame in first.running):
        whose = f"The listed variables belong to thread {thread_name(first)}"
        parts.append(style.filled(f"{whose}; --json lists those of every thread."))
    lines: list[str] = []
    for frame in first.running:
        line, variables = _frame(frame, style)
        lines.append(line)
        if variables:
            parts += ["\n".join(lines), variables]
            lines = []
    return join(*parts, "\n".join(lines))


def thread_name(thread: PythonThread | ThreadLines) -> str:
    """Return a thread's number and its name."""
    name = f" ({thread.name})" if thread.name else ""
    return "that has ended" if thread.tid is None else f"{thread.tid}{name}"


def _frame(frame: Running, style: Style) -> tuple[str, str]:
    """Return the line that describes a frame, and the table of its variables ("" if it has none)."""
    if frame.kind != PYTHON:
        source = "" if frame.line is None else f" ({file_name(frame.file)}:{frame.line})"
        return f"  C: {frame.function}{source}", ""
    line = "" if frame.line is None else f", line {frame.line}"
    told = f"  {frame.function}() in {frame.file}{line}"
    has_texts = any(one.text is not None for one in frame.locals)
    rows = [
        ["" if one.retained is None else style.size(one.retained), style.size(one.size),
         one.name or "(on the stack)", one.type, address_text(one.address),
         *([one.text or ""] if has_texts else [])]
        for one in frame.locals
    ]  # fmt: skip
    columns = (*VARIABLES, Column("value", True)) if has_texts else VARIABLES
    return f"{told}: {style.bytes(frame.retained)}", table(columns, rows, style) if rows else ""
