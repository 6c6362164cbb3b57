"""The picture of series as one page that needs nothing else: no script, no network, light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from html import escape

from gdbheap.errors import one_line
from gdbheap.history.curves import Extent
from gdbheap.report.numbers import count_text, size_text
from gdbheap.report.plot import FIGURES, PALETTE

__all__ = ["page"]

# The same names on a dark ground.
DARK = {
    "ink": "#e6edf3", "grid": "#30363d", "rss": "#9da7b1", "system": "#6cb6ff", "in_use": "#6bc46d",
    "pool_bytes": "#dcbdfb", "pool_used": "#fc8dc7", "mark": "#f69d50",
}  # fmt: skip
GROUNDS = ("#ffffff", "#0d1117")
STYLE = """
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; }
figure { margin: 0; overflow-x: auto; }
svg { max-width: 100%; height: auto; min-width: 40rem; }
svg text { font-family: system-ui, sans-serif !important; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.75rem; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th:first-child, td:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; }
td:first-child { max-width: 24rem; overflow: hidden; text-overflow: ellipsis; }
"""
HEADS = ("process", "figure", "first", "last", "change", "peak", "peak at (UTC)", "samples")


def page(svg: bytes, extents: Sequence[Extent], notes: Sequence[str]) -> bytes:
    """The whole page."""
    text = svg.decode("utf-8")
    for name, colour in PALETTE.items():
        text = text.replace(colour, f"var(--{name})")
    said = "".join(f"<p>{escape(note)}</p>\n" for note in notes)
    parts = [
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">', "<title>Memory over time</title>",
        f"<style>{_colours()}{STYLE}</style>", "</head>", "<body>", "<main>", "<h1>Memory over time</h1>",
        f"{said}<figure>", text.strip(), "</figure>", *_table(extents), "</main>", "</body>", "</html>", "",
    ]  # fmt: skip
    return "\n".join(parts).encode("utf-8")


def _colours() -> str:
    def scheme(ground: str, palette: dict[str, str]) -> str:
        named = {"ground": ground, **palette}
        return ":root { " + " ".join(f"--{name}: {colour};" for name, colour in named.items()) + " }"

    return f"\n{scheme(GROUNDS[0], PALETTE)}\n@media (prefers-color-scheme: dark) {{ {scheme(GROUNDS[1], DARK)} }}"


def _table(extents: Sequence[Extent]) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{head}</th>' for head in HEADS)
    yield '<div class="table">\n<table>\n<caption>First, last and highest values</caption>'
    yield f"<thead><tr>{heads}</tr></thead>\n<tbody>"
    yield from (f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in extents)
    yield "</tbody>\n</table>\n</div>"


def _cells(row: Extent) -> list[str]:
    change = row.last - row.first
    when = datetime.fromtimestamp(row.peak_time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    program = one_line((row.exe or "").rsplit("/", 1)[-1], 60)
    return [
        f"{row.pid} {program}".strip(), FIGURES[row.figure], size_text(row.first), size_text(row.last),
        ("+" if change > 0 else "") + size_text(change), size_text(row.peak), when, count_text(row.samples),
    ]  # fmt: skip
