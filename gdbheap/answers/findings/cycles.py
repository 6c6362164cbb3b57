"""Cycles of objects that nobody reaches, and that the garbage collector has not taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.answers.findings.finding import UNLISTED, Evidence, Figures, Finding


@dataclass(frozen=True)
class Cycles(Figures):
    """``objects`` in all, and the ``type`` whose objects have the most bytes (``largest``). Of the collector, where it
    was found: whether it is ``enabled``, has ``frozen`` objects, and by ``count`` of ``threshold`` how far it is from
    its next run over the youngest generation."""

    ids = ("cycles",)
    objects: int
    enabled: int | None
    type: str
    largest: int = field(metadata=UNLISTED)
    frozen: bool
    count: int | None = field(metadata=UNLISTED)
    threshold: int | None = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """What the collector would free, by the graph of references: of few blocks, where it is off, or in detail."""
    references = evidence.references
    if references is None:
        return []
    found = references.graph.unreachable(0, counted=True)
    rows = [(row.type_address, row.count, row.bytes + row.buffers) for row in found if row.type_address]
    size = sum(row[2] for row in rows) - evidence.absent_unreached(references)
    if not evidence.worth(size):
        return []
    return [Finding("cycles", size, _figures(evidence, rows))]


def _figures(evidence: Evidence, rows: list[tuple[int, int, int]]) -> Cycles:
    collector = evidence.heap.collector
    count = sum(row[1] for row in rows)
    kind, _, largest = max(rows, key=lambda row: row[2])
    name = evidence.heap.objects.names.name(kind)
    if collector is None:
        return Cycles(count, None, name, largest, False, None, None)
    enabled = int(not collector.is_off)
    return Cycles(count, enabled, name, largest, collector.frozen, collector.counts[0], collector.thresholds[0])
