"""Make a page with the picture of recordings. It needs no script and no network, and has a light and a dark colour
scheme."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from gdbheap.errors import one_line
from gdbheap.report.formats.plot import FIGURES, PALETTE
from gdbheap.report.page.html import COUNT, SIGNED, SIZE, Column, paragraph, table
from gdbheap.report.page.skeleton import document, schemes
from gdbheap.sampling.curves import CurveRange

__all__ = ["page"]

TITLE = "Memory over time"
# The colours of PALETTE for a dark background, by the same names.
DARK = {
    "ink": "#e6edf3", "grid": "#30363d", "rss": "#9da7b1", "system": "#6cb6ff", "in_use": "#6bc46d",
    "pool_bytes": "#dcbdfb", "pool_used": "#fc8dc7", "mark": "#f69d50",
}  # fmt: skip
STYLE = "svg { height: auto; min-width: 40rem; } svg text { font-family: system-ui, sans-serif !important; }\n"
COLUMNS = (
    Column("process", "process"), Column("figure", "figure"), Column("first", "first", SIZE),
    Column("last", "last", SIZE), Column("change", "change", SIGNED), Column("peak", "peak", SIZE),
    Column("peak_time", "peak at (UTC)"), Column("samples", "samples", COUNT),
)  # fmt: skip


def page(svg: bytes | None, extents: Sequence[CurveRange], notes: Sequence[str]) -> bytes:
    """Return the whole HTML page, encoded. If ``svg`` is None, it has only the table. ``notes``: paragraphs before the
    table.
    """
    text = (svg or b"").decode("utf-8")
    for name, colour in PALETTE.items():
        text = text.replace(colour, f"var(--{name})")
    said = "".join(map(paragraph, notes))
    rows = list(map(_row, extents))
    body = table("extents", "First, last and highest values", COLUMNS, rows, len(rows))
    # The picture is wider than a phone's screen, so it can be scrolled, also by keys.
    figure = f'<figure role="region" tabindex="0" aria-label="Curves">{text.strip()}</figure>\n' if svg else ""
    main = f"<main>\n<h1>{TITLE}</h1>\n{said}{figure}{body}</main>\n"
    # The elements in matplotlib's picture have style attributes.
    return document(TITLE, main, schemes(PALETTE, DARK) + STYLE, has_styled_parts=True)


def _row(row: CurveRange) -> tuple[object, ...]:
    when = datetime.fromtimestamp(row.peak_time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    program = one_line(row.program, 60)
    return (
        f"{row.pid} {program}".strip(), FIGURES[row.figure], row.first, row.last, row.last - row.first, row.peak, when,
        row.samples,
    )  # fmt: skip
