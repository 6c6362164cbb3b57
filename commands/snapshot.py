"""``heap snapshot``: save the current state to compare later."""

from __future__ import annotations

from gdbheap.api.writing import write_snapshot
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Filed, check_contents, switch
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.words.snapshot import render
from gdbheap.snapshots.snapshot import WrittenSnapshot

__all__ = ["COMMAND"]


@dataclass
class Options(Filed):
    """The options of ``heap snapshot``: what to save in addition to the usual data.

    ``owners``: find holders even in a heap with very many blocks. ``blocks``: save a list of all blocks, for ``heap
    diff``.
    """

    with_contents: bool = switch("--with-contents", "keep the contents of dict keys in paths")
    owners: bool = switch("--owners", "find holders even if there are more than 2,000,000 blocks")
    blocks: bool = switch("--blocks", "keep a list of all blocks, so that diff can compare them")

    def check(self) -> None:
        """Raise UsageError for an invalid file, or for options that exclude each other."""
        super().check()
        check_contents("heap snapshot", self.with_contents, self.no_text)


def _answer(heap: Heap, options: Options) -> WrittenSnapshot:
    kept = options.owners or None, options.blocks, options.with_contents
    return write_snapshot(heap, options.file, *kept, options.mode)


def _render(shown: Shown[WrittenSnapshot, Options]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="snapshot",
    summary="Save the current state to compare later",
    text="""'diff' compares the file with a later state; it does not need the process for that. The file does not
    contain the contents of strings, bytes and keys unless --with-contents is given.""",
    example="heap snapshot before.heap",
    details="""The file keeps the answers that `heap`, `arenas`, `holes`, `sizes`, `pyobjects` and `retained` give at
    this moment. The file contains the whole ledger, the findings, malloc's arenas and the 1,000 largest holes with
    their pins. The file contains all types, and the number of used blocks of each size and allocator. The file contains
    the 200 largest holders, and the 200 objects that retain the most, with their paths. For a process with more than
    2,000,000 blocks, these holders and objects need `--owners`. `--blocks` adds the address, size and type of each used
    block; this takes at most about a byte for each block. An older file is replaced only when the new one is complete.
    docs/snapshots.md describes the file.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
