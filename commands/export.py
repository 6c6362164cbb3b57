"""``gdbheap export``: write tables, or the graph of references, for other programs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import SOURCES
from gdbheap.commands.surface.options import (
    Several,
    Writing,
    check_contents,
    check_csv_safe,
    csv_safe,
    one_of,
    some_of,
    switch,
    valued,
)
from gdbheap.dataclass import dataclass
from gdbheap.errors import NO_MATCH, GdbheapError, NoTarget, UsageError, reason_of
from gdbheap.export.declaration import CSV, FORMATS, PARQUET, SNAPSHOTS, TABLES
from gdbheap.export.partitions import PartitionKey, is_url, parse_partition

if TYPE_CHECKING:
    from gdbheap.export.gathered import Gathered
    from gdbheap.export.source import Source
    from gdbheap.export.table_export import Exported

__all__ = ["COMMAND"]

HEAPSNAPSHOT = "heapsnapshot"
NAMES = [table.name for table in TABLES]


@dataclass
class Options(Several, Writing):
    """The options of ``gdbheap export``: the destination, the file format, the tables, and the partition folders.

    ``tables``: None writes all tables. ``partition``: the keys in the names of folders, empty for no such folders.
    """

    output: str = valued(
        "-o", "DIR", "write to DIR or FILE.heapsnapshot, or upload to a URL (with --partition)", "", str, needed=True
    )
    format: str = valued(
        "--format",
        "FORMAT",
        "write parquet, csv, sqlite or heapsnapshot [default: parquet]",
        PARQUET,
        one_of([*FORMATS, HEAPSNAPSHOT]),
    )
    csv_safe: bool = csv_safe()
    tables: tuple[str, ...] | None = valued(
        "--tables",
        "NAME,…",
        "write only these tables and the table 'snapshots' (docs/data.md)",
        None,
        some_of(NAMES, (SNAPSHOTS,)),
    )
    edges: bool = switch("--edges", "write edges and retained bytes even beyond 2,000,000 blocks")
    with_contents: bool = switch("--with-contents", "write the keys of dicts into a heapsnapshot, unhidden")
    partition: tuple[PartitionKey, ...] = valued(
        "--partition", "KEY[=VALUE],…", "write one folder for each value of KEYS, such as host,pid", (), parse_partition
    )


def _answer(sources: Sequence[Source], options: Options) -> Exported:
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.export.table_export import Terms, check, export, export_graph

    path = options.output if is_url(options.output) else os.path.expanduser(options.output)
    if not path:
        raise UsageError("gdbheap export: say where to write: -o DIR")
    if not sources:
        raise NoTarget(NO_MATCH)
    if len(sources) > 1 and not options.partition:
        raise UsageError("gdbheap export: each of several targets needs its own folder: give --partition=host,pid")
    if is_url(path) and not options.partition:
        raise UsageError("gdbheap export: a URL needs --partition, such as --partition=host,day,pid")
    if options.with_contents and options.format != HEAPSNAPSHOT:
        raise UsageError("gdbheap export: tables have no contents: --with-contents needs --format=heapsnapshot")
    check_contents("gdbheap export", options.with_contents, options.no_text)
    check_csv_safe("gdbheap export", options.csv_safe, f"--format={CSV}", options.format == CSV)
    if options.format == HEAPSNAPSHOT:
        if options.partition or options.tables:
            raise UsageError("gdbheap export: a heapsnapshot is one file: leave out --partition and --tables")
        if not path.endswith(f".{HEAPSNAPSHOT}"):
            raise UsageError("gdbheap export: DevTools opens only *.heapsnapshot files: give -o FILE.heapsnapshot")
        return export_graph(sources[0], path, options.mode)
    check(path, options.format, options.partition)
    missed: list[str] = []
    looks = _gathered(sources, options, missed)
    found = export(looks, path, options.format, options.partition, Terms(options.mode, options.csv_safe))
    return dataclasses.replace(found, left_out=[*missed, *found.left_out])


def _gathered(sources: Sequence[Source], options: Options, missed: list[str]) -> Iterator[Gathered]:
    """Yield the tables of each source, one source after another.

    If there are several sources, a process that has ended is left out silently. For a source that cannot be read, the
    reason is added to ``missed``. If all sources fail, the last error is raised. Tables of --tables that a source does
    not have are also added to ``missed``.
    """
    wanted = frozenset(NAMES if options.tables is None else options.tables)
    graph = True if options.edges or (options.tables is not None and "edges" in options.tables) else None
    failed: Exception | None = None
    met = False
    for source in sources:
        try:
            found = source.gather(wanted, graph)
        except Exception as error:
            if len(sources) == 1:
                raise
            failed = error
            if not isinstance(error, NoTarget):
                missed.append(str(error) if isinstance(error, GdbheapError) else f"{source.name}: {reason_of(error)}")
            continue
        met = True
        if lacking := wanted - found.tables.keys() if options.tables is not None else ():
            missed.append(
                f"{source.name} does not contain {', '.join(sorted(lacking))}: export the process, or the core"
            )
        yield found
    if failed is not None and not met:
        raise failed


def _render(shown: Shown[Exported, Options]) -> str:
    from gdbheap.report.words.export import render

    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="export",
    summary="Export tables (Parquet, CSV, SQLite), or the graph of references",
    text="""DIR appears only when it is complete, and then replaces an older export. The files do not contain the
    contents of strings, bytes and keys. The format parquet needs pyarrow: pip install 'gdbheap[parquet]'.""",
    example="gdbheap export -o tables",
    details="""The files are DIR/TABLE.parquet, DIR/TABLE.csv or DIR/heap.sqlite. The tables are snapshots (a row for
    each export), ledger, findings, mappings, arenas, threads, holes, types, blocks, objects and edges. docs/data.md
    lists their columns with units. If the target is a snapshot, gdbheap writes only the tables that were saved in it. A
    process resumes before gdbheap begins to write. gdbheap does not replace a folder that contains other files.

    `--format=heapsnapshot` writes the graph of references as one file for the memory panel of Chrome's DevTools. An
    address has the same number in all files of one process, so that DevTools can compare the files. The 250,000
    references nearest to the roots have names: attributes, variables, indices or keys of dicts. A reference without a
    known name is shown by its offset. Keys that are names of attributes and modules are always shown; other keys are
    shown only with `--with-contents`.

    `--partition` writes each table into folders, like Hive: DIR/blocks/host=web1/pid=1234/data.parquet. DuckDB, Spark
    and Trino can then read all processes of all hosts as one table (docs/fleet.md). gdbheap knows the values of these
    keys: host, pid, program, day, time, container, boot_id, started, python, glibc and kind. You must give a value for
    any other key. DIR may then be a URL that fsspec knows, such as s3://bucket/heaps. A URL needs `gdbheap[remote]`,
    and the library of the storage system. URLs of local files are refused. `--partition` allows several targets;
    `--name`, `--cgroup` and `--children` can choose them. The rows of the table snapshots are written last. If gdbheap
    could not read a target, or a table of `--tables`, a message names it. The exit status is then 1. No message names
    targets that ended in the meantime.""",
    needs=SOURCES,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
