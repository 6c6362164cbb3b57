"""What ``heap`` says in a few sentences: what is used and free, what can go back, why the rest stays, and of what that
is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.style import Style

if TYPE_CHECKING:
    from gdbheap.answers.summary import Summary, Unknown

__all__ = ["render"]

LEAST_SHARE = 100
WHY = {
    "glibc.fragments": "in free chunks on pages that chunks in use share (fragmentation)",
    "glibc.tcache": "in threads' caches",
    "glibc.locked": "in free pages that mlock keeps",
    "glibc.hugetlb": "in free pages of hugetlbfs, which malloc_trim() does not give back",
    "glibc.top": "in top chunks that malloc_trim() leaves",
    "pymalloc.free": "in pymalloc's arenas, which go back only as a whole",
    "mimalloc.free": "in pages of Python's mimalloc that hold blocks in use, or that it keeps for later",
}
# What holds other memory than that of what is named, by the ledger's line.
PLACES = {
    "glibc.mmapped": "malloc's chunks with mappings of their own",
    "shared": "shared memory",
    "other.rest": "other anonymous memory",
}


def render(answer: Summary, names: dict[str, str], style: Style) -> str:
    """``names``: what the ledger's lines are called, by id. Nothing where no block was found."""
    told = [_books(answer, names, style), _given_back(answer, style), _stays(answer, names, style)]
    return " ".join(filter(None, [*told, _not_walked(answer.unknown, style)]))


def _books(answer: Summary, names: dict[str, str], style: Style) -> str:
    if not answer.used + answer.free:
        return ""
    used, free = style.bytes(answer.used), style.bytes(answer.free)
    where = " and ".join(names.get(name, name) for name in answer.allocators)
    start = f"In {where}, {used} is in use" if answer.unknown is not None else f"{used} is in use by the program"
    if answer.free_resident is None or answer.used_resident is None:
        return f"{start} and {free} is free; how much of it is resident is not known."
    there = style.bytes(answer.used_resident)
    resident = "" if there == used else f" ({there} of it resident)"
    return f"{start}{resident}, and {style.bytes(answer.free_resident)} is free and resident."


def _given_back(answer: Summary, style: Style) -> str:
    if answer.returnable is None or not answer.free_resident:
        return ""
    size = style.bytes(answer.returnable) if answer.returnable else "none"
    return f"malloc_trim(0) would give back {size} of that."


def _stays(answer: Summary, names: dict[str, str], style: Style) -> str:
    """What is less than a hundredth of the rest is in its sum, and has no words of its own."""
    rest = sum(row.bytes for row in answer.kept)
    told = [row for row in answer.kept if row.bytes * LEAST_SHARE >= rest]
    if not told:
        return ""
    start = f"The other {style.bytes(rest)} stays" if answer.returnable else "It stays"
    if len(told) == 1:
        return f"{start} {_why(told[0].id, names)}."
    return f"{start}: {', '.join(f'{style.bytes(row.bytes)} {_why(row.id, names)}' for row in told)}."


def _why(name: str, names: dict[str, str]) -> str:
    allocator = name.partition(".")[0]
    return WHY.get(name) or f"in free blocks of {names.get(allocator, allocator)}"


def _not_walked(unknown: Unknown | None, style: Style) -> str:
    """Nothing where nothing is left, and nothing that is resident."""
    if unknown is None or unknown.bytes == 0:
        return ""
    where = PLACES.get(unknown.id) or ("its own memory" if unknown.own else "its own and other anonymous memory")
    start = f"The blocks of {unknown.name} are not walked: of" if unknown.name else "Of"
    part = where if unknown.bytes is None else f"{style.bytes(unknown.bytes)} that is resident in {where}"
    return f"{start} {part} it is not known what is used and what is free."
