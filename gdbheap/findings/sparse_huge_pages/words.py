"""Texts of the finding ``sparse-huge-pages``: used memory that is resident only because it is in huge pages."""

from __future__ import annotations

from gdbheap.findings.sparse_huge_pages.rule import SparseHugePages
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

BY_MALLOC = (
    "start the program with GLIBC_TUNABLES=glibc.malloc.hugetlb=0: its malloc asks for huge pages (this replaces other "
    "tunables: join them with colons)"
)
ADVICE = (
    "call madvise(MADV_NOHUGEPAGE) for the mapping before the program touches its pages, or "
    "prctl(PR_SET_THP_DISABLE) when the program starts, which children inherit. Neither splits pages that are huge "
    "already: restart the program, or let it call madvise(MADV_DONTNEED) for the parts that it does not use"
)


def _text(figures: SparseHugePages) -> str:
    about = "about " if figures.sampled else ""
    most = f" (the most in the mapping at {figures.address:#x})" if figures.address is not None else ""
    return (
        f"transparent huge pages: {about}{size_text(figures.zeros)} of {size_text(figures.huge)} contains only "
        f"zeros. The program touched a part of each of {counted(figures.huge_pages, 'page')} of 2 MiB{most}, and the "
        "kernel made the whole pages resident"
    )


def _advice(figures: SparseHugePages) -> str:
    return BY_MALLOC if figures.by_malloc else ADVICE


WORDS = Words(SparseHugePages, _text, _advice)
