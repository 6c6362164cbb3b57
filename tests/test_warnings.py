"""Every warning names its consequence: what of the answer is affected stands beside the cause, with a colon between."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Its notes are exit statuses.
OTHER_NOTES = "exit_status.py"


def sources() -> Iterator[Path]:
    """Yield the files that give warnings."""
    for path in sorted([*(ROOT / "gdbheap").rglob("*.py"), *(ROOT / "commands").rglob("*.py")]):
        if path.name != OTHER_NOTES and any(warnings_in(path.read_text(encoding="utf-8"))):
            yield path


def warnings_in(source: str) -> Iterator[ast.expr]:
    """Yield what is given to heap.note(…) and to warnings.append(…)."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
            continue
        holder = ast.unparse(node.func.value)
        is_note = node.func.attr == "note" and holder.endswith(("heap", "self"))
        if is_note or (node.func.attr == "append" and holder.endswith("warnings")):
            yield node.args[0]


def literal_of(text: ast.expr, path: Path) -> str:
    """Return what is written of a text, without what is put into it; of a constant what it is."""
    if isinstance(text, ast.Name):
        folder = "gdbheap." if path.is_relative_to(ROOT / "commands") else ""
        module = importlib.import_module(folder + ".".join(path.relative_to(ROOT).with_suffix("").parts))
        return str(getattr(module, text.id, "…"))
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)


@pytest.mark.parametrize("path", list(sources()), ids=lambda path: path.name)
def test_a_consequence_is_named(path: Path) -> None:
    """No text of another error alone, and no cause alone."""
    for text in warnings_in(path.read_text(encoding="utf-8")):
        written = literal_of(text, path)
        before, colon, after = written.partition(": ")
        assert colon and after.strip(), f"{path.name}: {written!r}"
        assert len(written.replace("…", "").split()) >= 3, f"{path.name}: {written!r}"
