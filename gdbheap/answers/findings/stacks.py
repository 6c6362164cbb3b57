"""Stacks of many threads: pages that a thread touched once stay until it ends."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.target.ranges import holds
from gdbheap.words import counted, size_text

LEAST_THREADS = 8


def find(evidence: Evidence) -> list[Claim]:
    """The resident pages of all stacks but the first thread's."""
    heap = evidence.heap
    pages, main = heap.target.pages, heap.target.main_stack
    if pages is None or heap.target.refusal is not None:
        return []
    others = [stack for stack in heap.stacks if main is None or stack.start not in main]
    # One that lies in a block of malloc is that block's memory.
    ranges = heap.stack_ranges
    stacks = [stack for stack in others if holds(ranges, stack.start)]
    sizes = [pages.count(stack.start, stack.end).resident for stack in stacks]
    if len(stacks) < LEAST_THREADS or not evidence.worth(sum(sizes)):
        return []
    names = {thread.tid: thread.name for thread in heap.target.threads}
    most, stack = max(zip(sizes, stacks), key=lambda pair: pair[0])
    text = (
        f"the stacks of {counted(len(stacks), 'thread')} are resident as far as they were ever used; the most, "
        f"{size_text(most)}, of thread {stack.tid} ({names.get(stack.tid) or 'without a name'})"
    )
    advice = "end the threads that wait, or have fewer of them: a stack's pages go back when its thread ends"
    finding = Finding("stacks", sum(sizes), text, advice, {"threads": len(stacks), "largest": most})
    return [Claim(finding, lambda: [(stack.start, stack.end) for stack in stacks])]
