"""The declaration of the tables: columns with types, units and meanings. Files, databases, views and docs/data.md are
made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "ADDRESS",
    "BIG",
    "BYTES",
    "COUNT",
    "FLAG",
    "INTEGER",
    "REAL",
    "SNAPSHOTS",
    "TABLES",
    "TEXT",
    "Column",
    "Table",
    "table_of",
]

INTEGER, TEXT, REAL, FLAG = "integer", "text", "real", "flag"
"""The kinds of columns: 64-bit signed integer, text, 64-bit floating-point number, true or false."""

BYTES, ADDRESS, COUNT, SECONDS = "bytes", "address", "count", "seconds since 1970"
SNAPSHOTS = "snapshots"


@dataclass(frozen=True)
class Column:
    """A column. ``kind``: INTEGER, TEXT, REAL or FLAG; ``unit``: "" for none; ``may_lack``: a row may have no value
    (NULL, an empty field)."""

    name: str
    kind: str
    unit: str
    meaning: str
    may_lack: bool = False


@dataclass(frozen=True)
class Table:
    """A table. ``row``: what one row stands for."""

    name: str
    row: str
    columns: tuple[Column, ...]
    note: str = ""

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return [column.name for column in self.columns]


def _number(name: str, unit: str, meaning: str, may_lack: bool = False) -> Column:
    return Column(name, INTEGER, unit, meaning, may_lack)


def _text(name: str, meaning: str, may_lack: bool = False) -> Column:
    return Column(name, TEXT, "", meaning, may_lack)


TABLES: Sequence[Table] = (
    Table(
        SNAPSHOTS,
        "look at a process or a core: there is one, unless several were exported together",
        (
            Column("time", REAL, SECONDS, "when it was looked at; of a core when its file was written last"),
            _text("host", "the name of the machine", True),
            _text("boot_id", "the id of the machine's boot", True),
            _text("container", "the id of the container", True),
            _text("kind", "process or core"),
            _number("pid", "", "the process's id", True),
            _number("started", "clock ticks", "when the process started, counted from the machine's boot", True),
            _text("exe", "the program's file", True),
            _text("core", "the core's file", True),
            _text("python", "the release of Python", True),
            _text("glibc", "the release of glibc", True),
            _text("gdbheap", "the release of gdbheap"),
            _number("rss", BYTES, "resident", True),
            _number("swap", BYTES, "swapped out", True),
            _number("memory_limit", BYTES, "what the control group allows", True),
            _number("trim", BYTES, "what malloc_trim(0) would give back", True),
            _number("damage", COUNT, "places that are damaged"),
            Column("partial", FLAG, "", "whether the answer may lack something"),
        ),
    ),
    Table(
        "ledger",
        "line of the ledger, with details",
        (
            _text("id", "what the line is"),
            _text("parent", "the line that it is a part of", True),
            _text("name", "in words"),
            _number("virtual", BYTES, "of the address space"),
            _number("resident", BYTES, "in memory", True),
            _number("swapped", BYTES, "swapped out", True),
            _text("state", "of an allocator's line: used, free, top or overhead", True),
        ),
        "The lines without a parent add up to the address space, and the children of a line to it.",
    ),
    Table(
        "findings",
        "finding of heap",
        (
            _text("id", "which one, as docs/findings.md lists them"),
            _number("bytes", BYTES, "how much it is about", True),
            _text("text", "what was found, as heap says it", True),
            _text("advice", "what to do about it", True),
        ),
    ),
    Table(
        "mappings",
        "mapping of the address space",
        (
            _number("start", ADDRESS, "its first byte"),
            _number("end", ADDRESS, "the byte after its last"),
            _number("size", BYTES, "end less start"),
            _text("perms", "rwx and p (private) or s (shared)"),
            _number("offset", BYTES, "where in the file it begins"),
            _text("path", "its file, or the kernel's name for it", True),
            _number("resident", BYTES, "in memory", True),
            _number("swapped", BYTES, "swapped out", True),
        ),
    ),
    Table(
        "arenas",
        "arena of glibc's malloc, by malloc_stats()' definitions",
        (
            _number("index", "", "0 is the main arena"),
            _number("address", ADDRESS, "its malloc_state"),
            _number("system", BYTES, "from the kernel"),
            _number("in_use", BYTES, "system less top, bins and fast bins"),
            _number("free", BYTES, "in bins"),
            _number("fast", BYTES, "in fast bins"),
            _number("tcache", BYTES, "in threads' caches"),
            _number("top", BYTES, "in the top chunk"),
            _number("used_chunks", COUNT, "handed out"),
            _number("free_chunks", COUNT, "in bins"),
        ),
    ),
    Table(
        "threads",
        "thread",
        (
            _number("tid", "", "the kernel's number"),
            _text("name", "the kernel's name", True),
            _number("stack_start", ADDRESS, "of its stack, guard pages included", True),
            _number("stack_end", ADDRESS, "the byte after its stack", True),
            _number("stack_resident", BYTES, "of its stack in memory", True),
        ),
    ),
    Table(
        "holes",
        "maximal run of bytes among an allocator's blocks that nobody holds",
        (
            _number("address", ADDRESS, "what malloc would return for its first chunk"),
            _number("size", BYTES, "of its chunks, headers included"),
            _number("resident", BYTES, "in whole pages that are in memory", True),
            _text("allocator", "whose"),
            _number("arena", "", "whose arena", True),
            _number("before", ADDRESS, "the block before it", True),
            _number("after", ADDRESS, "the block after it", True),
        ),
    ),
    Table(
        "types",
        "type of Python objects, or kind of blocks of C code",
        (
            _text("type", "module and qualified name; what a block of C++ or Rust is"),
            _number("count", COUNT, "living objects, or blocks"),
            _number("bytes", BYTES, "their own blocks, headers included"),
            _number("buffers", BYTES, "blocks that they own"),
            _number("reached", BYTES, "of the buffers, those that no known field names"),
        ),
    ),
    Table(
        "blocks",
        "block in use, of any allocator",
        (
            _number("address", ADDRESS, "what malloc returned for it"),
            _number("size", BYTES, "with all headers"),
            _text("allocator", "whose"),
            _text("type", "of the living object in it, or what the block is; none where that is not known", True),
            _number("retained", BYTES, "what would be free without it, itself included", True),
        ),
        "retained has values only if the table edges has rows.",
    ),
    Table(
        "objects",
        "living Python object in a block",
        (
            _number("address", ADDRESS, "the object's, as id() has it"),
            _number("block", ADDRESS, "its block's"),
            _number("size", BYTES, "its block's, with all headers"),
            _text("type", "module and qualified name"),
            _number("retained", BYTES, "what would be free without it, itself included", True),
        ),
        "retained has values only if the table edges has rows.",
    ),
    Table(
        "edges",
        "reference",
        (
            _number("source", ADDRESS, "the block, or the static type, that holds it; none for a root", True),
            _text("root", "what holds it if that is no block", True),
            _number("target", ADDRESS, "the block, or the static type, that it leads to"),
            _text("strength", "exact, likely, doubtful or stray"),
        ),
        "A process with more than 2,000,000 blocks has no rows here, unless --tables or a query asks for them.",
    ),
)
BIG = ("blocks", "objects", "edges")
"""The tables that may have millions of rows."""


def table_of(name: str) -> Table:
    """Return the table with that name. Raises KeyError."""
    return {table.name: table for table in TABLES}[name]
