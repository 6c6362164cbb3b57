"""Containers of C++ and Rust that have room for much more than they hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.contents.cxx.kinds import Room
from gdbheap.errors import GdbheapError
from gdbheap.findings.finding import MAX_GRAPH_BLOCKS, UNLISTED, Evidence, Figures, Finding

# A kind that has less of the room is not named.
MIN_PERCENT_SHOWN = 5


@dataclass(frozen=True)
class RoomOfKind:
    """How many containers of one kind there are, in words (``kind``) and by a key of TEXTS (``family``), the bytes that
    they have room for, and those that they use."""

    kind: str
    family: str
    count: int
    capacity: int
    used: int


@dataclass(frozen=True)
class ContainerRoom(Figures):
    """How many ``containers`` there are, the bytes that they have room for (``capacity``) and ``used``, the resident
    bytes of whole ``pages`` of room, and of the one that has the ``most`` of those the ``address`` of its block.
    ``kinds``: those worth naming."""

    ids = ("capacity",)
    containers: int
    capacity: int
    used: int
    pages: int
    address: int
    most: int
    kinds: list[RoomOfKind] = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """Return what is resident of their room, of a program without Python."""
    rooms = _rooms(evidence)
    size = sum(room.small + room.pages for room in rooms)
    if not rooms or not evidence.worth(size):
        return []
    most = max(rooms, key=lambda room: room.most)
    shown = [room for room in rooms if 100 * (room.small + room.pages) >= MIN_PERCENT_SHOWN * size]
    kinds = [RoomOfKind(room.kind.text, room.kind.family, room.count, room.capacity, room.used) for room in shown]
    count, capacity, used, pages = (
        sum(getattr(room, name) for room in rooms) for name in ("count", "capacity", "used", "pages")
    )
    figures = ContainerRoom(count, capacity, used, pages, most.address, most.most, kinds)
    return [Finding("capacity", size, figures, evidence.line("chunks", "--by=type"))]


def _rooms(evidence: Evidence) -> list[Room]:
    heap = evidence.heap
    if heap.target.refusal is not None or (heap.target.remote and not evidence.detail) or heap.is_python:
        return []
    if heap.used_blocks > MAX_GRAPH_BLOCKS and not evidence.detail:
        return []
    try:
        return [room for room in heap.structures.rooms if room.small + room.pages]
    except GdbheapError:
        return []
