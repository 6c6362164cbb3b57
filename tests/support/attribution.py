"""Comparison of the owners that all answers give to each block."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from gdbheap.answers.accounting.describing import describe_blocks
from gdbheap.answers.at import at
from gdbheap.answers.owners import held
from gdbheap.answers.pyobjects import pyobjects
from gdbheap.answers.why import why
from gdbheap.contents.python.names.library_variables import variable_above
from gdbheap.graph.nodes import Node
from gdbheap.heap import Heap

NOBODY = (1 << 32) - 1


def differences(heap: Heap, rng: random.Random, most: int) -> list[str]:
    """Return the differences between answers about owners. ``pyobjects`` is checked over all blocks, the others over
    ``most`` blocks.

    An object that alone keeps a block alive must be on the chain to the block, at or below the block's owner.
    """
    graph = heap.references.graph
    owners_by_number = enumerate(graph.owners_of(range(graph.blocks_end)))
    numbers = [number for number, owner in owners_by_number if owner not in (NOBODY, number)]
    found = list(_sums(heap)) if heap.is_python else []
    blocks = heap.references.nodes(rng.sample(numbers, min(most, len(numbers))))
    if heap.is_python:
        # All owners are requested together: this takes one census, while each separate request would take its own.
        heap.python.owners_of([block.block for block in blocks])
    for block in blocks:
        found += _of_block(heap, block)
    return found


def _of_block(heap: Heap, block: Node) -> Iterator[str]:
    references = heap.references
    owner = references.owner_of(block.id)
    assert owner is not None
    address = None if owner.root is not None else owner.address
    here = f"block {block.block:#x} of {owner.address:#x}"
    chain = references.graph.chain(block.id)
    if block.kind != "buffer" and chain and not _is_of_syntax_tree(heap, block):
        above = next((node for node in reversed(references.nodes(chain[:-1])) if _owns(node)), None)
        if above is None or above.id != owner.id:
            yield f"{here}: the chain says {above}"
    row = held(heap.paths, block)
    if heap.is_python and row.owner_address != address:
        yield f"{here}: owners says {row}"
    if (
        chain
        and block.kind != "buffer"
        and [holder.address for holder in why(heap, block.block).dominators][-1:] != [block.address]
    ):
        yield f"{here}: why ends elsewhere"
    dominators = references.nodes(references.graph.dominator_chain(block.id))
    keeper = next((node for node in reversed(dominators[:-1]) if _owns(node)), None)
    if keeper is not None and block.kind != "buffer" and keeper.id not in chain:
        yield f"{here}: retained says {keeper}"
    if heap.is_python:
        yield from _of_python(heap, block, address, here)


def _of_python(heap: Heap, block: Node, address: int | None, here: str) -> Iterator[str]:
    said = heap.python.owners_of([block.block])[block.block]
    if said is None or (said.type is None) != (address is None) or said.type is not None and said.address != address:
        yield f"{here}: chunks says {said}"
    own = at(heap, block.block).owner
    if own is None or address is not None and own.address != address:
        yield f"{here}: at says {own}"
    yield from _of_library(heap, block, here)
    described = describe_blocks(heap, [(block.block, block.size)])[block.block]
    if address is not None and described.owner != address:
        yield f"{here}: is described as {described}"


def _of_library(heap: Heap, block: Node, here: str) -> Iterator[str]:
    """Yield the answers that do not name the same static variable of a library as the first step of the chain."""
    variable = variable_above(heap.python.references, block.id)
    row, way = held(heap.paths, block), why(heap, block.block).rows
    if variable is not None and not (row.path or row.chain).startswith(variable.name):
        yield f"{here}: owners says {row.chain}, not {variable.name}"
    if variable is not None and (not way or way[0].edge != variable.name):
        yield f"{here}: why says {way[:1]}, not {variable.name}"
    owner = heap.python.owners_of([block.block])[block.block]
    said = at(heap, block.block)
    is_of_library = owner is not None and owner.type is None and not _is_of_syntax_tree(heap, block)
    if variable is not None and is_of_library and said.variable != variable.name:
        yield f"{here}: at says {said.variable}, not {variable.name}"


def rows_of_variables(heap: Heap) -> tuple[Counter[str], Counter[str]]:
    """Return the bytes of the blocks whose chains begin at each static variable of a library: those in use, and those
    of freed objects, which the interpreter keeps, whatever stale word leads to them.
    """
    references = heap.python.references
    found: Counter[str] = Counter()
    freed: Counter[str] = Counter()
    names: dict[int, str | None] = {}
    for number in range(references.graph.blocks_end):
        chain, node = references.graph.chain(number)[:2], references.graph.node(number)
        if len(chain) == 2:
            if chain[1] not in names:
                variable = variable_above(references, number)
                names[chain[1]] = None if variable is None else variable.name
            name = names[chain[1]]
            if name is not None:
                (freed if node.kind == "idle" else found)[name] += node.size
    return found, freed


def _is_of_syntax_tree(heap: Heap, block: Node) -> bool:
    """Return whether a block belongs to the interpreter by its own contents, whatever points to it."""
    said = heap.python.owners_of([block.block])[block.block] if heap.is_python else None
    return said is not None and said.type is None and said.address == block.block


def _owns(node: Node) -> bool:
    return node.root is not None or node.place == "static" or node.kind in ("object", "idle")


def _sums(heap: Heap) -> Iterator[str]:
    """Yield the types for which ``pyobjects`` reports fewer bytes of buffers than the blocks that their objects own
    have.
    """
    graph, name = heap.references.graph, heap.python.objects.names.name
    numbers = list(range(graph.blocks_end))
    counted: Counter[str] = Counter()
    for number, row, owner in zip(numbers, graph.nodes_of(numbers), graph.owners_of(numbers)):
        if owner not in (number, NOBODY) and (kind := graph.node(owner).type_address):
            counted[name(kind)] += row.size
    # If so few bytes are not worth building the graph, that answer has no owners for blocks that only the graph gives
    # an owner.
    census = pyobjects(heap)
    nobodys = 0 if heap.python.draws_for_owners else census.unclassified.bytes + census.other_chunks.bytes
    for said in census.rows:
        # Each mapped range is a node too; a library may have mapped one at any time.
        lacking = counted[said.type] - said.buffers - said.mapped
        nobodys -= lacking
        if lacking < 0 or nobodys < 0:
            yield f"{said.type}: pyobjects says {said.buffers:,} bytes of buffers, not {counted[said.type]:,}"
