"""Check a built site: every link within it has a target, and no page loads anything from elsewhere.

Usage: site_check.py FOLDER. It prints one line for each fault; if there are faults, the exit status is 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements that a browser loads by itself, with the attribute of the address.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
IN_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """The links of a page, the files that it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif found.get(FETCHED.get(tag, "")):
            # A link of these kinds only names another page; the browser does not load it.
            if found.get("rel") not in ("canonical", "prev", "next", "search", "index"):
                self.fetched.append(found[FETCHED[tag]])


def wrong(folder: Path) -> Iterator[str]:
    """Yield a line for each fault of the site."""
    found = [path for path in sorted(folder.rglob("*.html")) if folder / "files" not in path.parents]
    pages = {path: Page(path) for path in found}
    for path, page in pages.items():
        where = path.relative_to(folder)
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto") or parts.netloc:
                if link in page.fetched:
                    yield f"{where} fetches {link}"
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            if parts.scheme in ("data", "javascript"):
                continue
            if not there.exists():
                yield f"{where} links to {link}, which is not there"
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].names:
                yield f"{where} links to {link}: there is no such place on that page"
    for style in sorted(folder.rglob("*.css")):
        for found in IN_STYLE.findall(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(folder)} fetches {found}"


if __name__ == "__main__":
    lines = list(wrong(Path(sys.argv[1]).resolve()))
    print("\n".join(lines), end="\n" if lines else "")
    sys.exit(bool(lines))
