"""Objects whose reference count is larger than their number of references. A library took a reference and never
released it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from gdbheap.answers.unreachable import LOST_REFERENCES
from gdbheap.answers.why_not_freed import extension_modules
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding


@dataclass(frozen=True)
class LostReferences(Figures):
    """The number of ``objects`` whose references are lost.

    ``type``: the type with the most bytes, including all that its objects retain; ``count`` of the objects are of this
    type. ``libraries``: the loaded extension modules, without the interpreter's own. ``beside_malloc``: whether
    Python's own allocator handed out an object of this type.
    """

    ids = ("lost-references",)
    objects: int
    type: str
    count: int = field(metadata=UNLISTED)
    libraries: list[str]
    beside_malloc: bool = False


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the objects with lost references and all blocks that they retain, from the
    graph of references.

    The graph is built only for few blocks, or with ``detail``. The list is empty if their bytes are too few, or if
    memory that may contain the references is missing.
    """
    found = evidence.unreachable
    if found is None or evidence.heap.target.lacking:
        return []
    causes, sizes = found.causes, Counter[int]()
    for row in found.rows:
        if causes[row.cause].group == LOST_REFERENCES:
            sizes[row.cause] += evidence.resident_of_lost(row)
    size = sum(sizes.values())
    if not evidence.worth(size):
        return []
    first = causes[sizes.most_common(1)[0][0]]
    objects = sum(causes[cause].count for cause in sizes)
    name = evidence.heap.python.objects.names.name(first.type_address)
    heads = (row for row in found.rows if causes[row.cause] is first and row.is_head)
    beside_malloc = any(evidence.is_beside_malloc(row.addresses) for row in heads)
    figures = LostReferences(objects, name, first.count, extension_modules(evidence.heap), beside_malloc)
    return [Finding("lost-references", size, figures, evidence.line("unreachable"))]
