"""docs/findings.md has a section for the id of every rule, and none that no rule gives."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NO_RULES = {"not looked for"}
_ID = re.compile(r"[a-z]+(-[a-z]+)+")


def ids_in(source: str) -> Iterator[str]:
    """Yield the first argument of each Finding(…), with "*" for what is formatted into it; for a variable, all words of
    the module that may be one."""
    tree = ast.parse(source)
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding" and node.args:
            first = node.args[0]
            if isinstance(first, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in first.values)
            else:
                yield from [str(first.value)] if isinstance(first, ast.Constant) else filter(_ID.fullmatch, words)


def test_each_rule_is_documented() -> None:
    """The ids of the sources are the titles of the document."""
    files = sorted((ROOT / "gdbheap/answers/findings").glob("*.py"))
    given = {name for file in files for name in ids_in(file.read_text(encoding="utf-8"))}
    titles = re.findall(r"^## (.*)$", (ROOT / "docs/findings.md").read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name for title in titles for name in title.lower().split(", ")} - NO_RULES
    assert given == documented and len(given) > 15
