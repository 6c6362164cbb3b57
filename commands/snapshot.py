"""``heap snapshot``: keep what a look found, for a later one to be compared with."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Filed, check_contents, switch
from gdbheap.heap import Heap
from gdbheap.report.words.snapshot import render
from gdbheap.snapshots.file import write
from gdbheap.snapshots.snapshot import Written, take

__all__ = ["COMMAND"]


@dataclass
class Options(Filed):
    """The options of heap snapshot."""

    with_contents: bool = switch(
        "--with-contents", "keep the contents of keys in paths; without it the file holds no contents of the process"
    )
    owners: bool = switch(
        "--owners", "keep holders, what retains the most, and their paths, also of more than 2,000,000 blocks"
    )
    blocks: bool = switch(
        "--blocks", "keep the address, the size and the type of each block, for heap diff to say which are still there"
    )

    def check(self) -> None:
        """Raises UsageError also for options that exclude each other."""
        super().check()
        check_contents("heap snapshot", self.with_contents, self.no_text)


def _answer(heap: Heap, options: Options) -> Written:
    heap.disclosure.contents = options.with_contents
    look = take(heap, options.owners or None, options.blocks)
    size = write(options.file, look, options.mode)
    found = look.snapshot
    return Written(
        options.file,
        size,
        found.time,
        len(found.ledger.ledger),
        len(found.objects.types) if found.objects else 0,
        len(found.holes.holes) if found.holes else 0,
        None if found.owners is None else len(found.owners),
        None if found.blocks is None else sum(found.blocks.counts),
    )


def _render(shown: Shown[Written, Options]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="snapshot",
    question="What is there now? Kept in a file, which diff compares with a later look",
    text="""Writes what heap, arenas, holes, sizes, pyobjects and retained say of this moment to FILE: the ledger
    with its details, findings, malloc's arenas, the 1,000 largest holes with what pins them, how many blocks of
    each size each allocator has handed out, all types, the 200 largest holders of what is in use, and the 200 objects
    that retain the most, with their paths (neither of a process with more than 2,000,000 blocks, unless --owners asks
    for them). The file is read without the
    process; it holds no contents of strings, bytes and keys, unless --with-contents is given. With --blocks it also
    has the address, the size and the type of each block in use, about a byte for each. docs/snapshots.md describes
    it.""",
    example="heap snapshot before.heap",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
