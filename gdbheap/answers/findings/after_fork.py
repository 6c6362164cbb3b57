"""Pages that processes share after fork(): each one's RSS counts them whole."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers.findings.finding import Evidence, Figures, Finding


@dataclass(frozen=True)
class AfterFork(Figures):
    """The ``anonymous`` bytes of RSS, and of these the process's proportional share (``pss``)."""

    ids = ("after-fork",)
    anonymous: int
    pss: int


def find(evidence: Evidence) -> list[Finding]:
    """What of the private memory other processes carry, by the kernel's proportional count (PSS)."""
    rss = evidence.heap.target.rss
    if rss.anonymous is None or rss.proportional is None:
        return []
    shared = rss.anonymous - rss.proportional
    if not evidence.worth(shared):
        return []
    return [Finding("after-fork", shared, AfterFork(rss.anonymous, rss.proportional))]
