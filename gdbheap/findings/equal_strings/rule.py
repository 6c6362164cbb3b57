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

STR = "str"
# The release of CPython that never frees an interned string.
IMMORTAL = (3, 12)
# The size of the first sample. All strings are compared if more than half of the sample repeats other values.
SAMPLES = 400
TEXTS = Limits(length=200, value=200, items=1, depth=1, reads=4)


@dataclass(frozen=True)
class EqualStrings(Figures):
    """The number of strings (``objects``), the number of ``values`` that several strings have, and the number of
    surplus ``copies``.

    ``keeps_interned``: whether the interpreter never frees an interned string (CPython 3.12).
    """

    ids = ("equal-strings",)
    objects: int
    values: int
    copies: int
    keeps_interned: bool = field(default=False, metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """Return a finding about the bytes that one copy of each value would save.

    All strings are compared only if most strings of a sample have copies.
    """
    strings = [row for row in evidence.estimates if row.type == STR]
    if evidence.objects is None or not evidence.worth(sum(row.bytes for row in strings)):
        return []
    with suppress(GdbheapError):
        if not _repeat(evidence, evidence.objects, [row.address for row in strings]):
            return []
        return [
            Finding(
                "equal-strings",
                found.saved,
                EqualStrings(found.objects, found.values, found.copies, _keeps_interned(evidence.objects)),
                evidence.line("duplicates"),
            )
            for found in duplicates(evidence.heap, STR, 1).types
            if evidence.worth(found.saved)
        ]
    return []


def _keeps_interned(objects: Objects) -> bool:
    return (objects.release.major, objects.release.minor) == IMMORTAL


def _repeat(evidence: Evidence, objects: Objects, types: list[int]) -> bool:
    """Return whether more than half of a sample of strings repeats the value of another string."""
    references = evidence.graph_of(evidence.heap.used_blocks if evidence.detail else MAX_LIKELY_GRAPH_BLOCKS)
    if references is None:
        return False
    nodes: list[Node] = []
    for kind in types:
        numbers = references.graph.objects_of(kind)
        nodes += references.nodes(numbers[:: max(1, len(numbers) // SAMPLES)])
    texts = [objects.repr.text(node.address, TEXTS) for node in nodes]
    return 2 * len(set(texts)) < len(texts)
