"""Pages that processes share after fork(): each one's RSS counts them whole."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Evidence, Finding
from gdbheap.words import size_text


def find(evidence: Evidence) -> list[Finding]:
    """What of the private memory other processes carry, by the kernel's proportional count (PSS)."""
    rss = evidence.heap.target.rss
    if rss.anonymous is None or rss.proportional is None:
        return []
    shared = rss.anonymous - rss.proportional
    if not evidence.worth(shared):
        return []
    text = (
        f"of {size_text(rss.anonymous)} of private memory, {size_text(rss.proportional)} are this process's share "
        "(Pss_Anon): the rest is counted again in the RSS of the processes that it was forked from, or that it forked"
    )
    advice = (
        "add up PSS, not RSS. What is shared stays so until one of them writes to the page: in Python, gc.freeze() "
        "before fork() keeps the collector from writing to all objects"
    )
    return [Finding("after-fork", shared, text, advice, {"anonymous": rss.anonymous, "pss": rss.proportional})]
