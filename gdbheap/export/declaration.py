"""The declaration of the exported tables: their columns, with types, units and meanings. Files, databases, views and
docs/data.md are made from the declaration."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap.dataclass import dataclass

__all__ = [
    "ADDRESS",
    "BYTES",
    "COUNT",
    "CSV",
    "FLAG",
    "FORMATS",
    "INTEGER",
    "PARQUET",
    "REAL",
    "SNAPSHOTS",
    "SQLITE",
    "TABLES",
    "TEXT",
    "TableColumn",
    "ExportTable",
    "table_of",
]

PARQUET, CSV, SQLITE = "parquet", "csv", "sqlite"
FORMATS = (PARQUET, CSV, SQLITE)
"""The formats in which tables are written (table_files.py)."""

INTEGER, TEXT, REAL, FLAG = "integer", "text", "real", "flag"
"""The types of columns: 64-bit signed integer, text, 64-bit floating-point number, true or false."""

BYTES, ADDRESS, COUNT, SECONDS = "bytes", "address", "count", "seconds since 1970"
SNAPSHOTS = "snapshots"


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    ``kind``: INTEGER, TEXT, REAL or FLAG.
    ``unit``: the unit of its values, "" if they have none.
    ``may_lack``: whether cells may be empty (NULL, an empty field).
    """

    name: str
    kind: str
    unit: str
    meaning: str
    may_lack: bool = False


@dataclass(frozen=True)
class ExportTable:
    """A table. ``row``: what one row describes; ``note``: further facts that a reader should know."""

    name: str
    row: str
    columns: tuple[TableColumn, ...]
    note: str = ""

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return [column.name for column in self.columns]


def _number(name: str, unit: str, meaning: str, may_lack: bool = False) -> TableColumn:
    return TableColumn(name, INTEGER, unit, meaning, may_lack)


def _text(name: str, meaning: str, may_lack: bool = False) -> TableColumn:
    return TableColumn(name, TEXT, "", meaning, may_lack)


TABLES: Sequence[ExportTable] = (
    ExportTable(
        SNAPSHOTS,
        "process or core that was read; there is only one row unless several were exported together",
        (
            TableColumn(
                "time",
                REAL,
                SECONDS,
                "the time when gdbheap read the process; for a core, the time when its file was last written",
            ),
            _text("host", "the name of the machine", True),
            _text("boot_id", "the kernel's id for the machine's last boot", True),
            _text("container", "the id of the container in which the process runs", True),
            _text("kind", "the kind of target: process or core"),
            _number("pid", "", "the process's id", True),
            _number(
                "started", "clock ticks", "the clock ticks from the machine's boot to the start of the process", True
            ),
            _text("exe", "the path of the program's file", True),
            _text("core", "the path of the core's file", True),
            _text("python", "the release of Python", True),
            _text("glibc", "the release of glibc", True),
            _text("gdbheap", "the release of gdbheap"),
            _number("rss", BYTES, "the resident bytes of the process (RSS)", True),
            _number("swap", BYTES, "the bytes of the process that are swapped out", True),
            _number("memory_limit", BYTES, "the memory limit of the control group", True),
            _number("trim", BYTES, "the bytes that malloc_trim(0) would return to the kernel", True),
            _number("damage", COUNT, "the number of damaged places in the heap"),
            TableColumn("partial", FLAG, "", "true if the data may be incomplete"),
        ),
    ),
    ExportTable(
        "ledger",
        "line of the ledger, including the lines that only --detail shows",
        (
            _text("id", "the line's id, which stays the same in all releases"),
            _text("parent", "the id of the parent line, of which this line is a part", True),
            _text("name", "the name of the line, as people read it"),
            _number("virtual", BYTES, "the bytes of address space in this line"),
            _number("resident", BYTES, "the resident bytes of the line", True),
            _number("swapped", BYTES, "the bytes of the line that are swapped out", True),
            _text("state", "used, free, reserved, top or overhead; only for a line of an allocator", True),
        ),
        "The lines without a parent add up to the whole address space. The lines with the same parent add up to the "
        "parent.",
    ),
    ExportTable(
        "findings",
        "finding that 'heap' shows",
        (
            _text("id", "the id of the kind of finding, as in docs/findings.md"),
            _number("bytes", BYTES, "the bytes of memory that the finding describes", True),
            _text("text", "the text of the finding, as 'heap' shows it", True),
            _text("advice", "the advice: what the user can do about the finding", True),
        ),
    ),
    ExportTable(
        "mappings",
        "mapping of the address space",
        (
            _number("start", ADDRESS, "the address of the first byte"),
            _number("end", ADDRESS, "the address after the last byte"),
            _number("size", BYTES, "the size of the mapping: end minus start"),
            _text("perms", "the permissions: r, w and x, then p (private) or s (shared)"),
            _number("offset", BYTES, "the offset in the file at which the mapping begins"),
            _text("path", "the path of the mapped file, or the kernel's name for the mapping", True),
            _number("resident", BYTES, "the resident bytes of the mapping", True),
            _number("swapped", BYTES, "the bytes of the mapping that are swapped out", True),
        ),
    ),
    ExportTable(
        "arenas",
        "arena of glibc's malloc, with the figures of malloc_stats()",
        (
            _number("index", "", "the arena's number; 0 is the main arena"),
            _number("address", ADDRESS, "the address of the arena's malloc_state structure"),
            _number("system", BYTES, "the bytes that the arena got from the kernel"),
            _number("in_use", BYTES, "the bytes in use: 'system' minus 'top', 'free' and 'fast'"),
            _number("free", BYTES, "the bytes of free chunks in bins"),
            _number("fast", BYTES, "the bytes of chunks in fast bins"),
            _number("tcache", BYTES, "the bytes of chunks in thread caches"),
            _number("top", BYTES, "the bytes of the top chunk"),
            _number("used_chunks", COUNT, "the number of chunks that malloc handed out"),
            _number("free_chunks", COUNT, "the number of free chunks in bins"),
        ),
    ),
    ExportTable(
        "threads",
        "thread",
        (
            _number("tid", "", "the kernel's id of the thread"),
            _text("name", "the name of the thread, as the kernel knows it", True),
            _number("stack_start", ADDRESS, "the first address of the thread's stack, including guard pages", True),
            _number("stack_end", ADDRESS, "the address after the last byte of the stack", True),
            _number("stack_resident", BYTES, "the resident bytes of the stack", True),
        ),
    ),
    ExportTable(
        "holes",
        "hole: an unbroken run of free bytes between blocks of an allocator",
        (
            _number("address", ADDRESS, "the address that malloc would return for the first chunk of the hole"),
            _number("size", BYTES, "the bytes of the chunks in the hole, including headers"),
            _number("resident", BYTES, "the resident bytes of the whole pages in the hole", True),
            _text("allocator", "the allocator to which the hole belongs"),
            _number("arena", "", "the number of the arena that contains the hole", True),
            _number("before", ADDRESS, "the address of the block before the hole", True),
            _number("after", ADDRESS, "the address of the block after the hole", True),
        ),
    ),
    ExportTable(
        "types",
        "type of Python objects, or kind of blocks of C code",
        (
            _text("type", "the module and qualified name of the type; for C++ and Rust, what the blocks are"),
            _number("count", COUNT, "the number of living objects, or of blocks"),
            _number("bytes", BYTES, "the bytes of the objects' own blocks, including headers"),
            _number("buffers", BYTES, "the bytes of other blocks that the objects own"),
            _number(
                "reached",
                BYTES,
                "the part of 'buffers' in blocks that pointers reach although no known field owns them",
            ),
        ),
    ),
    ExportTable(
        "blocks",
        "block in use, of any allocator",
        (
            _number("address", ADDRESS, "the address that malloc returned"),
            _number("size", BYTES, "the bytes of the block, including all headers"),
            _text("allocator", "the allocator that handed out the block"),
            _text("type", "the type of the living object in the block, or what the block is; empty if unknown", True),
            _number("retained", BYTES, "the bytes that removing the block would free, including its own bytes", True),
        ),
        "The column retained has values only if the table edges has rows.",
    ),
    ExportTable(
        "objects",
        "living Python object in a block",
        (
            _number("address", ADDRESS, "the address of the object, as id() returns it"),
            _number("block", ADDRESS, "the address of the block that contains the object"),
            _number("size", BYTES, "the bytes of this block, including all headers"),
            _text("type", "the module and qualified name of the object's type"),
            _number("retained", BYTES, "the bytes that removing the object would free, including its own bytes", True),
        ),
        "The column retained has values only if the table edges has rows.",
    ),
    ExportTable(
        "edges",
        "reference",
        (
            _number("source", ADDRESS, "the block or static type that contains the reference; empty for a root", True),
            _text("root", "the root that contains the reference, if no block contains it", True),
            _number("target", ADDRESS, "the block or static type to which the reference points"),
            _text("strength", "how certain the reference is: exact, likely, doubtful or stray"),
        ),
        "A process with more than 2,000,000 blocks has no rows in this table, unless --tables or a query asks for it.",
    ),
)


def table_of(name: str) -> ExportTable:
    """Return the table with this name. Raises KeyError."""
    return {table.name: table for table in TABLES}[name]
