"""Texts of the findings ``mapped-memory``, ``shared-memory``, ``mapped-files``: memory that no malloc handed out."""

from __future__ import annotations

from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.findings.mappings.rule import MAPPED_FILES, MAPPED_MEMORY, SHARED_MEMORY, Mapped
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

TEXTS = {
    MAPPED_MEMORY: "private memory that the program or a library mapped itself, without malloc",
    SHARED_MEMORY: "shared memory{}, which counts in the RSS of every process that maps it",
    MAPPED_FILES: "pages of mapped files (page cache), which the kernel reclaims when memory is short",
}
ADVICE = {
    MAPPED_MEMORY: "find the code that maps this memory: malloc did not request it. 'heap at ADDRESS' shows what "
    "gdbheap knows about an address in this memory",
    SHARED_MEMORY: "unmap this memory to lower the RSS of this process. The machine gets the memory back once all "
    "processes have unmapped it and its name is removed (shm_unlink, ipcrm)",
    MAPPED_FILES: "count RssAnon, not RSS; munmap() or madvise(MADV_DONTNEED) removes these pages from the RSS of "
    "this process",
}
WRITTEN = ", once it has written changes to disk"
REPEATED = "; pages that are mapped several times add {} to RSS"
SHOWN_FILES = 4
# If there are fewer mappings than FEW, the kernel may have merged many mappings into them.
FEW, JOINED = 8, "(the kernel merges adjacent mappings, so there may have been many calls of mmap())"
UNLINK = "remove the files that nobody uses: unlink(), or SharedMemory.unlink() in Python"
TRACED = ". The command shows, while the program runs, which code maps more memory"


def _text(figures: Mapped) -> str:
    most = f"the largest mapping, at {figures.address:#x} ({figures.name}), has {size_text(figures.resident)}"
    holder = "" if figures.holder is None else f" held by {source_path(figures.holder)}"
    text = TEXTS[figures.kind].format(holder) + WRITTEN * figures.written + _pattern(figures)
    repeated = REPEATED.format(size_text(figures.repeated)) if figures.repeated else ""
    return f"{text}; {most}{repeated}{_left(figures)}"


def _pattern(figures: Mapped) -> str:
    """Return a text about the number of mappings that a program or library made itself, and their most common size."""
    if figures.kind != MAPPED_MEMORY or not figures.mappings:
        return ""
    count = counted(figures.mappings, "mapping")
    if figures.mappings < FEW:
        return f"; {count} {JOINED}"
    if figures.alike == figures.mappings:
        return f"; {count} of {size_text(figures.each)}"
    is_most = 2 * figures.alike >= figures.mappings
    return f"; {count}{f', {figures.alike:,} of them of {size_text(figures.each)}' if is_most else ''}"


def _left(figures: Mapped) -> str:
    """Return a text about the shared memory files that the process does not map; "" if there are none."""
    if not figures.left:
        return ""
    shown = [f"{file.file} {size_text(file.bytes)}" for file in figures.left[:SHOWN_FILES]]
    more = [f"{len(figures.left) - SHOWN_FILES:,} more"] * (len(figures.left) > SHOWN_FILES)
    files = counted(len(figures.left), "file")
    return (
        f". Outside the RSS, {size_text(figures.beyond)} of shared memory is in {files} that this process does not "
        f"map: {', '.join(shown + more)}"
    )


def _advice(figures: Mapped) -> str:
    advice = ADVICE[figures.kind]
    if figures.runtimes:
        return f"{advice}. It may belong to {' or '.join(figures.runtimes)}"
    if figures.left:
        return f"{UNLINK}. {advice[0].upper()}{advice[1:]}"
    return advice + TRACED if figures.traced else advice


WORDS = Words(Mapped, _text, _advice)
