"""holder: one holder has a quarter of RSS or more."""

from __future__ import annotations

from gdbheap.answers.findings.holder import Holder
from gdbheap.report.findings.words import Words
from gdbheap.report.main_holders import described

GROWS = "'heap snapshot' now and 'heap diff' later tell whether it grows"
# The remedy for each type of object.
REMEDIES = {
    "sqlite3.Connection": "PRAGMA shrink_memory gives the page caches back, PRAGMA cache_size limits them",
    "functools._lru_cache_wrapper": "give it a maxsize that is smaller, or call its cache_clear()",
    "ssl.SSLContext": "make one context and use it for all connections",
}


def _text(figures: Holder) -> str:
    holder = figures.holder
    what = described(holder)
    way = f"; it leads to its largest block by {holder.way}" if holder.way else ""
    least = "or more " if holder.at_least else ""
    return f"{least}in use, and held by {holder.path}{f' ({what})' if what else ''}{way}"


def _advice(figures: Holder) -> str:
    remedy = REMEDIES.get(figures.holder.what or "")
    if remedy is not None:
        return f"{remedy}; {GROWS}"
    return f"if this is more than the program needs, set a limit on it or drop what is no longer used; {GROWS}"


WORDS = Words(Holder, _text, _advice)
