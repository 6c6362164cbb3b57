"""The tops of threads' arenas: free memory that malloc_trim() does not reach."""

from __future__ import annotations

from gdbheap.allocators.glibc.arenas import Glibc
from gdbheap.allocators.glibc.trim import ArenaTrim
from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.answers.findings.settings import ONE_ARENA, TRIM_THRESHOLD
from gdbheap.answers.findings.thresholds import DEFAULT, trim_threshold
from gdbheap.words import counted, size_text


def find(evidence: Evidence) -> list[Claim]:
    """Resident pages of the tops of all arenas but the main one."""
    trim, glibc = evidence.trim, evidence.glibc.malloc if evidence.glibc else None
    if trim is None or glibc is None or glibc.par.hp_pagesize:
        return []
    arenas = [arena for arena in trim.arenas[1:] if arena.top_kept]
    kept = sum(arena.top_kept or 0 for arena in arenas)
    beyond = sum(max(0, (arena.top_kept or 0) - DEFAULT) for arena in arenas)
    by_threshold = glibc.par.trim_threshold > DEFAULT and evidence.worth(beyond)
    size = beyond if by_threshold else kept
    if not evidence.worth(size):
        return []
    text = (
        f"{counted(len(arenas), 'arena')} of threads keep {size_text(kept)} of free resident pages at their ends, "
        f"which malloc_trim() does not reach; {_largest(evidence, glibc, arenas)}. free() trims an end only when "
        f"it reaches trim_threshold, which is {trim_threshold(glibc.par)}; {_limit(glibc)}"
    )
    figures = {
        "arenas": len(trim.arenas) - 1, "kept": kept, "trim_threshold": glibc.par.trim_threshold,
        "arena_max": glibc.par.arena_max,
    }  # fmt: skip
    advice, environment = (BY_THRESHOLD, TRIM_THRESHOLD) if by_threshold else (BY_ARENAS, ONE_ARENA)
    finding = Finding("thread-tops", size, text, advice, figures, environment=environment)
    return [Claim(finding, lambda: evidence.tops(main=False), advice)]


BY_THRESHOLD = (
    "start the program with MALLOC_TRIM_THRESHOLD_=131072: every arena then gives back what it has free at its end "
    "beyond that; or with MALLOC_ARENA_MAX=1, and malloc_trim(0) reaches all of it"
)
BY_ARENAS = (
    "start the program with MALLOC_ARENA_MAX=1, or a small number: the threads then share arenas, at the price of "
    "waiting for each other, and malloc_trim(0) reaches the end of the main one"
)


def _largest(evidence: Evidence, glibc: Glibc, arenas: list[ArenaTrim]) -> str:
    most = max(arenas, key=lambda arena: arena.top_kept or 0)
    names = {thread.tid: thread.name for thread in evidence.heap.target.threads}
    arena_of = glibc.walk().arena_of
    users = [cache.tid for cache in glibc.tcaches if arena_of(cache.address) == most.index]
    whose = f" (thread {users[0]}, {names.get(users[0]) or 'without a name'})" if users else " (no thread is there now)"
    return f"the most, {size_text(most.top_kept or 0)}, in arena {most.index}{whose}"


def _limit(glibc: Glibc) -> str:
    return f"at most {glibc.par.arena_max} arenas may be made" if glibc.par.arena_max else "arena_max is not set"
