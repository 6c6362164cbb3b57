"""Free memory that mlock() keeps resident, so that malloc_trim() cannot return it."""

from __future__ import annotations

from gdbheap.allocators.allocator import State
from gdbheap.answers.accounting.partition import Sum, total
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding


@dataclass(frozen=True)
class Locked(Figures):
    """Memory that the target has locked with mlock(). ``locked``: its resident bytes, free or not."""

    ids = ("locked",)
    locked: int


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the memory that malloc_trim(0) would return in addition if nothing were
    locked. The list is empty if the finding's bytes are unknown or too few.
    """
    glibc, locked = evidence.glibc, evidence.heap.target.locked
    if glibc is None or not locked:
        return []
    free = _of(evidence, glibc.name, State.FREE)
    rows = glibc.kept((free + _of(evidence, glibc.name, State.TOP)).resident, free.whole)
    size = sum(row.bytes for row in rows if row.id == f"{glibc.name}.locked")
    if not evidence.worth(size):
        return []
    return [Finding("locked", size, Locked(evidence.resident_of(locked)))]


def _of(evidence: Evidence, allocator: str, state: State) -> Sum:
    owners = [owner for owner in evidence.of(state) if owner.startswith(f"{allocator}.")]
    return sum((total(evidence.sums, owner) for owner in owners), Sum())
