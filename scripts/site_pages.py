"""Stage the sources of the site in a folder: docs/ with README.md as its first page, and a page for each command.

The pages are those of docs/, except for links that lead out of docs/, which are changed to files of the site or to its
pages. docs/site/nav.txt has their order. The library's reference is made from its docstrings, and a page for each
command from its declaration, as docs/commands.md is, with the sessions of other pages about it.

Usage: site_pages.py FOLDER, with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import command_docs
import doc_sessions
import library_docs

from gdbheap.commands.surface.declaration import AnyCommand
from gdbheap.commands.surface.help import anchor
from gdbheap.commands.surface.registry import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SITE = DOCS / "site"
# Pages in addition to docs/ and to README.md, which is the first page.
OTHERS = ("CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]*)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
COMMAND_PAGE = "commands.md"
# The beginning of a link to a file that conf.py keeps unchanged.
FILE = "file-of-site"
MAX_SESSIONS, MAX_LINES = 2, 40
# Matches the last of gdbheap's commands in a line. Text that is piped into it is questions.
WORD = re.compile(r"(?:^|^printf .*\| )(?:gdbheap|heap)\b(?: ([a-z][a-z-]*)\b)?(.*)")


def navigation() -> list[tuple[str, list[str]]]:
    """Return the headings of nav.txt with their pages, names without .md."""
    found: list[tuple[str, list[str]]] = []
    for line in (SITE / "nav.txt").read_text(encoding="utf-8").splitlines():
        if line.endswith(":") and not line.startswith("#"):
            found.append((line[:-1], []))
        elif line.strip() and not line.startswith("#"):
            found[-1][1].append(line.strip())
    return found


def sources() -> dict[str, Path]:
    """Return the hand-written pages, by their places in the site."""
    pages = {path.name: path for path in sorted(DOCS.glob("*.md")) if path.name != COMMAND_PAGE}
    return {**pages, **{name: ROOT / name for name in OTHERS}, "index.md": ROOT / "README.md"}


def target_of(path: Path, fragment: str) -> tuple[str, Path | None]:
    """Return the target of a link to a file of the checkout in the site, from its root, and the file to copy if it
    is no page."""
    if path == DOCS / COMMAND_PAGE:
        known = {anchor(command) for command in COMMANDS.values()}
        name = fragment.lstrip("#")
        return (f"commands/{name}.md", None) if name in known else (f"{COMMAND_PAGE}{fragment}", None)
    if path.parent == SITE / "static":
        return f"_static/{path.name}", None
    for place, source in sources().items():
        if path == source:
            return f"{place}{fragment}", None
    return f"files/{path.relative_to(ROOT)}", path


def staged(text: str, source: Path, place: str, files: dict[str, Path]) -> str:
    """Return a page's text with links for the site. ``files``: gets the files to copy with it."""

    def renewed(found: re.Match[str]) -> str:
        path = (source.parent / found[1]).resolve() if found[1] else source
        there, file = target_of(path, found[2] or "")
        if file is not None:
            files[there] = file
        near = os.path.relpath(there, os.path.dirname(place) or ".")
        return near if file is None else f"{FILE}:{near}"

    # The text of a session has no language to highlight.
    return outside_of_code(text, lambda part: LINK.sub(renewed, part)).replace("\n```console\n", "\n```text\n")


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """Return a text with ``change`` applied outside of code."""
    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [text[end : code.start()], code[0]]
        end = code.end()
    parts.append(text[end:])
    return "".join(part if place % 2 else change(part) for place, part in enumerate(parts))


def sessions_of(command: AnyCommand) -> Iterator[str]:
    """Yield the sessions of other pages about a command, shortened, with a link to their place."""
    shown: list[str] = []
    # Commands with --json come last.
    for page, _, step in sorted(doc_sessions.sessions(), key=lambda each: "--json" in each[2].command):
        if noun_of(step.command) != command.noun or len(shown) == MAX_SESSIONS or step.command in shown:
            continue
        shown.append(step.command)
        lines = step.output.splitlines()
        cut = ["…"] if len(lines) > MAX_LINES else []
        place = target_of(page, "")[0]
        title = page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        text = "\n".join([f"$ {step.command}", *lines[:MAX_LINES], *cut])
        yield f"\nFrom [{title}](../{place}):\n\n```text\n{text}\n```\n"


def noun_of(command: str) -> str | None:
    """Return the command's name in a shell line: "" for gdbheap PID, None for other lines."""
    found = WORD.match(command)
    if found is None or (found[1] or "") not in COMMANDS:
        return None
    return found[1] or ""


def command_page(command: AnyCommand) -> str:
    """Return the page of a command: its question, an example, its help as in docs/commands.md, and one more session."""
    title, _, rest = command_docs.section(command).lstrip("\n").partition("\n")
    first, *others = [*sessions_of(command)] or [""]
    about = "\n[Commands](../commands.md) has the options that all commands share.\n"
    more = "".join(["\n## Another example\n", *others]) if others else ""
    return f"{title.replace('##', '#', 1)}\n{command.summary}.\n{first}\n## Options\n{rest}{about}{more}"


def commands_page() -> str:
    """Return the page of all commands: docs/commands.md without the parts that have their own pages."""
    text = command_docs.page()
    text = text[: text.index(command_docs.section(next(iter(COMMANDS.values()))))]
    for command in COMMANDS.values():
        name = anchor(command)
        text = text.replace(f"](#{name})", f"](commands/{name}.md)")
    return text + contents("", [f"commands/{anchor(command)}" for command in COMMANDS.values()])


def contents(caption: str, pages: list[str]) -> str:
    """Return a list of pages for the sidebar of the site."""
    head = f":caption: {caption}\n" if caption else ""
    return "\n```{toctree}\n:hidden:\n" + head + "\n" + "\n".join(pages) + "\n```\n"


def stage(folder: Path) -> None:
    """Write the sources of the site into a new folder."""
    files: dict[str, Path] = {}
    (folder / "commands").mkdir(parents=True)
    for place, source in sources().items():
        text = staged(source.read_text(encoding="utf-8"), source, place, files)
        if place == "index.md":
            text += "".join(contents(caption, pages) for caption, pages in navigation())
        (folder / place).write_text(text, encoding="utf-8")
    (folder / COMMAND_PAGE).write_text(commands_page(), encoding="utf-8")
    (folder / f"{library_docs.TITLE}.md").write_text(library_docs.page(), encoding="utf-8")
    for command in COMMANDS.values():
        (folder / "commands" / f"{anchor(command)}.md").write_text(command_page(command), encoding="utf-8")
    missing = [str(file.relative_to(ROOT)) for file in files.values() if not file.is_file()]
    if missing:
        raise SystemExit(f"links lead to files that are not there: {', '.join(missing)}")
    for there, file in files.items():
        (folder / "_extra" / there).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / "_extra" / there)
    shutil.copy(SITE / "conf.py", folder)
    shutil.copytree(SITE / "static", folder / "_static")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
