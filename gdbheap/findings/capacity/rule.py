"""Containers of C++ and Rust whose capacity is far larger than their contents."""

from __future__ import annotations

from dataclasses import field

from gdbheap.contents.cxx.kinds import Capacity
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.findings.finding import MAX_GRAPH_BLOCKS, UNLISTED, Evidence, Figures, Finding

# A kind of container is not named if it has a smaller percentage of all unused capacity.
MIN_PERCENT_SHOWN = 5
VECTOR = "vector"


@dataclass(frozen=True)
class RoomOfKind:
    """The containers of one kind: their capacity, and how much of it is used.

    ``kind``: the kind as text; ``family``: its key in TEXTS. ``capacity``: the bytes that the containers can hold;
    ``used``: the bytes that they do hold. ``proven``: False if only three ascending pointers, as in a std::vector,
    identify the kind. Readers, arenas and rings also have three ascending pointers, but use all of their block.
    """

    kind: str
    family: str
    count: int
    capacity: int
    used: int
    proven: bool = True


@dataclass(frozen=True)
class ContainerRoom(Figures):
    """The unused capacity of containers.

    ``containers``: the number of containers. ``capacity``: the bytes of their capacity; ``used``: how many of these are
    used. ``pages``: the resident bytes of unused capacity in whole pages. ``kinds``: the kinds of containers that the
    text lists. ``address``: the block with the most unused capacity; ``most``: its unused bytes. ``path``: the first
    step of the path to that block, "" if unknown. ``apart``: whether that block has nearly all of the unused capacity,
    and its holder has no finding."""

    ids = ("capacity",)
    containers: int
    capacity: int
    used: int
    pages: int
    address: int
    most: int
    kinds: list[RoomOfKind] = field(metadata=UNLISTED)
    conditional: bool = field(default=False, metadata=UNLISTED)
    path: str = ""
    apart: bool = field(default=False, metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the resident bytes of unused capacity.

    In a program with Python, only proven containers count. The list is empty if the finding's bytes are unknown or too
    few.
    """
    rooms = _rooms(evidence)
    size = sum(room.small + room.pages for room in rooms)
    if not rooms or not evidence.worth(size):
        return []
    most = max(rooms, key=lambda room: room.most)
    shown = [room for room in rooms if 100 * (room.small + room.pages) >= MIN_PERCENT_SHOWN * size]
    kinds = [_of_kind(room) for room in sorted(shown, key=lambda room: not _is_proven(room))]
    conditional = not evidence.worth(sum(room.small + room.pages for room in rooms if _is_proven(room)))
    count, capacity, used, pages = (
        sum(getattr(room, name) for room in rooms) for name in ("count", "capacity", "used", "pages")
    )
    path = _path(evidence, most) if pages else ""
    figures = ContainerRoom(count, capacity, used, pages, most.address, most.most, kinds, conditional, path)
    is_one = pages and most.address and not path
    lines = evidence.line("why", f"{most.address:#x}") if is_one else evidence.line("chunks", "--by=type")
    return [Finding("capacity", size, figures, lines, doubtful=conditional)]


def _path(evidence: Evidence, room: Capacity) -> str:
    """Return the first step of the path to the block with the most unused capacity; "" if it is unknown."""
    heap = evidence.heap
    if not evidence.follows or heap.target.remote or not room.address:
        return ""
    number = heap.references.graph.find(room.address)
    steps = [] if number is None else heap.paths.path(heap.references.graph.chain(number)).steps
    return steps[0].edge if steps else ""


def _is_proven(room: Capacity) -> bool:
    return room.kind.family != VECTOR or room.kind.type is not None


def _of_kind(room: Capacity) -> RoomOfKind:
    kind = room.kind
    return RoomOfKind(kind.text, kind.family, room.count, room.capacity, room.used, _is_proven(room))


def _rooms(evidence: Evidence) -> list[Capacity]:
    heap = evidence.heap
    if heap.target.refusal is not None or (heap.target.remote and not evidence.detail):
        return []
    if heap.used_blocks > MAX_GRAPH_BLOCKS and not evidence.detail and not evidence.follows:
        evidence.leave_out()
        return []
    try:
        is_python = heap.is_python
        found = heap.structures if evidence.detail and not is_python else heap.known_structures
    except GdbheapError:
        return []
    rooms = [] if found is None else found.rooms
    return [room for room in rooms if room.small + room.pages and (_is_proven(room) or not is_python)]
