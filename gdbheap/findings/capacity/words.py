"""Texts of the finding ``capacity``: containers of C++ and Rust with much unused capacity."""

from __future__ import annotations

from gdbheap.findings.capacity.rule import ContainerRoom, RoomOfKind
from gdbheap.report.text.numbers import count_text, size_text
from gdbheap.report.words.finding_words import Words

TABLES = "buckets"
RUST = "rust "
# Three ascending pointers are the only evidence for such a vector.
IF_VECTORS = "if these blocks belong to std::vectors (readers, arenas and rings have the same three pointers)"


def _text(figures: ContainerRoom) -> str:
    proven = ", ".join(_part(kind) for kind in figures.kinds if kind.proven)
    likely = ", ".join(_part(kind) for kind in figures.kinds if not kind.proven)
    parts = "; ".join([*([proven] if proven else []), *([f"{likely}, {IF_VECTORS}"] if likely else [])])
    is_one = sum(kind.count for kind in figures.kinds) == 1
    most = "it is " if is_one else f"the largest part, {size_text(figures.most)}, is "
    way = f", reached from {figures.path}" if figures.path else ""
    where = f"; {most}in the block at {figures.address:#x}{way}" if figures.address else ""
    return f"containers {'' if proven else 'may '}have unused room: {parts}{where}"


def _part(kind: RoomOfKind) -> str:
    return f"{count_text(kind.count)} x {kind.kind}, {size_text(kind.used)} of {size_text(kind.capacity)} filled"


def _advice(figures: ContainerRoom) -> str:
    families = [kind.family for kind in figures.kinds]
    told = []
    if not any(kind.proven for kind in figures.kinds):
        told.append(
            "check in the source whether the holder is a std::vector"
            if figures.path
            else "find the holders of these blocks in the source"
        )
    if any(family.startswith(RUST) for family in families):
        told.append(
            "call shrink_to_fit() on a Vec, String or HashMap that does not grow again, or replace it with a new one"
        )
    if TABLES in families:
        told.append("call rehash(0) on a std::unordered_map that was emptied: clear() keeps its buckets")
    if any(family != TABLES and not family.startswith(RUST) for family in families):
        told.append(
            "call shrink_to_fit() on a std::vector or std::string that does not grow again: clear() and reserve() "
            "leave unused room"
        )
    if figures.pages and not figures.path:
        told.append("'heap owners --by=block' shows what holds the largest container")
    return "; ".join(told)


WORDS = Words(ContainerRoom, _text, _advice)
