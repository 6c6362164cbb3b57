"""The frame of all pages: a head that forbids all content from elsewhere, the style, the script, and links to the
sections."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from gdbheap import __version__
from gdbheap.report.page.html import Section, safe

__all__ = ["LARGEST", "MAX_ROWS", "document", "fitted", "page", "schemes", "script_of", "style_of"]

FOLDER = Path(__file__).resolve().parent
# The most bytes of a page. A browser lays out a page of this size within a second.
LARGEST = 1 << 20
# The most rows of a table. They are halved while the page is too large, but not below the second number.
MAX_ROWS, LEAST_ROWS = 200, 12
LIGHT = {
    "ground": "#ffffff", "ink": "#1f2328", "muted": "#57606a", "grid": "#d1d9e0", "raised": "#f6f8fa",
    "link": "#0550ae", "mark": "#8a3500", "strong": "#0550ae",
}  # fmt: skip
DARK = {
    "ground": "#0d1117", "ink": "#e6edf3", "muted": "#9da7b1", "grid": "#3d444d", "raised": "#161b22",
    "link": "#79b8ff", "mark": "#f69d50", "strong": "#6cb6ff",
}  # fmt: skip


def schemes(light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """Return CSS variables with the named colours, for the light and for the dark colour scheme. A printed page uses
    the light one.
    """

    def scheme(palette: Mapping[str, str]) -> str:
        return ":root { " + " ".join(f"--{name}: {colour};" for name, colour in palette.items()) + " }"

    return f"{scheme(light)}\n@media screen and (prefers-color-scheme: dark) {{ {scheme(dark)} }}\n"


@cache
def style_of() -> str:
    """Return the CSS that all pages share."""
    return schemes(LIGHT, DARK) + (FOLDER / "page.css").read_text(encoding="utf-8")


@cache
def script_of() -> str:
    """Return the script of all pages: it sorts and searches tables, and enlarges pictures."""
    return (FOLDER / "page.js").read_text(encoding="utf-8")


def document(title: str, main: str, style: str = "", script: str = "", has_styled_parts: bool = False) -> bytes:
    """Return a whole HTML page, encoded. It fetches nothing, and allows only the given style and script.

    ``has_styled_parts``: elements of ``main`` have styles of their own, so that the policy must allow all styles.
    """
    styles = style_of() + style
    allowed = "'unsafe-inline'" if has_styled_parts else _checksum(styles)
    scripts = f"script-src {_checksum(script)}; " if script else ""
    policy = f"default-src 'none'; {scripts}style-src {allowed}; base-uri 'none'; form-action 'none'"
    parts = [
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">', '<meta name="referrer" content="no-referrer">',
        f"<title>{safe(title)}</title>", f"<style>{styles}</style>", "</head>", "<body>", main.rstrip(),
    ]  # fmt: skip
    if script:
        parts.append(f"<script>{script}</script>")
    return "\n".join([*parts, "</body>", "</html>", ""]).encode("utf-8", "replace")


def _checksum(text: str) -> str:
    digest = b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
    return f"'sha256-{digest}'"


def page(title: str, lead: str, sections: Sequence[Section], said: str, style: str = "") -> bytes:
    """Return an HTML page of sections, encoded.

    ``lead``: markup before the sections; ``said``: the line below the title, such as the time at which the target was
    read.
    """
    links = "".join(f'<li><a href="#{section.id}">{safe(section.title)}</a></li>' for section in sections)
    parts = "".join(
        f'<section id="{section.id}" aria-labelledby="{section.id}-title">\n'
        f'<h2 id="{section.id}-title">{safe(section.title)}</h2>\n{section.body}</section>\n'
        for section in sections
    )
    main = (
        f'<a class="skip" href="#main">To the report</a>\n<header>\n<h1>{safe(title)}</h1>\n'
        f'<p class="said">{safe(said)}</p>\n</header>\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main id="main">\n{lead}{parts}</main>\n'
        f"<footer><p>Written by gdbheap {safe(__version__)}. Sizes are in powers of 1024.</p></footer>\n"
    )
    return document(title, main, style, script_of())


def fitted(make: Callable[[int], bytes], most: int = MAX_ROWS) -> bytes:
    """Return the page with ``most`` rows for each table, or with fewer rows if it would have more than LARGEST bytes.

    ``make``: a function that makes the page with at most the given number of rows. This number is halved until the page
    is small enough. With LEAST_ROWS rows or fewer, the page is returned even if it is larger.
    """
    found = make(most)
    while len(found) > LARGEST and most > LEAST_ROWS:
        most //= 2
        found = make(most)
    return found
