"""The text of ``heap threads``: each thread's frames, and the sizes of their local variables."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.stack_frames import PYTHON
from gdbheap.text import file_name

if TYPE_CHECKING:
    from gdbheap.answers.threads import PythonThread, ThreadFrame, ThreadLines, Threads

__all__ = ["render_threads", "thread_name"]

SHOWN_THREADS = 5
# A stack of more frames is shown in parts, as a deep recursion may have a million.
MOST_FRAMES, INNERMOST, OUTERMOST, LARGEST = 100, 50, 20, 10
VARIABLES = (Column("retained"), Column("size"), Column("variable", True), Column("type", True), Column("address"))


def render_threads(answer: Threads, style: Style) -> str:
    """Return the text of ``heap threads``. It begins with the thread and the variable that keep the most memory. Each
    stack has a paragraph, with a table for each frame. Threads at the same lines share a paragraph.
    """
    if not answer.rows:
        return style.filled("No thread runs Python.")
    if not any(frame.kind == PYTHON for thread in answer.rows for frame in thread.running):
        frames = counted(sum(len(thread.running) for thread in answer.rows), "C frame")
        told = f"{counted(len(answer.rows), 'thread has', 'threads have')} {frames}."
        return join(style.filled(told), *(_c_stack(thread, style) for thread in answer.rows))
    stacks: dict[tuple[object, ...], list[PythonThread]] = {}
    for thread in answer.rows:
        key = tuple((frame.function, frame.file, frame.line) for frame in thread.running)
        stacks.setdefault(key, []).append(thread)
    told = style.filled(_thread_with_most(answer.rows, style))
    return join(told, *(_stack(threads, style) for threads in stacks.values()))


def _thread_with_most(threads: Sequence[PythonThread], style: Style) -> str:
    """Return sentences about the thread, and the local variable, whose removal would free the most."""
    thread = max(threads, key=lambda one: one.retained)
    told = f"{counted(len(threads), 'thread runs', 'threads run')} Python."
    if not thread.retained:
        told += f" No memory is kept alive only by {'its' if len(threads) == 1 else 'their'} frames."
    else:
        size = style.bytes(thread.retained)
        keep = f"keep the most alive: {size}" if len(threads) > 1 else f"alone keep {size} alive"
        told += f" The frames of thread {thread_name(thread)} {keep}."
    if any((frame.retained or 0) > thread.retained for frame in thread.running):
        told += " The figure of a frame may be larger: it includes objects that other holders keep alive, too."
    sizes = [(one.retained or 0, one, frame) for frame in thread.running for one in frame.locals if one.name]
    largest, variable, frame = max(sizes, key=lambda found: found[0], default=(0, None, None))
    # An object that others hold too may retain more than the thread, which does not keep it alone.
    if not 0 < largest <= thread.retained or variable is None or frame is None:
        return told
    return f"{told} Its largest variable is {variable.name} of {frame.function}(): {style.bytes(largest)}."


def _c_stack(thread: PythonThread, style: Style) -> str:
    head = style.heading(f"Thread {thread_name(thread)}: {counted(len(thread.running), 'frame')}")
    return "\n".join([head, *(_frame(frame, style)[0] for frame in thread.running)])


def _stack(threads: list[PythonThread], style: Style) -> str:
    first, kept = threads[0], sum(thread.retained for thread in threads)
    names = ", ".join(thread_name(thread) for thread in threads[:SHOWN_THREADS])
    more = f", and {len(threads) - SHOWN_THREADS:,} more" if len(threads) > SHOWN_THREADS else ""
    which = f"Thread {names}" if len(threads) == 1 else f"{len(threads):,} threads at the same lines, {names}{more}"
    alone = f"which alone keep {style.bytes(kept)} alive"
    parts = [style.heading(f"{which}: {counted(len(first.running), 'frame')}, {alone}")]
    if len(threads) > 1 and any(frame.locals for frame in first.running):
        whose = f"The listed variables belong to thread {thread_name(first)}"
        parts.append(style.filled(f"{whose}; --json lists those of every thread."))
    lines: list[str] = []
    last = -1
    for place in _shown(first.running):
        if place > last + 1:
            lines.append(_gap(first.running[last + 1 : place], style))
        last = place
        line, variables = _frame(first.running[place], style)
        lines.append(line)
        if variables:
            parts += ["\n".join(lines), variables]
            lines = []
    return join(*parts, "\n".join(lines))


def _shown(frames: Sequence[ThreadFrame]) -> list[int]:
    """Return the places of the frames to show, in order. Of a deep stack, these are the innermost frames, the outermost
    frames, and the frames whose variables retain the most.
    """
    every = range(len(frames))
    if len(every) <= MOST_FRAMES:
        return [*every]
    largest = nlargest(LARGEST, every[INNERMOST:-OUTERMOST], key=lambda place: frames[place].retained)
    return sorted({*every[:INNERMOST], *every[-OUTERMOST:], *largest})


def _gap(frames: Sequence[ThreadFrame], style: Style) -> str:
    """Return the line for frames that are not shown."""
    most = style.bytes(max(frame.retained for frame in frames))
    kept = most if len(frames) == 1 else f"at most {most} each"
    return f"  ({counted(len(frames), 'more frame')}: variables retain {kept})"


def thread_name(thread: PythonThread | ThreadLines) -> str:
    """Return a thread's id and name; "that has ended" for a thread without an id."""
    name = f" ({thread.name})" if thread.name else ""
    return "that has ended" if thread.tid is None else f"{thread.tid}{name}"


def _frame(frame: ThreadFrame, style: Style) -> tuple[str, str]:
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
    return f"{told}: variables retain {style.bytes(frame.retained)}", table(columns, rows, style) if rows else ""
