"""Read a page of gdbheap as a browser without scripts does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from gdbheap.text import printable
from support.programs import gdbheap

VOID = {"meta", "link", "br", "img", "input", "hr"}


@dataclass
class PageTable:
    """A table: its caption, the keys of its columns, its rows by key (exact numbers, None, texts), and its last row."""

    caption: str = ""
    keys: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    total: dict[str, Any] | None = None


class Page(HTMLParser):
    """The parts of a page: tables by id, sections, figures, findings, all tags with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, PageTable] = {}
        self.sections: list[str] = []
        self.links: list[str] = []
        self.figures: dict[str, int | None] = {}
        self.findings: list[tuple[str, int]] = []
        self.lines: dict[str, int] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._open: list[str] = []
        self._table: PageTable | None = None
        self._row: list[Any] = []
        self.feed(text)
        self.close()
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute of {tag} is there twice"
        self.tags.append((tag, found))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "section":
            self.sections.append(str(found["id"]))
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action", "data")]
        exact = found.get("data-v")
        number = int(exact) if exact else None
        if "data-figure" in found:
            self.figures[str(found["data-figure"])] = number
        if "data-finding" in found and number is not None:
            self.findings.append((str(found["data-finding"]), number))
        if "data-line" in found and number is not None:
            self.lines[str(found["data-line"])] = number
        if tag == "table":
            self._table = self.tables[str(found["id"])] = PageTable()
        if self._table is None:
            return
        if tag == "th":
            self._table.keys.append(str(found["data-k"]))
        if tag == "tr":
            self._row = []
        if tag == "td":
            self._row.append(number if exact is not None else "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element; a row is complete then."""
        assert self._open and self._open[-1] == tag, f"{tag} is closed, open are {self._open}"
        self._open.pop()
        if tag == "tr" and self._table is not None and self._row:
            row = dict(zip(self._table.keys, self._row))
            if "tfoot" in self._open:
                self._table.total = row
            else:
                self._table.rows.append(row)
        if tag == "table":
            self._table = None

    def handle_data(self, data: str) -> None:
        """Note text: the value of a cell without an exact number."""
        inside = self._open[-1] if self._open else ""
        if inside in ("script", "style"):
            (self.scripts if inside == "script" else self.styles).append(data)
            return
        self.texts.append(data)
        if self._table is not None and inside == "td" and isinstance(self._row[-1], str):
            self._row[-1] += data
        if self._table is not None and inside == "caption":
            self._table.caption += data


def reported(path: Path, *words: str, status: int = 0) -> dict[str, Any]:
    """Write a page; return the answer."""
    done = gdbheap("report", *words, "-o", str(path), "--json")
    assert done.returncode == status and not done.stderr, done.stderr + done.stdout[-2000:]
    answer = json.loads(done.stdout)
    assert answer["file"] == str(path) and answer["size"] == path.stat().st_size
    return dict(answer)


def same_rows(table: PageTable, rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> None:
    """Check that the table has the first of these rows, cell by cell; long texts are cut."""
    assert table.rows and len(table.rows) <= len(rows)
    for shown, row in zip(table.rows, rows):
        for key in keys:
            value = row[key]
            if isinstance(value, str):
                clean = printable(value)
                assert shown[key] == clean or (shown[key].endswith("…") and clean.startswith(shown[key][:-1])), key
            else:
                assert shown[key] == value, (key, row)
