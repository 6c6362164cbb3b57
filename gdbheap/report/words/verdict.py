"""The verdict: the first line of the first page. It names the program, its resident memory, and how much of it is in
use or kept free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.accounting.partition import SHARED as SHARED_MEMORY
from gdbheap.findings.holder.rule import FILE, SHARED
from gdbheap.report.text.numbers import listed
from gdbheap.report.text.style import Style
from gdbheap.text import Sentence, quoted

if TYPE_CHECKING:
    from gdbheap.first_page.ledger import Ledger

__all__ = ["gave_back_much", "plain_verdict", "program_text", "verdict"]

# Free memory below this percentage of RSS is not mentioned. An allocator with less than this percentage of the free
# memory is not named.
MIN_PERCENT, MIN_PERCENT_OF_FREE = 2, 10
# The percentage of RSS from which on memory is mentioned that other owners may use too.
MIN_PERCENT_OF_OTHERS = 25
SHAREABLE = {SHARED: "shared", FILE: "file"}
LINES = {SHARED: SHARED_MEMORY}
WHERE = {SHARED: "is shared memory", FILE: "is in pages of mapped files"}
PLAIN = "._-+"


def verdict(answer: Ledger, style: Style) -> str:
    """Return the verdict as one or two sentences: the program and its resident memory, then how much is in use and
    free.
    """
    name = program_text(answer.program, answer.pid)
    return f"{name}: {_resident(answer, style)}. {_uses(answer, style)}".rstrip()


def plain_verdict(answer: Ledger) -> str:
    """Return the verdict for a document, without a terminal's style."""
    return Sentence(verdict(answer, Style(rss=answer.rss.bytes)))


def program_text(program: str, pid: int | None) -> str:
    """Return a process's program and its pid, as text."""
    return f"{_named(program)}{f' (pid {pid})' if pid else ''}"


def _named(program: str) -> str:
    """Return a program's name. If it has characters that are rare in names of files, it is quoted, so that it cannot be
    taken for gdbheap's own words."""
    if not program:
        return "the process"
    is_plain = all(character.isalnum() or character in PLAIN for character in program)
    return program if is_plain else quoted(program)


def _resident(answer: Ledger, style: Style) -> str:
    rss = answer.rss
    if rss.bytes is None:
        return "resident memory is unknown"
    if style.private:
        return f"{style.bytes(rss.bytes)} of private memory was resident; a core does not contain RSS itself"
    swapped = f", {style.bytes(rss.swapped)} more swapped out" if rss.swapped else ""
    return f"{style.bytes(rss.bytes)} resident{swapped}"


def _uses(answer: Ledger, style: Style) -> str:
    found = answer.summary
    if found is None or not found.used + found.free + found.outside:
        return ""
    used = (found.used if found.used_resident is None else found.used_resident) + found.outside
    share = f" ({style.share_of_resident(used)} %)" if style.rss and found.used_resident is not None else ""
    said = f"{style.bytes(used)}{share} in use{_free(answer, style)}."
    unknown = found.unknown
    if unknown is not None and unknown.bytes and _is_much(unknown.bytes, answer):
        whose = f"belongs to {unknown.name}, not examined" if unknown.name else "is in mappings of no known allocator"
        said += f" {style.bytes(unknown.bytes)} {whose}."
    return said + _of_others(answer, style)


def _of_others(answer: Ledger, style: Style) -> str:
    """Return sentences about memory that may also belong to another process or to the kernel's cache. Return "" if that
    is less than a quarter of RSS.
    """
    unknown = answer.summary.unknown if answer.summary is not None else None
    said = ""
    for kind, place in SHAREABLE.items():
        size = sum(row.resident or 0 for row in answer.holders if row.kind == kind)
        # Objects may hold shared memory, too.
        size = max([size, *(line.resident or 0 for line in answer.ledger if line.id == LINES.get(kind))])
        is_said = unknown is not None and unknown.id == place
        if answer.rss.bytes and 100 * size >= MIN_PERCENT_OF_OTHERS * answer.rss.bytes and not is_said:
            said += f" {style.bytes(size)} {WHERE[kind]}."
    return said


def _free(answer: Ledger, style: Style) -> str:
    found = answer.summary
    assert found is not None
    free = found.free if found.free_resident is None else found.free_resident
    if not _is_much(free, answer):
        if _is_much(found.stacks_left, answer):
            return f"; {style.bytes(found.stacks_left)} left on stacks by calls that have returned"
        if gave_back_much(answer):
            return f"; {style.bytes(answer.rss.lazily_freed)} freed lazily (MADV_FREE)"
        unknown = found.unknown
        is_known = unknown is None or not unknown.bytes or not _is_much(unknown.bytes, answer)
        return "; next to nothing is free" if is_known else ""
    kept = f"; {style.bytes(free)} freed by the program but kept by {_keepers(answer)}"
    lazy = f"; the kernel can reclaim {style.bytes(answer.rss.lazily_freed)} of RSS at any time (MADV_FREE)"
    return f"{kept}{lazy if gave_back_much(answer) else ''}"


def gave_back_much(answer: Ledger) -> bool:
    """Return whether the memory that was freed lazily (MADV_FREE) is enough to be mentioned."""
    return _is_much(answer.rss.lazily_freed or 0, answer)


def _keepers(answer: Ledger) -> str:
    """Return the names of the allocators that keep much of the free memory, the largest first.

    An allocator with less than MIN_PERCENT_OF_FREE of the free memory is not named.
    """
    free: dict[str, int] = {}
    for line in answer.ledger:
        if line.is_free and line.id.count(".") == 1:
            owner = line.id.partition(".")[0]
            free[owner] = free.get(owner, 0) + (line.virtual if line.resident is None else line.resident)
    total = sum(free.values())
    names = {line.id: line.name for line in answer.ledger}
    most = sorted(
        (owner for owner in free if 100 * free[owner] >= MIN_PERCENT_OF_FREE * total), key=lambda one: -free[one]
    )
    return listed([names.get(owner, owner) for owner in most]) if most else "its allocators"


def _is_much(size: int, answer: Ledger) -> bool:
    rss = answer.rss.bytes
    return size > 0 if not rss else 100 * size >= MIN_PERCENT * rss
