"""Between a command and its two callers: ask, sort, cut, render, and the exit status of what came out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from gdbheap.commands.declaration import Command, Options, Shown
from gdbheap.errors import GdbheapError, UsageError, one_line
from gdbheap.report.json import document, text_of
from gdbheap.report.style import Style
from gdbheap.report.tables import join

if TYPE_CHECKING:
    from gdbheap.heap import Heap
    from gdbheap.target.target import Damage

__all__ = ["About", "Told", "ask", "disclosing", "listed", "order", "present", "status_of", "told"]

Row = TypeVar("Row")
PARTIAL = 1
DAMAGE_LISTED = 5


@dataclasses.dataclass(frozen=True)
class About:
    """What is said of the target beside the answer. ``target`` is the envelope's part; ``rss`` is bytes or None, of
    private memory only if ``private``."""

    target: dict[str, Any]
    warnings: Sequence[str]
    damage: Sequence[Damage]
    partial: bool
    rss: int | None
    private: bool = False

    @staticmethod
    def of(heap: Heap) -> About:
        """Read it off ``heap``; after this nothing of the target is needed any more."""
        target = {**heap.target.describe(), **heap.versions}
        rss = heap.target.rss
        return About(target, list(heap.warnings), list(heap.damage), heap.partial, rss.bytes, rss.private)


@dataclasses.dataclass(frozen=True)
class Told:
    """An answer in hand (``whole``: before --sort and --top), so that the target may run again while it is printed."""

    command: Command[Any]
    options: Options
    about: About
    answer: Any
    whole: Any


def ask(command: Command[Any], heap: Heap, options: Options) -> Told:
    """Compute the answer, sorted and cut as the options say. Reads the target; raises what the answer raises."""
    with disclosing(heap, options):
        return told(command, options, command.answer(heap, options), heap)


@contextmanager
def disclosing(heap: Heap, options: Options) -> Iterator[None]:
    """Inside the block texts show what the options allow, and so do the errors that end it."""
    heap.disclosure.contents = not options.no_text
    try:
        yield
    except UsageError:
        raise
    except GdbheapError as error:
        if heap.disclosure.contents:
            raise
        raise type(error)(heap.disclosure.numbers(str(error))) from error


def told(command: Command[Any], options: Options, whole: Any, heap: Heap) -> Told:
    """The same for an answer that was computed elsewhere, inside of ``disclosing``."""
    answer = _cut(command, whole, options) if _has_rows(command, whole) else whole
    return Told(command, options, About.of(heap), answer, whole)


def _has_rows(command: Command[Any], whole: Any) -> bool:
    return bool(command.rows) and hasattr(whole, command.rows)


def _cut(command: Command[Any], whole: Any, options: Options) -> Any:
    return dataclasses.replace(whole, **{command.rows: listed(getattr(whole, command.rows), command.sorts, options)})


def listed(rows: Sequence[Row], sorts: Mapping[str, Callable[[Any], Any]], options: Options) -> list[Row]:
    """What --sort and --top leave of a list."""
    return sorted(rows, key=order(sorts[options.sort]))[: options.top]


def order(key: Callable[[Any], Any]) -> Callable[[Any], tuple[int, Any]]:
    """A key for sorted(): numbers largest first, words in alphabetical order, what is not known last."""

    def place(row: Any) -> tuple[int, Any]:
        value = key(row)
        if value is None:
            return 2, 0
        return (1, value) if isinstance(value, str) else (0, -value)

    return place


def present(answered: Told, style: Style) -> str:
    """The report, without a last line break: one JSON document, or tables and sentences and the warnings below them."""
    about, answer = answered.about, answered.answer
    if answered.options.json:
        return text_of(document(answered.command.name, about.target, about.warnings, about.damage, answer))
    shown = Shown(answer, answered.whole, _left_out(answered), about.damage, answered.options, style)
    return join(answered.command.render(shown), _notes(answered))


def _left_out(answered: Told) -> int:
    rows = answered.command.rows
    if not _has_rows(answered.command, answered.whole):
        return 0
    return len(getattr(answered.whole, rows)) - len(getattr(answered.answer, rows))


def _notes(answered: Told) -> str:
    """Warnings and damage, below every table but that of heap check, which is about nothing else."""
    lines = [f"Warning: {one_line(warning)}" for warning in answered.about.warnings]
    damage = [] if answered.command.noun == "check" else answered.about.damage
    for place in damage[:DAMAGE_LISTED]:
        what = f"{place.what}: expected {place.expected}, found {place.found}"
        lines.append(f"Damage at {place.address:#x}: {one_line(what)}")
    if len(damage) > DAMAGE_LISTED:
        lines.append(f"Damage: {len(damage) - DAMAGE_LISTED:,} more places; 'heap check' lists them all.")
    return "\n".join(lines)


def status_of(answered: Told) -> int:
    """0 answered, 1 answered but damaged or partial."""
    about = answered.about
    whole = not about.partial and getattr(answered.answer, "ok", True)
    return 0 if whole else PARTIAL
