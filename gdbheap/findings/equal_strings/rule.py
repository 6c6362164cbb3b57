"""Many strings with few different values: copies that a driver or a parser made."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field

from gdbheap.answers.duplicates import duplicates
from gdbheap.contents.python.objects.census import Objects
from gdbheap.contents.python.text.repr import Limits
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.findings.finding import MAX_LIKELY_GRAPH_BLOCKS, UNLISTED, Evidence, Figures, Finding
from gdbheap.graph.nodes import Node

STR, BYTES = "str", "bytes"
# The release of CPython that never frees an interned string.
IMMORTAL = (3, 12)
# The size of the first sample. All strings are compared if more than half of the sample repeats other values.
SAMPLES = 400
# The most bytes of objects of one type that are compared for the first page.
MAX_BYTES = 1 << 30
TEXTS = Limits(length=200, value=200, items=1, depth=1, reads=4)


@dataclass(frozen=True)
class EqualStrings(Figures):
    """The number of strings (``objects``), the number of ``values`` that several strings have, and the number of
    surplus ``copies``.

    ``keeps_interned``: whether the interpreter never frees an interned string (CPython 3.12). ``type``: "str" or
    "bytes".
    """

    ids = ("equal-strings",)
    objects: int
    values: int
    copies: int
    keeps_interned: bool = field(default=False, metadata=UNLISTED)
    type: str = STR


def find(evidence: Evidence) -> list[Finding]:
    """Return a finding about the bytes that one copy of each value would save, for the type with the largest saving.

    All strings of a type are compared only if most strings of a sample have copies.
    """
    found = [finding for name in (STR, BYTES) for finding in _of_type(evidence, name)]
    return sorted(found, key=lambda finding: -finding.bytes)[:1]


def _of_type(evidence: Evidence, name: str) -> list[Finding]:
    if evidence.objects is None or not _is_likely(evidence, evidence.objects, name):
        return []
    with suppress(GdbheapError):
        answer = duplicates(evidence.heap, name, 1)
        return [
            Finding(
                "equal-strings",
                found.saved - answer.absent,
                EqualStrings(found.objects, found.values, found.copies, _keeps_interned(evidence.objects), name),
                evidence.line("duplicates"),
            )
            for found in answer.types
            if evidence.worth(found.saved - answer.absent)
        ]
    return []


def _is_likely(evidence: Evidence, objects: Objects, name: str) -> bool:
    """Return whether equal objects of a type may be a finding.

    The objects must have enough bytes for a finding, and most objects of a sample must equal another object. Estimates
    count only objects of up to 512 bytes. Larger objects are counted if the graph of references costs little.
    """
    small = [row for row in evidence.estimates if row.type == name]
    is_much = evidence.worth(sum(row.bytes for row in small))
    if not is_much and not evidence.is_graph_quick:
        return False
    references = evidence.graph_of(evidence.heap.used_blocks if evidence.detail else MAX_LIKELY_GRAPH_BLOCKS)
    if references is None:
        return False
    nodes, size = list[Node](), 0
    for kind in (row.address for row in small):
        numbers = references.graph.objects_of(kind)
        sample = references.nodes(numbers[:: max(1, len(numbers) // SAMPLES)])
        size += sum(node.size for node in sample) * len(numbers) // max(1, len(sample))
        nodes += sample
    if not is_much and not evidence.worth(size) or size > MAX_BYTES and not evidence.detail:
        return False
    texts = [objects.repr.text(node.address, TEXTS) for node in nodes]
    return 2 * len(set(texts)) < len(texts)


def _keeps_interned(objects: Objects) -> bool:
    return (objects.release.major, objects.release.minor) == IMMORTAL
