"""Find the static variables of libraries that point to blocks of C code, by their symbols."""

from __future__ import annotations

from typing import NamedTuple

from gdbheap import _native
from gdbheap.contents.python.objects.references import BY_OTHERS, PythonNodes
from gdbheap.graph.nodes import Node
from gdbheap.graph.roots import variable_at

__all__ = ["LibraryVariable", "blocks_led_to", "variable_above", "variable_to"]

# The most bytes of a static variable that are read. For each of its words, the data before the variable is searched for
# other pointers to the same block. At most MAX_SEARCHED bytes are searched in total.
MAX_OF_VARIABLE, MAX_SEARCHED, WORD = 64 << 10, 1 << 30, 8
# The length of a chain from a root to a node to which it points directly.
FIRST = 2


class LibraryVariable(NamedTuple):
    """A static variable of a library. ``name`` includes the library's name, and ``size`` is in bytes."""

    name: str
    start: int
    size: int


def variable_to(references: PythonNodes, root: Node, first: Node) -> LibraryVariable | None:
    """Return the static variable in the memory of ``root`` that points to the node ``first``.

    Return None if ``root`` is not a library's data, or if no symbol covers the pointer.
    """
    if root.root is None or root.root.phase != BY_OTHERS or not root.root.ranges:
        return None
    word = references.word_to(root, first)
    found = None if word is None else variable_at(references.objects.target, word)
    return None if found is None else LibraryVariable(*found)


def variable_above(references: PythonNodes, number: int) -> LibraryVariable | None:
    """Return the static variable at which the chain of references to a node begins; None if the chain begins
    elsewhere.
    """
    chain = references.graph.chain(number)[:FIRST]
    return variable_to(references, *references.nodes(chain)) if len(chain) == FIRST else None


def blocks_led_to(references: PythonNodes, variable: LibraryVariable) -> list[int]:
    """Return the nodes to which a static variable points and whose chains of references begin with it, ascending.

    If two variables point to a node, its chain begins at the first one.
    """
    graph = references.graph
    end = variable.start + min(variable.size, MAX_OF_VARIABLE)
    words = _native.words_at(references.space, range(variable.start, end, WORD))
    numbers = {number for word in words if word and (number := graph.find(word)) is not None}
    found, left = [], MAX_SEARCHED
    chains = [chain for number in sorted(numbers) if len(chain := graph.chain(number)) == FIRST]
    for root, first in map(references.nodes, chains):
        left -= sum(max(0, min(high, variable.start) - low) for low, high in (root.root.ranges if root.root else []))
        word = references.word_to(root, first) if left > 0 else None
        if word is not None and variable.start <= word < end:
            found.append(first.id)
    return found
