"""``heap chunks``: which chunks are these?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Union

from gdbheap.answers import block_kinds, chunks, sampled_stacks
from gdbheap.answers.arenas import ArenaChoice
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Pictured, one_of, some_of, valued
from gdbheap.commands.surface.pictures import draw
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
        raise ValueError(f"{text!r} is no arena: main, or one that 'heap arenas' lists, by its index")
    return ArenaChoice(int(index), of or None)


@dataclass
class Options(Pictured):
    """The options of heap chunks."""

    states: tuple[str, ...] = valued(
        "--state", "STATES",
        f"only chunks in these states, with commas between them: {', '.join(chunks.STATES)} (free: in a bin, "
        "of another allocator in a slab, span, page or group; tcache: in a thread's cache, whichever allocator's)",
        chunks.STATES, some_of(chunks.STATES),
    )  # fmt: skip
    minimum: int = valued("--min", "SIZE", "leave out chunks that are smaller, headers included", 0, parse_size)
    maximum: int | None = valued("--max", "SIZE", "leave out chunks that are larger", None, parse_size)
    arena: ArenaChoice | None = valued(
        "--arena", "ARENA",
        "only chunks of this arena: main, an index of 'heap arenas', or of another allocator as that has it, "
        "jemalloc:INDEX",
        None, _arena,
    )  # fmt: skip
    type: str | None = valued(
        "--type", "GLOB",
        "only chunks that hold a live Python object of a type whose whole name matches, with *, ? and [...], or "
        "memory of C, C++ or Rust that is of a class, or said to be something, that matches",
        None, str,
    )  # fmt: skip
    by: str | None = valued(
        "--by", "WHAT",
        "type: a row for each kind of used block, not for each chunk; stack: the stacks that jemalloc has sampled",
        None, one_of(("type", STACK)),
    )  # fmt: skip

    def check(self) -> None:
        """Raises UsageError for options that are not about the table that is asked for."""
        super().check()
        if self.draws and self.by != STACK:
            raise UsageError("heap chunks: only the stacks that jemalloc has sampled are a tree: --by=stack")
        if self.by is not None:
            self._check_kinds(f"--by={self.by}")
        elif self.sort not in chunks.ORDERS:
            raise UsageError(f"heap chunks: chunks cannot be sorted by {self.sort}, but by {', '.join(chunks.ORDERS)}")

    def _check_kinds(self, by: str) -> None:
        if self.type is not None or self.arena is not None or self.minimum or self.maximum is not None:
            raise UsageError(f"heap chunks: {by} is about all used blocks; leave out --type, --arena, --min and --max")
        if self.states != chunks.STATES:
            raise UsageError(f"heap chunks: {by} is about used blocks; leave out --state")


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
    # Imported where they are needed: a command's start is mostly imports.
    from gdbheap.report.formats.flame import ALLOCATED
    from gdbheap.report.formats.trees import sampled_tree

    found = sampled_stacks.sampled_stacks(heap, by_count)
    draw(options, sampled_tree(found), "What sampled blocks in use came from", ALLOCATED)
    return replace(found, stacks=found.stacks[: options.top])


def _render(shown: Shown[Answer, Options]) -> str:
    if isinstance(shown.answer, block_kinds.BlockKinds):
        return render_kinds(shown.answer, shown.style)
    if isinstance(shown.answer, sampled_stacks.SampledStacks):
        return render_stacks(shown.answer, shown.style)
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="chunks",
    question="Which chunks are these?",
    text="""Each row has malloc's pointer, the size with the header, the state, the free list that the chunk is on, and
    for a used one what it is: the Python object in it, the object that owns it, or what its bytes look like. A small
    bin holds one size, a large one is named by its smallest size, and chunks that were freed recently are in the
    unsorted bin. The totals are those of all chunks that match, also when --top cuts the list.

    Python objects of up to 512 bytes are in pymalloc's pools and not in chunks of their own, unless pymalloc is
    switched off. A chunk with a mapping of its own is mmapped and in no arena.

    Where an allocator that is walked stands in for malloc, or is there beside it, its blocks are listed too, without
    header: used, free (their pages' room for more of them, too) or tcache.

    A used chunk of C, C++ or Rust code is named where something proves what it is: a C++ object by its vtable, the
    nodes and buffers of the C++ library's containers by links that agree with what the container counts, those of
    Rust's likewise, with the objects of Box<dyn Trait> (a type needs symbols), OpenSSL's SSL_CTX and SSL, and blocks
    of PostgreSQL's memory contexts. --by=type has a row for each of these, the most bytes first, or with --sort=count
    the most blocks. The column capacity is what vectors, strings and hash tables have room for, and filled what they
    hold. In a program with Python the blocks of its own allocator are not among them, and other blocks of Python's
    objects are of no kind.

    --by=stack is for a jemalloc that samples allocations (MALLOC_CONF=prof:true): the stacks that sampled blocks in
    use came from, the most bytes first. --format, --folded, --svg, --speedscope and --pprof draw them all, without
    jemalloc's own frames, by the bytes of the sampled blocks.""",
    example="heap chunks --state=used --min=1M",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="chunks, kinds or stacks",
    sorts={key: lambda row: row for key in (*chunks.ORDERS, "count")},
    top=20,
    writes=True,
)
