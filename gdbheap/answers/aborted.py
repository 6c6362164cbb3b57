"""Find out why glibc called abort(): its message, the block to blame, what holds that block, and malloc's callers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

from gdbheap import _native
from gdbheap.allocators.allocator import Block
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.mutation import malloc_range
from gdbheap.answers.accounting.describing import describe_blocks
from gdbheap.answers.accounting.paths import ways
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, GdbheapError
from gdbheap.graph.nodes import Node
from gdbheap.graph.roots import GLOBAL, BlockRoot
from gdbheap.heap import Heap
from gdbheap.stack_frames import frames_of
from gdbheap.targets.frames import Frame, ThreadFrames
from gdbheap.targets.target import Damage

__all__ = ["MESSAGE", "Abort", "AbortBlock", "abort_message", "abort_of"]

MESSAGE, DOOR = "__abort_msg", "abort"
# struct abort_msg_s (glibc, include/stdlib.h): the size of the mapping, then the text.
TEXT_AT, MAX_TEXT = 4, 1024
# Texts that occur in malloc's messages about a pointer that the program passed to it.
OF_POINTER = ("double free", "invalid pointer", "invalid size")
Misuse = Literal["overflow", "freed twice", "written after free", "not a beginning"]
OVERFLOW: Misuse = "overflow"
TWICE: Misuse = "freed twice"
AFTER_FREE: Misuse = "written after free"
NOT_GIVEN: Misuse = "not a beginning"
FREED_TWICE, DETECTED, OF_NEXT = "double free", "double free detected", "next size"
# Words in descriptions of damage to a free block's own links. Other damage was done by a write beyond the end of the
# block before it.
OF_LINKS = ("fd", "bk", "free chunk", "link", "list", "bin")
# The function that malloc calls to end the process saves malloc's registers in the last SAVED_WORDS of its frame.
SAVED_WORDS = 8
MAX_HOLDERS, MAX_SHOWN, LEAST_TEXT = 2, 64, 4
# At most this many functions of the stack that called malloc are named. A text shows 8 of them.
MAX_CALLERS = 50
HEADER, USED = 16, "used"


@dataclass(frozen=True)
class AbortBlock:
    """The block that caused glibc's abort().

    ``why`` is one of four texts. "overflow": the program wrote beyond the block's end. "freed twice". "written after
    free". "not a beginning": free() got a pointer into the middle of the block."""

    address: int
    size: int
    state: str
    what: str
    why: Misuse
    text: str | None = None


@dataclass(frozen=True)
class Abort:
    """The reason why glibc called abort().

    ``message``: glibc's message. ``block``: the block to blame, None if unknown. ``holder``: the path to that block, or
    to the blocks that point to it. ``frames``: the functions that called malloc, innermost first (at most 50).
    ``sources``: the file and the line of each of these functions; None if no debug information names them."""

    message: str
    block: AbortBlock | None
    holder: str | None
    frames: list[str]
    sources: list[str | None]


def abort_message(heap: Heap) -> str | None:
    """Return glibc's message before abort(); None if there is none, or if the process has another libc."""
    glibc = heap.find_allocator(GlibcAllocator) if heap.target.refusal is None else None
    place = None if glibc is None else glibc.malloc.libc.symbol(MESSAGE)
    if place is None:
        return None
    space = heap.target.space
    with suppress(Fault):
        pointer = space.word(place)
        raw = space.read_available(pointer + TEXT_AT, MAX_TEXT) if pointer else b""
        return raw.split(b"\0")[0].decode("utf-8", "replace").strip() or None
    return None


def abort_of(heap: Heap) -> Abort | None:
    """Return why glibc ended the process; None if glibc did not end the process. The heap is walked for this."""
    message = abort_message(heap)
    glibc = heap.find_allocator(GlibcAllocator)
    if message is None or glibc is None:
        return None
    inside, callers = _parted(glibc, _aborting(heap))
    block = _culprit(heap, glibc, message, inside)
    called = [call for frame in callers[:MAX_CALLERS] for call in frames_of(heap.target, frame)][:MAX_CALLERS]
    sources = [None if call.line is None else f"{call.file}:{call.line}" for call in called]
    return Abort(message, block, _holder(heap, block), [call.name for call in called], sources)


def _aborting(heap: Heap) -> list[Frame]:
    """Return the stack of the thread that called abort(); an empty list if no thread did."""
    threads = sorted(heap.target.threads, key=lambda thread: not thread.failed)
    frames = ThreadFrames(heap.target)
    for thread in threads:
        stack = frames.of(thread)
        if any(frame.function == DOOR for frame in stack):
            return stack
    return []


def _parted(glibc: GlibcAllocator, stack: list[Frame]) -> tuple[list[Frame], list[Frame]]:
    """Split the stack of the thread that called abort() into malloc's frames and the frames of malloc's callers.

    The first part begins with the function that malloc called to end the process. If the stack has no frames of malloc,
    the first part is empty and the second begins with the caller of abort()."""
    place = malloc_range(glibc.malloc.libc)
    own = [at for at, frame in enumerate(stack) if place is not None and place[0] <= frame.counter < place[1]]
    if not own:
        doors = [at for at, frame in enumerate(stack) if frame.function == DOOR]
        return [], stack[doors[-1] + 1 :] if doors else []
    return stack[max(0, own[0] - 1) : own[-1] + 1], stack[own[-1] + 1 :]


def _culprit(heap: Heap, glibc: GlibcAllocator, message: str, inside: list[Frame]) -> AbortBlock | None:
    """Return the block that made malloc call abort(); None if unknown.

    Damage is searched first, because an overwritten size makes the pointer to the next block look wrong. If malloc
    itself detected a double free, the pointer is tried first.
    """
    if DETECTED in message:
        return _by_pointer(heap, message, inside) or _by_damage(heap, glibc)
    return _by_damage(heap, glibc) or _by_pointer(heap, message, inside)


def _by_pointer(heap: Heap, message: str, inside: list[Frame]) -> AbortBlock | None:
    if not any(words in message for words in OF_POINTER) or OF_NEXT in message:
        return None
    is_free = FREED_TWICE in message
    found = _given(heap, inside, is_free)
    return None if found is None else _told(heap, found, TWICE if is_free else NOT_GIVEN)


def _by_damage(heap: Heap, glibc: GlibcAllocator) -> AbortBlock | None:
    for damage in _damage(heap):
        is_link = any(words in damage.what for words in OF_LINKS)
        block = glibc.find(damage.address if is_link else damage.address - 1)
        if block is not None:
            return _told(heap, block, AFTER_FREE if is_link or block.state != USED else OVERFLOW)
    return None


def _damage(heap: Heap) -> list[Damage]:
    """Return the damage that a check of malloc finds, without contradictions that may be transient: a thread inside
    malloc may be changing the data."""
    with suppress(GdbheapError):
        heap.malloc.check()
    return [damage for damage in heap.damage if not damage.transient]


def _given(heap: Heap, inside: Sequence[Frame], is_free: bool) -> Block | None:
    """Return the block to which the most pointers in malloc's frames point; None if there is none.

    ``is_free``: consider only free blocks, and only pointers to the block or to its header. Otherwise consider only
    blocks in use, and pointers to any part of the block.
    """
    votes: Counter[int] = Counter()
    blocks: dict[int, Block] = {}
    for word in _words(heap, inside):
        for address in (word, word + HEADER) if is_free else (word,):
            block = heap.block_at(address)
            if block is not None and (block.state != USED) == is_free and (not is_free or block.address == address):
                votes[block.address] += 1
                blocks[block.address] = block
    return blocks[votes.most_common(1)[0][0]] if votes else None


def _words(heap: Heap, inside: Sequence[Frame]) -> Iterator[int]:
    """Yield the pointer-sized words in the stack frames of malloc.

    Only the end of the first frame is read: the function that malloc called to end the process saved malloc's registers
    there.
    """
    machine = heap.target.machine
    for place, frame in enumerate(inside):
        start = max(frame.start, frame.end - SAVED_WORDS * machine.word) if place == 0 else frame.start
        yield from machine.words_of(heap.target.space.read_available(start, max(0, frame.end - start)))


def _told(heap: Heap, block: Block, why: Misuse) -> AbortBlock:
    size = block.end - block.address
    what = str(describe_blocks(heap, [(block.address, size)])[block.address])
    # If the program wrote beyond the block's end, more bytes than the block has may be text.
    shown = MAX_SHOWN if why == OVERFLOW else min(size, MAX_SHOWN)
    return AbortBlock(block.address, block.size, block.state, what, why, _text(heap, block, shown))


def _text(heap: Heap, block: Block, size: int) -> str | None:
    """Return the first bytes of a block in use as text; None if they are not printable, or if contents may not be
    shown."""
    if not heap.disclosure.contents or block.state != USED:
        return None
    first = heap.target.space.read_available(block.address, size).split(b"\0")[0]
    text = first.decode("ascii", "ignore")
    return text if len(text) == len(first) >= LEAST_TEXT and text.isprintable() else None


def _holder(heap: Heap, block: AbortBlock | None) -> str | None:
    """Return the path to a block in use. For a free block, return the names of globals and the paths to blocks that
    still point to it. None if unknown."""
    if block is None:
        return None
    with suppress(GdbheapError):
        if block.state == USED:
            return ways(heap, [block.address]).get(block.address)
        return " and ".join([*_globals_to(heap, block), *_blocks_to(heap, block)][:MAX_HOLDERS]) or None
    return None


def _globals_to(heap: Heap, block: AbortBlock) -> Iterator[str]:
    """Yield the names of the globals that point to a free block. The result is empty for a program with Python, whose
    graph has other roots."""
    paths, space = heap.paths, heap.target.space
    target = Node(-1, "block", "unknown", block.address, block.address, block.size, 0)
    for number, root in enumerate(paths.references.roots, paths.references.first_root):
        if isinstance(root, BlockRoot) and root.kind == GLOBAL:
            pointers = (_native.find_pointer(space, *pair, block.address, block.address + 1) for pair in root.ranges)
            if any(place is not None for place in pointers):
                yield paths.edge(paths.references.node(number), target).text


def _blocks_to(heap: Heap, block: AbortBlock) -> Iterator[str]:
    """Yield the paths to the blocks that contain a pointer to a free block, each with the offset of the pointer."""
    heaps = _native.Heaps(heap.target.space, heap.walked.stores)
    pointing = _native.blocks_with(heaps, [block.address])[:MAX_HOLDERS]
    found = ways(heap, [address for address, _size, _offset in pointing])
    yield from (f"{found[address]} +{offset}" for address, _size, offset in pointing if address in found)
