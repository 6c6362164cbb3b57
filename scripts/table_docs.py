"""Print docs/data.md and deploy/trino.sql, from the one declaration of the tables; with --write, write them.

Run it with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from gdbheap.export.declaration import TABLES, ExportTable, TableColumn
from gdbheap.export.query import TYPES
from gdbheap.export.table_files import SQL_TYPES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "data.md"
STATEMENTS = ROOT / "deploy" / "trino.sql"
INTRODUCTION = """# The tables

This page describes the tables that `gdbheap export` writes and that `gdbheap sql` queries.
`scripts/table_docs.py --write` writes this page from the declaration of the tables (`gdbheap/export/declaration.py`).
The schemas of Parquet, the header lines of CSV, and the tables of SQLite and DuckDB come from the same declaration.

```
gdbheap export 1234 -o tables                       # tables/blocks.parquet, tables/types.parquet, …
gdbheap export core.1234 -o tables --format=csv     # tables/blocks.csv, …
gdbheap export look.heap -o tables --format=sqlite  # tables/heap.sqlite
gdbheap sql 1234 "select type, sum(size) from blocks group by type order by 2 desc limit 10"
gdbheap sql tables "select sum(size) from blocks"   # what was exported, without the process
```

The folder appears only when all its files are complete. If a folder of that name exists and contains only an older
export, it is replaced; any other folder stays unchanged. If the disk is full, or you press Ctrl-C, one line says so,
and no files are left.

- An `address` is a signed number of 64 bits, so an address in the kernel's half of the address space is negative. The
  address of a block is the one that malloc returned, not the address of the block's header.
- Sizes are in bytes. An unknown value is NULL, or an empty field in CSV.
- In CSV a name is on one line. Line breaks, control characters, invisible characters and other characters that change a
  terminal's output are written as escapes (`\\n`, `\\x1b`, `\\u202e`). Parquet and SQLite contain names unchanged.
- A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, and a target may contain such names.
  `--csv-safe` writes an apostrophe before these names; numbers stay numbers. `gdbheap record` and `gdbheap sql --csv`
  have this option too.
- No table has contents of strings, bytes or keys, with one exception: the findings of a snapshot that was taken with
  `--with-contents` may name keys.
- Sums agree with the commands. `sum(bytes)` of `types` equals `own` in the `total` of `heap pyobjects --json`. The
  number and the sum of `holes` equal those of `heap holes --min=1`. `arenas` agrees with `heap arenas`, the lines of
  `ledger` agree with `heap --detail`, and the sum of `resident` of `mappings` equals RSS.
- An export of a snapshot has `snapshots`, `ledger`, `findings`, `mappings`, `arenas`, `threads` (without stacks),
  `types`, and its 1,000 largest holes. It has `blocks` and `objects` if the snapshot was taken with `--blocks`.
- `edges`, and the column `retained` of `blocks` and `objects`, need the graph of references. For a process with more
  than 2,000,000 blocks, gdbheap builds the graph only if `--edges`, `--tables` or a query asks for it.
- The metadata of a Parquet file contains this page's description of its table, under `gdbheap`, as JSON.

| kind | Parquet | SQLite | DuckDB |
| --- | --- | --- | --- |
"""
TRINO_INTRODUCTION = """-- Trino's tables, by its Hive connector, over what was exported with
-- --partition=host,release=NAME,day,pid (docs/fleet.md); written by scripts/table_docs.py from the declaration of the
-- tables. Put your own place for s3://memory/heaps, and leave out tables that were not exported. The CALLs are needed
-- again after each export.
CREATE SCHEMA IF NOT EXISTS hive.heaps;
"""
TRINO = {"integer": "bigint", "text": "varchar", "real": "double", "flag": "boolean"}
# The names of the folders of partitions.
KEYS = {"host": "varchar", "release": "varchar", "day": "varchar", "pid": "bigint"}
PARQUET = {"integer": "INT64", "text": "BYTE_ARRAY (string)", "real": "DOUBLE", "flag": "BOOLEAN"}


def kinds() -> Iterator[str]:
    """Yield, for each kind of column, its name in each format."""
    for kind, name in PARQUET.items():
        yield f"| {kind} | {name} | {SQL_TYPES[kind]} | {TYPES[kind]} |\n"


def row(column: TableColumn) -> str:
    """Return a line for one column."""
    lacks = " or NULL" if column.may_lack else ""
    unit = f", {column.unit}" if column.unit else ""
    return f"| `{column.name}` | {column.kind}{unit}{lacks} | {column.meaning} |\n"


def section(table: ExportTable) -> str:
    """Return one table's section."""
    note = f"\n{table.note}\n" if table.note else ""
    head = f"\n## {table.name}\nA row for each {table.row}.\n{note}\n| column | what | meaning |\n| --- | --- | --- |\n"
    return head + "".join(map(row, table.columns))


def page() -> str:
    """Return the whole page."""
    return "".join([INTRODUCTION, *kinds(), *map(section, TABLES)])


def created(table: ExportTable) -> str:
    """Return the statements that declare a table's folder of partitions to Trino."""
    own = [(column.name, TRINO[column.kind]) for column in table.columns if column.name not in KEYS]
    columns = ",\n".join(f'  "{name}" {kind}' for name, kind in [*own, *KEYS.items()])
    keys = ", ".join(f"'{name}'" for name in KEYS)
    return (
        f"\nCREATE TABLE hive.heaps.{table.name} (\n{columns}\n) WITH (format = 'PARQUET', "
        f"external_location = 's3://memory/heaps/{table.name}',\n  partitioned_by = ARRAY[{keys}]);\n"
        f"CALL hive.system.sync_partition_metadata('heaps', '{table.name}', 'FULL');\n"
    )


def statements() -> str:
    """Return the statements for all tables."""
    return TRINO_INTRODUCTION + "".join(map(created, TABLES))


def main() -> None:
    """Print both files, or write them."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
        STATEMENTS.write_text(statements(), encoding="utf-8")
    elif sys.argv[1:]:
        raise SystemExit("usage: table_docs.py [--write]")
    else:
        sys.stdout.write(page() + statements())


if __name__ == "__main__":
    main()
