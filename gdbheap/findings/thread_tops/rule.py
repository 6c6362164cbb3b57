"""The top chunks of threads' arenas: free memory that malloc_trim() does not return."""

from __future__ import annotations

from dataclasses import field

from gdbheap.allocators.glibc.arenas import Glibc
from gdbheap.allocators.glibc.trim import ArenaTrim
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Claim, Evidence, Figures, Finding
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
    """The number of threads' ``arenas``, and the bytes that their top chunks keep (``kept``).

    ``keeping``: the number of arenas whose top chunk keeps bytes. ``arena_max``: the value of this setting in force, 0
    if it is not set. ``origin``: how ``trim_threshold`` got its value (see ``thresholds``); ``by_threshold``: whether
    this threshold is the reason.
    """

    ids = ("thread-tops",)
    arenas: int
    kept: int
    trim_threshold: int
    arena_max: int
    keeping: int = field(metadata=UNLISTED)
    origin: str
    largest: LargestTop
    by_threshold: bool


def find(evidence: Evidence) -> list[Claim]:
    """Return a finding about the resident pages of the top chunks of all arenas except the main one.

    If the trim threshold is the reason, only the bytes of each top chunk beyond the default threshold count.
    """
    trim, glibc = evidence.trim, evidence.glibc.malloc if evidence.glibc else None
    if trim is None or glibc is None or glibc.par.hp_pagesize:
        return []
    arenas = [arena for arena in trim.rows[1:] if arena.top_kept]
    kept = sum(arena.top_kept or 0 for arena in arenas)
    beyond = sum(max(0, (arena.top_kept or 0) - DEFAULT_THRESHOLD) for arena in arenas)
    by_threshold = glibc.par.trim_threshold > DEFAULT_THRESHOLD and evidence.worth(beyond)
    size = beyond if by_threshold else kept
    if not evidence.worth(size):
        return []
    par = glibc.par
    came = origin_in(evidence.heap.target, par, TRIM)
    figures = ThreadTops(
        len(trim.rows) - 1, kept, par.trim_threshold, par.arena_max, len(arenas), came,
        _largest(evidence, glibc, arenas), by_threshold,
    )  # fmt: skip
    commands = [] if by_threshold else evidence.measuring()
    environment = TRIM_THRESHOLD if by_threshold and came != OWN else {}
    finding = Finding("thread-tops", size, figures, commands, environment=environment)
    return [Claim(finding, lambda: evidence.tops(main=False), has_remedy=True)]


def _largest(evidence: Evidence, glibc: Glibc, arenas: list[ArenaTrim]) -> LargestTop:
    most = max(arenas, key=lambda arena: arena.top_kept or 0)
    names = {thread.tid: thread.name for thread in evidence.heap.target.threads}
    arena_of = glibc.walk().arena_of
    tid = next((cache.tid for cache in glibc.tcaches if arena_of(cache.address) == most.index), None)
    return LargestTop(most.top_kept or 0, most.index, tid, names.get(tid, "") if tid is not None else "")
