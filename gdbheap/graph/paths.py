"""Paths through a graph in readable form, and names for the nodes and edges of a graph of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Protocol

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.graph.blocks import BlockReferences
from gdbheap.graph.nodes import Node, Nodes
from gdbheap.graph.roots import DATA, GLOBAL, REGISTERS, STACK, BlockRoot, thread_variables
from gdbheap.targets.code_places import LIBCS
from gdbheap.targets.frames import Frame, ThreadFrames, frame_of_register, frame_of_variable, register_numbers
from gdbheap.targets.ranges import Ranges

STEPS_AT_EACH_END = 100
# The most words of one stack that are examined, of all words that point to one block.
MAX_PLACES = 32
BLOCK = "block"
# IDLE: a block in use without a living object. If its type is unknown, Python 2 keeps the block for numbers.
IDLE, NUMBERS = "idle", "block of free numbers"
# A block that C code allocated in a program with Python.
STRUCTURE = "structure"


@dataclass(frozen=True)
class Step:
    """One step of a path: the address and the type of the object, root or block that it reaches, and the edge to it."""

    address: int
    type: str
    edge: str


@dataclass(frozen=True)
class Path:
    """A path from a root to an object.

    ``expression``: the path as a Python expression, or None. If the expression is valid only in an interpreter other
    than the main one, it contains a comment that says so.
    """

    steps: list[Step]
    expression: str | None
    length: int


class Named(Protocol):
    """An edge of a graph with a text that names it, such as an attribute or an offset."""

    @property
    def text(self) -> str:
        """The text of the edge, which follows the holder's own name."""


class Paths(Protocol):
    """Names for the nodes, edges and chains of a graph."""

    @property
    def references(self) -> Nodes:
        """The graph whose nodes are named."""

    def type_name(self, node: Node) -> str:
        """Return the name of an object's type; for any other node, a word for its kind."""

    def kind_name(self, kind: int) -> str:
        """Return the name of the type whose address is ``kind``."""

    def structure_name(self, kind: int) -> str:
        """Return the name of the kind of C blocks with the number ``kind``."""

    def edge(self, holder: Node, target: Node, above: str = "") -> Named:
        """Return the name that the reference to ``target`` has in ``holder``. ``above``: the text of the edge to
        ``holder``."""

    def path(self, numbers: Sequence[int]) -> Path:
        """Return the path of a chain of node numbers that begins at a root; a long path has only the steps at both
        ends."""

    def naming(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the nodes of a chain that must be named to distinguish this chain from those to other holders."""


@dataclass(frozen=True)
class Word:
    """An edge of a graph of blocks: the word that points to a block.

    ``text``: the location of the word in its holder. ``variable``: the same without the offset of the word in a
    thread-local variable."""

    text: str
    variable: str


def _word(text: str) -> Word:
    return Word(text, text)


class BlockPaths:
    """Names for a graph of blocks.

    A block is named by its class or size. An edge is named by the offset of the word that points to the block, or by
    the variable that has this word.
    """

    def __init__(self, references: BlockReferences) -> None:
        self.references = references
        self._frames: ThreadFrames | None = None
        self._variables: list[tuple[int, int, str]] | None = None

    def type_name(self, node: Node) -> str:
        """Return the type of a block's contents, or its size if the type is unknown; for a root, its kind."""
        if isinstance(node.root, BlockRoot):
            return node.root.kind
        return self.kind_name(node.type) if node.type else block_name(node.size)

    def kind_name(self, kind: int) -> str:
        """Return the name of the kind of block with the number ``kind``."""
        structures = self.references.structures
        return block_name(0) if structures is None else structures.name_of(kind)

    structure_name = kind_name

    def edge(self, holder: Node, target: Node, above: str = "") -> Word:
        """Return the edge with the location, in ``holder``, of the first word that points into ``target``.

        If the word points into the middle of ``target``, the text also gives the distance from the beginning of
        ``target``.
        """
        place = self._place(holder, target)
        if isinstance(holder.root, BlockRoot):
            return self._of_root(holder.root, place, target)
        if place is None:
            return _word("the block points to it")
        inside = self.references.target.space.word(place) - target.block
        into = f" to {inside:+#x} in it" if inside else ""
        return _word(f"{place - holder.block:+#x}{into}")

    def _place(self, holder: Node, target: Node) -> int | None:
        """Return the address of the word in ``holder`` that points to ``target``, or None.

        On a stack, a saved register is preferred to other words, which may be stale.
        """
        root = holder.root
        places = self._places(root.ranges if root is not None else [(holder.block, holder.block + holder.size)], target)
        first = next(places, None)
        if first is None or not isinstance(root, BlockRoot) or root.part != STACK:
            return first
        saved = {place for frame in self._frames_of(root) for place in frame.saved}
        return next((place for place in islice(chain([first], places), MAX_PLACES) if place in saved), first)

    def _places(self, ranges: Ranges, target: Node) -> Iterator[int]:
        """Yield the addresses of the words in ``ranges`` that point into ``target``."""
        low, high = target.block, target.block + max(target.size, 1)
        space = self.references.target.space
        for start, end in ranges:
            place = _native.find_pointer(space, start, end, low, high)
            while place is not None:
                yield place
                place = _native.find_pointer(space, place + space.machine.word, end, low, high)

    def _of_root(self, root: BlockRoot, place: int | None, target: Node) -> Word:
        if root.thread is not None and root.part == DATA and place is not None:
            return self._of_thread(root, place - root.thread.thread_pointer)
        return _word(self._of_data(root, place, target))

    def _of_data(self, root: BlockRoot, place: int | None, target: Node) -> str:
        if root.part == REGISTERS:
            function = self._with_register(root, target)
            return root.name if function is None else f"{root.name}, a variable of {function}"
        if place is None:
            return root.name
        if root.kind == GLOBAL:
            start = root.ranges[0][0]
            return f"{root.part}{_offset(place - start)} in {root.owner.rsplit('/', 1)[-1]}"
        known = self._frames_of(root)
        frames = [frame for frame in known if place < frame.end]
        if not frames:
            return root.name
        if place < frames[0].start:
            # Words below the stack pointer are mostly stale.
            function = self._with_register(root, target)
            return root.name if function is None else f"{root.name}, in the frame of {function}"
        saver = frame_of_variable(known, place, self._word) if place in frames[0].saved else None
        return f"{root.name}, in the frame of {self._function(frames) if saver is None else saver.function}"

    def _with_register(self, root: BlockRoot, target: Node) -> str | None:
        """Return the name of the function whose variable, in a register of the root's thread, points to ``target``.

        None if there is no such function.
        """
        known = [] if root.thread is None else root.thread.registers
        registers = register_numbers(self.references.target.machine, known)
        low, high = target.block, target.block + max(target.size, 1)
        numbers = [number for number, value in registers.items() if low <= value < high]
        frames = self._frames_of(root) if numbers else []
        owners = (frame_of_register(frames, number, registers[number], self._word) for number in numbers)
        return next((frame.function for frame in owners if frame is not None), None)

    def _word(self, place: int) -> int:
        """Return the word at an address, or 0 if it cannot be read."""
        try:
            return self.references.target.space.word(place)
        except Fault:
            return 0

    def _function(self, frames: Sequence[Frame]) -> str:
        """Return the name of the first function, in ``frames``, that is not the C library's; if there is none, the name
        of the first.

        A function of the C library keeps its caller's arguments in its own frame. If such frames were skipped, "or
        below" is therefore added to the name."""
        own = next((frame for frame in frames if not self._is_of_libc(frame)), frames[0])
        return own.function if own is frames[0] else f"{own.function} or below"

    def _is_of_libc(self, frame: Frame) -> bool:
        loaded = self.references.target.object_of(frame.counter)
        return loaded is not None and loaded.path.rsplit("/", 1)[-1].startswith(LIBCS)

    def _of_thread(self, root: BlockRoot, distance: int) -> Word:
        """Return the edge from the thread-local variable at ``distance`` from the thread pointer. If no variable is
        there, return the edge from the root."""
        if self._variables is None:
            self._variables = thread_variables(self.references.target)
        for start, size, name in self._variables:
            if start <= distance < start + max(size, 1):
                thread = f" of thread {root.owner}"
                variable = f"thread-local {name}"
                return Word(f"{variable}{_offset(distance - start)}{thread}", f"{variable}{thread}")
        return _word(root.name)

    def _frames_of(self, root: BlockRoot) -> list[Frame]:
        """Return the frames of the thread whose stack or registers the root represents."""
        if root.part not in (STACK, REGISTERS) or root.thread is None:
            return []
        if self._frames is None:
            self._frames = ThreadFrames(self.references.target)
        return self._frames.of(root.thread)

    def path(self, numbers: Sequence[int]) -> Path:
        """Return the path of a chain of node numbers that begins at a root; a long path has only the steps at both
        ends."""
        length = max(len(numbers) - 1, 0)
        if length <= 2 * STEPS_AT_EACH_END:
            return Path(self._steps(numbers), None, length)
        head, tail = numbers[: STEPS_AT_EACH_END + 1], numbers[-STEPS_AT_EACH_END - 1 :]
        return Path([*self._steps(head), *self._steps(tail)], None, length)

    def naming(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the root and the first block of a chain, by their numbers. Their names are enough to distinguish the
        chain's holder from others."""
        return numbers[:2]

    def _steps(self, numbers: Sequence[int]) -> list[Step]:
        nodes = self.references.nodes(numbers)
        return [
            Step(node.address, self.type_name(node), self.edge(holder, node).text)
            for holder, node in zip(nodes, nodes[1:])
        ]


class AlikeBlocks(Protocol):
    """Blocks of one kind: of one type, or of one size."""

    @property
    def type_address(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def bytes(self) -> int: ...


def group_name(paths: Paths, group: AlikeBlocks) -> str:
    """Return the name of a group of blocks: their type, otherwise their size or kind."""
    if group.kind == STRUCTURE:
        return paths.structure_name(group.type_address)
    if group.type_address:
        name = paths.kind_name(group.type_address)
        return f"{name} on a free list" if group.kind == IDLE else name
    if group.kind == IDLE:
        return NUMBERS
    return block_name(group.size) if group.size else group.kind


def block_name(size: int) -> str:
    """Return a name for a block if only its size is known. ``size``: bytes, header included."""
    return f"{BLOCK} of {size:,} bytes"


def _offset(distance: int) -> str:
    return f"{distance:+#x}" if distance else ""
