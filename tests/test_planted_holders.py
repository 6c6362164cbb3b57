"""The holder of most memory is first in every list, whatever its shape is.

A program plants more than half of its memory in a holder of some shape, and computes its size itself. The first rows of
owners, retained, diff and the report, the path of why, and the picture name it, with its bytes.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.installed import python_with
from support.planted_holders import OF_PACKAGES, SHAPES, named, planted
from support.programs import KINDS, RELEASES, interpreter_of, interpreter_of_release

from gdbheap.answers.retained import OBJECT, retained
from gdbheap.contents.python.names.packages import namespaces
from gdbheap.heap import Heap

WITHIN = 0.01
# Smaller objects may share a row.
LEAST = 64 << 10
STRIPPED = KINDS[1]


@pytest.mark.sweep
@pytest.mark.cases(4)
@pytest.mark.parametrize("release", [*RELEASES, STRIPPED])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_list_begins_with_the_holder(shape: str, release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the first row names it with the program's own size, and that no large object is folded away."""
    check(python_of(release), shape, rng, tmp_path)


def python_of(release: str) -> str:
    """Return the executable of a release, or of the build without symbols."""
    return interpreter_of(STRIPPED) if release == STRIPPED else interpreter_of_release(release).executable


@pytest.mark.sweep
@pytest.mark.cases(1)
@pytest.mark.parametrize("shape", OF_PACKAGES)
def test_every_list_begins_with_the_array(shape: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the first row of every list names an array of a library, whose memory is C's."""
    check(python_with(OF_PACKAGES[shape]), shape, rng, tmp_path)


def check(python: str, shape: str, rng: random.Random, folder: Path) -> None:
    """Check that all answers name the holder, with its bytes."""
    with planted(python, shape, rng.getrandbits(31), folder) as (heap, before, truth):
        assert 2 * truth.bytes >= (heap.target.rss.bytes or 0), "half of it is planted"
        for found in named(heap, before, truth):
            assert truth.word in found.name, found
            assert found.bytes is None or abs(found.bytes - truth.bytes) <= WITHIN * truth.bytes, (found, truth)
        assert not hidden(heap)


def hidden(heap: Heap) -> list[str]:
    """Return the objects without a row that are not folded into one with a row, except modules and their dicts."""
    references, graph = heap.python.references, heap.python.references.graph
    kept = retained(heap, OBJECT, None).rows
    rows = {number for row in kept if row.address is not None and (number := graph.find(row.address)) is not None}
    apart = {node.id for pair in namespaces(references) for node in pair}
    apart |= {graph.find(address) for address in references.roots[0].pointers}
    sizes = graph.retained(range(references.first_root))
    # An unnamed object above a row is in that row.
    above = {(row, outer) for row in rows for outer in graph.dominator_chain(row) if outer not in apart}
    rows |= {outer for row, outer in above if is_same(sizes, row, outer)}
    large = [number for number, size in enumerate(sizes) if size >= LEAST and number not in apart]
    objects = [node for node in references.nodes(large) if node.kind == "object" and node.place == "block"]
    return [str(node) for node in objects if not rows.intersection(graph.dominator_chain(node.id))]


def is_same(sizes: list[int], inner: int, outer: int) -> bool:
    """Return whether an object retains as much as the one above it; a root does not count."""
    return outer < len(sizes) and sizes[inner] >= (1 - WITHIN) * sizes[outer]
