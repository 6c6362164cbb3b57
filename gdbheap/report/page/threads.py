"""The page's sections of threads with their frames, and of tasks, grouped by the line of code at which they wait. Only
the name, type and size of a variable are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.answers.threads import PythonThread, ThreadFrame
from gdbheap.errors import one_line
from gdbheap.report.page.html import COUNT, SIZE, Column, Section, details, paragraph, refused, table
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.threads import thread_name

if TYPE_CHECKING:
    from gdbheap.answers.tasks import Row, Tasks
    from gdbheap.answers.threads import ThreadLine, ThreadLines, Threads
    from gdbheap.snapshots.overview import Outcome
    from gdbheap.snapshots.snapshot import ThreadName

__all__ = ["tasks_section", "threads_section"]

FRAMES = (
    Column("function", "function"), Column("file", "file"), Column("line", "line", COUNT),
    Column("size", "variables", SIZE), Column("locals", "largest variables"),
)  # fmt: skip
TASKS = (
    Column("coroutine", "coroutine"), Column("count", "count", COUNT), Column("bytes", "bytes", SIZE),
    Column("kind", "kind"), Column("state", "state"), Column("file", "file"), Column("line", "line", COUNT),
    Column("waits_for", "waits for"),
)  # fmt: skip
SHOWN_LOCALS, SHOWN_FRAMES, SHOWN_STACKS = 5, 30, 40


def threads_section(asked: Outcome[Threads], lines: Outcome[list[ThreadLines]], names: Sequence[ThreadName]) -> Section:
    """Return the section of threads: the names of all threads, and the frames of the threads that run Python."""
    body = paragraph(f"{counted(len(names), 'thread')}: {_names(names)}.") if names else ""
    if asked.answer is None and lines.answer is None:
        return Section(
            "threads", "Threads", body + paragraph(f"The frames are missing: {lines.why}.", "why"), lines.why
        )
    if asked.answer is None:
        body += paragraph(f"It is unknown how much memory frames hold: {asked.why}.", "why")
    found: Sequence[PythonThread | ThreadLines] = asked.answer.rows if asked.answer else lines.answer or []
    stacks: dict[tuple[object, ...], list[PythonThread | ThreadLines]] = {}
    for thread in found:
        stacks.setdefault(tuple((frame.function, frame.file, frame.line) for frame in thread.running), []).append(
            thread
        )
    shown = list(stacks.values())[:SHOWN_STACKS]
    body += "".join(_stack(number, threads) for number, threads in enumerate(shown))
    left = len(stacks) - len(shown)
    return Section(
        "threads",
        "Threads",
        body + paragraph(f"{counted(left, 'more stack is', 'more stacks are')} not shown." if left else ""),
    )


def _names(names: Sequence[ThreadName]) -> str:
    counts: dict[str, int] = {}
    for thread in names:
        name = one_line(thread.name or "without a name", 40)
        counts[name] = counts.get(name, 0) + 1
    rows = sorted(counts.items(), key=lambda row: -row[1])
    more = f", and {len(rows) - SHOWN_FRAMES} more names" if len(rows) > SHOWN_FRAMES else ""
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in rows[:SHOWN_FRAMES]) + more


def _stack(number: int, threads: Sequence[PythonThread | ThreadLines]) -> str:
    """Return the element for a group of threads whose frames are at the same lines of code."""
    first, known = threads[0], [thread for thread in threads if isinstance(thread, PythonThread)]
    who = f"Thread {thread_name(first)}"
    if len(threads) > 1:
        who = f"{len(threads):,} threads at the same lines, such as {thread_name(first)}"
    title = f"{who}: {counted(len(first.running), 'frame')}"
    if known:
        size = size_text(sum(thread.retained for thread in known))
        title += f", {'retains' if len(threads) == 1 else 'retain'} {size}"
    rows = [(frame.function, frame.file, frame.line, *_variables(frame)) for frame in first.running]
    columns = FRAMES if known else FRAMES[:3]
    caption = f"Frames of thread {thread_name(first)}, the innermost first"
    frames = table(f"frames-{number}", caption, columns, rows, SHOWN_FRAMES)
    return details(title, frames, number == 0) or paragraph(title)


def _variables(frame: ThreadFrame | ThreadLine) -> tuple[object, ...]:
    """Return the cells for a frame's variables: the size of all variables, and the largest ones. The cells are empty if
    variables were not read.
    """
    if not isinstance(frame, ThreadFrame):
        return ()
    most = sorted(frame.locals, key=lambda one: -one.size)[:SHOWN_LOCALS]
    told = ", ".join(f"{one.name or '(on the stack)'}: {one.type} ({size_text(one.size)})" for one in most)
    return frame.bytes, told


def tasks_section(asked: Outcome[Tasks], most: int) -> Section:
    """Return the section of tasks, coroutines, generators and greenlets, in at most ``most`` rows.

    Objects that wait at the same line of code share a row.
    """
    title = "Tasks"
    if asked.answer is None:
        return refused("tasks", title, asked.why)
    found = asked.answer
    if not any(found.kinds.values()):
        return Section("tasks", title, paragraph("No task, coroutine, generator or greenlet is alive."))
    total = ("total", sum(found.kinds.values()), found.bytes, "", "", "", "", "")
    body = table(
        "tasks-table",
        "Tasks that wait at the same place, the largest groups first",
        TASKS,
        list(map(_task, found.rows)),
        most,
        total,
    )
    return Section("tasks", title, body)


def _task(row: Row) -> tuple[object, ...]:
    return row.coroutine, row.count, row.bytes, row.kind, row.state, row.file, row.line, row.waits_for
