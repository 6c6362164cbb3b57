"""Lost blocks that keep one another alive through the counts of std::shared_ptr, or of Rust's Rc and Arc."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from itertools import chain

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence
from gdbheap.heap import Heap

SHARED_PTR, RC = "std::shared_ptr", "Rc or Arc"
OF_CXX = ("make_shared", "shared_ptr")
# Kinds of blocks that may begin with the counts of an Rc; "" is an unknown kind.
OF_RUST = ("", "rust counted", "rust object", "rust shared")
# A block of such a container has a single owner, and so has the block with the counts of a std::shared_ptr.
CONTAINERS = ("vector", "map", "list", "unordered", "buckets", "deque", "deque map")
OF_POINTER = "shared_ptr"
# The family of blocks with a string. Words in such a block are not followed: they are characters, or stale pointers
# after the end of the string.
TEXT = "string"
# The most heads, blocks reached from one head, bytes read from each block, and bytes read in all.
MAX_HEADS, MAX_BLOCKS, MAX_BYTES, MAX_READ = 1000, 2000, 64 << 10, 64 << 20
# The most bytes read for one cycle, whose words are compared with one another.
MAX_CYCLE = 8 << 20
# The cost of visiting a block, and of following a pointer, each as a number of bytes that could be read instead.
BLOCK_BYTES, EDGE_BYTES = MAX_READ // 300_000, 64
# Pointers in larger blocks are not followed: such a block is hardly a part of a cycle, and may have millions.
LARGEST = 1 << 20
# Larger numbers cannot be counts.
MAX_COUNT = 1 << 32


@dataclass(frozen=True)
class _Block:
    address: int
    family: str
    data: bytes


@dataclass(frozen=True)
class CountedCycles:
    """The cycles of reference-counted objects among the lost blocks: ``count`` cycles, all of one ``kind``.

    ``kind``: SHARED_PTR or RC; "" if there are no such cycles. ``bytes``: the bytes that the cycles retain. ``others``:
    whether other blocks are lost too. ``heads``: how many heads were examined (lost blocks to which no other lost block
    points, or one block of a cycle); 0 if all were. ``looked_at``: the bytes that the examined heads retain, 0 if all
    were examined. ``type``: the class of most objects that close cycles, "" if unknown.
    """

    kind: str = ""
    count: int = 0
    bytes: int = 0
    others: bool = False
    heads: int = 0
    looked_at: int = 0
    type: str = ""


def find_counted_cycles(evidence: Evidence, size: int) -> CountedCycles:
    """Return the cycles of objects with reference counts among the lost blocks of a C++ or Rust program.

    The record is empty unless the cycles retain at least half of the bytes of all lost blocks (``size``). If not all
    heads can be examined, half of the bytes that the examined heads retain is enough.
    """
    heap = evidence.heap
    if heap.references.counts_references:
        return CountedCycles()
    libraries = heap.structures.libraries
    if not (libraries.libstdcxx or libraries.libcxx or libraries.rust):
        return CountedCycles()
    heads = heap.references.graph.lost_heads(MAX_HEADS)
    cycles = _Cycles(heap)
    found: defaultdict[str, list[int]] = defaultdict(list)
    types: Counter[str] = Counter()
    for head in heads.rows:
        kind = cycles.kind(head)
        if cycles.left < 0:
            break
        found[kind].append(head.retained)
        types.update([cycles.type_of(head)] if kind else [])
    kind = max((SHARED_PTR, RC), key=lambda kind: sum(found[kind]))
    held, count = sum(found[kind]), sum(map(len, found.values()))
    looked_at = size if count == heads.count else min(sum(map(sum, found.values())), size)
    # If the cycles have few of the bytes, the finding is mainly about the other blocks.
    if not held or 2 * held < looked_at:
        return CountedCycles()
    ((name, _count),) = types.most_common(1)
    if count < heads.count:
        return CountedCycles(kind, len(found[kind]), held, True, count, looked_at, name)
    return CountedCycles(kind, len(found[kind]), held, 20 * held < 19 * size, type=name)


class _Cycles:
    """Determines the kinds of reference counts that close the cycles of lost memory."""

    def __init__(self, heap: Heap) -> None:
        self._graph, self._space = heap.references.graph, heap.target.space
        self._structures = heap.structures
        self.left = MAX_READ

    def kind(self, head: _native.LostHead) -> str:
        """Return the kind of reference counts that close the cycle of a head: SHARED_PTR, RC, or "" if unproven.

        The kind is proven under two conditions. Each block with counts has as many pointers from the cycle as its
        counts say. Each other block has an owner in the cycle. At most half of the blocks with counts may have more
        pointers, because unused capacity of a container may still contain pointers of an earlier owner.
        """
        number = self._graph.find(head.address)
        if number is None or self.left < 0:
            return ""
        members = list(_members(number, self._edges(number)))
        if sum(min(self._graph.node(member).size, MAX_BYTES) for member in members) > MAX_CYCLE:
            self.left -= MAX_CYCLE
            return ""
        blocks = {member: self._read(member) for member in members}
        counts = {block.address: self._counts(block) for block in blocks.values()}
        pointing = {block.address: self._space.machine.words_of(block.data) for block in blocks.values()}
        if not any(counts.values()) or not head.in_circle and head.address not in pointing[head.address]:
            return ""
        found = Counter(chain.from_iterable(pointing.values()))
        owned = set(chain.from_iterable(pointing[one.address] for one in blocks.values() if one.family == OF_POINTER))
        is_rust = self._structures.libraries.rust
        more = sum(0 < counts[address] < found[address] for address in counts)
        if 2 * more > sum(map(bool, counts.values())):
            return ""
        for block in blocks.values():
            pointers = counts[block.address]
            if pointers > found[block.address]:
                return ""
            if not pointers and not (is_rust or block.family in CONTAINERS or block.address in owned):
                return ""
        return RC if all(block.family not in OF_CXX for block in blocks.values()) else SHARED_PTR

    def type_of(self, head: _native.LostHead) -> str:
        """Return the class of a head; "" if it is unknown."""
        number = self._graph.find(head.address)
        return "" if number is None else self._structures.type_of(self._graph.node(number).type_address)

    def _read(self, number: int) -> _Block:
        node = self._graph.node(number)
        data = self._space.read_available(node.address, min(node.size, MAX_BYTES))
        self.left -= len(data)
        return _Block(node.address, self._structures.family_of(node.type_address), data)

    def _counts(self, block: _Block) -> int:
        """Return how many pointers to a block exist according to the counts at its start; 0 if the block has no
        counts.
        """
        libraries, data, machine = self._structures.libraries, block.data, self._space.machine
        if block.family in OF_CXX and len(data) >= 24:
            # libc++ stores each count minus one.
            counts = machine.structure("NN" if libraries.libcxx else "ii")
            strong, weak = counts.unpack_from(data, machine.word)
            return int(strong + weak + (1 if libraries.libcxx else -1))
        if libraries.rust and block.family in OF_RUST and len(data) >= 16:
            strong, weak = machine.structure("NN").unpack_from(data)
            return int(strong + weak - 1) if 0 < strong < MAX_COUNT and 0 < weak < MAX_COUNT else 0
        return 0

    def _edges(self, first: int) -> dict[int, list[int]]:
        """Return, for each block that the first one reaches, the blocks to which it points, nearest first."""
        edges: dict[int, list[int]] = {}
        waiting = deque([first])
        while waiting and len(edges) < MAX_BLOCKS and self.left >= 0:
            number = waiting.popleft()
            if number not in edges:
                self.left -= BLOCK_BYTES
                node = self._graph.node(number)
                is_followed = node.size <= LARGEST and self._structures.family_of(node.type_address) != TEXT
                edges[number] = [edge.target for edge in self._graph.edges(number)] if is_followed else []
                self.left -= EDGE_BYTES * len(edges[number])
                waiting += edges[number]
        return edges


def _members(first: int, edges: dict[int, list[int]]) -> Iterator[int]:
    """Yield the first block and all blocks from which the first block is reachable."""
    sources: defaultdict[int, list[int]] = defaultdict(list)
    for number, targets in edges.items():
        for target in targets:
            sources[target].append(number)
    waiting, seen = [first], {first}
    while waiting:
        number = waiting.pop()
        yield number
        more = [source for source in sources[number] if source not in seen]
        seen.update(more)
        waiting += more
