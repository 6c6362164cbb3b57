"""What the tests of references share: the interpreters, and expressions evaluated in the program whose objects they are.

``make matrix`` sets GDBHEAP_THOROUGH: then every interpreter has chains of a million, and more objects are asked about.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path

from library import heap_of
from programs import KINDS, ONLY, RELEASE, RELEASES, Running, python_program, release_program

from gdbheap.answers.why import Why, why

THOROUGH = bool(os.environ.get("GDBHEAP_THOROUGH"))
# Both kinds of one release, and each other release.
BUILDS = RELEASES if ONLY else (*KINDS, *(release for release in RELEASES if release != RELEASE))
NO_EXPRESSION = ("local", "others")


def program(build: str, name: str, *arguments: object) -> list[str]:
    """Return the command that runs tests/programs/NAME.py with one of BUILDS."""
    return (python_program if build in KINDS else release_program)(build, name, *arguments)


def evaluated(target: Running, expressions: list[str], folder: Path) -> list[int]:
    """Return what id() says, in the program, of the values of expressions."""
    asked = folder / "asked"
    asked.write_text(json.dumps(expressions))
    target.go_on(str(asked))
    found: list[int] = json.loads(Path(f"{asked}.answer").read_text())
    return found


def explained(target: str, addresses: Collection[int]) -> dict[int, Why]:
    """Return {address: the answer of heap why}, of one look at a pid or a core."""
    with heap_of(target) as heap:
        return {address: why(heap, address) for address in addresses}


def truth_of(folder: Path) -> dict[str, list[int]]:
    """Return {structure: the addresses of its objects}."""
    truth: dict[str, list[int]] = json.loads((folder / "truth").read_text())
    return truth


def check_chains(target: Running, truth: dict[str, list[int]], found: dict[int, Why], folder: Path) -> None:
    """Assert that each object of each structure is the value of the expression that leads there, and that what only
    variables hold is found there."""
    for address in (address for name in NO_EXPRESSION for address in truth.get(name, ())):
        edges = [step.edge for step in found[address].chain]
        assert any("local variable" in edge and "in hold() at references.py:" in edge for edge in edges), edges
    named = {address: name for name, some in truth.items() if name not in NO_EXPRESSION for address in some}
    lost = [(name, found[address].chain[-6:]) for address, name in named.items() if not found[address].expression]
    assert not lost, lost[:3]
    doubtful = [(name, found[address].chain[-6:]) for address, name in named.items() if not found[address].certain]
    assert not doubtful, doubtful[:3]
    expressions = [str(found[address].expression) for address in named]
    values = evaluated(target, expressions, folder)
    rows = zip(named.items(), expressions, values, strict=True)
    wrong = [(name, expression) for (address, name), expression, value in rows if value != address]
    assert not wrong, wrong[:3]
