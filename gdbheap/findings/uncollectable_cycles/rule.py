"""Unreachable cycles of objects that the garbage collector does not free."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from gdbheap.answers.unreachable import CYCLES
from gdbheap.answers.why_not_freed import COLLECTABLE, FROZEN, CauseTexts
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding

__all__ = ["UncollectableCycles", "find"]


@dataclass(frozen=True)
class UncollectableCycles(Figures):
    """Cycles that the collector does not free. ``objects``: the number of their objects.

    ``type``: the type whose objects have the most bytes; ``largest``: these bytes. ``kind``: why the collector does not
    free the largest group of cycles (a key of ``why_not_freed.OBSTACLES``). ``culprit``: the type that is the reason,
    "" for none. ``closing``: the references that close the cycles of this group. ``times``: how many groups of objects
    such references connect; the objects of a group reach one another."""

    ids = ("uncollectable-cycles",)
    objects: int
    type: str
    largest: int = field(metadata=UNLISTED)
    kind: str
    culprit: str
    closing: str
    times: int = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the cycles that gc.collect() does not free, from the graph of references. The
    list is empty if the finding's bytes are unknown or too few.
    """
    found = evidence.unreachable
    if found is None:
        return []
    causes = found.causes
    is_it = [cause.group == CYCLES and cause.kind not in (COLLECTABLE, FROZEN) for cause in causes]
    rows = [row for row in found.rows if is_it[row.cause]]
    size = sum(map(evidence.resident_of_lost, rows))
    if not evidence.worth(size):
        return []
    types, sizes = Counter[int](), Counter[int]()
    for row in rows:
        resident = evidence.resident_of_lost(row)
        types[row.type_address] += resident * bool(row.type_address)
        sizes[row.cause] += resident
    (kind, largest), cause = types.most_common(1)[0], causes[sizes.most_common(1)[0][0]]
    names = evidence.heap.python.objects.names
    figures = UncollectableCycles(
        sum(row.count for row in rows if row.type_address),
        names.name(kind),
        largest,
        cause.kind,
        names.name(cause.type_address) if cause.type_address else "",
        CauseTexts(evidence.heap).closing(cause),
        cause.count,
    )
    return [Finding("uncollectable-cycles", size, figures, evidence.line("unreachable"))]
