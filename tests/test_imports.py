"""The import directions of docs/architecture.md, kept by reading the imports: nothing is run or needs to be built."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Each part may import the ones before it. The loader is the folder of the script that gdb runs.
BEFORE_HEAP = ["_native", "errors", "words", "target", "layout", "allocators", "objects"]
ORDER = [*BEFORE_HEAP, "heap", "answers", "report", "loader", "commands"]
# The only folder that knows that gdb exists.
KNOWS_GDB = "commands.gdb."
# Within commands/, what each folder may import besides itself; "command" is a file of one. The list of all commands is
# a part of its own: it imports them, and they know nothing of it.
WITHIN = {
    "calls": {"calls"},
    "surface": {"surface", "calls"},
    "command": {"surface", "calls"},
    "list": {"command", "surface"},
    "gdb": {"gdb", "list", "surface", "calls"},
    "shell": {"shell", "list", "surface", "calls"},
}


def modules() -> dict[str, Path]:
    """Return {dotted name below gdbheap: file}; commands/ counts as gdbheap.commands."""
    found = {}
    for folder, prefix in ((ROOT / "gdbheap", ()), (ROOT / "commands", ("commands",))):
        for path in folder.rglob("*.py"):
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


def part_of(dotted: str) -> str | None:
    """Return the part of "gdbheap.part.rest", "__init__" for the package itself, None for other people's modules."""
    first, _, rest = dotted.partition(".")
    if first != "gdbheap":
        return None
    part = rest.split(".")[0]
    return part if part in ORDER else "__init__"


def wrong_directions(name: str, text: str) -> list[str]:
    """Return what gdbheap.`name` imports from its right."""
    part = part_of(f"gdbheap.{name}")
    allowed = {None, "__init__", *(ORDER[: ORDER.index(part) + 1] if part in ORDER else [])}
    return [dotted for dotted in imports(name, text) if part_of(dotted) not in allowed]


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_point_left(name: str) -> None:
    """No module imports a part that stands to the right of its own."""
    assert wrong_directions(name, modules()[name].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", sorted(modules()))
def test_one_folder_imports_gdb(name: str) -> None:
    """Nothing outside commands/gdb/ knows that gdb exists."""
    found = set(imports(name, modules()[name].read_text(encoding="utf-8")))
    knows = any(dotted == "gdb" or dotted.startswith("gdb.") for dotted in found)
    assert not knows or name.startswith(KNOWS_GDB)


def within(dotted: str) -> str:
    """Return the key of WITHIN for the absolute name of something in gdbheap.commands."""
    parts = dotted.split(".")[2:]
    if parts[:2] == ["surface", "registry"]:
        return "list"
    return parts[0] if parts[0] in WITHIN else "command"


@pytest.mark.parametrize("name", sorted(name for name in modules() if name.startswith("commands.")))
def test_imports_within_commands(name: str) -> None:
    """No command knows another one, and neither place where they are typed knows the other."""
    found = imports(name, modules()[name].read_text(encoding="utf-8"))
    ours = [dotted for dotted in found if dotted.startswith("gdbheap.commands.")]
    assert [dotted for dotted in ours if within(dotted) not in WITHIN[within(f"gdbheap.{name}")]] == []


def test_every_part_is_there() -> None:
    """The order names what exists, so that a renamed folder cannot escape the rule."""
    parts = {name.split(".")[0] for name in modules()}
    assert parts - {"__init__"} == set(ORDER) - {"_native"}


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("target.process", "from gdbheap.heap import Heap", ["gdbheap.heap.Heap"]),
        ("target.process", "from ..answers import holes", ["gdbheap.answers.holes"]),
        ("target.process", "def f():\n    import gdbheap.report.tables", ["gdbheap.report.tables"]),
        ("answers.holes", "from gdbheap import heap, commands", ["gdbheap.commands"]),
        ("answers.holes", "from . import ledger\nfrom ..heap import Heap\nimport json", []),
        ("commands.holes", "from gdbheap.answers.holes import holes\nfrom gdbheap import __version__", []),
    ],
)
def test_the_rule_itself(name: str, text: str, wrong: list[str]) -> None:
    """The check finds each form of an import that points right, and lets the others be."""
    assert wrong_directions(name, text) == wrong
