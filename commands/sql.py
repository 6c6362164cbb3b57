"""``gdbheap sql``: query the tables of a heap in SQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import SOURCE
from gdbheap.commands.surface.options import Queried, check_csv_safe, csv_safe, switch
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError

if TYPE_CHECKING:
    from gdbheap.export.query import Answered
    from gdbheap.export.source import Source

__all__ = ["COMMAND"]


@dataclass
class Options(Queried):
    """The options of ``gdbheap sql``: whether to print CSV, and whether to compute retained bytes even for very many
    blocks.
    """

    csv: bool = switch("--csv", "print the rows as CSV, column names first")
    csv_safe: bool = csv_safe()
    edges: bool = switch("--edges", "show retained bytes even beyond 2,000,000 blocks")

    def check(self) -> None:
        super().check()
        if self.csv and self.json:
            raise UsageError("gdbheap sql: --csv and --json exclude each other")
        check_csv_safe("gdbheap sql", self.csv_safe, "--csv", self.csv)


def _answer(source: Source, options: Options) -> Answered:
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.export.query import query

    return query(source, options.query, options.edges or None)


def _render(shown: Shown[Answered, Options]) -> str:
    from gdbheap.report.words.sql import render, render_csv

    options = shown.options
    if options.csv:
        # CSV is for programs, so names in it are not made printable.
        return render_csv(replace(shown.raw, rows=shown.raw.rows[: len(shown.answer.rows)]), options.csv_safe)
    return render(shown.answer, shown.left_out, shown.style)


COMMAND = Command(
    noun="sql",
    summary="Query the heap in SQL",
    text="""SHOW TABLES lists the tables (docs/data.md). The query reaches no file and no network. The command needs
    DuckDB and pyarrow: pip install 'gdbheap[sql]'.""",
    example='gdbheap sql "select type, bytes from types order by bytes desc"',
    details="""TARGET is a process, a core, a snapshot, or a folder that `gdbheap export` wrote. The query can use the
    tables that export writes. gdbheap builds only the tables that the query names. A process resumes before the query
    starts. docs/queries.md has queries to begin with. gdbheap builds the table edges only if a query names it, however
    many blocks there are.""",
    needs=SOURCE,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    sorts={"query": lambda row: 0},
    listed="rows",
)
