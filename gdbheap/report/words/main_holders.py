"""The text about the main holders: a row with a description for each."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gdbheap.answers.accounting.source_paths import OF_PYTHON_2
from gdbheap.contents.python.objects.database_connections import CONNECTION, IN_MEMORY, TEMPORARY
from gdbheap.findings.holder.rule import (
    BUFFERING_HANDLER,
    DATABASE,
    LABEL,
    LOG_HANDLER,
    OPENED,
    OTHERS,
    SHARED_FILE,
    SHARED_MEMORY,
    WRITTEN_FILE,
)
from gdbheap.report.text.numbers import count_text, counted, size_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, table
from gdbheap.report.text.unfinished import at_least
from gdbheap.text import quoted

if TYPE_CHECKING:
    from gdbheap.answers.shared_out import HolderPart
    from gdbheap.findings.holder.rule import MainHolder, Trait

__all__ = [
    "described", "freed", "freed_text", "names_of", "object_text", "others_of", "parts_of", "readable", "render",
    "whole_text",
]  # fmt: skip

COLUMNS = SHARE, Column("held by", True), Column("what it is", True)
WELL_KNOWN = ("functools", "collections", "__main__")
SHORT = {"_lru_cache_wrapper": "lru_cache"}
# Kinds of tasks and suspended functions whose usual name differs from Python's name.
KINDS = {"async_generator": "asynchronous generator"}
# A terminal with at most this many columns has no room for whole descriptions.
NARROW = 100
# Steps of a path that only C code can take: to an item of a set, and through a field of an object written in C.
AS_ITEM, OF_C = re.compile(r"has it as item \d+"), re.compile(r"holds it at \+\d+")
AS_KEY, OF_CACHE = re.compile(r"has it as (key \d+)"), re.compile(r"\(_lru_cache_wrapper\)->cache ?")
# SQLite's name for a database that exists only in memory.
MEMORY_NAME = ":memory:"
HANDLERS = (LOG_HANDLER, BUFFERING_HANDLER)
# The description of the row for all holders that are not listed.
IN_OWNERS = "'heap owners' lists these holders"
AT_MOST = "at most "
# A figure is called certain if it may be too large by at most the rest to 100 %.
CERTAIN_PERCENT = 99
# A row names at most this many kinds of blocks.
MAX_PARTS = 2


def render(rows: list[MainHolder], style: Style) -> str:
    """Return the table of the holders, the largest first; "" if there are none."""
    if not rows:
        return ""
    is_narrow = style.width is not None and style.width <= NARROW
    told = _briefly if is_narrow else whole_text
    # Show resident bytes only if they are known for all rows: otherwise the column would not fit the shares.
    is_resident = all(row.resident is not None for row in rows)
    cells = [
        [at_least(style.size(row.resident if is_resident else row.bytes), row.at_least),
         style.share_of_resident(row.resident), row.path,
         style.named(IN_OWNERS) if row.kind == OTHERS else told(row)]
        for row in rows
    ]  # fmt: skip
    return table((Column("resident" if is_resident else "in use"), *COLUMNS), cells, style)


# The descriptions of a holder that is a mapping of a file, by the kind of mapping.
OF_FILES = {
    WRITTEN_FILE: "written pages of {} (private mapping)",
    SHARED_FILE: "pages of {} (shared mapping)",
    SHARED_MEMORY: "shared memory",
}


def _briefly(row: MainHolder) -> str:
    """Return a short description of a holder for a narrow terminal: its type, or else its main kind of block."""
    alone = f"removing it alone frees {freed(row)}" if not row.alone and row.retained is not None else ""
    what = _object(row) or parts_of(row.parts[:1])
    return "; ".join(filter(None, [_with_place(row, what), *_traits(row), _tasks(row), alone or names_of(row)]))


def whole_text(row: MainHolder) -> str:
    """Return the description of a holder: its type, its main contents, and other holders of the same memory.

    The main contents are left out if its traits already name them.
    """
    what = described(replace(row, parts=[]) if row.traits else row)
    return "; ".join(filter(None, [what, _shared(row)]))


def described(row: MainHolder) -> str:
    """Return a holder's type, and the kinds of block with most of its bytes."""
    what, parts = _with_place(row, _object(row)), parts_of(row.parts)
    # If the holder and its parts are the same, the text is shown only once: "14 x bytearray; 14 x bytes".
    parts = f"{parts}, ".removeprefix(f"{what}, ").removesuffix(", ") if what else parts
    return "; ".join(filter(None, [what, *_traits(row), _tasks(row), parts]))


def _with_place(row: MainHolder, what: str) -> str:
    """Return a holder's type, with its logging handler or the databases of its connections, if known."""
    handler = next((_handler_text(trait) for trait in row.traits if trait.kind in HANDLERS), "")
    databases = [trait for trait in row.traits if trait.kind == DATABASE]
    places = [_database_text(trait, len(databases) > 1) for trait in databases if trait.example is not None]
    total = sum(trait.count for trait in databases)
    if places and row.what != CONNECTION:
        least = "at least " if databases[0].at_least else ""
        many = counted(total, "connection of sqlite3", "connections of sqlite3")
        what = "; ".join(filter(None, [what, f"{least}{many}"]))
    return f"{what}{handler}{' ' if places else ''}{' and '.join(places)}"


def _handler_text(trait: Trait) -> str:
    name = trait.name.removeprefix("logging.").removeprefix("handlers.").replace("__main__.", "", 1)
    # The class may have any name.
    kind = name if name.replace(".", "").isidentifier() else quoted(name)
    return f" in a {kind}{f' of logger {quoted(trait.example)}' if trait.example else ''}"


def _database_text(trait: Trait, is_one_of_many: bool) -> str:
    name = quoted(trait.name) if trait.name not in ("", MEMORY_NAME) else ""
    told = {IN_MEMORY: "a database in memory", TEMPORARY: "a temporary database"}.get(
        trait.example or "", name or "a file"
    )
    named = f" ({name})" if trait.example == IN_MEMORY and name else ""
    return f"{f'({trait.count:,}) ' if is_one_of_many else ''}to {told}{named}"


def _traits(row: MainHolder) -> list[str]:
    """Return further facts about a holder: a metric's label with many values, an open file, or connections whose
    threads have ended.
    """
    return [_trait_text(trait, row) for trait in row.traits if trait.kind in (LABEL, OPENED, *OF_FILES)]


def _trait_text(trait: Trait, row: MainHolder) -> str:
    if trait.kind in OF_FILES:
        return OF_FILES[trait.kind].format(trait.name)
    if trait.kind == LABEL:
        least = "at least " if trait.at_least else ""
        told = f"label {quoted(trait.name)} has {least}{counted(trait.count, 'value')}, such as {trait.example}"
        return f"{told}, and no other label has more" if (row.count or 0) > 2 * trait.count else told
    total = sum(other.count for other in row.traits if other.kind == DATABASE)
    which = "" if trait.count == total else f"{trait.count:,} of them "
    return f"{which}opened by {'threads that have' if trait.count > 1 else 'a thread that has'} ended"


def _tasks(row: MainHolder) -> str:
    """Return how many tasks or suspended functions reach most of a holder's memory; "" if none do."""
    kind = row.task_kind or "task"
    return counted(row.tasks, KINDS.get(kind, kind)) if row.tasks else ""


def _shared(row: MainHolder) -> str:
    """Return the other holders of the same memory, and the bytes that removing only this holder frees.

    If there are no other holders, return other names of this one.
    """
    if row.alone or row.retained is None:
        return names_of(row)
    return f"{others_of(row)}; removing it alone frees {freed(row)}"


def _object(row: MainHolder) -> str:
    if row.shape and row.what:
        return f"{row.what} of {' x '.join(map(count_text, row.shape))}"
    if row.limit is not None and row.count is not None:
        limit = "without a limit" if row.limit < 0 else f"limited to {count_text(row.limit)}"
        return f"{object_text(row.what, None, True)} {limit}, {counted(row.count, 'entry', 'entries')}"
    return object_text(row.what, row.count, row.address is not None)


def object_text(what: str | None, count: int | None, is_one: bool) -> str:
    """Return a type as text; "" if it is unknown.

    If there is one object, the number of its items follows; otherwise the number of objects comes first. ``count``: the
    number of items or objects, None if unknown.
    """
    if what is None:
        return ""
    module, _, name = what.rpartition(".")
    name = SHORT.get(name, name) if module in WELL_KNOWN else what
    if not is_one and count is not None:
        return f"{count_text(count)} x {name}"
    return name if count is None else f"{name} of {count_text(count)}"


def parts_of(parts: list[HolderPart]) -> str:
    """Return the kinds of blocks that have most of a holder's bytes."""
    return ", ".join(
        f"{count_text(part.count)} x {part.what.replace('__main__.', '', 1)}" for part in parts[:MAX_PARTS]
    )


def names_of(row: MainHolder) -> str:
    """Return the other names of a holder's object; "" if it has none."""
    return f"also named {', '.join(row.names)}" if row.names else ""


def freed(row: MainHolder) -> str:
    """Return, as text, how many bytes would be freed if this holder were removed.

    The text has two numbers if other holders reach a part of its memory only through pointers that may be stale.
    """
    least = freed_text(row, row.retained or 0)
    most = "" if row.at_most is None else freed_text(row, row.at_most).removeprefix(AT_MOST)
    return f"between {least.removeprefix(AT_MOST)} and {most}" if most else least


def freed_text(row: MainHolder, size: int) -> str:
    """Return, as text, how many resident bytes would be freed with ``size`` bytes of a holder's blocks.

    It is unknown which of the holder's blocks have bytes that are not resident, so the text may be an upper limit.
    """
    if row.resident is None:
        return size_text(size)
    absent, most = max(0, row.bytes - row.resident), min(size, max(row.resident, size - row.bytes + row.resident))
    is_sure = 100 * absent <= (100 - CERTAIN_PERCENT) * row.bytes or 100 * (size - absent) >= CERTAIN_PERCENT * most
    return size_text(most) if is_sure else f"{AT_MOST}{size_text(most)}"


def others_of(row: MainHolder) -> str:
    """Return a text that names the other holders of a holder's memory.

    The text says "perhaps" if the other holders may reach this memory only through stale pointers.
    """
    names = ", ".join(map(readable, row.also)) or "others"
    also = f"also held by {names}"
    return f"perhaps {also}, by pointers that may be stale" if row.may_be_alone else also


def readable(way: str) -> str:
    """Return a path as text. A step to an item of a set becomes "[…]", and a step to a key of a dict becomes "key 3". A
    step through a field that only C code knows is left out.
    """
    way = OF_CACHE.sub("", AS_KEY.sub(r"\1", AS_ITEM.sub("[…]", way)))
    return " ".join(OF_C.sub("", OF_PYTHON_2.sub(r"[\1]", way)).split()).replace(" ,", ",").removeprefix(", ")
