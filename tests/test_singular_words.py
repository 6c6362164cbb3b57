"""Sentences about one thing have the singular, and sentences about several things have the plural."""

from __future__ import annotations

import pytest

from gdbheap.findings.thread_tops.rule import LargestTop, ThreadTops
from gdbheap.findings.thread_tops.words import WORDS
from gdbheap.findings.thresholds import DEFAULT
from gdbheap.remarks import Remark
from gdbheap.report.text.style import Style
from gdbheap.report.words.remarks import sentence_of
from gdbheap.report.words.replay import render
from gdbheap.targets.process import about_unstopped
from gdbheap.targets.unseen_files import UnseenFile, about
from gdbheap.tracing.log import BY_TIME
from gdbheap.tracing.replay import Replayed


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, "too little of the file to compare it with the file on this machine"),
        (2, "too little of these files to compare them with the files on this machine"),
    ],
)
def test_files_that_cannot_be_compared(count: int, expected: str) -> None:
    """Check the words about files of which the core has too little data."""
    unseen = [UnseenFile(f"/usr/lib/lib{number}.so", 4096, f"/usr/lib/lib{number}.so") for number in range(count)]
    assert expected in about(unseen)


@pytest.mark.parametrize(
    ("remark", "expected"),
    [
        (Remark("arrays-not-there", {"count": 1}), "an object that looks like an array or table could not be read"),
        (Remark("arrays-not-there", {"count": 3}), "3 objects that look like arrays or tables could not be read"),
    ],
)
def test_arrays_that_are_left_out(remark: Remark, expected: str) -> None:
    """Check the words about objects that look like arrays."""
    assert sentence_of(remark).startswith(expected)


@pytest.mark.parametrize(("arenas", "expected"), [(1, "at most 1 arena may"), (2, "at most 2 arenas may")])
def test_arenas_that_may_be_made(arenas: int, expected: str) -> None:
    """Check the words about the limit of arenas."""
    figures = ThreadTops(3, 1 << 20, 1 << 17, arenas, 2, DEFAULT, LargestTop(1 << 20, 2, None, ""), False)
    assert expected in WORDS.text(figures)


@pytest.mark.parametrize(
    ("tids", "expected"),
    [
        ([7], "thread 7 sleeps uninterruptibly in the kernel (state D) and was not stopped"),
        ([7, 8], "threads 7, 8 sleep uninterruptibly in the kernel (state D) and were not stopped"),
    ],
)
def test_threads_that_are_not_stopped(tids: list[int], expected: str) -> None:
    """Check the words about threads that sleep uninterruptibly."""
    assert about_unstopped(tids) == expected


@pytest.mark.parametrize(
    ("calls", "order", "expected"),
    [
        (1, BY_TIME, "Left out: 1 call. Its block was allocated before the recording began, or belonged to another"),
        (3, BY_TIME, "Left out: 3 calls. Their blocks were allocated before the recording began, or belonged to"),
        (3, "lock", "Left out: 3 calls. Their blocks were allocated by the parent process before the recording."),
    ],
)
def test_calls_that_are_left_out(calls: int, order: str, expected: str) -> None:
    """Check the words about calls whose blocks are unknown to a replay."""
    answer = Replayed(
        "calls.log", 1234, "/bin/true", ["true"], 1, 10, 1, 5, 4096, 0, 0, calls, 0, 0, 0, order, False, True, True
    )
    assert expected in " ".join(render(answer, Style()).split())


@pytest.mark.parametrize(
    ("remark", "expected"),
    [
        (
            Remark("mimalloc-pages-moving", {"threads": [12], "unsure": False, "pages": 2}),
            "thread 12 was stopped inside mimalloc, maybe while changing a page: 2 pages have a wrong count or wrong "
            "lists, so some blocks may be counted wrongly",
        ),
        (
            Remark(
                "jemalloc-extents-moving",
                {"threads": [12, 13], "unsure": False, "extents": 1, "both": 0, "astray": 2, "slabs": 0},
            ),
            "threads 12, 13 were stopped inside jemalloc, maybe while changing extents, a slab or a cache: 1 extent "
            "has no class or a temporary state and 2 cache entries point to no block, so some blocks may be counted "
            "wrongly",
        ),
        (
            Remark("malloc-moving", {"threads": []}),
            "a thread (id unknown) that holds an arena's lock was stopped inside malloc: malloc may have changed only "
            "half of a list or size",
        ),
    ],
)
def test_threads_inside_an_allocator(remark: Remark, expected: str) -> None:
    """Check the words about threads inside an allocator: parts with the count 0 are left out."""
    assert sentence_of(remark) == expected
