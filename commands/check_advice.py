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
    advises now. What malloc_trim(0) would give back, and what it gave back, is in heap trim. With --no-text values
    other than numbers are shown by their lengths.""",
    example="heap check-advice",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    listed="",
)
