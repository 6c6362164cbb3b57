"""A core of an interpreter whose files are gone: the types of its objects are named by their names in modules."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.closures import reached_in_heaps
from support.interpreter_copies import copied
from support.programs import (
    KERNEL_CORE,
    PROCESS,
    RELEASES,
    ROOT_FOLDER,
    release_program,
    running,
    said,
)

from gdbheap.answers.at import _object, at, find_block
from gdbheap.heap import Heap
from gdbheap.targets.core import Core

pytestmark = pytest.mark.cases(2)

# No module holds these types: iterators in Python 2, cells up to 3.7.
LEAST = {"2.7": 0.97, "3.6": 0.98, "3.7": 0.98}
# The number of addresses about which everything is asked.
WHOLE = 100
BUFFERS = ("dict", "list", "set", "collections.deque", "collections.OrderedDict", "array.array", "bytearray")


def owned(target: str) -> dict[str, list[int]]:
    """Return {type: [count, bytes, buffers]} of types that own blocks by their fields; never by ``--exe``."""
    done = said("pyobjects", target, "--top=1000000", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    return {row["type"]: [row[key] for key in ("count", "bytes", "buffers")] for row in rows if row["type"] in BUFFERS}


@pytest.mark.cases(1)
@pytest.mark.parametrize("release", RELEASES)
def test_names_without_the_interpreter(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that at least 99 % of all objects have their type's name, that none has another type's, and that no
    buffer is lost."""
    program = release_program(release, "closure", rng.getrandbits(32), 2000, tmp_path / "truth")
    command, environment, copy = copied(release, tmp_path)
    with running([*command, *program[1:]], tmp_path, environment) as target:
        reached = reached_in_heaps(target.pid, tmp_path / "truth")
        before = owned(target.as_form(PROCESS))
        core = target.as_form(KERNEL_CORE)
    if copy is not None:
        copy.unlink()
    heap = Heap(Core(core))
    if ROOT_FOLDER and heap.python.interpreter.module.elf is not None:
        pytest.skip("this system has the very same interpreter")
    assert owned(core) == before
    check_names(heap, reached, LEAST.get(release, 0.99), rng)


def check_names(heap: Heap, reached: dict[int, str], least: float, rng: random.Random) -> None:
    """Compare with the program's own report."""
    blocks = {address: block for address in reached if (block := find_block(heap, address)) is not None}
    # All of them take one census; asked one by one, each would take its own.
    heap.python.owners_of([block.address for block in blocks.values()])
    found = {address: _object(heap, block, address) for address, block in blocks.items()}
    for address in rng.sample(sorted(reached), min(len(reached), WHOLE)):
        assert at(heap, address).object == found.get(address)
    named = {address: thing.type for address, thing in found.items() if thing and "type at 0x" not in thing.type}
    assert "names of types" in {fact.fact for fact in heap.facts.all()}
    other = {(reached[address], name) for address, name in named.items() if name != reached[address]}
    assert not other, other
    assert len(named) >= least * len(reached), f"{len(named)} of {len(reached)}"
