"""Free chunks between used ones: whole pages that free() leaves resident, and malloc_trim() would not."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.words import counted, size_text


def find(evidence: Evidence) -> list[Claim]:
    """What malloc_trim(0) would give back, without what is at the end of the main arena's top."""
    trim = evidence.trim
    if trim is None:
        return []
    given = [(arena.predicted or 0) - (arena.top or 0) for arena in trim.arenas]
    if not evidence.worth(sum(given)):
        return []
    chunks = sum(arena.chunks for arena in trim.arenas)
    threads = [size for size in given[1:] if size]
    where = f"{size_text(given[0])} in the main arena"
    if threads:
        where += f", {size_text(sum(threads))} in {counted(len(threads), 'arena')} of threads"
    text = (
        f"{counted(chunks, 'free chunk')} between used ones hold whole resident pages, which free() does not give "
        f"back: {where}"
    )
    advice = (
        "call malloc_trim(0) after the load that left them ('heap trim --yes' does it now); "
        "'heap holes' shows what stands between them, 'heap pins' what keeps more"
    )
    figures = {"chunks": chunks, "main": given[0], "threads": sum(threads), "arenas": len(threads)}
    commands = evidence.line("trim", "--yes", calls=True) + evidence.line("holes")
    finding = Finding("free-chunks", sum(given), text, advice, figures, commands)
    return [Claim(finding, evidence.between_tops, REMEDY)]


REMEDY = "call malloc_trim(0) after the load, which gives it back until the next one ('heap trim --yes' does it now)"
