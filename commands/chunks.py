"""``heap chunks``: list single blocks with address, size, state and content."""

from __future__ import annotations

from dataclasses import replace
from typing import Union

from gdbheap.answers import block_kinds, chunks, sampled_stacks
from gdbheap.answers.arenas import ArenaChoice
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Pictured, one_of, some_of, valued
from gdbheap.commands.surface.pictures import draw
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.block_kinds import render as render_kinds
from gdbheap.report.words.chunks import render
from gdbheap.report.words.sampled_stacks import render as render_stacks

__all__ = ["COMMAND"]

STACK = "stack"


def _arena(text: str) -> ArenaChoice:
    if text == "main":
        return ArenaChoice(0, "glibc")
    of, _, index = text.rpartition(":")
    if not (index.isascii() and index.isdecimal() and len(index) < 9):
        raise ValueError(f"{text!r} is not an arena: give main, or an index that 'heap arenas' lists")
    return ArenaChoice(int(index), of or None)


@dataclass
class Options(Pictured):
    """The options of ``heap chunks``: which blocks to list, or how to group them.

    All conditions on blocks apply together. ``by``: None lists single blocks.
    """

    states: tuple[str, ...] = valued(
        "--state",
        "STATES",
        f"show only these block states: {', '.join(chunks.STATES)}",
        chunks.STATES,
        some_of(chunks.STATES),
    )
    minimum: int = valued("--min", "SIZE", "skip blocks smaller than SIZE, including the header", 0, parse_size)
    maximum: int | None = valued(
        "--max", "SIZE", "skip blocks larger than SIZE, including the header", None, parse_size
    )
    arena: ArenaChoice | None = valued(
        "--arena", "ARENA", "show one arena: main, an index from 'heap arenas', or jemalloc:INDEX", None, _arena
    )
    type: str | None = valued("--type", "GLOB", "show only blocks whose type's full name matches GLOB", None, str)
    by: str | None = valued(
        "--by",
        "WHAT",
        "group used blocks by type, or by the stack that jemalloc sampled",
        None,
        one_of(("type", STACK)),
    )

    def check(self) -> None:
        """Raise UsageError for options that do not apply to the table that --by selects."""
        super().check()
        if self.draws and self.by != STACK:
            raise UsageError("heap chunks: a tree can show only stacks that jemalloc sampled: add --by=stack")
        if self.by is not None:
            self._check_kinds(f"--by={self.by}")
        elif self.sort not in chunks.ORDERS:
            raise UsageError(f"heap chunks: chunks cannot be sorted by {self.sort}, only by {', '.join(chunks.ORDERS)}")

    def _check_kinds(self, by: str) -> None:
        if self.type is not None or self.arena is not None or self.minimum or self.maximum is not None:
            raise UsageError(f"heap chunks: {by} groups all used blocks: leave out --type, --arena, --min and --max")
        if self.states != chunks.STATES:
            raise UsageError(f"heap chunks: {by} groups only used blocks: leave out --state")


Answer = Union[chunks.Chunks, block_kinds.BlockKinds, sampled_stacks.SampledStacks]


def _answer(heap: Heap, options: Options) -> Answer:
    if options.by is not None:
        return _by_kind(heap, options)
    selection = chunks.Selection(options.states, options.minimum, options.maximum, options.arena, options.type)
    return chunks.chunks(heap, selection, options.sort, options.top)


def _by_kind(heap: Heap, options: Options) -> block_kinds.BlockKinds | sampled_stacks.SampledStacks:
    if options.by == STACK:
        return _by_stack(heap, options)
    return block_kinds.block_kinds(heap, options.sort == "count", options.top)


def _by_stack(heap: Heap, options: Options) -> sampled_stacks.SampledStacks:
    by_count = options.sort == "count"
    if not options.draws:
        return sampled_stacks.sampled_stacks(heap, by_count, options.top)
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.report.formats.flame import ALLOCATED
    from gdbheap.report.formats.trees import sampled_tree

    found = sampled_stacks.sampled_stacks(heap, by_count)
    draw(options, sampled_tree(found), "Stacks that allocated the sampled blocks in use", ALLOCATED)
    return replace(found, rows=found.rows[: options.top])


def _render(shown: Shown[Answer, Options]) -> str:
    if isinstance(shown.answer, block_kinds.BlockKinds):
        return render_kinds(shown.answer, shown.style)
    if isinstance(shown.answer, sampled_stacks.SampledStacks):
        return render_stacks(shown.answer, shown.style)
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="chunks",
    summary="List single blocks: address, size, state and content",
    text="""Each row describes a block: the pointer that malloc returned, the size including the header, the state, the
    free list, and the content. The totals count all blocks that match.""",
    example="heap chunks --state=used --min=1M",
    details="""The content of a used block is its Python object, its owner, or what its bytes look like. A small bin
    contains chunks of one size; a large bin is named after its smallest size. Recently freed chunks are in the unsorted
    bin. Python objects of up to 512 bytes are in pymalloc's pools, unless pymalloc is off. A large block (mmap) belongs
    to no arena.

    `--state` takes several states, separated by commas. A block with the state `free` is in a bin of glibc, or in the
    memory of another allocator. A block with the state `tcache` is in a thread's cache, whichever allocator it belongs
    to. In the GLOB of `--type`, `*`, `?` and `[...]` are wildcards. gdbheap compares the GLOB with every name in the
    column of contents, such as Python types and C++ classes.

    gdbheap also lists the blocks of every other allocator that it can read. Blocks of these allocators have no header.
    Each of these blocks has the state `used`, `free` or `tcache`. Unused room on their pages is listed as free blocks.

    A used block of C, C++ or Rust has a name only if something proves what the block is. A vtable proves a C++ object.
    Nodes and buffers of a container of C++ or Rust are proven if their links agree with its count. Objects of `Box<dyn
    Trait>`, OpenSSL's SSL_CTX and SSL, and PostgreSQL's memory contexts have names, too. gdbheap needs symbols to name
    a Rust type.

    `--by=type` shows a row for each of these kinds of blocks. The rows with the most bytes come first; with
    `--sort=count`, the rows with the most blocks do. Rows of vectors, strings and hash tables show their capacity, and
    how much of it is filled. Blocks of Python's own allocator are left out. Other blocks that belong to Python objects
    have no kind.

    `--by=stack` needs a jemalloc that samples allocations (MALLOC_CONF=prof:true). `--by=stack` lists the stacks of the
    sampled blocks in use. The stacks with the most bytes come first. `--format` and the options for its formats draw
    all these stacks, without jemalloc's own frames.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="chunks, kinds or stacks",
    sorts={key: lambda row: row for key in (*chunks.ORDERS, "count")},
    top=20,
    writes=True,
)
