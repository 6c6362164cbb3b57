"""huge-pages: free memory that is resident only because the kernel gave huge pages."""

from __future__ import annotations

from gdbheap.answers.findings.huge_pages import HugePages
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import counted, size_text

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
