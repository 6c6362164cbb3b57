"""Pages that processes share after fork(); RSS counts each of these pages in full for every process."""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding


@dataclass(frozen=True)
class AfterFork(Figures):
    """The memory of a process that may still be shared since fork().

    ``anonymous``: the anonymous bytes of RSS. ``pss``: the process's proportional share of these bytes. ``python``:
    whether the process runs Python."""

    ids = ("after-fork",)
    anonymous: int
    pss: int
    python: bool = False


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about private memory that the process shares with others, computed from the kernel's
    PSS. The list is empty if the finding's bytes are unknown or too few.
    """
    rss = evidence.heap.target.rss
    if rss.anonymous is None or rss.proportional is None:
        return []
    shared = rss.anonymous - rss.proportional
    heap = evidence.heap
    is_python = heap.target.refusal is None and heap.is_python
    if not evidence.worth(shared):
        return []
    return [Finding("after-fork", shared, AfterFork(rss.anonymous, rss.proportional, is_python))]
