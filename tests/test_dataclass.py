"""gdbheap's data classes behave like those of ``dataclasses``, and are made when the first instance is."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
import threading
from typing import Any

import pytest
from support.sources import modules

from gdbheap.dataclass import dataclass


@dataclass(frozen=True)
class Base:
    """A class with a default, and with a field whose name is that of a parameter of ``__new__``."""

    kind: str
    size: int = 3


@dataclass(frozen=True)
class Derived(Base):
    """A class whose base has no methods yet."""

    parts: list[int] = dataclasses.field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", True)


@dataclass
class Other:
    """A class that may change."""

    kind: str


def made() -> tuple[type, type, type]:
    """Return new classes without methods."""
    scope: dict[str, Any] = {"dataclass": dataclass, "field": dataclasses.field}
    exec(
        "@dataclass(frozen=True)\nclass A:\n kind: str\n size: int = 3\n"
        "@dataclass(frozen=True, order=True)\nclass B(A):\n parts: list = field(default_factory=list, compare=False)\n"
        "@dataclass\nclass C:\n kind: str\n",
        scope,
    )
    return scope["A"], scope["B"], scope["C"]


def test_they_are_as_those_of_dataclasses() -> None:
    """Check fields, equality, hashes, texts, copies and errors."""
    first, second = Base("one"), Derived("one", parts=[1])
    assert [field.name for field in dataclasses.fields(Derived)] == ["kind", "size", "parts"]
    assert first == Base("one", 3) and first != second and hash(first) == hash(Base("one"))
    assert repr(second) == "Derived(kind='one', size=3, parts=[1])" and second == Derived("one", 3, [2])
    assert dataclasses.replace(second, size=4) == Derived("one", 4) and second.seen  # type: ignore[attr-defined]
    assert copy.copy(second) == pickle.loads(pickle.dumps(second)) == second
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.size = 4  # type: ignore[misc]
    with pytest.raises(TypeError, match="kind"):
        Base()  # type: ignore[call-arg]
    one = Other(kind="one")
    one.kind = "two"
    assert one == Other("two") and Other.__hash__ is None


LOOKS = [dataclasses.fields, dataclasses.is_dataclass, lambda cls: cls("x")]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("which", range(3))
def test_any_look_makes_it(look: Any, which: int) -> None:
    """Check that a class is complete after it was used in any way, and that nothing was made before."""
    cls = made()[which]
    assert "__eq__" not in vars(cls)
    assert look(cls)
    assert "__eq__" in vars(cls) and cls("x") == cls(kind="x")


def test_the_first_instances_of_many_threads() -> None:
    """Check that threads that make the first instance at the same time get whole instances."""
    for _ in range(50):
        cls, begin, found = made()[1], threading.Barrier(4), []

        def make(cls: type = cls, begin: threading.Barrier = begin, found: list[Any] = found) -> None:
            begin.wait()
            found.append(cls("x", 4, parts=[1]))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4 and all(one == found[0] and one.parts == [1] for one in found)


def test_the_product_uses_them() -> None:
    """Check that no file of the product has the methods of a class made at its import."""
    sources = {name: path.read_text(encoding="utf-8") for name, path in modules().items() if name != "dataclass"}
    assert any("from gdbheap.dataclass import dataclass" in text for text in sources.values())
    assert [name for name, text in sources.items() if takes_pythons_own(text)] == []


def takes_pythons_own(text: str) -> bool:
    """Return whether a source uses the decorator of ``dataclasses``, by any name."""
    names = {"dataclasses"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {one.asname for one in node.names if one.name == "dataclasses" and one.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "dataclasses":
            if "dataclass" in {one.name for one in node.names}:
                return True
        elif isinstance(node, ast.Attribute) and node.attr == "dataclass":
            if isinstance(node.value, ast.Name) and node.value.id in names:
                return True
    return False


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from dataclasses import field, dataclass as made", True),
        ("from dataclasses import (\n    dataclass,\n)", True),
        ("import dataclasses as dc\n@dc.dataclass(frozen=True)\nclass A: pass", True),
        ("import dataclasses\n@dataclasses.dataclass\nclass A: pass", True),
        ("from dataclasses import field\nfrom gdbheap.dataclass import dataclass\n@dataclass\nclass A: pass", False),
        ("import dataclasses\ndataclasses.replace(x)", False),
    ],
)
def test_pythons_own_are_found(text: str, found: bool) -> None:
    """Check that each form of the decorator is found."""
    assert takes_pythons_own(text) == found
