"""Print the rooms of docs/architecture.md from the code, or with --write put them in place.

The picture has the rooms from left to right, with their folders, and the crates of native/. The table has the meaning
of each room, from its docstring, and the rooms that it imports, without those that these import themselves. Nothing is
imported for this."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- scripts/rooms.py writes from here -->", "<!-- to here -->"
# The columns of the picture: a title, and the first room below it. Rooms before the first column serve all others.
COLUMNS = {
    "where bytes come from": "machines",
    "whose bytes they are": "layout",
    "what they hold": "graph",
    "what to say": "answers",
    "to whom": "report",
}
# A room with more folders than these has one for each of its many members.
FEW = 10
# Each room may import the ones before it.
ORDER = [
    "dataclass",
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
    "stack_frames",
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
# Functions that import the module which their first argument names.
BY_NAME = {"import_module", "__import__"}
# Nearly all rooms import these, so the table leaves them out.
EVERYWHERE = {"dataclass", "text", "_native", "errors"}


def modules() -> dict[str, Path]:
    """Return {dotted name below gdbheap: file}; commands/ counts as gdbheap.commands.

    The file for ``python -m`` counts as part of the command.
    """
    found = {}
    for folder, prefix in ((ROOT / "gdbheap", ()), (ROOT / "commands", ("commands",))):
        for path in sorted(set(folder.rglob("*.py")) - {ROOT / "gdbheap" / "__main__.py"}):
            found[".".join((*prefix, *path.relative_to(folder).with_suffix("").parts))] = path
    return found


@cache
def library() -> dict[str, str]:
    """Return {name that programs take from the package: the absolute name of what it stands for}."""
    tree = ast.parse((ROOT / "gdbheap" / "__init__.py").read_text(encoding="utf-8"))
    taken = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {f"gdbheap.{one.asname}": f"{node.module}.{one.name}" for node in taken for one in node.names if one.asname}


def imports(name: str, text: str) -> Iterator[str]:
    """Yield the absolute dotted names of all imports in the source `text` of gdbheap.`name`, at any place.

    A module that a call imports by its name counts too, and a name of the library counts as what it stands for.
    """
    yield from (library().get(dotted, dotted) for dotted in _imports(name, text))


def _imports(name: str, text: str) -> Iterator[str]:
    package = ["gdbheap", *name.split(".")[:-1]]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gdbheap":
            yield f"gdbheap.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_NAME:
            words = (word.value for word in node.args[:1] if isinstance(word, ast.Constant))
            yield from (word for word in words if isinstance(word, str))


def room_of(dotted: str) -> str | None:
    """Return the room of "gdbheap.room.rest": "__init__" for the package itself, None for other packages' modules.

    The words of a finding are part of the report.
    """
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
    """Return the direct imports of each room that none of its other imports includes."""

    def reached(room: str) -> set[str]:
        return {room}.union(*(reached(other) for other in known[room]))

    below = {room: known[room] - {far for other in known[room] for far in reached(other) - {other}} for room in known}
    return {room: [other for other in ORDER if other in below[room]] for room in known}


def _place(room: str) -> tuple[str, Path]:
    """Return the text for a room, and its file; for a folder, the file of its docstring."""
    head = ROOT / "commands" if room == "commands" else ROOT / "gdbheap" / room
    return (f"{room}/", head / "__init__.py") if head.is_dir() else (f"{room}.py", head.with_suffix(".py"))


def _with_folders(room: str) -> list[str]:
    """Return the lines of a room in the picture: the room, and below it its folders."""
    title, path = _place(room)
    folders = sorted(inner.parent.name for inner in path.parent.glob("*/__init__.py")) if title.endswith("/") else []
    return [f"{title} ({len(folders)})"] if len(folders) > FEW else [title, *(f"  {folder}" for folder in folders)]


def crates() -> str:
    """Return the crates of native/ in rows: each crate is in a row after all crates on which it depends."""
    found = {path.parent.name: path.read_text(encoding="utf-8") for path in (ROOT / "native").glob("*/Cargo.toml")}
    below = {name: set(re.findall(r"^gdbheap-(\w+)", text, re.MULTILINE)) for name, text in found.items()}
    levels: list[list[str]] = []
    while below:
        levels.append(sorted(name for name in below if not below[name] & below.keys()))
        below = {name: on for name, on in below.items() if name not in levels[-1]}
    return " < ".join(", ".join(level) for level in levels)


def picture() -> str:
    """Return the rooms in columns, from left to right, and the crates below them."""
    starts = [ORDER.index(room) for room in COLUMNS.values()]
    parts = [ORDER[start:end] for start, end in zip(starts, [*starts[1:], len(ORDER)])]
    columns = [[title, *(line for room in part for line in _with_folders(room))] for title, part in zip(COLUMNS, parts)]
    widths = [max(map(len, column)) for column in columns]
    rows = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in zip_longest(*columns, fillvalue="")]
    return "\n".join(["```", *(f" {row}" for row in rows), "", f" native/  {crates()}", "```"])


def rooms() -> str:
    """Return the picture and the table."""
    lines = [picture(), "", "| room | what lives there | stands on |", "| --- | --- | --- |"]
    drawn = nearest(arrows())
    for room in ORDER[::-1]:
        title, path = _place(room)
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
