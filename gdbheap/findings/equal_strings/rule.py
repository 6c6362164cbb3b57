"""Many strings with few different values: copies that a driver or a parser made."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field

from gdbheap import _native
from gdbheap.answers.duplicates import duplicates
from gdbheap.contents.python.objects.census import Objects
from gdbheap.contents.python.objects.comparable import values_of
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.findings.finding import MAX_LIKELY_GRAPH_BLOCKS, UNLISTED, Evidence, Figures, Finding
from gdbheap.graph.nodes import Node

STR, BYTES = "str", "bytes"
# The release of CPython that never frees an interned string.
IMMORTAL = (3, 12)
# Strings of a type with at most this many bytes are all compared, which takes a tenth of a second.
QUICK_BYTES = 128 << 20
# The number of strings in the sample of a type with more bytes. All strings of the type are compared if more than one
# in MIN_REPEATS strings of the sample repeats another value. About as many repeat if the type has ten times as many
# values as the sample has strings, all equally frequent.
SAMPLES, MIN_REPEATS = 4000, 20
# The sample is the same in each run over the same strings.
SEED = 0
# The most bytes of objects of one type that are compared for the first page.
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class EqualStrings(Figures):
    """The strings of one type that repeat values.

    ``type``: "str" or "bytes". ``objects``: the number of strings. ``values``: the number of values that several
    strings have. ``copies``: the number of strings that would not exist if each value were stored once.
    ``keeps_interned``: whether the interpreter never frees an interned string (CPython 3.12)."""

    ids = ("equal-strings",)
    objects: int
    values: int
    copies: int
    keeps_interned: bool = field(default=False, metadata=UNLISTED)
    type: str = STR


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the type whose repeated values waste the most bytes.

    All strings of a type are compared if they have at most QUICK_BYTES bytes, or if enough strings of a sample repeat
    other values. Both conditions depend only on the strings, so that a process and its snapshot have the same finding.
    The list is empty if the finding's bytes are unknown or too few.
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

    The objects must have enough bytes for a finding. If they have more than QUICK_BYTES, enough objects of a sample
    must repeat other values. Estimates count only objects of up to 512 bytes. Larger objects are counted if the graph
    of references costs little.
    """
    small = [row for row in evidence.estimates if row.type == name]
    is_much = evidence.worth(sum(row.bytes for row in small))
    if not is_much and not evidence.is_graph_quick:
        evidence.leave_out()
        return False
    # Imported on use: imports take most of a command's start-up time.
    from random import Random

    references = evidence.graph_of(evidence.heap.used_blocks if evidence.detail else MAX_LIKELY_GRAPH_BLOCKS)
    if references is None:
        return False
    nodes, size = list[Node](), 0
    for kind in (row.address for row in small):
        numbers = references.graph.objects_of(kind)
        sample = references.nodes(Random(SEED).sample(numbers, min(SAMPLES, len(numbers))))
        size += sum(node.size for node in sample) * len(numbers) // max(1, len(sample))
        nodes += sample
    if not is_much and not evidence.worth(size):
        return False
    if size > MAX_BYTES and not evidence.detail:
        evidence.leave_out()
        return False
    return size <= QUICK_BYTES or _repeats(objects, {row.address: name for row in small}, nodes)


def _repeats(objects: Objects, types: dict[int, str], nodes: list[Node]) -> bool:
    """Return whether more than one in MIN_REPEATS of the objects in ``nodes`` repeats the value of another."""
    values, addresses = values_of(objects.release, types), [node.address for node in nodes]
    hashes = _native.value_hashes(objects.heaps, objects.layout, values, addresses)
    return MIN_REPEATS * (len(hashes) - len(set(hashes))) > len(hashes)


def _keeps_interned(objects: Objects) -> bool:
    return (objects.release.major, objects.release.minor) == IMMORTAL
