"""Lists and byte arrays that have room for much more than they hold."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Evidence, Finding
from gdbheap.objects.slack import find_slack
from gdbheap.words import counted, size_text

# Two pages; so many pools of each size, and by how much they may say too little.
LARGE, SAMPLED, CAUTION = 8192, 64, 2


def find(evidence: Evidence) -> list[Finding]:
    """What they have allocated beyond it, and is resident: counted where it may be worth it."""
    if evidence.objects is None:
        return []
    if not evidence.worth(_large(evidence) // 2) and not evidence.worth(CAUTION * _sampled(evidence)):
        return []
    rows = [row for row in find_slack(evidence.heap.target, evidence.objects) if row.count]
    size = sum(row.small + row.pages for row in rows)
    if not evidence.worth(size):
        return []
    most = max(rows, key=lambda row: row.small + row.pages)
    text = (
        f"{' and '.join(counted(row.count, row.type) for row in rows)} have room beyond what they hold, "
        f"{size_text(size)} of it resident: they made it as they grew, and keep it until they shrink below "
        f"half; the most, {size_text(most.most)}, in the {most.type} at {most.address:#x}"
    )
    figures = {
        "lists": sum(row.count for row in rows if row.type == "list"),
        "bytearrays": sum(row.count for row in rows if row.type == "bytearray"),
        "pages": sum(row.pages for row in rows), "address": most.address, "most": most.most,
    }  # fmt: skip
    return [Finding("slack", size, text, ADVICE, figures)]


ADVICE = (
    "replace what grows no more by its copy x[:], which has no room beyond, or by tuple(x) or bytes(x); make what is "
    "filled once in one step; 'heap why ADDRESS' says who holds it"
)


def _large(evidence: Evidence) -> int:
    """Bytes of all buffers that may have pages of room: it is never more than half of one."""
    heap = evidence.heap
    in_pages = [(row[0], row[2]) for row in heap.mimalloc.blocks.classes()] if heap.mimalloc else []
    large = sum(size * count for size, count in evidence.used_chunks + in_pages if size >= LARGE)
    return large + sum(chunk.end - chunk.chunk for chunk in heap.mapped)


def _sampled(evidence: Evidence) -> int:
    """What a sample says of the rest."""
    rows = find_slack(evidence.heap.target, evidence.objects, SAMPLED) if evidence.objects is not None else []
    return sum(row.small for row in rows)
