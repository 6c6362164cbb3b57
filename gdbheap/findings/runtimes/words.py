"""Texts of the finding ``runtime-*``: memory of recognised runtimes and servers that gdbheap cannot walk.

Their advice is data: ``layout/tables/runtimes.json``.
"""

from __future__ import annotations

from gdbheap.allocators.runtimes import ALLOCATOR, ANONYMOUS, HELD, MMAPPED, SHARED, RuntimeKind, kinds
from gdbheap.findings.runtimes.rule import RuntimeMemory
from gdbheap.report.words.finding_words import Words

TEXTS = {
    ANONYMOUS: "memory of {name}, and other anonymous mappings",
    SHARED: "shared memory of {name}, which counts in the RSS of each of its processes",
    MMAPPED: "the heap of {name} is in blocks of malloc",
    ALLOCATOR: "{name} allocates its data with {allocator}",
    HELD: "memory of {name}, outside of any malloc, reached from its static data",
}
NAMED = "memory of {name}, according to the names of its mappings"


def _text(figures: RuntimeMemory) -> str:
    kind = _kind(figures)
    pattern = NAMED if figures.named else TEXTS[kind.memory]
    what = pattern.format(name=kind.name, allocator=figures.allocator or "malloc")
    return f"{what} ({figures.path}, {figures.evidence}): it is unknown how much of this memory is in use"


def _advice(figures: RuntimeMemory) -> str:
    return _kind(figures).advice


def _kind(figures: RuntimeMemory) -> RuntimeKind:
    return next(kind for kind in kinds() if kind.id == figures.kind)


WORDS = Words(RuntimeMemory, _text, _advice)
