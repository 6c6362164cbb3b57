"""The declaration of the exported tables: their columns, with types, units and meanings. Files, databases, views and
docs/data.md are made from it."""

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
"""The types of columns: 64-bit signed integer, text, 64-bit floating-point number, true or false."""

BYTES, ADDRESS, COUNT, SECONDS = "bytes", "address", "count", "seconds since 1970"
SNAPSHOTS = "snapshots"


@dataclass(frozen=True)
class Column:
    """A column of a table. ``kind``: INTEGER, TEXT, REAL or FLAG; ``unit``: "" if it has none; ``may_lack``: its cells
    may be empty (NULL, an empty field)."""

    name: str
    kind: str
    unit: str
    meaning: str
    may_lack: bool = False


@dataclass(frozen=True)
class Table:
    """A table. ``row``: what one row stands for; ``note``: what else a reader should know."""

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
        "process or core that was read: the table has one row, unless several were exported together",
        (
            Column("time", REAL, SECONDS, "when gdbheap read it; for a core, when its file was last written"),
            _text("host", "the name of the machine", True),
            _text("boot_id", "the kernel's id of the machine's last boot", True),
            _text("container", "the id of the container", True),
            _text("kind", "process or core"),
            _number("pid", "", "the process's id", True),
            _number("started", "clock ticks", "when the process started, counted from the machine's boot", True),
            _text("exe", "the program's file", True),
            _text("core", "the core's file", True),
            _text("python", "the release of Python", True),
            _text("glibc", "the release of glibc", True),
            _text("gdbheap", "the release of gdbheap"),
            _number("rss", BYTES, "resident bytes of the process (RSS)", True),
            _number("swap", BYTES, "bytes that are swapped out", True),
            _number("memory_limit", BYTES, "the memory limit of the control group", True),
            _number("trim", BYTES, "bytes that malloc_trim(0) would return to the kernel", True),
            _number("damage", COUNT, "damaged places in the heap"),
            Column("partial", FLAG, "", "true if the data may be incomplete"),
        ),
    ),
    Table(
        "ledger",
        "line of the ledger, with details",
        (
            _text("id", "the line's fixed id"),
            _text("parent", "the id of the line that this line is a part of", True),
            _text("name", "the line's name in words"),
            _number("virtual", BYTES, "bytes of address space"),
            _number("resident", BYTES, "bytes in memory", True),
            _number("swapped", BYTES, "bytes that are swapped out", True),
            _text("state", "used, free, top or overhead; only for a line of an allocator", True),
        ),
        "The lines without a parent add up to the address space. The children of a line add up to that line.",
    ),
    Table(
        "findings",
        "finding of heap",
        (
            _text("id", "the kind of finding, as in docs/findings.md"),
            _number("bytes", BYTES, "bytes that the finding is about", True),
            _text("text", "what was found, in the words of 'heap'", True),
            _text("advice", "what to do about the finding", True),
        ),
    ),
    Table(
        "mappings",
        "mapping of the address space",
        (
            _number("start", ADDRESS, "the address of the first byte"),
            _number("end", ADDRESS, "the address after the last byte"),
            _number("size", BYTES, "end minus start"),
            _text("perms", "permissions: r, w, x, then p (private) or s (shared)"),
            _number("offset", BYTES, "the offset in the file at which the mapping begins"),
            _text("path", "the mapped file, or the kernel's name for the mapping", True),
            _number("resident", BYTES, "bytes in memory", True),
            _number("swapped", BYTES, "bytes that are swapped out", True),
        ),
    ),
    Table(
        "arenas",
        "arena of glibc's malloc, with the figures of malloc_stats()",
        (
            _number("index", "", "the arena's number; 0 is the main arena"),
            _number("address", ADDRESS, "the address of its malloc_state"),
            _number("system", BYTES, "bytes that the arena got from the kernel"),
            _number("in_use", BYTES, "system minus top, bins and fast bins"),
            _number("free", BYTES, "bytes in bins"),
            _number("fast", BYTES, "bytes in fast bins"),
            _number("tcache", BYTES, "bytes in the caches of threads"),
            _number("top", BYTES, "bytes in the top chunk"),
            _number("used_chunks", COUNT, "chunks that malloc handed out"),
            _number("free_chunks", COUNT, "chunks in bins"),
        ),
    ),
    Table(
        "threads",
        "thread",
        (
            _number("tid", "", "the thread id that the kernel gave"),
            _text("name", "the thread's name in the kernel", True),
            _number("stack_start", ADDRESS, "the first address of the thread's stack, guard pages included", True),
            _number("stack_end", ADDRESS, "the address after the last byte of the stack", True),
            _number("stack_resident", BYTES, "bytes of the stack that are in memory", True),
        ),
    ),
    Table(
        "holes",
        "hole: all free bytes in a row among an allocator's blocks",
        (
            _number("address", ADDRESS, "the address that malloc would return for the first chunk of the hole"),
            _number("size", BYTES, "bytes of its chunks, headers included"),
            _number("resident", BYTES, "bytes of its whole pages that are in memory", True),
            _text("allocator", "the allocator of the hole"),
            _number("arena", "", "the number of the arena that contains the hole", True),
            _number("before", ADDRESS, "the address of the block before the hole", True),
            _number("after", ADDRESS, "the address of the block after the hole", True),
        ),
    ),
    Table(
        "types",
        "type of Python objects, or kind of blocks of C code",
        (
            _text("type", "module and qualified name; for C++ and Rust, what the block is"),
            _number("count", COUNT, "number of living objects, or of blocks"),
            _number("bytes", BYTES, "bytes of their own blocks, headers included"),
            _number("buffers", BYTES, "bytes of the blocks that they own"),
            _number("reached", BYTES, "part of buffers to which no known field points: found by reachability"),
        ),
    ),
    Table(
        "blocks",
        "block in use, of any allocator",
        (
            _number("address", ADDRESS, "the address that malloc returned"),
            _number("size", BYTES, "bytes of the block, with all headers"),
            _text("allocator", "the allocator of the block"),
            _text("type", "the type of the living object in it, or what the block is; none if unknown", True),
            _number("retained", BYTES, "bytes that removing it would free, its own included", True),
        ),
        "The column retained has values only if the table edges has rows.",
    ),
    Table(
        "objects",
        "living Python object in a block",
        (
            _number("address", ADDRESS, "the address of the object, as id() returns it"),
            _number("block", ADDRESS, "the address of its block"),
            _number("size", BYTES, "bytes of its block, with all headers"),
            _text("type", "module and qualified name"),
            _number("retained", BYTES, "bytes that removing it would free, its own included", True),
        ),
        "The column retained has values only if the table edges has rows.",
    ),
    Table(
        "edges",
        "reference",
        (
            _number("source", ADDRESS, "the block or static type that holds the reference; none for a root", True),
            _text("root", "the root that holds the reference, if no block does", True),
            _number("target", ADDRESS, "the block or static type that the reference points to"),
            _text("strength", "how certain the reference is: exact, likely, doubtful or stray"),
        ),
        "A process with more than 2,000,000 blocks has no rows in this table, unless --tables or a query asks for it.",
    ),
)
BIG = ("blocks", "objects", "edges")
"""The tables that may have millions of rows."""


def table_of(name: str) -> Table:
    """Return the table with this name. Raises KeyError."""
    return {table.name: table for table in TABLES}[name]
