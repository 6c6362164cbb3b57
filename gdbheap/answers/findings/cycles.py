"""Cycles of objects that nobody reaches, and that the garbage collector has not taken."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Evidence, Finding
from gdbheap.python.collector import Collector
from gdbheap.words import counted, size_text


def find(evidence: Evidence) -> list[Finding]:
    """What the collector would free, by the graph of references: of few blocks, where it is off, or in detail."""
    heap, references = evidence.heap, evidence.references
    if references is None:
        return []
    found = references.graph.unreachable(0, counted=True)
    rows = [(row.type_address, row.count, row.bytes + row.buffers) for row in found if row.type_address]
    count, size = sum(row[1] for row in rows), sum(row[2] for row in rows)
    if not evidence.worth(size):
        return []
    kind, _, largest = max(rows, key=lambda row: row[2])
    text = (
        f"{counted(count, 'object')} are reached by nobody but one another, the most of type "
        f"{heap.objects.names.name(kind)} ({size_text(largest)}): {_state(heap.collector)}"
    )
    collector = heap.collector
    figures = {"objects": count} if collector is None else {"objects": count, "enabled": int(not collector.is_off)}
    return [Finding("cycles", size, text, _advice(collector, evidence.is_collector_off), figures)]


def _state(collector: Collector | None) -> str:
    if collector is None:
        return "the garbage collector has not run since they went"
    if collector.is_off:
        return "the garbage collector is switched off (gc.disable(), or a threshold of 0)"
    return (
        f"the garbage collector is on, and has not looked at their generation since ({collector.counts[0]:,} of "
        f"{collector.thresholds[0]:,} to its next run over the youngest one)"
    )


def _advice(collector: Collector | None, is_off: bool) -> str:
    keep = ", and gc.enable() or a call from time to time" if is_off else " after what left them"
    frozen = ", gc.unfreeze() before it where that frees nothing: some objects are out of its reach (gc.freeze())"
    return (
        f"call gc.collect(){keep}{frozen if collector is not None and collector.frozen else ''}; 'heap unreachable' "
        "lists what they are, and where no object leads back to its owner there is no cycle"
    )
