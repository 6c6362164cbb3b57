"""Print the rooms of docs/architecture.md, or with --write put them in place, as the code has them: what each room is,
by its own docstring, and on which others it stands: those that it imports, but for what these import themselves.
Nothing is imported to find that out."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- scripts/rooms.py writes from here -->", "<!-- to here -->"
# Each room may import the ones before it.
ORDER = [
    "text",
    "_native",
    "environment",
    "errors",
    "remarks",
    "documents",
    "files",
    "machines",
    "host",
    "refusals",
    "targets",
    "layout",
    "allocators",
    "graph",
    "contents",
    "stacks",
    "heap",
    "answers",
    "findings",
    "first_page",
    "processes",
    "snapshots",
    "sampling",
    "following",
    "tracing",
    "export",
    "watching",
    "report",
    "api",
    "loader",
    "commands",
]
# What nearly all rooms import says nothing of one.
EVERYWHERE = {"text", "_native", "errors"}


def modules() -> dict[str, Path]:
    """Return {dotted name below gdbheap: file}; commands/ counts as gdbheap.commands. What ``python -m`` runs is the
    command."""
    found = {}
    for folder, prefix in ((ROOT / "gdbheap", ()), (ROOT / "commands", ("commands",))):
        for path in sorted(set(folder.rglob("*.py")) - {ROOT / "gdbheap" / "__main__.py"}):
            found[".".join((*prefix, *path.relative_to(folder).with_suffix("").parts))] = path
    return found


def imports(name: str, text: str) -> Iterator[str]:
    """Yield the absolute dotted name of everything that the source `text` of gdbheap.`name` imports, anywhere in it."""
    package = ["gdbheap", *name.split(".")[:-1]]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def room_of(dotted: str) -> str | None:
    """Return the room of "gdbheap.room.rest", "__init__" for the package itself, None for other people's modules. The
    words of a finding are part of the report."""
    first, _, rest = dotted.partition(".")
    if first != "gdbheap":
        return None
    room, *below = rest.split(".")
    if room == "findings" and below[1:2] == ["words"]:
        return "report"
    return room if room in ORDER else "__init__"


def _meaning(path: Path) -> str:
    """Return the first paragraph of a docstring, in Markdown and on one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].replace("``", "`").split())


def arrows() -> dict[str, set[str]]:
    """Return {room: rooms that it imports}, without those that nearly all import."""
    found: dict[str, set[str]] = {room: set() for room in ORDER}
    for name, path in modules().items():
        room = room_of(f"gdbheap.{name}")
        if room in found:
            named = {room_of(dotted) for dotted in imports(name, path.read_text(encoding="utf-8"))}
            found[room] |= {other for other in named if other in found} - {room} - EVERYWHERE
    return found


def nearest(known: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the arrows that are no shorter ways of others: what a room imports, and nothing else of these does."""

    def reached(room: str) -> set[str]:
        return {room}.union(*(reached(other) for other in known[room]))

    below = {room: known[room] - {far for other in known[room] for far in reached(other) - {other}} for room in known}
    return {room: [other for other in ORDER if other in below[room]] for room in known}


def rooms() -> str:
    """Return the order and the table."""
    lines = [" < ".join(f"`{room}`" for room in ORDER), ""]
    lines += ["| room | what lives there | stands on |", "| --- | --- | --- |"]
    drawn = nearest(arrows())
    for room in ORDER[::-1]:
        head = ROOT / "commands" if room == "commands" else ROOT / "gdbheap" / room
        title, path = (f"{room}/", head / "__init__.py") if head.is_dir() else (f"{room}.py", head.with_suffix(".py"))
        if path.exists():
            lines.append(f"| `{title}` | {_meaning(path)} | {' '.join(drawn[room])} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with the rooms between its marks."""
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{rooms()}\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(rooms())
