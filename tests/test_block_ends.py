"""The start and end of each block, for every allocator: all bytes of an allocation lie in its block.

Only a last word may lie in the next block's header.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from support import musls
from support.installed import python_with
from support.library import heap_of, warnings_of
from support.programs import interpreter_of_release, running

from gdbheap.allocators.allocator import Allocator
from gdbheap.allocators.registry import KINDS
from gdbheap.answers.at import at
from gdbheap.answers.owners import ARRAY, owners
from gdbheap.heap import Heap

pytestmark = pytest.mark.cases(3)
LIBRARIES = {
    "jemalloc": "libjemalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
    "libmimalloc": "libmimalloc.so.2",
}
MUSL = ("mallocng", "oldmalloc")
ASKED = 60
# The program prints the address and the size of each object; each object is part of one block.
PYTHON = """
import json, os, random, sys
rng = random.Random(int(sys.argv[1]))
sizes = [rng.randrange(1, 600) for _ in range(400)] + [int(2 ** rng.uniform(9, 22)) for _ in range(60)]
kept = [os.urandom(size) for size in sizes]
with open(sys.argv[2], "w") as file:
    json.dump([[id(one), sys.getsizeof(one)] for one in kept], file)
os.read(0, 1)
"""


def started(name: str, seed: int, truth: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command of a program whose blocks come from this allocator, and its environment."""
    if name in MUSL:
        return [musls.built("block_ends", musl_with(name)), str(seed), str(truth)], {}
    release = "3.13" if name == "mimalloc" else "3.11"
    command = [interpreter_of_release(release).executable, "-c", PYTHON, str(seed), str(truth)]
    if name in LIBRARIES:
        return command, {"PYTHONMALLOC": "malloc", "LD_PRELOAD": str(library(LIBRARIES[name]))}
    return command, {"PYTHONMALLOC": {"glibc": "malloc"}.get(name, name)}


def musl_with(name: str) -> str:
    """Return a build of musl with this malloc. Skip the test if there is none."""
    old = [release for release in musls.BUILT if release not in musls.with_mallocng()]
    if name == "oldmalloc" and not old:
        pytest.skip("no musl before 1.2.1 (scripts/musls.sh builds some)")
    return old[0] if name == "oldmalloc" else musls.SYSTEM


def library(file: str) -> Path:
    """Return Debian's library. Skip the test if it is missing."""
    path = Path("/usr/lib/x86_64-linux-gnu") / file
    if not path.exists():
        pytest.skip(f"no {path}")
    return path


@pytest.mark.parametrize("name", [kind.name for kind in KINDS])
def test_each_byte_is_in_its_block(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check for random places in objects: block.address <= place < block.end."""
    truth = tmp_path / "truth"
    command, environment = started(name, rng.getrandbits(31), truth)
    with running(command, tmp_path, environment) as target, heap_of(str(target.pid)) as heap:
        found = [check(heap, rng, *row) for row in rng.sample(json.loads(truth.read_text()), ASKED)]
    assert name in {allocator.name for allocator in found}


def check(heap: Heap, rng: random.Random, start: int, size: int) -> Allocator:
    """Assert that one block contains the first byte, a byte in the middle, and the last byte except for a word.

    Return the allocator of the block.
    """
    last = start + max(size - 1 - heap.target.machine.word, 0)
    places = [start, last, rng.randint(start, last)]
    blocks = [heap.block_at(place) for place in places]
    for block, place in zip(blocks, places):
        assert block is not None and block.address <= place < block.end, (block, hex(start), size)
        assert block == blocks[0] and block.state == "used"
    found = at(heap, start).block
    assert found is not None and (found.address, found.end, found.mappings >= 1) == (block.address, block.end, True)
    return next(one for one in reversed(heap.allocators) if one.find(start) is not None)


ARRAYS = """
import numpy, os
kept = os.urandom(20 << 20)
planted = numpy.frombuffer(kept)
os.read(0, 1)
"""


def test_an_array_over_bytes_of_mimalloc_has_a_row(tmp_path: Path) -> None:
    """Check that an array in a block of CPython's mimalloc has a row, and that no warning says that its memory is
    missing."""
    python = python_with("numpy")
    command, environment = [python, "-c", ARRAYS], {"PYTHONMALLOC": "mimalloc"}
    if subprocess.run([python, "-c", ""], env=environment, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("the Python with numpy has no mimalloc (3.13)")
    with running(command, tmp_path, environment) as target, heap_of(str(target.pid)) as heap:
        rows = owners(heap, None, None, ARRAY).arrays
        assert [(row.bytes, row.base) for row in rows if row.bytes == 20 << 20] == [(20 << 20, "bytes")]
        assert not any("have impossible fields" in warning for warning in warnings_of(heap))
