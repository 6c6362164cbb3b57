"""The stub of the native module: the text generated from the binding, and the contents of the built module."""

from __future__ import annotations

import ast
import inspect
import runpy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT

from gdbheap import _native

STUB = ROOT / "gdbheap" / "_native.pyi"
SCRIPT = ROOT / "scripts" / "native_stub.py"


def declared() -> dict[str, dict[str, ast.stmt]]:
    """Return {class: its members} of the stub, without classes that are only extracted from arguments; "":
    functions."""
    found: dict[str, dict[str, ast.stmt]] = {"": {}}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[""][node.name] = node
        elif isinstance(node, ast.ClassDef) and not any(ast.unparse(base) == "Protocol" for base in node.bases):
            found[node.name] = {name_of(member): member for member in node.body if name_of(member)}
    return found


def name_of(member: ast.stmt) -> str:
    """Return the name of a method, or of a field."""
    if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
        return member.target.id
    return member.name if isinstance(member, ast.FunctionDef) else ""


def there() -> dict[str, dict[str, object]]:
    """Return the members of each class of the built module, in the form of ``declared``."""
    classes = {name: of for name, of in vars(_native).items() if inspect.isclass(of)}
    found = {name: {key: getattr(of, key) for key in public(of)} for name, of in classes.items()}
    return {"": {name: of for name, of in vars(_native).items() if inspect.isroutine(of)}, **found}


def public(of: type) -> Iterator[str]:
    """Yield the names that a class defines itself, without a constructor, which the module does not show."""
    names = [name for name in vars(of) if not name.startswith("_") or name == "__len__"]
    yield from () if issubclass(of, Exception) else names


def parameters(function: ast.FunctionDef) -> list[tuple[str, bool]]:
    """Return the parameter names without self, and whether each is optional."""
    names = [argument.arg for argument in function.args.args]
    first = len(names) - len(function.args.defaults)
    return [(name, place >= first) for place, name in enumerate(names) if name != "self"]


def test_it_is_what_is_generated() -> None:
    """Check that the stub equals the generated text."""
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_names_are_the_modules() -> None:
    """Check that each class, method, field and function exists in the module, and no others."""
    stub, module = declared(), there()
    assert stub.keys() == module.keys()
    for name, members in stub.items():
        assert members.keys() - {"__init__"} == module[name].keys(), name


def test_parameters_are_the_modules() -> None:
    """Check that names and defaults of the parameters are those of the built module."""
    stub, module, compared = declared(), there(), 0
    for name, members in stub.items():
        for key, function in members.items():
            if not isinstance(function, ast.FunctionDef):
                continue
            if any(ast.unparse(one) == "property" for one in function.decorator_list) or key.startswith("__"):
                continue
            own = inspect.signature(module[name][key]).parameters.values()  # type: ignore[arg-type]
            found = [(one.name, one.default is not one.empty) for one in own if one.name != "self"]
            assert found == parameters(function), (name, key)
            compared += 1
    assert compared > 80


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#[pyfunction]\npub fn odd(wanted: Py<PyAny>) {}", "PyAny"),
        ("#[pyfunction]\npub fn odd() -> HashMap<u64, Odd> {}", "Odd"),
        ("type Range = (u64, u64, u64);", "two types"),
        ("records! { Odd { start } }", "struct Odd"),
        ("#[pyclass]\npub struct Odd;", "registered"),
        ("pub struct Odd { start: u64, end: u64 }\nrecords! { Odd { start } }", "end"),
        ("union Odd { start: u64 }", "union"),
    ],
)
def test_what_is_unknown_is_an_error(text: str, why: str) -> None:
    """Check that unknown types raise an error: nothing is guessed, and nothing is left out."""
    script: dict[str, Any] = runpy.run_path(str(SCRIPT))
    source = script["read_source"]()
    assert script["Stub"](source).text() == STUB.read_text()
    with pytest.raises(script["Unknown"], match=why):
        script["add_file"]("odd.rs", text, source)
        script["Stub"](source).text()
