"""``heap check-advice``: check whether an advised setting is active."""

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
    summary="Check whether an advised setting is active",
    text="""Run this command after you have restarted the program with a setting that a finding names. The answer says
    whether malloc uses the setting. The answer also says how much memory of the affected kind is left.""",
    example="heap check-advice",
    details="""The kernel keeps the environment with which the program started; it shows whether the setting was given.
    malloc's own variable mp_ shows whether the value is in force. A list shows the settings that `heap` advises now.
    `heap trim` says how much malloc_trim(0) would return, or has returned. If `--no-text` is given, gdbheap shows only
    the length of a value that is not a number.""",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    listed="",
)
