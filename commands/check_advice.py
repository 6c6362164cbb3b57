"""``heap check-advice``: what came of advice?"""

from __future__ import annotations

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common
from gdbheap.first_page import check_advice
from gdbheap.heap import Heap
from gdbheap.report.words.check_advice import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Common) -> check_advice.CheckAdvice:
    return check_advice.check_advice(heap)


def _render(shown: Shown[check_advice.CheckAdvice, Common]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="check-advice",
    question="What came of advice: is a setting that a finding names there, and in force?",
    text="""For a program that was started again with a setting that a finding of heap names: whether it was really
    started with it (its initial environment, as the kernel keeps it on its stack), whether malloc has the value in
    force, by its own mp_, and how much of the memory that the setting affects is left. Then the settings that heap
    advises now. What malloc_trim(0) would give back, and what it gave back, is in heap trim.

    In JSON settings are a list of {name, value, by, field, in_force, how, took, about, bytes}: value is what the
    program was started with (null: nothing, or unknown), by the variable that said so, in_force what malloc has in
    that field of mp_ now (for hugetlb 0, 1 for transparent huge pages, 2 for those of hugetlbfs), how is "set",
    "default" or "risen", took is whether both are equal, bytes the resident bytes of the memory that the setting is
    about: "large-holes" (of 128 KiB or more), "tops" of all arenas, "thread-tops" or "huge-pages". others are
    settings of runtimes and of other mallocs than glibc's, a list of {name, value, whose}. findings are those of
    heap that advise a setting, heeded the ids of those whose settings were given already; environment is false if
    it is unknown what the program was started with, for example because it wrote its title over that. With
    --no-text values other than numbers are shown by their lengths.""",
    example="heap check-advice",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    listed="",
)
