"""Unreachable cycles of objects that the garbage collector has not collected yet."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from gdbheap import _native
from gdbheap.answers.why_not_freed import COLLECTABLE, FROZEN, CauseTexts
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding


@dataclass(frozen=True)
class Cycles(Figures):
    """Cycles that the collector has not collected yet.

    ``objects``: the number of their objects. ``type``: the type with the most bytes; ``largest``: these bytes.
    ``closing``: the references that close the cycles with the most bytes. ``times``: how many groups of objects such
    references connect; the objects of a group reach one another.

    Fields about the collector: ``enabled``: whether it is switched on, None if unknown. ``frozen``: whether gc.freeze()
    put objects aside. ``count`` and ``threshold``: the youngest generation is collected when its count exceeds its
    threshold."""

    ids = ("cycles",)
    objects: int
    enabled: int | None
    type: str
    largest: int = field(metadata=UNLISTED)
    frozen: bool
    count: int | None = field(metadata=UNLISTED)
    threshold: int | None = field(metadata=UNLISTED)
    closing: str = ""
    times: int = field(default=0, metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the cycles that the collector would free, including those that it frees only
    after gc.unfreeze().

    The graph of references is built only for few blocks, if the collector is off, or with ``detail``. The list is empty
    if the finding's bytes are unknown or too few.
    """
    found = evidence.unreachable
    if found is None:
        return []
    all_causes = found.causes
    rows = [row for row in found.rows if all_causes[row.cause].kind in (COLLECTABLE, FROZEN)]
    size = sum(map(evidence.resident_of_lost, rows))
    if not evidence.worth(size):
        return []
    return [Finding("cycles", size, _figures(evidence, all_causes, rows), evidence.line("unreachable"))]


def _figures(evidence: Evidence, all_causes: list[_native.Cause], rows: list[_native.LostGroup]) -> Cycles:
    collector, sizes, causes = evidence.heap.python.collector, Counter[int](), Counter[int]()
    for row in rows:
        size = evidence.resident_of_lost(row)
        sizes[row.type_address] += size * bool(row.type_address)
        causes[row.cause] += size
    count = sum(row.count for row in rows if row.type_address)
    (kind, largest), cause = sizes.most_common(1)[0], all_causes[causes.most_common(1)[0][0]]
    name, closing = evidence.heap.python.objects.names.name(kind), CauseTexts(evidence.heap).closing(cause)
    if collector is None:
        return Cycles(count, None, name, largest, False, None, None, closing, cause.count)
    enabled, near = int(not collector.is_off), (collector.counts[0], collector.thresholds[0])
    return Cycles(count, enabled, name, largest, collector.frozen, *near, closing, cause.count)
