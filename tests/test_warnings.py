"""Every warning names its consequence: the affected part of the answer follows the cause, after a colon."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import pytest

from gdbheap.answers.accounting.records import from_json, to_json
from gdbheap.errors import UsageError
from gdbheap.remarks import Remark, RemarkId
from gdbheap.report.words.remarks import SENTENCES, sentence_of

ROOT = Path(__file__).resolve().parent.parent
# Its notes are exit statuses.
OTHER_NOTES = "exit_status.py"
THREADS = {"threads", "unsure"}
SAMPLES: dict[str, Any] = {"str": "what", "int": 3, "bool": True, "list[int]": [5, 6], "list[str]": ["a", "b"]}
SAMPLES["dict[str, int]"] = {"Foo": 2}


def trees() -> Iterator[tuple[Path, ast.Module]]:
    """Yield the files of the product."""
    for path in sorted([*(ROOT / "gdbheap").rglob("*.py"), *(ROOT / "commands").rglob("*.py")]):
        if path.name != OTHER_NOTES:
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Yield the calls of a method of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            yield node


def literal_of(text: ast.expr, path: Path) -> str:
    """Return the literal parts of a text, without inserted values; for a constant its value."""
    if isinstance(text, ast.Name):
        folder = "gdbheap." if path.is_relative_to(ROOT / "commands") else ""
        module = importlib.import_module(folder + ".".join(path.relative_to(ROOT).with_suffix("").parts))
        return str(getattr(module, text.id, "…"))
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)


def needed_by(sentence: str | Callable[..., Any]) -> dict[str, Any]:
    """Return the values that a sentence needs, by name, with samples."""
    if isinstance(sentence, str):
        fields = {name: spec for _, name, spec, _ in Formatter().parse(sentence) if name}
        return {name: 3 if spec else "what" for name, spec in fields.items()}
    own = inspect.signature(sentence).parameters.values()
    return {one.name: SAMPLES[str(one.annotation)] for one in own}


def names_consequence(text: str) -> bool:
    """Return whether there is a cause, a colon, and a consequence."""
    before, colon, after = text.partition(": ")
    return bool(colon and after.strip()) and len(text.replace("…", "").split()) >= 3


def test_a_consequence_is_named() -> None:
    """Check that no warning is only the text of another error, or only a cause."""
    for path, tree in trees():
        for call in calls(tree, "append"):
            assert isinstance(call.func, ast.Attribute)
            if ast.unparse(call.func.value).endswith("warnings"):
                assert names_consequence(literal_of(call.args[0], path)), f"{path.name}: {ast.unparse(call)}"
    for id, sentence in SENTENCES.items():
        text = sentence_of(Remark(id, needed_by(sentence)))
        # Its sentence has two halves.
        assert names_consequence(text.replace("; ", ": ")) and "does not know the warning" not in text, (id, text)


def test_what_remarks_need() -> None:
    """Check that each remark has a sentence and is made somewhere, with the values that the sentence needs; none is
    prose."""
    made = set()
    for path, tree in trees():
        for call in calls(tree, "note"):
            if ast.unparse(call.func).startswith("STATUS."):
                continue
            id = literal_of(call.args[0], path)
            needed = set(needed_by(SENTENCES[id]))  # type: ignore[index]  # compared with all ids below
            given = {word.arg for word in call.keywords if word.arg is not None}
            others = needed - given
            assert given <= needed and (not others or any(word.arg is None for word in call.keywords)), (path, id)
            made.add(id)
    assert made == set(SENTENCES) == set(get_args(RemarkId))


@pytest.mark.parametrize("values", [{}, {"address": "x", "owner": 1}, {"address": 1, "owner": []}, {"address": 1.5}])
def test_remarks_of_anybody(values: dict[str, Any]) -> None:
    """Check that a remark in a file of unknown origin is a sentence, whatever its values are."""
    for id in ("two-owners", "values-not-read", "a later one", "malloc-moving"):
        read = from_json(Remark, to_json(Remark(id, values)))
        assert sentence_of(read)
    with pytest.raises(UsageError):
        from_json(Remark, {"id": 3})
    assert sentence_of("as an older release has it") == "as an older release has it"
