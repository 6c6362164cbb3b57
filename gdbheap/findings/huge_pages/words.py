"""huge-pages: free memory that is resident only because the kernel gave huge pages."""

from __future__ import annotations

from gdbheap.findings.huge_pages.rule import HugePages
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "start the program without huge pages: with GLIBC_TUNABLES=glibc.malloc.hugetlb=0 where malloc asks for them (this "
    "replaces its other tunables: those that are to stay belong into the same value, separated by colons), else below "
    "prctl(PR_SET_THP_DISABLE), which children inherit; malloc_trim(0) gives back now what lies between chunks in use, "
    "but khugepaged may make huge pages of them again"
)


def _text(figures: HugePages) -> str:
    return (
        f"{size_text(figures.untouched)} of free memory was never written to, and is resident as the kernel made "
        f"{counted(figures.huge_pages, 'page')} of 2 MiB where a part of each was touched: "
        f"of {size_text(figures.huge)} in huge pages {size_text(figures.free)} are free"
    )


WORDS = Words(HugePages, _text, lambda figures: ADVICE)
