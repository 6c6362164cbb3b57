"""Code that tests of references share: the interpreters, and expressions evaluated in the program with the objects.

``make matrix`` sets GDBHEAP_THOROUGH: then every interpreter has chains of a million, and more objects are asked about.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gdbheap.answers.why import Why, why
from support.library import heap_of
from support.programs import (
    ALL_RELEASES,
    FREE_THREADED,
    KINDS,
    ONLY,
    RELEASE,
    RELEASES,
    SOURCES,
    Running,
    entered,
    interpreter_of,
    interpreter_of_release,
    interpreters,
    plain_environment,
    running,
)

THOROUGH = bool(os.environ.get("GDBHEAP_THOROUGH"))
MIMALLOC = [f"{release}-{mode}" for release in ("3.13", "3.14", "3.15") for mode in ("mimalloc", "mimalloc_debug")]
MODES = [*MIMALLOC, "3.7-pymalloc_debug", "3.9-malloc", "3.12-malloc_debug"]
TRACED = "with links"
# Special builds: their objects are in CPython's mimalloc or in malloc's chunks, or have larger headers, or words before
# them.
SPECIAL = (*MODES, *FREE_THREADED, "2.7-dbg", "3.11-dbg", TRACED)
# Both kinds of one release, one kind of every other release, and the special builds.
_ONE = (*RELEASES, *(build for build in SPECIAL if build.startswith(ONLY)))
BUILDS = _ONE if ONLY else (*KINDS, *(release for release in RELEASES if release != RELEASE), *SPECIAL)
NO_EXPRESSION = ("local", "others")


@functools.cache
def _traced() -> str:
    """Return a CPython 3 that links all objects with each other (Py_TRACE_REFS). Only such builds have
    sys.getobjects().
    """
    for release in ALL_RELEASES[1:]:
        for interpreter in (*interpreters(release), *interpreters(f"{release}-dbg")):
            command = entered([interpreter.executable, "-c", "import sys; sys.getobjects"])
            if not subprocess.run(command, capture_output=True, env=plain_environment()).returncode:
                return interpreter.executable
    pytest.skip("no CPython 3 that was built with --with-trace-refs")


def _interpreter(build: str) -> str:
    if build in KINDS:
        return interpreter_of(build)
    if build == TRACED:
        return _traced()
    return interpreter_of_release(build.split("-")[0] if build in MODES else build).executable


def started(build: str, folder: Path, name: str, *arguments: object) -> AbstractContextManager[Running]:
    """Start tests/programs/NAME.py with one of BUILDS."""
    environment = {"PYTHONMALLOC": build.split("-")[1]} if build in MODES else {}
    command = [_interpreter(build), "-s", str(SOURCES / f"{name}.py"), *map(str, arguments)]
    return running(command, folder, environment)


def evaluated(target: Running, expressions: list[str], folder: Path) -> list[int]:
    """Return the ids, in the program, of the values of expressions."""
    asked = folder / "asked"
    asked.write_text(json.dumps(expressions))
    target.go_on(str(asked))
    found: list[int] = json.loads(Path(f"{asked}.answer").read_text())
    return found


def explained(target: str, addresses: Collection[int]) -> dict[int, Why]:
    """Return {address: the answer of ``heap why``} from a single reading of a process or a core."""
    with heap_of(target) as heap:
        return {address: why(heap, address) for address in addresses}


def truth_of(folder: Path) -> dict[str, list[int]]:
    """Return {structure: the addresses of its objects}."""
    truth: dict[str, list[int]] = json.loads((folder / "truth").read_text())
    return truth


def check_chains(target: Running, truth: dict[str, list[int]], found: dict[int, Why], folder: Path) -> None:
    """Check that each object of each structure is the value of its expression, and that objects in variables are found
    in these variables.
    """
    for address in (address for name in NO_EXPRESSION for address in truth.get(name, ())):
        edges = [step.edge for step in found[address].rows]
        assert any("local variable" in edge and "in hold() at references.py:" in edge for edge in edges), edges
    named = {address: name for name, some in truth.items() if name not in NO_EXPRESSION for address in some}
    lost = [(name, found[address].rows[-6:]) for address, name in named.items() if not found[address].expression]
    assert not lost, lost[:3]
    doubtful = [(name, found[address].rows[-6:]) for address, name in named.items() if not found[address].certain]
    assert not doubtful, doubtful[:3]
    expressions = [str(found[address].expression) for address in named]
    values = evaluated(target, expressions, folder)
    rows = zip(named.items(), expressions, values, strict=True)
    wrong = [(name, expression) for (address, name), expression, value in rows if value != address]
    assert not wrong, wrong[:3]
