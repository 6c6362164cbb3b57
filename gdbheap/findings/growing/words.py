"""Texts of the finding ``growing``: growth since an earlier snapshot."""

from __future__ import annotations

from gdbheap.findings.growing.rule import Growing
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words


def _text(figures: Growing) -> str:
    # Imported here, as few targets have this finding.
    from datetime import timedelta

    since = timedelta(seconds=figures.seconds)
    parts = [f"{size_text(figures.more)} more is in use than {since} ago"]
    if figures.type is not None and figures.gained > 0:
        added = f"of type {figures.type} {'was' if figures.count == 1 else 'were'} added"
        parts.append(f"{counted(figures.count, 'object')} {added} ({size_text(figures.gained)})")
    if figures.allocator is not None and figures.blocks > 0:
        blocks = counted(figures.blocks, "block")
        parts.append(f"{blocks} of {size_text(figures.size)} from {figures.allocator}")
    if figures.address is not None:
        path = figures.path or f"the object at {figures.address:#x}"
        parts.append(f"{path} retains {size_text(figures.retained)} more")
    if figures.limit_in is not None:
        parts.append(f"at this rate RSS reaches the limit in {timedelta(seconds=figures.limit_in)}")
    return "; ".join(parts)


def _advice(figures: Growing) -> str:
    reached = f", 'heap why {figures.address:#x}' shows what keeps that object" if figures.address is not None else ""
    return (
        f"'heap diff' shows what else changed{reached}. Compare a third snapshot later: a leak grows each time, but "
        "a cache grows only until it is full"
    )


WORDS = Words(Growing, _text, _advice)
