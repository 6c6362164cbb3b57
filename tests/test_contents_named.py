"""No code outside contents/ names a kind of contents, except where the question is about this kind.

Only the sources are read. Each exception has a reason and must still be needed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.sources import modules

KINDS = {
    node.id
    for node in ast.walk(ast.parse(modules()["contents.registry"].read_text(encoding="utf-8")))
    if isinstance(node, ast.Name) and node.id.endswith("Content") and node.id != "Content"
}
CONTEXTS = "an answer about PostgreSQL alone"
NAMED = {"heap": "Python has an attribute", "answers.contexts": CONTEXTS, "findings.contexts.rule": CONTEXTS}
REFUSED, WORDS = "what the other kind of graph has no rows for is refused", "its words name Python"
ASKING = {
    "answers.why_not_freed": "what Python's collector would free",
    "answers.chunks": "the names of types of Python's objects",
    "answers.owners": REFUSED,
    "answers.threads": "frames of Python are between those of C",
    "answers.unreachable": WORDS,
    "findings.after_fork.rule": WORDS,
    "findings.lost_blocks.rule": WORDS,
    "findings.lost_blocks.words": WORDS,
    "report.words.unreachable": WORDS,
    "findings.capacity.rule": "beside Python what is not proven may be Python's",
    "findings.holder.rule": "the command that says more",
    "first_page.also_held": "tasks and suspended functions of Python",
    "findings.finding": "objects of Python are copied by use after fork()",
    "first_page.main_holders": "stacks of a program with Python are one row",
}


# Other forms of the question: objects that may be None, the error that tells that there is no Python, and questions to
# Python's contents themselves.
FORMS = {"objects_or_none", "NotAPython"}
ASKED = re.compile(
    r"\.python(?:\.is_here|\.is_known|\.has\(| (?:not )?in | is (?:not )?None)|or_none\(\s*lambda: [\w.]*\.python\b"
)
OF_OBJECTS, NOT_THERE = "what an object of Python is, beside the kinds of contents", "another answer takes the place"
ASKING_OTHERWISE = {
    "allocators.memory": "Python's own allocators are not in use",
    "allocators.python_modules": "it raises the error",
    "answers.accounting.describing": OF_OBJECTS,
    "answers.accounting.traced": "tracemalloc's tables",
    "export.gathered": "tables of types and of objects",
    "answers.arrays": "arrays are objects of Python",
    "answers.at": OF_OBJECTS,
    "answers.block_kinds": "the answer says so in a key",
    "answers.info": "that a fact is absent is no failure",
    "answers.pools": OF_OBJECTS,
    "answers.threads": "frames of the interpreter have no lines of their own",
    "api.heap": NOT_THERE,
    "findings.registry": "a rule about Python has nothing to say",
    "findings.finding": "rules about objects have nothing to say",
    "first_page.first_holders": "the length of an object",
    "heap": "whether Python owns what is named beside it",
    "processes.written_pages": "reference counts unshare pages",
    "sampling.sampled_process": "the figures that a sample has",
    "snapshots.blocks": "the types of objects are columns",
    "snapshots.overview": NOT_THERE,
    "stacks": "frames of Python are between those of C",
    "targets.parts": "the error is no sign of a truncated core",
    "watching.memory_errors": "only Python raises MemoryError",
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


def test_few_ask_otherwise() -> None:
    """Check that few modules ask for Python by the error or by objects that may be None."""
    others = ("contents.", "allocators.pymalloc.", "allocators.mimalloc.")
    found = {name: mentioned(path) for name, path in modules().items() if not name.startswith(others)}
    asking = {name for name, words in found.items() if words & FORMS}
    asking |= {name for name, path in modules().items() if name in found and ASKED.search(path.read_text("utf-8"))}
    assert asking == set(ASKING_OTHERWISE)


@pytest.mark.parametrize(
    "code",
    ["if heap.python.is_known: pass", "heap.python.has('objects')", "x = self.heap.python in self.heap.contents",
     "or_none(lambda: heap.python.collector)", "if evidence.heap.python is None: pass"],
)  # fmt: skip
def test_a_question_is_found(code: str) -> None:
    """Check that each form of a question to Python's contents is found, and that a use of them is not."""
    assert ASKED.search(code) and not ASKED.search("heap.python.objects.repr(address)")


def test_every_kind_is_known() -> None:
    """Check that the kinds in the list of all are found."""
    assert {"CxxContent", "PythonContent"} <= KINDS
