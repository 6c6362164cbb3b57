"""The top chunks of threads' arenas: free memory that malloc_trim() does not return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from gdbheap.allocators.glibc.arenas import Glibc
from gdbheap.allocators.glibc.trim import ArenaTrim
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.settings import TRIM_THRESHOLD
from gdbheap.findings.thresholds import DEFAULT_THRESHOLD, OWN, TRIM, origin_in


@dataclass(frozen=True)
class LargestTop:
    """The bytes of the largest top chunk, its arena, and a thread that uses this arena (None and "" if none does)."""

    bytes: int
    arena: int
    tid: int | None
    thread: str


@dataclass(frozen=True)
class ThreadTops(Figures):
    """The top chunks of the threads' arenas. ``arenas``: the number of these arenas.

    ``kept``: the bytes that the top chunks keep from being returned. ``keeping``: the number of arenas with such bytes.
    ``by_threshold``: whether the reason is that the trim threshold was raised. If so, only bytes beyond glibc's default
    threshold count. ``largest``: the largest top chunk. ``arena_max``: the value of this setting in force, 0 if it is
    not set. ``origin``: how ``trim_threshold`` got its value (see ``thresholds``)."""

    ids = ("thread-tops",)
    arenas: int
    kept: int
    trim_threshold: int
    arena_max: int
    keeping: int = field(metadata=UNLISTED)
    origin: str
    largest: LargestTop
    by_threshold: bool


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the resident pages of the top chunks of all arenas except the main one.

    If the trim threshold is the reason, only the bytes of each top chunk beyond the default threshold count. The list
    is empty if the finding's bytes are unknown or too few.
    """
    trim, glibc = evidence.trim, evidence.glibc.malloc if evidence.glibc else None
    if trim is None or glibc is None or glibc.par.hp_pagesize:
        return []
    beyond = _kept(trim.rows[1:], DEFAULT_THRESHOLD)
    by_threshold = glibc.par.trim_threshold > DEFAULT_THRESHOLD and evidence.worth(sum(beyond.values()))
    kept = beyond if by_threshold else _kept(trim.rows[1:], 0)
    size = sum(kept.values())
    if not evidence.worth(size):
        return []
    par = glibc.par
    came = origin_in(evidence.heap.target, par, TRIM)
    figures = ThreadTops(
        len(trim.rows) - 1, size, par.trim_threshold, par.arena_max, len(kept), came,
        _largest(evidence, glibc, kept), by_threshold,
    )  # fmt: skip
    commands = [] if by_threshold else evidence.measuring()
    environment = TRIM_THRESHOLD if by_threshold and came != OWN else {}
    finding = Finding("thread-tops", size, figures, commands, environment=environment)
    return [FindingClaim(finding, lambda: evidence.tops(main=False), has_remedy=True)]


def _kept(rows: Sequence[ArenaTrim], allowed: int) -> dict[int, int]:
    """Return, by the number of the arena, the bytes that its top chunk keeps beyond ``allowed`` bytes."""
    return {row.index: (row.top_kept or 0) - allowed for row in rows if (row.top_kept or 0) > allowed}


def _largest(evidence: Evidence, glibc: Glibc, kept: dict[int, int]) -> LargestTop:
    most = max(kept, key=lambda index: (kept[index], -index))
    names = {thread.tid: thread.name for thread in evidence.heap.target.threads}
    arena_of = glibc.walk().arena_of
    tid = next((cache.tid for cache in glibc.tcaches if arena_of(cache.address) == most), None)
    return LargestTop(kept[most], most, tid, names.get(tid, "") if tid is not None else "")
