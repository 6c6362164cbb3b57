"""runtime-*: memory of runtimes and servers that are recognised and not looked into. Their advice is data:
``layout/tables/runtimes.json``."""

from __future__ import annotations

from gdbheap.allocators.runtimes import ALLOCATOR, ANONYMOUS, HELD, MMAPPED, SHARED, Kind, kinds
from gdbheap.findings.runtimes.rule import RuntimeMemory
from gdbheap.report.words.finding_words import Words

TEXTS = {
    ANONYMOUS: "memory of {name}, with what else is mapped without a file",
    SHARED: "shared memory of {name}, which is in the RSS of each of its processes",
    MMAPPED: "the heap of {name} lies in malloc's blocks in use",
    ALLOCATOR: "{name} keeps its data in the memory of {allocator}",
    HELD: "memory beside every malloc is {name}, by the static data that points to it",
}
NAMED = "memory of {name}, by the names that the kernel knows its mappings by"


def _text(figures: RuntimeMemory) -> str:
    kind = _kind(figures)
    pattern = NAMED if figures.named else TEXTS[kind.memory]
    what = pattern.format(name=kind.name, allocator=figures.allocator or "malloc")
    return f"{what} ({figures.path}, {figures.evidence}): how much of it is in use is not known here"


def _advice(figures: RuntimeMemory) -> str:
    return _kind(figures).advice


def _kind(figures: RuntimeMemory) -> Kind:
    return next(kind for kind in kinds() if kind.id == figures.kind)


WORDS = Words(RuntimeMemory, _text, _advice)
