"""The text of ``heap tasks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.text import file_name

if TYPE_CHECKING:
    from gdbheap.answers.tasks import Listed, Row, Step, Tasks, Waiting

__all__ = ["render", "render_list"]

COLUMNS = (
    Column("count"), Column("bytes"), Column("kind", True), Column("state", True), Column("coroutine", True),
    Column("waits at", True), Column("waits for", True), Column("chain of awaits", True),
)  # fmt: skip
RETAINED = Column("retained")
LISTED = (
    Column("address"), Column("bytes"), Column("kind", True), Column("name", True), Column("state", True),
    Column("coroutine", True), Column("waits at", True), Column("waits for", True),
)  # fmt: skip
NOUNS = {
    "task": ("task", "tasks"),
    "coroutine": ("coroutine without a task", "coroutines without a task"),
    "generator": ("generator", "generators"),
    "async_generator": ("asynchronous generator", "asynchronous generators"),
    "greenlet": ("greenlet", "greenlets"),
}
LONGEST_CHAIN = 8


def render(answer: Tasks, style: Style, left_out: int, with_retained: bool) -> str:
    """Return the text of the answer: how many bytes the objects of each kind hold, then a row for each group of objects
    that wait at the same line of code.

    Groups that are not listed share one row. The total is the last row.
    """
    if not any(answer.kinds.values()):
        return style.filled(join("No task, coroutine, generator or greenlet is alive.", _unreadable(answer.unreadable)))
    columns = (*COLUMNS[:2], RETAINED, *COLUMNS[2:]) if with_retained else COLUMNS
    rows = [_row(row, style, with_retained) for row in answer.rows]
    blank = [""] * (len(columns) - 2)
    count = sum(answer.kinds.values())
    if left_out:
        size = answer.bytes - sum(row.bytes for row in answer.rows)
        rest = count_text(count - sum(row.count for row in answer.rows))
        rows.append([rest, style.size(size), *blank[1:], f"({counted(left_out, 'more row')})"])
    total = [count_text(count), style.size(answer.bytes), *blank[1:], "total"]
    verb = "holds" if count == 1 else "hold"
    sentence = f"{_counts(answer.kinds)} {verb} {style.bytes(answer.bytes)} themselves, including their frames."
    return join(style.filled(sentence), table(columns, rows, style, total), _unreadable(answer.unreadable))


def _counts(count: dict[str, int]) -> str:
    return ", ".join(counted(number, *NOUNS[kind]) for kind, number in count.items() if number)


def _unreadable(count: int) -> str:
    return f"{counted(count, 'more object', 'more objects')} could not be read." if count else ""


def _row(row: Row, style: Style, with_retained: bool) -> list[str]:
    retained = [] if not with_retained else ["-" if row.retained is None else style.size(row.retained)]
    inner = row.waits[1:]
    chain = " > ".join(_step(step) for step in inner[:LONGEST_CHAIN]) + (" > …" if len(inner) > LONGEST_CHAIN else "")
    return [
        count_text(row.count), style.size(row.bytes), *retained, row.kind, row.state, row.coroutine,
        _place(row.file, row.line), row.waits_for or "-", chain or "-",
    ]  # fmt: skip


def _step(step: Step) -> str:
    return f"{step.function} {_place(step.file, step.line)}" if step.file else step.function


def _place(file: str, line: int | None) -> str:
    name = file_name(file)
    return "-" if not file else name if line is None else f"{name}:{line}"


def render_list(answer: Listed, style: Style) -> str:
    """Return the text of ``heap tasks --list``: how many tasks, coroutines and other objects of each kind there are,
    then a row for each one.

    One row stands for all that are not listed. The total is the last row.
    """
    rows = [_listed(one, style) for one in answer.rows]
    left_out = sum(answer.kinds.values()) - len(rows)
    if left_out:
        rows.append([f"{left_out:,} more", *[""] * (len(LISTED) - 1)])
    total = ["total", style.size(answer.bytes), *[""] * (len(LISTED) - 2)]
    text = f"{_counts(answer.kinds) or 'No task'} in total."
    return join(style.filled(text), table(LISTED, rows, style, total), _unreadable(answer.unreadable))


def _listed(one: Waiting, style: Style) -> list[str]:
    outer = one.waits[0] if one.waits else None
    return [
        address_text(one.address), style.size(one.bytes), one.kind, one.name or "-", one.state,
        "-" if outer is None else outer.function, "-" if outer is None else _place(outer.file, outer.line),
        one.waits_for or "-",
    ]  # fmt: skip
