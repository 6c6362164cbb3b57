"""Shares of RSS count only resident bytes: memory that a program never wrote to is in no share and in no finding."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.library import heap_of
from support.programs import c_program, interpreter_of_release, running

from gdbheap.answers.owners import BLOCK, HOLDER, owners
from gdbheap.answers.pyobjects import pyobjects
from gdbheap.answers.retained import OBJECT, retained
from gdbheap.answers.retained import TYPE as OF_TYPE
from gdbheap.answers.shared_out import NOBODY
from gdbheap.answers.unreachable import unreachable
from gdbheap.answers.why import why
from gdbheap.first_page.ledger import ledger
from gdbheap.graph.roots import GLOBAL
from gdbheap.heap import Heap
from gdbheap.report.text.style import Style
from gdbheap.report.words import why as why_report
from gdbheap.report.words.owners import render_owners
from gdbheap.report.words.pyobjects import render as render_types
from gdbheap.report.words.retained import render_retained
from gdbheap.report.words.unreachable import render_unreachable

LARGE, WRITTEN = 256 << 20, 12 << 20
# bytes() of a number uses calloc(), which leaves a large block untouched.
PYTHON = f"import os; planted = bytes({LARGE}); written = os.urandom({WRITTEN}); os.read(0, 1)"
WITHIN = 1 << 20


def shares(text: str) -> list[float]:
    """Return the cells below %RSS, and the numbers before "% of RSS"."""
    found = [float(number) for number in re.findall(r"(\d+\.\d) % of RSS", text)]
    lines = text.splitlines()
    for start, line in enumerate(lines):
        place = line.find("%RSS")
        for row in lines[start + 1 :] if place >= 0 else []:
            cell = row[: place + len("%RSS")].split(" ")[-1] if row.strip() else ""
            found += [float(cell)] if re.fullmatch(r"\d+\.\d", cell) else []
    return found


OF_PYTHON: dict[str, Callable[[Heap, Style], str]] = {
    "owners": lambda heap, style: render_owners(owners(heap, None, 20), style),
    "owners --by=block": lambda heap, style: render_owners(owners(heap, None, 20, BLOCK), style),
    "retained": lambda heap, style: render_retained(retained(heap, OBJECT, 20), style, OBJECT),
    "retained --by=type": lambda heap, style: render_retained(retained(heap, OF_TYPE, 20), style, OF_TYPE),
    "retained --by=module": lambda heap, style: render_retained(retained(heap, "module", 20), style, "module"),
    "pyobjects": lambda heap, style: render_types(pyobjects(heap), style, 0, False),
}
OF_C: dict[str, Callable[[Heap, Style], str]] = {
    "owners": lambda heap, style: render_owners(owners(heap, None, 20), style),
    "owners --by=type": lambda heap, style: render_owners(owners(heap, None, 20, OF_TYPE), style),
    "retained": lambda heap, style: render_retained(retained(heap, OBJECT, 20), style, OBJECT),
    "retained --by=global": lambda heap, style: render_retained(retained(heap, GLOBAL, 20), style, GLOBAL),
    "unreachable": lambda heap, style: render_unreachable(unreachable(heap), style, 0),
}


def check(heap: Heap, answers: dict[str, Callable[[Heap, Style], str]]) -> None:
    """Check that no share is above 100 %, that there are some, and that no finding is of untouched memory."""
    style = Style(rss=heap.target.rss.bytes)
    for name, answer in answers.items():
        text = answer(heap, style)
        assert all(share <= 100 for share in shares(text)), (name, text)
        assert shares(text) or name == "unreachable", (name, text)
    found = [finding for finding in ledger(heap, detail=True).findings if finding.bytes > LARGE // 2]
    assert not found, found


def test_of_python(tmp_path: Path) -> None:
    """Check that a bytes object of zeros that was never read has almost nothing of RSS, in each answer."""
    command = [interpreter_of_release("3.11").executable, "-c", PYTHON]
    with running(command, tmp_path) as target, heap_of(str(target.pid)) as heap:
        check(heap, OF_PYTHON)
        row: Any
        for row in (owners(heap, None, 1, HOLDER).groups[0], retained(heap, OBJECT, 1).rows[0]):
            assert abs(row.absent - LARGE) < WITHIN, row
        (of_bytes,) = (row for row in pyobjects(heap).rows if row.type == "bytes")
        assert abs(of_bytes.absent - LARGE) < WITHIN
        address = retained(heap, OBJECT, 1).rows[0].address
        assert address is not None
        text = why_report.render(why(heap, address), Style(rss=heap.target.rss.bytes))
        assert shares(text) and max(shares(text)) < 10, text


def test_of_c(tmp_path: Path) -> None:
    """Check a program without Python: untouched blocks have almost nothing of RSS, and half-written ones count half."""
    with running(c_program("untouched"), tmp_path) as target, heap_of(str(target.pid)) as heap:
        check(heap, OF_C)
        rows = owners(heap, None, None).groups
        assert sum(row.absent for row in rows if row.kind != NOBODY) == pytest.approx(LARGE + (200 << 15), abs=WITHIN)
        whole = sum(row.bytes - row.absent for row in rows)
        assert whole <= (heap.target.rss.bytes or 0)
