"""Objects that the garbage collector put into gc.garbage instead of freeing them."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from gdbheap.answers.accounting.absent import absent_under
from gdbheap.answers.accounting.source_paths import variable_of_module
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding
from gdbheap.layout.cpython import OB_SIZE

__all__ = ["GarbageList", "find"]

# The first release of CPython that frees cycles of objects with __del__ (PEP 442).
FREES_FINALIZERS = (3, 4)
# The most objects of the list whose types are read.
MAX_ITEMS = 1000
OF_LIST = 1


@dataclass(frozen=True)
class GarbageList(Figures):
    """The number of ``objects`` in gc.garbage, and the ``type`` that most of them have. ``address``: the address
    of the list.

    ``keeps_finalizers``: whether the interpreter puts objects of cycles with __del__ there (CPython up to 3.3).
    """

    ids = ("garbage-list",)
    objects: int
    type: str
    address: int
    keeps_finalizers: bool = field(default=False, metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the memory whose nearest holder is the list gc.garbage.

    The list is empty if the finding's bytes are unknown or too few.
    """
    if evidence.objects is None:
        return []
    if not evidence.is_graph_quick:
        evidence.leave_out()
        return []
    heap, objects = evidence.heap, evidence.objects
    address = variable_of_module(heap.python.paths, "gc", "garbage")
    references = heap.python.references
    node = None if address is None else references.find(address)
    if address is None or node is None or objects.type_at(address) != "list":
        return []
    # What the list retains is no measure: the collector proved that nothing else refers to these objects, but stale
    # words in blocks of C code may point to them.
    size = sum(
        share.group.bytes for share in references.graph.shares([(node.id, OF_LIST)], 0) if share.label == OF_LIST
    )
    size -= absent_under(heap, lambda number: number if number == node.id else None)[node.id]
    if not evidence.worth(size):
        return []
    space, release = objects.target.space, objects.release
    count, items = space.word(address + release.at(OB_SIZE)), space.word(address + release["ob_item"])
    first = (space.word(items + place * space.machine.word) for place in range(min(count, MAX_ITEMS)))
    types = Counter(objects.type_at(item) for item in first)
    keeps_finalizers = (release.major, release.minor) < FREES_FINALIZERS
    figures = GarbageList(count, _most(types), address, keeps_finalizers)
    return [Finding("garbage-list", size, figures, evidence.line("why", "gc.garbage"))]


def _most(types: Counter[str]) -> str:
    return max(types, key=lambda name: types[name], default="?")
