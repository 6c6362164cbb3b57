"""The reference of the library, for the site: each public name with its signature, its columns and its docstring.

Usage: library_docs.py, with the Python that gdbheap is installed in; it prints the page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import gdbheap
from gdbheap.api.table import types_of

TITLE = "library-reference"
HEAD = """# Reference of the library

Made from the docstrings. [The guide](library.md) has examples; [inside.md](inside.md) is about programs that look at
themselves.

"""
FUNCTIONS = ("open", "here", "diff", "sample", "snapshot", "write_report")


def page() -> str:
    """Return the reference in Markdown."""
    names = [name for name in gdbheap.__all__ if not name.startswith("_")]
    classes = sorted(set(names) - set(FUNCTIONS), key=lambda name: (name != "Heap", issubclass_of_error(name), name))
    listed = ", ".join(f"[`{name}`](#{name.lower()})" for name in (*FUNCTIONS, *classes))
    return HEAD + listed + "\n" + "".join(section(name) for name in (*FUNCTIONS, *classes))


def issubclass_of_error(name: str) -> bool:
    """Return whether the name is an error; errors come last."""
    return issubclass(getattr(gdbheap, name), Exception)


def section(name: str) -> str:
    """Return the section of a name."""
    found = getattr(gdbheap, name)
    if not inspect.isclass(found):
        return f"\n## {name}\n```python\ngdbheap.{name}{signature(found)}\n```\n{text(found)}\n"
    parts = [f"\n## {name}\n{text(found)}\n"]
    if is_dataclass(found):
        parts.append("".join(f"- `{column}`: {kind}\n" for column, kind in types_of(found).items()))
    parts += [member(found, one) for one in members(found)]
    return "\n".join(parts)


def members(found: type[Any]) -> Iterator[str]:
    """Yield the names of a class's members that are not columns."""
    columns = types_of(found) if is_dataclass(found) else {}
    own = (name for kind in found.__mro__ if kind.__module__.startswith("gdbheap.") for name in vars(kind))
    for name in dict.fromkeys(own):
        one = inspect.getattr_static(found, name)
        if not name.startswith("_") and name not in columns and (inspect.isfunction(one) or isinstance(one, property)):
            yield name


def member(found: type[Any], name: str) -> str:
    """Return the text of a method or a property."""
    one = inspect.getattr_static(found, name)
    call = f".{name}" if isinstance(one, property) else f".{name}{signature(one)}"
    return f"**`{call}`** {text(one)}\n"


def signature(found: Any) -> str:
    """Return the object's parameters, as in the source."""
    whole = inspect.signature(found)
    plain = [one.replace(annotation=Plain(one.annotation)) for one in whole.parameters.values() if one.name != "self"]
    return str(whole.replace(parameters=plain, return_annotation=Plain(whole.return_annotation)))


class Plain:
    """An annotation that prints its text unchanged, as in the source."""

    def __init__(self, annotation: object) -> None:
        self._text = str(annotation)

    def __repr__(self) -> str:
        return self._text


def text(found: Any) -> str:
    """Return an object's docstring in Markdown, with its names of code marked."""
    return inspect.cleandoc(found.__doc__ or "").replace("``", "`").replace("*,", "\\*,")


if __name__ == "__main__":
    print(page())
