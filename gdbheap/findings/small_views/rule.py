"""Large buffers that only small views keep alive."""

from __future__ import annotations

from dataclasses import field

from gdbheap.answers.arrays import frames_of
from gdbheap.answers.views import MIN_BUFFER, SmallViews, small_views, windows
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import MAX_LIKELY_GRAPH_BLOCKS, UNLISTED, Evidence, Figures, Finding

# The most large blocks whose sizes are summed, and the most views of each kind that are read (without --detail).
MAX_BUFFERS, MAX_VIEWS = 4000, 10_000


@dataclass(frozen=True)
class ViewsOfType:
    """The views of one ``type``: their number, the bytes that they show, and the bytes of the buffers that they keep
    alive.
    """

    type: str
    count: int
    shown: int
    kept: int


@dataclass(frozen=True)
class KeptByViews(Figures):
    """Small views that alone keep large buffers alive. ``views``: the number of views.

    ``shown``: the bytes that the views show. ``kept``: the bytes that only the views keep alive. ``address``: the
    address of the view that keeps the most. ``path``: how to reach it in Python, or None. ``types``: the views by type,
    the type that keeps the most first."""

    ids = ("small-views",)
    views: int
    shown: int
    kept: int
    address: int
    path: str | None
    types: list[ViewsOfType] = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the memory that all small views together keep alive, from the graph of
    references. The list is empty if the finding's bytes are unknown or too few.
    """
    if evidence.objects is None or not evidence.worth(_large(evidence)):
        return []
    heap, most = evidence.heap, evidence.heap.used_blocks
    if most > MAX_LIKELY_GRAPH_BLOCKS and not evidence.detail:
        evidence.leave_out()
        return []
    found = list(windows(heap, frames_of(heap), most if evidence.detail else MAX_VIEWS))
    buffers = {start: size for window in found for start, size in window.buffers.items()}
    if not evidence.worth(sum(buffers.values())) or evidence.graph_of(most) is None:
        return []
    rows = small_views(heap, found)
    size = sum(row.kept - row.absent for row in rows)
    return [Finding("small-views", size, _figures(evidence, rows))] if evidence.worth(size) else []


def _large(evidence: Evidence) -> int:
    return sum(size for _address, size in evidence.largest_blocks(MIN_BUFFER, MAX_BUFFERS))


def _figures(evidence: Evidence, rows: list[SmallViews]) -> KeptByViews:
    heap, address = evidence.heap, rows[0].address
    number = heap.python.references.graph.find(address)
    path = None if number is None else heap.python.paths.path(heap.python.references.graph.chain(number)).expression
    types = [ViewsOfType(row.type, row.count, row.shown, row.kept) for row in rows]
    count, shown, kept = (sum(getattr(row, name) for row in rows) for name in ("count", "shown", "kept"))
    return KeptByViews(count, shown, kept, address, path, types)
