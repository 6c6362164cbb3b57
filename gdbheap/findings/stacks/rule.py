"""Stacks of many threads. A stack page that a thread touched once stays resident until the thread ends."""

from __future__ import annotations

from dataclasses import field

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding, FindingClaim
from gdbheap.graph.roots import program_storage
from gdbheap.targets.ranges import holds, subtract, within

MIN_THREADS = 8


@dataclass(frozen=True)
class ThreadStacks(Figures):
    """The number of ``threads``, the resident bytes of the ``largest`` stack, and its thread's id and name."""

    ids = ("stacks",)
    threads: int
    largest: int
    tid: int = field(metadata=UNLISTED)
    name: str


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the resident pages of all stacks except the first thread's, if there are at
    least MIN_THREADS of them.

    Thread-local data in the stacks does not count. The list is empty if the finding's bytes are unknown or too few.
    """
    heap = evidence.heap
    pages, main = heap.target.pages, heap.target.main_stack
    if pages is None or heap.target.refusal is not None:
        return []
    others = [stack for stack in heap.stacks if main is None or stack.start not in main]
    # A stack inside a malloc block counts as that block's memory.
    ranges = heap.stack_ranges
    stacks = [stack for stack in others if holds(ranges, stack.start)]
    storage = program_storage(heap.target)
    parts = [subtract([(stack.start, stack.end)], within(storage, stack.start, stack.end)) for stack in stacks]
    sizes = [evidence.resident_of(ranges) for ranges in parts]
    if len(stacks) < MIN_THREADS or not evidence.worth(sum(sizes)):
        return []
    names = {thread.tid: thread.name for thread in heap.target.threads}
    most, stack = max(zip(sizes, stacks), key=lambda pair: pair[0])
    figures = ThreadStacks(len(stacks), most, stack.tid, names.get(stack.tid) or "")
    finding = Finding("stacks", sum(sizes), figures)
    return [FindingClaim(finding, lambda: [pair for ranges in parts for pair in ranges])]
