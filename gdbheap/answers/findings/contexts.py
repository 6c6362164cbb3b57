"""The memory context of a PostgreSQL backend that has most."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gdbheap.answers.findings.finding import Claim, Evidence, Figures, Finding
from gdbheap.target.ranges import joined


@dataclass(frozen=True)
class LargestContext(Figures):
    """The context's ``name``, its bytes from malloc in ``total``, and how many of them are ``free`` in it."""

    ids = ("postgresql-context",)
    name: str
    total: int
    free: int


def find(evidence: Evidence) -> list[Claim]:
    """The largest context, if it has enough."""
    if evidence.heap.target.refusal is not None:
        return []
    largest = max(evidence.heap.contexts, key=lambda context: context.total)
    ranges = joined(sorted(largest.blocks))
    size = evidence.resident_of(ranges)
    if not evidence.worth(size):
        return []
    figures = LargestContext(largest.name, largest.total, largest.free)
    finding = Finding("postgresql-context", size, figures, evidence.line("contexts"))
    return [Claim(finding, partial(list, ranges))]
