"""The text of ``heap tasks``: where tasks, coroutines and generators wait, and how much they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.text import file_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gdbheap.answers.tasks import AwaitStep, Listed, Row, Tasks, Waiting

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
# The states of objects that wait at a line of code.
WAITING = ("pending", "suspended")
LONGEST_CHAIN = 8


def render(answer: Tasks, style: Style, left_out: int, with_retained: bool, whole: Tasks | None = None) -> str:
    """Return the text of the answer. It begins with the place where most objects of one kind wait, and with the bytes
    that all of them hold. A table has a row for each group of objects that wait at the same line of code. Groups
    that are not listed share one row. The total is the last row.

    ``whole``: the answer with all groups.
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
    told = _most_wait((whole or answer).rows, answer.kinds)
    has, their = ("has", "its") if count == 1 else ("have", "their")
    told += f" {_counts(answer.kinds)} {has} {style.bytes(answer.bytes)} in {their} own objects and frames."
    told += "" if with_retained else f" Objects that {their} variables keep alive are not included."
    return join(style.filled(told), table(columns, rows, style, total), _unreadable(answer.unreadable))


def _most_wait(rows: Sequence[Row], kinds: dict[str, int]) -> str:
    """Return a sentence that says where the largest group of objects of one kind waits."""
    first = max(rows, key=lambda row: row.count)
    count = counted(kinds[first.kind], *NOUNS[first.kind])
    which = count if first.count == kinds[first.kind] else f"{count_text(first.count)} of {count}"
    place = f" at {_place(first.file, first.line)}" if first.file else ""
    if place and first.state in WAITING:
        verb = "waits" if first.count == 1 else "wait"
    else:
        verb = f"{'is' if first.count == 1 else 'are'} {first.state}"
    return f"{which} {verb}{place}{f', in {first.coroutine}()' if first.coroutine else f' ({first.type})'}."


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


def _step(step: AwaitStep) -> str:
    return f"{step.function} {_place(step.file, step.line)}" if step.file else step.function


def _place(file: str, line: int | None) -> str:
    name = file_name(file)
    return "-" if not file else name if line is None else f"{name}:{line}"


def render_list(answer: Listed, style: Style, with_retained: bool = False) -> str:
    """Return the text of ``heap tasks --list``: how many tasks, coroutines and other objects of each kind there are,
    then a row for each object.

    One row stands for all objects that are not listed. The total is the last row.
    """
    columns = (*LISTED[:2], RETAINED, *LISTED[2:]) if with_retained else LISTED
    rows = [_listed(one, style, with_retained) for one in answer.rows]
    left_out = sum(answer.kinds.values()) - len(rows)
    if left_out:
        rows.append([f"{left_out:,} more", *[""] * (len(columns) - 1)])
    total = ["total", style.size(answer.bytes), *[""] * (len(columns) - 2)]
    text = f"{_counts(answer.kinds) or 'No task'} in total."
    return join(style.filled(text), table(columns, rows, style, total), _unreadable(answer.unreadable))


def _listed(one: Waiting, style: Style, with_retained: bool) -> list[str]:
    retained = [] if not with_retained else ["-" if one.retained is None else style.size(one.retained)]
    outer = one.waits[0] if one.waits else None
    return [
        address_text(one.address), style.size(one.bytes), *retained, one.kind, one.name or "-", one.state,
        "-" if outer is None else outer.function, "-" if outer is None else _place(outer.file, outer.line),
        one.waits_for or "-",
    ]  # fmt: skip
