"""Texts of the finding ``tracemalloc``: the tables in which Python's own tracer records each block."""

from __future__ import annotations

from gdbheap.findings.tracemalloc.rule import TraceTables
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "call tracemalloc.stop() once you have your snapshot, then malloc_trim(0), which returns the memory: "
    "ctypes.CDLL(None).malloc_trim(0), or 'heap trim --yes'. Or start the program without tracemalloc: without "
    "tracemalloc.start() and PYTHONTRACEMALLOC"
)


def _text(figures: TraceTables) -> str:
    return f"tracemalloc is on, and its tables describe {counted(figures.traces, 'block')}"


def _advice(_figures: TraceTables) -> str:
    return ADVICE


WORDS = Words(TraceTables, _text, _advice)
