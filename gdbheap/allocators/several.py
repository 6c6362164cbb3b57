"""An allocator that several modules of a target may each contain.

All copies are read together and give one answer; the ledger has separate lines for them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from gdbheap import _native
from gdbheap.allocators.allocator import DrawnArea, LedgerLine, ListingAllocator, SizeClassUse, State, StoreAllocator
from gdbheap.allocators.line_ids import LineId, PartId, line_below
from gdbheap.allocators.runtimes import NAME_LIMIT, file_name
from gdbheap.errors import one_line
from gdbheap.targets.start_environment import path_as_started

NOT_ITS_OWN = "unexplained"


class SeveralAllocators(ListingAllocator, StoreAllocator):
    """All copies of one allocator in a target.

    ``roots``: the located structures of each copy; the index of a copy is its index in this list. Below the ledger line
    for blocks in use, each copy has its own line. If there are several copies, they have separate lines for other
    memory too.
    """

    roots: Sequence[Any]

    @property
    @abstractmethod
    def store(self) -> _native.Mimalloc | _native.ExtentStore:
        """The blocks of all copies, as the native code has read them."""

    @property
    @abstractmethod
    def areas(self) -> Sequence[_native.Segment | _native.ExtentArea]:
        """The address ranges that contain blocks, ascending: mimalloc's segments, or the contiguous areas of another
        allocator."""

    def owner(self, index: int) -> str:
        """Return the name of the module that contains copy number ``index``."""
        return self._owners[index]

    @cached_property
    def _owners(self) -> list[str]:
        """The names of the modules of all copies."""
        modules = [root.module for root in self.roots]
        return [
            "an unknown module" if module is None
            else one_line(file_name(path_as_started(self.target, module)), NAME_LIMIT)
            for module in modules
        ]  # fmt: skip

    def add_fact(self, index: int, layout: str, source: str, proof: str) -> None:
        """Add a fact about copy number ``index``: its layout, the source of this fact, and the proof."""
        title = f"{self.title} of {self.owner(index)}" if len(self.roots) > 1 else self.title
        self._around.facts.add(title, layout, source, proof)

    @cached_property
    def _root_at(self) -> dict[int, int]:
        return {area.start: area.root for area in self.areas}

    def root_of_piece(self, start: int) -> int:
        """Return the index of the copy whose area begins at ``start``."""
        return self._root_at[start]

    def drawn(self) -> Iterator[DrawnArea]:
        """Yield each area as ``heap map`` draws it."""
        for area in self.areas:
            yield DrawnArea(area.start, area.end, f"{self.title} of {self.owner(area.root)}", self.name)

    @abstractmethod
    def packing(self) -> _native.Packing:
        """Return the memory that packing the blocks of all copies would free."""

    def asked_sizes(self, root: int | None) -> dict[int, int] | None:
        """Return how many bytes the program asked for, by size of the blocks in use; None if unknown.

        ``root``: the index of one copy, or None for all."""
        return None

    def owners(self) -> list[str]:
        """Return the module of each copy if there are several; otherwise an empty list."""
        return [self.owner(index) for index in range(len(self.roots))] if len(self.roots) > 1 else []

    @property
    def _used(self) -> LineId:
        return line_below(self.name, "used")

    def line_of(self, line: LineId, root: int) -> LineId:
        """Return the id of the ledger line that counts the bytes of ``line`` for the copy with index ``root``."""
        is_apart = line == self._used or (len(self.roots) > 1 and line != NOT_ITS_OWN)
        return line_below(line, root) if is_apart else line

    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[LineId], int]) -> int:
        """Add the parts of the region at ``start`` to ``sweep``, which sums bytes by ledger line. Return the end of the
        region. Its bytes count for the copy of the allocator that owns it.
        """
        root = self.root_of_piece(start)
        lines: dict[PartId, LineId] = {**self.parts, "used": self._used}
        owners: dict[str, int] = {part: number(self.line_of(line, root)) for part, line in lines.items()}
        return sweep.add_blocks(self.target.space, self.store, start, owners)

    def all_lines(self) -> Iterator[LedgerLine]:
        """Yield the ledger lines. A line that is split among the copies is followed by a line for each copy."""
        for line in self.lines:
            below = [self.line_of(line.id, root) for root in range(len(self.roots))]
            is_apart = line.id == self._used or (line.state is not None and below[0] != line.id)
            yield replace(line, state=None) if is_apart else line
            for index, name in enumerate(below if is_apart else []):
                title = f"of {self.owner(index)}"
                yield LedgerLine(name, line.id, title, State.USED if line.id == self._used else line.state, detail=True)

    def size_classes(self, root: int | None = None) -> list[SizeClassUse]:
        """Return a row for each block size. ``root``: the index of one copy of the allocator; None: add up all copies.

        Blocks in caches count as free. Each large block counts as one group (slab, span or page).
        """
        return self.packed_classes(self.packing(), self.store.classes(root), self.asked_sizes(root), root)
