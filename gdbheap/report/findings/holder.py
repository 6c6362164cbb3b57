"""holder: one holder has a quarter of RSS or more."""

from __future__ import annotations

from gdbheap.answers.findings.holder import Holder
from gdbheap.report.findings.words import Words
from gdbheap.report.main_holders import described


def _text(figures: Holder) -> str:
    holder = figures.holder
    what = described(holder)
    way = f"; it leads to its largest block by {holder.way}" if holder.way else ""
    return f"in use, and held by {holder.path}{f' ({what})' if what else ''}{way}"


def _advice(figures: Holder) -> str:
    if figures.holder.kind == "thread":
        return "only its code can free this: look at what that thread keeps"
    return (
        "if this is more than the program needs, set a limit on it or drop what is no longer used; "
        "'heap snapshot' now and 'heap diff' later tell whether it grows"
    )


WORDS = Words(Holder, _text, _advice)
