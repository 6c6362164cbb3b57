"""The open target that the library's heaps and records share, and its release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock

from gdbheap.answers import at, refs, why
from gdbheap.answers.accounting.describing import describe_blocks
from gdbheap.answers.accounting.paths import ways
from gdbheap.api import converting
from gdbheap.api.arguments import count_of
from gdbheap.api.asking import disclosing
from gdbheap.api.rows import Kind, Object, Owner, Referrer
from gdbheap.api.table import Table
from gdbheap.api.targets import OpenTarget, asked
from gdbheap.errors import Unsupported, UsageError
from gdbheap.heap import Heap
from gdbheap.snapshots.snapshot import SnapshotWithBlocks, take

__all__ = ["SharedTarget"]


class SharedTarget:
    """An open target or snapshot. ``Heap`` and the rows of its answers get their data from it (``rows.Knows``).

    ``no_text``: answers show no contents. After ``close`` each question raises ValueError.
    """

    def __init__(self, opened: OpenTarget | SnapshotWithBlocks, name: str, no_text: bool = False) -> None:
        self._opened: OpenTarget | SnapshotWithBlocks | None = opened
        # Only one thread asks at a time, so that all answers are about one moment.
        self.turn = RLock()
        self.name, self._no_text = name, no_text

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called. Each question then raises ValueError."""
        return self._opened is None

    def close(self) -> None:
        """Release the target. A second call does nothing."""
        opened, self._opened = self._opened, None
        if opened is not None and not isinstance(opened, SnapshotWithBlocks):
            opened.close()

    def check(self) -> None:
        if self._opened is None:
            raise ValueError(f"the heap of {self.name} was closed: open it again")

    def stored(self) -> SnapshotWithBlocks | None:
        """Return the contents of a snapshot; None if this is a process or a core."""
        self.check()
        return self._opened if isinstance(self._opened, SnapshotWithBlocks) else None

    def look(self, blocks: bool = False) -> SnapshotWithBlocks:
        """Take a snapshot in memory, to be compared with others. ``blocks``: include each block."""
        with self.asked() as heap:
            return take(heap, with_blocks=blocks)

    @contextmanager
    def asked(self, what: str = "") -> Iterator[Heap]:
        """Yield the heap for one question. Raises Unsupported for a snapshot.

        ``what``: a name for the requested data, for the error message.
        """
        if self.stored() is not None:
            raise self.lacks(what)
        assert self._opened is not None and not isinstance(self._opened, SnapshotWithBlocks)
        with self.turn:
            self.check()
            with asked(self._opened) as heap, disclosing([heap], self._no_text):
                yield heap

    def lacks(self, what: str) -> Unsupported:
        """Return the error for a question that a snapshot cannot answer. ``what``: the data that the snapshot lacks."""
        return Unsupported(f"a snapshot does not contain {what}: open the process, or a core")

    def kinds(self, blocks: Iterable[tuple[int, int]]) -> Mapping[int, Kind]:
        """Return the kinds of blocks in use, by address. ``blocks``: (address, size in bytes) of each block."""
        with self.asked("blocks") as heap:
            found = describe_blocks(heap, list(blocks))
        return {address: converting.kind_of(one) for address, one in found.items()}

    def owner_of(self, address: int) -> Owner | None:
        """Return the owner of the block at an address; None if the block is not in use."""
        with self.asked("blocks") as heap:
            return converting.owner_of(at.at(heap, address))

    def way(self, address: int) -> str | None:
        """Return the path from a root to the block or object at an address; None if no root reaches it."""
        with self.asked("references") as heap:
            return ways(heap, [address]).get(address)

    def retained_by(self, address: int) -> int:
        """Return the bytes that would be freed with the block or object at an address."""
        with self.asked("references") as heap:
            return why.why(heap, address).retained

    def referrers_of(self, address: int, top: int | None = None) -> Table[Referrer]:
        """Return the objects and other memory that point to the object or block at an address."""
        with self.asked("references") as heap:
            found = refs.refs(heap, address, count_of(top))
        return Table((converting.referrer_of(self, row) for row in found.rows), Referrer, found.count)

    def object_at(self, address: int) -> Object:
        """Return the Python object whose block contains an address.

        If the block contains no Python object, return the block with a description. Raises UsageError if the address is
        not in a block in use."""
        with self.asked("objects") as heap:
            found = at.at(heap, address)
            block = found.block
            if found.object is None and block is not None and block.state in converting.IN_USE:
                what = describe_blocks(heap, [(block.address, block.size)])[block.address]
                return Object(block.address, str(what), block.size, None, self)
        if found.object is None:
            raise UsageError(f"{address:#x} is not in a block in use")
        return converting.object_of(self, found.object)
