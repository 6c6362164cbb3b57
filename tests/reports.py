"""Measure how many public reports about memory the first page answers, with cause and fix in its own words.

``make named`` runs this after installing other people's packages. Each program of tests/reports is started, and
``gdbheap PID`` is asked once. ``--write`` puts the table into docs/public-reports.md, otherwise it is printed.
``--only=NAME`` runs only the reports whose program's name contains NAME.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT
from support.reports import REPORTS, Report, lines_to_first_fix, page_of, started
from support.reports import words as words_of

PAGE = ROOT / "docs" / "public-reports.md"
MARK, END = "<!-- the table: make named -->\n", "<!-- the end of the table -->\n"
WIDEST, BEFORE, LINES = 150, 40, 24
HEADERS = ("program, asked in", "the real cause", "lines of the first page", "cause named", "fix named", "lines")
# The temporary folder of programs and cores, which differs each time.
FOLDER = re.compile(r"/tmp/[^ )]*/")
YES_NO = ("no", "yes")


@dataclass(frozen=True)
class Answered:
    """The first page's answer to a report, and the number of terminal lines up to the end of its first fix."""

    report: Report
    cause: str | None
    fix: str | None
    verdict: str
    lines: int

    @property
    def row(self) -> list[str]:
        """Return a row of the table."""
        title = f"`{self.report.name}`, {self.report.issue}"
        said = "<br>".join(_code(text) for text in (self.verdict, self.cause, self.fix) if text)
        named = [YES_NO[text is not None] for text in (self.cause, self.fix)]
        return [title, self.report.truth, said, *named, str(self.lines)]


def answered(report: Report) -> Answered:
    """Return the first page's answer about a report's program. Skip the test if a requirement is missing."""
    with tempfile.TemporaryDirectory() as folder, started(report, Path(folder)) as target:
        page = page_of(target, *report.options)
        lines = lines_to_first_fix(target, *report.options)
    first = next((line for line in page.splitlines() if " (pid " in line), page.splitlines()[0])
    return Answered(report, _line(page, report.cause), _line(page, report.fix), first, lines)


def _line(page: str, pattern: str) -> str | None:
    """Return the part of a page's line around the end of a pattern's match; None without a match."""
    found = re.search(pattern, words_of(page))
    if found is None:
        return None
    position = 0
    for line in page.splitlines():
        text = words_of(line)
        if text and position <= found.end() - 1 < position + len(text) + 1:
            end = found.end() - position
            begin = max(0, found.start() - position)
            begin = max(begin, end - WIDEST)
            begin = 0 if begin < BEFORE else begin
            return ("…" if begin else "") + text[begin:]
        position += len(text) + 1 if text else 0
    return found[0]


def _code(text: str) -> str:
    """Return a line as code for a table's cell, shortened after a word."""
    text = FOLDER.sub("…/", text)
    text = text if len(text) <= WIDEST else f"{text[: WIDEST - 1].rpartition(' ')[0]} …"
    return f"`{text.replace('|', '/').replace('`', chr(39))}`"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows: list[Answered] = []
    skipped: list[str] = []
    for report in REPORTS:
        if options.only not in report.program:
            continue
        try:
            rows.append(answered(report))
        except pytest.skip.Exception as reason:
            skipped.append(f"- `{report.name}`, {report.issue}: {reason}.")
            print(f"skipped: {report.name}: {reason}", file=sys.stderr)
    text = table(rows, skipped)
    if not options.write:
        print(text)
        return
    before, _, rest = PAGE.read_text().partition(MARK)
    PAGE.write_text(f"{before}{MARK}{text}{END}{rest.partition(END)[2]}")


def table(rows: list[Answered], skipped: list[str]) -> str:
    """Return the table as Markdown, with the counts and the reports that could not run."""
    both = sum(row.cause is not None and row.fix is not None for row in rows)
    high = sum(row.lines <= LINES for row in rows)
    count = f"The page names cause and fix of {both} of {len(rows)} reports; in {high} of {len(rows)} the verdict, the"
    count += f" holders and the first finding with its fix fit {LINES} lines of 80 columns."
    cells = [list(HEADERS), ["---"] * len(HEADERS), *(row.row for row in rows)]
    body = "\n".join(f"| {' | '.join(row)} |" for row in cells)
    left = "\n".join(["", "Not run on this machine:", "", *skipped, ""]) if skipped else ""
    return f"\n{count}\n\n{body}\n{left}\n"


if __name__ == "__main__":
    main()
