"""``gdbheap export``: what was found, as files for other programs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from gdbheap.errors import GdbheapError, NoTarget, UsageError, reason_of
from gdbheap.export.declaration import SNAPSHOTS, TABLES
from gdbheap.export.partitions import Part, is_url, parse_partition

if TYPE_CHECKING:
    from gdbheap.export.gathered import Gathered
    from gdbheap.export.looks import Exported
    from gdbheap.export.source import Source

__all__ = ["COMMAND"]

PARQUET, CSV, SQLITE, HEAPSNAPSHOT = "parquet", "csv", "sqlite", "heapsnapshot"
NAMES = [table.name for table in TABLES]


@dataclass
class Options(Several, Writing):
    """The options of gdbheap export."""

    output: str = valued(
        "-o", "DIR", "the folder to write; with --partition also a URL; of heapsnapshot FILE.heapsnapshot", "", str,
        needed=True,
    )  # fmt: skip
    format: str = valued(
        "--format", "FORMAT", "parquet (the default), csv, sqlite or heapsnapshot", PARQUET,
        one_of([PARQUET, CSV, SQLITE, HEAPSNAPSHOT]),
    )  # fmt: skip
    csv_safe: bool = csv_safe()
    tables: tuple[str, ...] | None = valued(
        "--tables",
        "NAME,…",
        f"only these, and {SNAPSHOTS}: {', '.join(NAMES)}",
        None,
        some_of(NAMES, (SNAPSHOTS,)),
    )
    edges: bool = switch("--edges", "edges, and what blocks retain, also of a process with more than 2,000,000 blocks")
    with_contents: bool = switch(
        "--with-contents", "name what dicts hold by their keys as they are, in a heapsnapshot; without it no file has"
        " contents of the process",
    )  # fmt: skip
    partition: tuple[Part, ...] = valued(
        "--partition", "KEY[=VALUE],…",
        "put each table into folders TABLE/KEY=VALUE/…; of host, pid, program, day, time, container, boot_id, started,"
        " python, glibc and kind the value may be left out", (), parse_partition,
    )  # fmt: skip


def _answer(sources: Sequence[Source], options: Options) -> Exported:
    # Imported where it is needed: a command's start is mostly imports.
    from gdbheap.export.looks import Terms, check, export, export_graph

    path = options.output if is_url(options.output) else os.path.expanduser(options.output)
    if not path:
        raise UsageError("gdbheap export: where to? -o DIR")
    if not sources:
        raise NoTarget("no process that runs is meant by these words: 'heap ps' lists the programs")
    if len(sources) > 1 and not options.partition:
        raise UsageError("gdbheap export: of several targets each needs a folder: --partition=host,pid")
    if is_url(path) and not options.partition:
        raise UsageError("gdbheap export: what is put at a URL needs --partition, as --partition=host,day,pid")
    if options.with_contents and options.format != HEAPSNAPSHOT:
        raise UsageError("gdbheap export: no table has contents: --with-contents is for --format=heapsnapshot")
    check_contents("gdbheap export", options.with_contents, options.no_text)
    check_csv_safe("gdbheap export", options.csv_safe, f"--format={CSV}", options.format == CSV)
    if options.format == HEAPSNAPSHOT:
        if options.partition or options.tables:
            raise UsageError("gdbheap export: heapsnapshot is one file of one target: no --partition, no --tables")
        if not path.endswith(f".{HEAPSNAPSHOT}"):
            raise UsageError("gdbheap export: DevTools open only a file of that name: -o FILE.heapsnapshot")
        return export_graph(sources[0], path, options.mode)
    check(path, options.format, options.partition)
    missed: list[str] = []
    looks = _gathered(sources, options, missed)
    found = export(looks, path, options.format, options.partition, Terms(options.mode, options.csv_safe))
    return dataclasses.replace(found, left_out=[*missed, *found.left_out])


def _gathered(sources: Sequence[Source], options: Options, missed: list[str]) -> Iterator[Gathered]:
    """One after the other, each let go before it is written. Of several, one that has ended is left out, and of one
    that cannot be read ``missed`` gets the reason; raised where that is so of all. So it does of tables that were asked
    for by name, and that a snapshot does not have."""
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
            missed.append(f"{source.name} does not have {', '.join(sorted(lacking))}: export the process, or the core")
        yield found
    if failed is not None and not met:
        raise failed


def _render(shown: Shown[Exported, Options]) -> str:
    from gdbheap.report.words.export import render

    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="export",
    question="What was found, as Parquet, CSV, SQLite or for Chrome's DevTools: for other programs",
    text="""Writes tables of a process, a core or a snapshot into a folder: DIR/TABLE.parquet, DIR/TABLE.csv or
    DIR/heap.sqlite. The tables are snapshots (a row for the look itself), ledger, findings, mappings, arenas, threads,
    holes, types, blocks, objects and edges; docs/data.md has their columns with units. A snapshot has those that were
    kept in it. A process is let go before anything is written. The folder appears once it is whole; an older export is
    replaced, and a folder with anything else in it is not. The files hold no contents of strings, bytes and keys.
    Parquet needs pyarrow: pip install 'gdbheap[parquet]'.

    --format=heapsnapshot writes the graph of references as one file that the memory panel of Chrome's DevTools opens.
    What is at the same place in two files of one process has the same number there, so that they can be compared.
    References have names there: attributes, variables, indices, keys of dicts, offsets where nothing is known; of more
    than 250,000 those near the roots. Keys are shown with --with-contents, and always where they are names of
    attributes and modules.

    With --partition each table is a folder of folders, as Hive has them: DIR/blocks/host=web1/pid=1234/data.parquet.
    DuckDB, Spark and Trino read all processes of all hosts as one table (docs/fleet.md). DIR may then be a URL that
    fsspec knows, as s3://bucket/heaps (gdbheap[remote], and the library of that system), and there may be several
    targets, also by --name, --cgroup and --children. Rows of snapshots are put there last. Some of several targets, or
    of the tables in --tables, that could not be had are named, with status 1; targets that have ended meanwhile are
    not.""",
    example="gdbheap export -o tables",
    needs=SOURCES,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
