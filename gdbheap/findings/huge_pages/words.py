"""Texts of the finding ``huge-pages``: free memory that is resident only because it is in huge pages."""

from __future__ import annotations

from gdbheap.findings.huge_pages.rule import HugePages
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "start the program with GLIBC_TUNABLES=glibc.malloc.hugetlb=0 if malloc asks for huge pages (this replaces other "
    "tunables: join them with colons), else call prctl(PR_SET_THP_DISABLE), which children inherit. malloc_trim(0) "
    "returns the free pages between blocks now, until khugepaged makes huge pages again"
)


def _text(figures: HugePages) -> str:
    return (
        f"{size_text(figures.untouched)} of free memory was never written. It is resident because the kernel created "
        f"{counted(figures.huge_pages, 'huge page')} of 2 MiB where the program touched only a part: "
        f"{size_text(figures.free)} of the {size_text(figures.huge)} in huge pages is free"
    )


WORDS = Words(HugePages, _text, lambda figures: ADVICE)
