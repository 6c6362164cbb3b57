"""Find small groups of blocks that keep many pages from being returned.

A pin is a group of blocks that keeps whole resident pages from being returned. The pages would be returned, or become
empty, only if all blocks of the group were freed. They have at least twice as many bytes as the blocks. Pages that are
returned anyway (see ``trim``) do not count. The allocator defines the groups: the blocks of a page, or of an arena that
is returned as a whole. No two groups share a block, so the bytes that several groups would free can be added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, replace

from gdbheap._native import PinTotals
from gdbheap.allocators.allocator import Allocator, PinRow
from gdbheap.allocators.allocator import Member as MemberRow
from gdbheap.answers.accounting.describing import CACHED, UNKNOWN, BlockDescription, BlockKind, describe_blocks
from gdbheap.answers.accounting.paths import alike, in_a_line, ways
from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap

MAX_GROUPS = 100_000
MAX_BLOCKS = 400_000
MAX_MEMBERS = 1000
MAX_KINDS_NAMED = 3
MAX_PATHS_PER_GROUP = 20
# The most blocks of a kind whose holders are searched, and the most blocks of a graph that is built for this (in half a
# second).
MAX_ASKED, MAX_GRAPH_BLOCKS = 32, 1_000_000
FREE = BlockDescription(BlockKind(CACHED, look="free, in a thread's cache"))


@dataclass(frozen=True)
class Member:
    """A block of a group. ``address``: the start of the block, even if an object in it starts later."""

    address: int
    size: int
    what: str
    block_kind: BlockKind
    path: str | None = None


@dataclass(frozen=True)
class Pin:
    """A group of blocks that pins memory; often a single block.

    ``address``: the address of the first block. ``path``: the paths to the blocks, equal paths merged. ``would_free``:
    the bytes that freeing the group would free.
    """

    address: int
    size: int
    what: str
    allocator: str
    would_free: int
    blocks: int
    members: list[Member]
    path: str | None = None


@dataclass(frozen=True)
class PinningKind:
    """The blocks of one kind that pin pages, summed over the pins whose blocks are described.

    ``groups``: the number of pins with such blocks. ``alone``: how many of these have only this kind. ``would_free``:
    the bytes that freeing the pins of ``alone`` would free. ``path``: the most frequent path among the blocks for which
    paths were read. ``holder``: for blocks of unknown contents, the global or path that reaches at least half of the
    examined blocks."""

    what: str
    allocator: str
    blocks: int
    bytes: int
    groups: int
    alone: int
    would_free: int
    path: str | None = None
    holder: str | None = None


@dataclass(frozen=True)
class PinSums:
    """The totals of one allocator's pins. ``described``: the number of its blocks that are described."""

    allocator: str
    groups: int
    blocks: int
    bytes: int
    would_free: int
    described: int
    units: tuple[str, str]
    emptied: str


@dataclass(frozen=True)
class PinTotal:
    """The totals of all pins of at least the minimum size."""

    groups: int = 0
    blocks: int = 0
    bytes: int = 0
    would_free: int = 0


@dataclass(frozen=True)
class Pins:
    """The answer of ``heap pins``. The group that keeps the most bytes beyond its own comes first.

    The sums count all matching pins, even if rows were cut.
    """

    rows: list[Pin]
    sums: list[PinSums]
    by_kind: list[PinningKind]
    minimum: int
    resident_known: bool
    total: PinTotal = PinTotal()


def pins(heap: Heap, minimum: int | None = None, allocator: str | None = None) -> Pins:
    """Return every pin whose removal would free at least ``minimum`` bytes.

    ``minimum``: None stands for one page. ``allocator``: the name of the allocator whose pins are listed, None for all.
    Raises Unsupported if malloc is unknown."""
    heap.require_malloc()
    wanted = [found for found in heap.allocators if allocator in (None, found.name)]
    minimum = heap.target.machine.page if minimum is None else minimum
    parts = [(found, found.pins(heap.target.kept, minimum, MAX_GROUPS)) for found in wanted]
    rows = [(found, row) for found, sums in parts for row in sums.rows]
    rows.sort(key=lambda pair: (pair[1].bytes - pair[1].freed, pair[1].start, pair[1].end))
    members = _members(rows)
    words = describe_blocks(heap, [(block.address, block.size) for blocks in members for block in blocks if block.used])
    named = [[_member(row, words[row.address] if row.used else FREE) for row in blocks] for blocks in members]
    found = [_pin(owner.name, row, blocks) for (owner, row), blocks in zip(rows, named)]
    described = Counter(owner.name for (owner, _), blocks in zip(rows, named) for _ in blocks)
    sums = [_sums(of, group.totals, described[of.name]) for of, group in parts]
    kinds = _with_holders(heap, _kinds(zip(found, named)), [block for blocks in named for block in blocks])
    total = PinTotal(*(sum(getattr(one, field.name) for one in sums) for field in fields(PinTotal)))
    return Pins(found, sums, kinds, minimum, heap.target.pages is not None, total)


def _with_holders(heap: Heap, kinds: list[PinningKind], members: Sequence[Member]) -> list[PinningKind]:
    """Return the kinds of blocks.

    Kinds of unknown contents get a holder if the graph of references can be built in little time.
    """
    if heap.target.remote or heap.used_blocks > MAX_GRAPH_BLOCKS:
        return kinds
    unknown: dict[str, list[int]] = {}
    for member in members:
        if member.block_kind.role == UNKNOWN:
            unknown.setdefault(member.block_kind.text(), []).append(member.address)
    with suppress(GdbheapError):
        found = {what: _holder(heap, addresses) for what, addresses in unknown.items()}
        return [replace(row, holder=found.get(row.what)) for row in kinds]
    return kinds


def _holder(heap: Heap, addresses: Sequence[int]) -> str | None:
    """Return the path that most blocks of a sample have in common, without subscripts and numbers. None if fewer than
    half of the sample have it."""
    graph, paths = heap.references.graph, heap.paths
    some = addresses[:: max(1, len(addresses) // MAX_ASKED)]
    numbers = [number for address in some if (number := graph.find(address)) is not None]
    # A chain may have millions of nodes: only one is in memory at a time.
    chains = (chain for number in numbers if len(chain := graph.chain(number)) > 1)
    counts = Counter(alike(source_path(in_a_line(paths.path(paths.naming(chain))))) for chain in chains)
    most, count = counts.most_common(1)[0] if counts else ("", 0)
    return most if most and 2 * count >= len(some) else None


def keeps(heap: Heap) -> int | None:
    """Return how many bytes all pins together keep from being returned, without describing any pin: the sum of
    ``would_free`` over ``Pins.sums``. Return None if no allocator is known or residency is unknown.
    """
    if heap.target.pages is None or not heap.allocators:
        return None
    page, kept = heap.target.machine.page, heap.target.kept
    return sum(found.pins(kept, page, 0).totals.freed for found in heap.allocators)


def with_paths(heap: Heap, answer: Pins, listed: Sequence[Pin]) -> Pins:
    """Return the answer with paths to the first MAX_PATHS_PER_GROUP blocks of each group in ``listed``.

    All references are read.
    """
    found = ways(heap, (member.address for pin in listed for member in pin.members[:MAX_PATHS_PER_GROUP]))
    places = {pin.address for pin in listed}
    rows = [_with_path(pin, found) if pin.address in places else pin for pin in answer.rows]
    most: dict[tuple[str, str], Counter[str]] = {}
    for pin in rows:
        for member in pin.members:
            if member.path is not None:
                most.setdefault((member.block_kind.text(), pin.allocator), Counter())[alike(member.path)] += 1
    kinds = [replace(row, path=_commonest(most.get((row.what, row.allocator)))) for row in answer.by_kind]
    return replace(answer, rows=rows, by_kind=kinds)


def _with_path(pin: Pin, found: dict[int, str]) -> Pin:
    members = [replace(member, path=found.get(member.address)) for member in pin.members]
    known = [member.path for member in members if member.path is not None]
    return replace(pin, members=members, path=_path_of(known, pin.blocks) if known else None)


def _path_of(known: list[str], count: int) -> str:
    return known[0] if count == 1 else _counted([alike(path) for path in known], count)


def _commonest(counts: Counter[str] | None) -> str | None:
    return counts.most_common(1)[0][0] if counts else None


def _sums(of: Allocator, totals: PinTotals, described: int) -> PinSums:
    sizes = (totals.groups, totals.blocks, totals.bytes, totals.freed)
    return PinSums(of.name, *sizes, described, of.groups, of.emptied)


def _members(rows: Sequence[tuple[Allocator, PinRow]]) -> list[list[MemberRow]]:
    """Return the blocks of each group. Once MAX_BLOCKS blocks are listed in total, further groups get an empty list."""
    found: list[list[MemberRow]] = []
    left = MAX_BLOCKS
    for allocator, row in rows:
        blocks = allocator.members(row) if row.blocks <= left else []
        left -= len(blocks)
        found.append(blocks)
    return found


def _member(row: MemberRow, found: BlockDescription) -> Member:
    return Member(row.address, row.size, str(found), found.kind)


def _pin(name: str, row: PinRow, members: list[Member]) -> Pin:
    address = members[0].address if members else row.start
    return Pin(address, row.bytes, _summary(members), name, row.freed, row.blocks, members[:MAX_MEMBERS])


def _summary(members: list[Member]) -> str:
    if not members:
        return "not examined"
    kinds = [member.block_kind.text() for member in members]
    return members[0].what if len(members) == 1 else _counted(kinds, len(members))


def _counted(texts: list[str], count: int) -> str:
    """Return a text that says how many of ``count`` blocks have each text; blocks without a text count as "others"."""
    counts = Counter(texts).most_common(MAX_KINDS_NAMED)
    more = count - sum(number for _, number in counts)
    return ", ".join([*(f"{number:,} x {text}" for text, number in counts), *[f"{more:,} others"] * bool(more)])


def _kinds(groups: Iterable[tuple[Pin, list[Member]]]) -> list[PinningKind]:
    """Return the kinds of blocks in the groups. Kinds whose own groups would free the most come first."""
    rows: dict[tuple[str, str], tuple[int, int, int, int, int]] = {}
    for pin, members in groups:
        sizes: dict[str, list[int]] = {}
        for member in members:
            sizes.setdefault(member.block_kind.text(), []).append(member.size)
        for what, of_kind in sizes.items():
            blocks, size, of, alone, freed = rows.get((what, pin.allocator), (0, 0, 0, 0, 0))
            only = int(len(sizes) == 1)
            sums = (blocks + len(of_kind), size + sum(of_kind), of + 1, alone + only, freed + only * pin.would_free)
            rows[what, pin.allocator] = sums
    kinds = [PinningKind(what, allocator, *row) for (what, allocator), row in rows.items()]
    return sorted(kinds, key=lambda row: (-row.would_free, -row.blocks, row.what))
