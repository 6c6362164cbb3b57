"""One holder that has a quarter of RSS or more; the first page finds it (answers/main_holders)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gdbheap.answers.findings.finding import MIN_FINDING_BYTES, Evidence, Figures, Finding
from gdbheap.answers.shared_out import Part

__all__ = ["RUNTIME", "Holder", "MainHolder", "found_of"]

MIN_PERCENT = 25
RUNTIME = "runtime"


@dataclass(frozen=True)
class MainHolder:
    """The blocks of one holder.

    ``path``: as source code would write it, or in words. ``what``: the type of the object that it leads to, or of all
    such that differ in subscripts alone, None where there is no single type; ``count``: how many items the object has,
    None where it has no length, or how many objects these are; ``shape``: of an array or
    a table. ``kind``: of shared_out.SharedOut, a root's (graph.roots) or "runtime". ``parts``: the kinds of its blocks,
    the largest first; ``way``: how it leads to its largest block, in words. ``bytes`` of its blocks, ``resident`` of
    these, None where that is not known; ``share``: of RSS, of resident bytes. ``at_least``: not all references could be
    read, and the bytes are those that this holder alone is proven to have. ``limit``: of an lru_cache its maxsize, -1
    where it has none; None for other objects."""

    bytes: int
    resident: int | None
    share: float | None
    path: str
    what: str | None
    count: int | None
    kind: str
    address: int | None = None
    shape: list[int] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    way: str | None = None
    at_least: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class Holder(Figures):
    """The ``holder`` that has the most, with ``count`` items where it has a length."""

    ids = ("holder",)
    holder: MainHolder
    count: int | None


def found_of(evidence: Evidence, rows: Sequence[MainHolder], others: Sequence[Finding] = ()) -> list[Finding]:
    """Return the finding about the first of ``rows``, the largest ones, if it has at least MIN_PERCENT of RSS and none
    of the ``others`` is about the same object. It may be intended."""
    rss = evidence.heap.target.rss.bytes
    first = rows[0] if rows else None
    # A runtime has a finding of its own.
    if first is None or first.kind == RUNTIME or rss is None or first.resident is None:
        return []
    if first.resident < MIN_FINDING_BYTES or 100 * first.resident < MIN_PERCENT * rss:
        return []
    if first.address is not None and any(getattr(one.figures, "address", None) == first.address for one in others):
        return []
    commands = evidence.line("why", f"{first.address:#x}") if first.address is not None else evidence.line("owners")
    figures = Holder(first, first.count)
    return [Finding("holder", first.resident, figures, commands, doubtful=True)]
