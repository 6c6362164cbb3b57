"""Recognise words that look like references to objects but are not in the objects' reference counts."""

from __future__ import annotations

from gdbheap import _native
from gdbheap.contents.python.objects.references import PythonNodes
from gdbheap.errors import Fault

__all__ = ["MAX_OTHERS", "counted_others"]

MAX_OTHERS = 4
# The kinds of nodes whose references are counted.
COUNTED = ("object", "buffer")


def counted_others(references: PythonNodes, found: _native.AlsoHeld) -> tuple[int, list[_native.OtherHolder]]:
    """Return the bytes that removing some nodes would free, and the other holders of their objects.

    ``found``: the other holders, including stale words. A stale word in C memory does not count as a holder, so its
    bytes are freed too. A word is stale if its object has a reference count of one and another object holds that one
    reference.
    """
    stale = [other for other in found.others if _is_uncounted(references, other)]
    left = [other for other in found.others if other not in stale]
    return found.retained + sum(other.bytes for other in stale), left


def _is_uncounted(references: PythonNodes, other: _native.OtherHolder) -> bool:
    source, target = references.nodes([other.id, other.target])
    chain = references.graph.chain(other.target)
    if source.kind in COUNTED or source.root is not None or not target.type or len(chain) < 2:
        return False
    (above,) = references.nodes([chain[-2]])
    try:
        count = references.objects.release.reference_count(references.space, target.address)
    except Fault:
        return False
    return count == 1 and above.kind in COUNTED and above.id != source.id
