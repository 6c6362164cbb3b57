"""No code outside contents/ names a kind of contents, except where the question is about this kind.

Only the sources are read. Each exception has a reason and must still be needed.
"""

from __future__ import annotations

import ast
from pathlib import Path

from support.sources import modules

KINDS = {"CxxContent", "JavaContent", "OpensslContent", "PostgresqlContent", "PythonContent"}
CONTEXTS = "an answer about PostgreSQL alone"
NAMED = {"heap": "Python has an attribute", "answers.contexts": CONTEXTS, "findings.contexts.rule": CONTEXTS}
REFUSED, WORDS = "what the other kind of graph has no rows for is refused", "its words name Python"
ASKING = {
    "answers.causes": "what Python's collector would free",
    "answers.chunks": "the names of types of Python's objects",
    "answers.owners": REFUSED,
    "answers.threads": "frames of Python are between those of C",
    "answers.unreachable": WORDS,
    "findings.after_fork.rule": WORDS,
    "findings.lost_blocks.rule": WORDS,
    "findings.lost_blocks.words": WORDS,
    "report.words.graph": WORDS,
    "findings.capacity.rule": "beside Python what is not proven may be Python's",
    "findings.holder.rule": "the command that says more",
    "first_page.also_held": "tasks and suspended functions of Python",
    "findings.finding": "objects of Python are copied by use after fork()",
    "first_page.main_holders": "stacks of a program with Python are one row",
}


def mentioned(path: Path) -> set[str]:
    """Return the names and attributes in the code of a module."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {getattr(node, "attr", None) or getattr(node, "id", None) or "" for node in nodes}


def test_kinds_are_named_where_they_are_listed() -> None:
    """Check that kinds are named only where they are listed; other code uses the list."""
    found = {name: mentioned(path) for name, path in modules().items() if not name.startswith("contents.")}
    assert {name for name, words in found.items() if words & KINDS} == set(NAMED)


def test_few_ask_for_python() -> None:
    """Check that few modules ask for Python: a question to the contents or the graph is better."""
    others = ("contents.", "allocators.", "processes.programs")
    found = {name: mentioned(path) for name, path in modules().items() if not name.startswith(others)}
    assert {name for name, words in found.items() if "is_python" in words} == set(ASKING)
