"""List the blocks in use that no root reaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from gdbheap import _native
from gdbheap.answers.accounting.absent import BlockBytes, absent_memory
from gdbheap.answers.accounting.describing import looks
from gdbheap.answers.accounting.unfinished import finishing, not_examined
from gdbheap.answers.why_not_freed import COLLECTABLE, CauseTexts, collector_facts
from gdbheap.dataclass import dataclass
from gdbheap.graph.nodes import Nodes
from gdbheap.heap import Heap

CYCLES, LOST_REFERENCES, LOST_BLOCKS, DOUBTFUL = GROUPS = ("cycles", "lost_references", "lost_blocks", "doubtful")
MAX_ADDRESSES = 1000
MAX_CLOSINGS = 20
# The most blocks of a row whose contents are read.
ASKED = 32
# The most bytes of a block that can be the allocator's header.
HEADER = 16
# The kinds of cycles that are closed by a word in C memory of unknown layout.
BY_WORDS = LIKELY, HIDDEN = "likely", "hidden"


@dataclass(frozen=True)
class Lost:
    """Unreachable objects of one type, or unreachable blocks of one size that are not objects (``type`` is None).

    ``why``: the reason why they are not freed, which is the same for all. ``least_request``, ``most_request``: the
    smallest and the largest request in bytes for which malloc() hands out a block of this size; None for objects, or if
    malloc() does not hand out such blocks.
    """

    group: str
    type: str | None
    size: int
    count: int
    bytes: int
    buffers: int
    why: str
    addresses: list[int]
    content: str | None = None
    absent: int = 0
    least_request: int | None = None
    most_request: int | None = None


@dataclass(frozen=True)
class LostHead:
    """A lost block to which no other lost block points, or one block of a cycle of lost blocks (``in_circle``).

    ``count``: the number of blocks that would be freed together with this block, which is included.
    """

    address: int
    size: int
    type: str | None
    count: int
    retained: int
    in_circle: bool
    content: str | None = None
    absent: int = 0


@dataclass(frozen=True)
class CycleSum:
    """The objects and bytes of all cycles, of the cycles that ``gc.collect()`` frees, and of the cycles that it may
    free.
    """

    objects: int
    bytes: int
    collectable_objects: int
    collectable_bytes: int
    possible_bytes: int = 0


@dataclass(frozen=True)
class ObjectSum:
    """Unreachable objects of one group. ``objects``: their number. ``bytes``: the bytes of the objects and of all
    blocks that only they reach."""

    objects: int
    bytes: int


@dataclass(frozen=True)
class BlockSum:
    """Unreachable blocks of one group. ``blocks``: their number. ``bytes``: their bytes."""

    blocks: int
    bytes: int


@dataclass(frozen=True)
class Closing:
    """The references that close a cycle, as text (``what``). ``count``: how many cycles they close.

    ``bytes``: the bytes of these cycles and of all blocks that the cycles reach. ``is_collectable``: whether the
    collector would free the cycles."""

    what: str
    count: int
    bytes: int
    is_collectable: bool


@dataclass(frozen=True)
class LostTotal:
    """The sums over all groups: objects, blocks that are not objects, and bytes."""

    objects: int
    blocks: int
    bytes: int


@dataclass(frozen=True)
class Unreachable:
    """The answer of ``heap unreachable``, by group, largest first. ``heads`` has rows only for a program without
    Python."""

    rows: list[Lost]
    cycles: CycleSum
    lost_references: ObjectSum
    lost_blocks: BlockSum
    doubtful: BlockSum
    closings: list[Closing]
    heads: list[LostHead]
    head_count: int
    is_python: bool
    lacking: int
    not_examined: int = 0
    next: list[str] = field(default_factory=list)
    absent: int = 0
    total: LostTotal | None = None


def unreachable(heap: Heap, listed: int = MAX_ADDRESSES) -> Unreachable:
    """Return the blocks in use that no root reaches.

    ``listed``: the most addresses for each row, and the most heads. Raises Unsupported.
    """
    found = _unreachable(heap, listed)
    objects, blocks = (found.cycles, found.lost_references), (found.lost_blocks, found.doubtful)
    total = LostTotal(
        sum(one.objects for one in objects), sum(one.blocks for one in blocks),
        sum(one.bytes for one in (*objects, *blocks)),
    )  # fmt: skip
    return replace(found, total=total)


def _unreachable(heap: Heap, listed: int) -> Unreachable:
    references = heap.references
    if references.graph.is_cut:
        return _unfinished(heap, listed)
    raw = references.graph.unreachable(listed, collector_facts(heap))
    causes, lost = raw.causes, raw.rows
    found = None if references.counts_references else references.graph.lost_heads(listed)
    tops = found.rows if found is not None else []
    contents, texts = _Contents(heap, lost, tops), CauseTexts(heap)
    missing = list(absent_memory(heap)) if lost or tops else []
    absent = absent_by_row(heap, lost, missing)
    rows = [
        _row(heap, causes, row, texts.text(row.cause, causes[row.cause], row.is_head), contents.of_row(row), absent[at])
        for at, row in enumerate(lost)
    ]
    rows.sort(key=lambda row: (GROUPS.index(row.group), *_rank(row)))
    blocks = _blocks(rows, LOST_BLOCKS), _blocks(rows, DOUBTFUL)
    sums = _cycle_sum(causes, lost), _objects(rows, LOST_REFERENCES), *blocks
    own = {block.address: block.bytes for block in missing}
    heads = [_head(heap, row, contents.of_head(row), own.get(row.address, 0)) for row in tops]
    count = found.count if found is not None else 0
    closings, size = _closings(causes, lost, texts), sum(absent.values())
    return Unreachable(rows, *sums, closings, heads, count, heap.is_python, heap.target.lacking, absent=size)


def absent_by_row(heap: Heap, rows: Sequence[_native.LostGroup], missing: Iterable[BlockBytes]) -> Counter[int]:
    """Return how many bytes of each row's blocks are not resident, by the index of the row.

    ``missing``: all blocks with bytes that are not resident. In a row with more blocks than addresses, only the blocks
    at the listed addresses count.
    """
    places = {address: place for place, row in enumerate(rows) for address in row.addresses}
    graph, found = heap.references.graph, Counter[int]()
    for block in missing:
        number = graph.find(block.address)
        owner = None if number is None else heap.references.owner_of(number)
        addresses = [block.address, *([] if owner is None else [owner.block])]
        place = next((places[address] for address in addresses if address in places), None)
        if place is not None:
            found[place] += block.bytes
    return found


def _rank(row: Lost) -> tuple[int, str, int, str, list[int]]:
    """Return a sort key for rows of one group; no two rows have the same key."""
    return -row.bytes, row.type or "", row.size, row.why, row.addresses


def _unfinished(heap: Heap, listed: int) -> Unreachable:
    """Return the answer for an incomplete graph: only objects to which no unread reference can point.

    The reference counts of these objects are explained by references among themselves. Blocks that no root reaches, and
    that are not in the answer, count as not examined.
    """
    references, texts = heap.references, CauseTexts(heap)
    raw = references.graph.unreachable(listed, collector_facts(heap))
    causes = raw.causes
    is_proven = [cause.group == CYCLES and cause.kind not in BY_WORDS for cause in causes]
    proven = [row for row in raw.rows if is_proven[row.cause]]
    absent = absent_by_row(heap, proven, absent_memory(heap) if proven else [])
    rows = [
        _row(heap, causes, row, texts.text(row.cause, causes[row.cause], row.is_head), None, absent[at])
        for at, row in enumerate(proven)
    ]
    rows.sort(key=_rank)
    cycles, more = _cycle_sum(causes, proven), finishing(heap, references, "unreachable")
    sums = cycles, ObjectSum(0, 0), BlockSum(0, 0), BlockSum(0, 0)
    rest = max(0, not_examined(references) - cycles.bytes)
    closings, lacking = _closings(causes, proven, texts), heap.target.lacking
    return Unreachable(rows, *sums, closings, [], 0, heap.is_python, lacking, rest, more)


def _row(
    heap: Heap, causes: Sequence[_native.Cause], row: _native.LostGroup, why: str, content: str | None, absent: int
) -> Lost:
    group, kind = causes[row.cause].group, _type(heap, row.type_address)
    size, addresses = row.bytes + row.buffers, _addresses(heap.references, row.addresses)
    asked = requests_for(heap, row.addresses) if group == LOST_BLOCKS else None
    least, most = asked or (None, None)
    return Lost(group, kind, row.size, row.count, size, row.buffers, why, addresses, content, absent, least, most)


def requests_for(heap: Heap, addresses: Sequence[int]) -> tuple[int, int] | None:
    """Return the smallest and the largest request in bytes for which malloc() hands out blocks of this size.
    ``addresses``: the addresses of some blocks of one size. None if malloc() does not hand out such blocks."""
    for address in addresses[:1]:
        for allocator in heap.allocators:
            block = allocator.find(address)
            if block is not None and block.state == "used":
                return allocator.requests_for(block)
    return None


def _head(heap: Heap, row: _native.LostHead, content: str | None, absent: int) -> LostHead:
    kind = _type(heap, row.type_address)
    return LostHead(row.address, row.size, kind, row.count, row.retained, row.in_circle, content, absent)


def _cycle_sum(causes: Sequence[_native.Cause], found: Sequence[_native.LostGroup]) -> CycleSum:
    rows = [row for row in found if causes[row.cause].group == CYCLES]
    freed = [row for row in rows if causes[row.cause].kind == COLLECTABLE]
    _count, may = _sum([row for row in rows if causes[row.cause].kind == LIKELY])
    return CycleSum(*_sum(rows), *_sum(freed), may)


def _sum(rows: Sequence[_native.LostGroup]) -> tuple[int, int]:
    """Return the number of objects in all rows, and the bytes of all rows including buffers."""
    return sum(row.count for row in rows if row.type_address), sum(row.bytes + row.buffers for row in rows)


def _objects(rows: Sequence[Lost], group: str) -> ObjectSum:
    own = [row for row in rows if row.group == group]
    return ObjectSum(sum(row.count for row in own if row.type is not None), sum(row.bytes for row in own))


def _blocks(rows: Sequence[Lost], group: str) -> BlockSum:
    own = [row for row in rows if row.group == group]
    return BlockSum(sum(row.count for row in own), sum(row.bytes for row in own))


def _closings(causes: Sequence[_native.Cause], found: Sequence[_native.LostGroup], texts: CauseTexts) -> list[Closing]:
    """Return the references that close the cycles with the most bytes."""
    sizes: Counter[int] = Counter()
    for row in found:
        sizes[row.cause] += row.bytes + row.buffers
    largest = [(place, size) for place, size in sizes.most_common() if causes[place].group == CYCLES]
    found_causes = [(causes[place], size) for place, size in largest[:MAX_CLOSINGS]]
    return [Closing(texts.closing(cause), cause.count, size, cause.kind == COLLECTABLE) for cause, size in found_causes]


class _Contents:
    """Describes the bytes of blocks without a type. Some blocks of each row are examined, in one pass for all rows."""

    def __init__(self, heap: Heap, rows: Sequence[_native.LostGroup], heads: Sequence[_native.LostHead]) -> None:
        nameless = [(address, row.size) for row in rows if not row.type_address for address in row.addresses[:ASKED]]
        nameless += [(head.address, head.size) for head in heads if not head.type_address]
        blocks = [(address, max(size - HEADER, 0)) for address, size in dict.fromkeys(nameless)]
        self._known = dict(zip((address for address, _size in blocks), looks(heap, blocks)))

    def of_row(self, row: _native.LostGroup) -> str | None:
        """Return the description that more than half of the examined blocks of a row share; None if there is none."""
        known = Counter(self._known[address] for address in row.addresses[:ASKED] if address in self._known)
        return next((look for look, count in known.items() if 2 * count > sum(known.values())), None)

    def of_head(self, head: _native.LostHead) -> str | None:
        """Return a description of the head's bytes; None if the head has a type."""
        return self._known.get(head.address)


def _type(heap: Heap, address: int) -> str | None:
    return heap.paths.kind_name(address) if address else None


def _addresses(references: Nodes, blocks: list[int]) -> list[int]:
    """Return the addresses of the objects in the blocks; for a block without an object, its own address."""
    numbers = [number for block in blocks if (number := references.graph.find(block)) is not None]
    return sorted(node.address for node in references.nodes(numbers))
