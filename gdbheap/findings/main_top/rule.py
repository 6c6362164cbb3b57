"""The main arena's top chunk: free memory just below the program break, which free() has not trimmed."""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.settings import TRIM_THRESHOLD
from gdbheap.findings.thresholds import DEFAULT_THRESHOLD, OWN, TRIM, origin_in


@dataclass(frozen=True)
class MainTop(Figures):
    """The bytes of the ``top`` chunk, and ``trim_threshold`` with its ``origin`` (see ``thresholds``).

    ``is_above``: whether the threshold is above both the top chunk and glibc's default.
    """

    ids = ("main-top",)
    top: int
    trim_threshold: int
    origin: str
    is_above: bool


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the memory of the main arena's top chunk that malloc_trim(0) would return. The
    list is empty if the finding's bytes are unknown or too few.
    """
    trim, glibc = evidence.trim, evidence.glibc
    if trim is None or glibc is None:
        return []
    top = trim.rows[0].top_predicted or 0
    if not evidence.worth(top):
        return []
    par = glibc.malloc.par
    threshold, came = par.trim_threshold, origin_in(evidence.heap.target, par, TRIM)
    is_above = threshold > max(DEFAULT_THRESHOLD, top)
    figures = MainTop(top, threshold, came, is_above)
    commands = evidence.trimming()
    finding = Finding("main-top", top, figures, commands, TRIM_THRESHOLD if is_above and came != OWN else {})
    return [FindingClaim(finding, lambda: evidence.tops(main=True), has_remedy=True)]
