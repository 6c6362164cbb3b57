"""The main arena's top chunk: free memory at the end of the break that is below the threshold at which free() trims."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Evidence, Finding, mib
from gdbheap.answers.findings.thresholds import DEFAULT, trim_threshold


def find(evidence: Evidence) -> list[Finding]:
    """What malloc_trim(0) would give back of the top."""
    trim, glibc = evidence.trim, evidence.glibc
    if trim is None or glibc is None:
        return []
    top = trim.arenas[0].top or 0
    if not evidence.worth(top) or glibc.par.trim_threshold <= DEFAULT:
        return []
    text = (
        f"the main arena's top chunk holds {mib(top)} of free resident pages: free() trims it only when it reaches "
        f"trim_threshold, which is {trim_threshold(glibc.par)}"
    )
    advice = (
        "call malloc_trim(0) after the load ('heap trim --yes' does it now), or start the program with "
        "MALLOC_TRIM_THRESHOLD_=131072, which also keeps both thresholds from rising"
    )
    figures = {"top": top, "trim_threshold": glibc.par.trim_threshold}
    return [Finding("main-top", top, text, advice, figures)]
