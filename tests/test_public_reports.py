"""The first page of publicly reported programs names cause and remedy, in 24 lines of 80 columns.

A run takes a few of them, chosen anew each time; GDBHEAP_REPORTS=all takes all.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.reports import REPORTS, Report, lines_to_first_fix, page_of, started, words

LINES = 24
# Both programs ask for more than this in huge pages.
LEAST = 110 << 20
ALL = os.environ.get("GDBHEAP_REPORTS") == "all"
SOME = 999 if ALL else 3


def huge_bytes(target: str) -> int:
    """Return the bytes of a process that the kernel put into huge pages."""
    rows = Path(f"/proc/{target}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(row.split()[1]) for row in rows if row.startswith("AnonHugePages:"))


@pytest.mark.cases(SOME)
@pytest.mark.parametrize("report", REPORTS, ids=lambda one: one.name)
def test_names_cause_and_fix(report: Report, tmp_path: Path) -> None:
    """Check that both are on the page, and the most needed part on its first screen."""
    with started(report, tmp_path) as target:
        if report.name.startswith("huge") and huge_bytes(target) < LEAST:
            pytest.skip("the kernel has no huge pages left: its memory is in small pieces")
        page = words(page_of(target, *report.options))
        high = lines_to_first_fix(target) if not report.options else 0
    assert re.search(report.cause, page), page
    assert re.search(report.fix, page), page
    assert high <= LINES
