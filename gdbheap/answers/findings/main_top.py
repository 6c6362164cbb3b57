"""The main arena's top chunk: free memory at the end of the break that free() has not trimmed."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.answers.findings.settings import TRIM_THRESHOLD
from gdbheap.answers.findings.thresholds import DEFAULT, trim_threshold
from gdbheap.words import size_text


def find(evidence: Evidence) -> list[Claim]:
    """What malloc_trim(0) would give back of the top."""
    trim, glibc = evidence.trim, evidence.glibc
    if trim is None or glibc is None:
        return []
    top = trim.arenas[0].top or 0
    if not evidence.worth(top):
        return []
    text = f"the main arena's top chunk holds {size_text(top)} of free resident pages"
    risen = glibc.malloc.par.trim_threshold > max(DEFAULT, top)
    text += f": {BELOW} {trim_threshold(glibc.malloc.par)}" if risen else f", beyond trim_threshold: {BEYOND}"
    advice = CALL + START if risen else CALL
    figures = {"top": top, "trim_threshold": glibc.malloc.par.trim_threshold}
    commands = evidence.line("trim", "--yes", calls=True)
    finding = Finding("main-top", top, text, advice, figures, commands, TRIM_THRESHOLD if risen else {})
    return [Claim(finding, lambda: evidence.tops(main=True), CALL)]


BELOW = "free() trims it only when it reaches trim_threshold, which is"
BEYOND = "free() looks at it only when it has 64 KiB or more in one piece, and has not since"
CALL = "call malloc_trim(0) after the load ('heap trim --yes' does it now)"
START = ", or start the program with MALLOC_TRIM_THRESHOLD_=131072, which also keeps both thresholds from rising"
