"""An allocator that several modules of one target may bring, each with one of its own: they are read and answered for
together, and what each has is told apart."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gdbheap import _native
from gdbheap.allocators.allocator import LedgerLine, ListingAllocator, SizeClassUse, State, StoreAllocator
from gdbheap.allocators.line_ids import LineId, PartId, line_below

NOT_ITS_OWN = "unexplained"


class SeveralAllocators(ListingAllocator, StoreAllocator):
    """All of one kind; ``roots`` are what was located, by their places.

    Blocks in use have a line for each, below the one of all; where there are several so has everything else."""

    roots: Sequence[Any]

    @property
    @abstractmethod
    def store(self) -> _native.Mimalloc | _native.Jemalloc | _native.Tcmalloc:
        """The blocks of all."""

    @abstractmethod
    def owner(self, index: int) -> str:
        """The module that brings the one at a place, in words."""

    @abstractmethod
    def root_of_piece(self, start: int) -> int:
        """The place of the one whose piece begins at ``start``."""

    @abstractmethod
    def packing(self) -> _native.Packing:
        """Of all."""

    def asked_sizes(self, root: int | None) -> dict[int, int] | None:
        """By size the bytes that were asked for of blocks in use, of one or all; None where nobody knows."""
        return None

    def owners(self) -> list[str]:
        """Of each, by its place, where there are several."""
        return [self.owner(index) for index in range(len(self.roots))] if len(self.roots) > 1 else []

    @property
    def _used(self) -> LineId:
        return line_below(self.name, "used")

    def line_of(self, line: LineId, root: int) -> LineId:
        """The id of the line in which the bytes of one count that are of a line."""
        is_apart = line == self._used or (len(self.roots) > 1 and line != NOT_ITS_OWN)
        return line_below(line, root) if is_apart else line

    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[LineId], int]) -> int:
        """The parts of a piece, in the lines of the one whose it is."""
        root = self.root_of_piece(start)
        lines: dict[PartId, LineId] = {**self.parts, "used": self._used}
        owners: dict[str, int] = {part: number(self.line_of(line, root)) for part, line in lines.items()}
        return sweep.add_blocks(self.target.space, self.store, start, owners)

    def all_lines(self) -> Iterator[LedgerLine]:
        """With those of each below the lines whose bytes are told apart."""
        for line in self.lines:
            below = [self.line_of(line.id, root) for root in range(len(self.roots))]
            is_apart = line.id == self._used or (line.state is not None and below[0] != line.id)
            yield replace(line, state=None) if is_apart else line
            for index, name in enumerate(below if is_apart else []):
                title = f"of {self.owner(index)}"
                yield LedgerLine(name, line.id, title, State.USED if line.id == self._used else line.state, detail=True)

    def size_classes(self, root: int | None = None) -> list[SizeClassUse]:
        """By size, of one or all; blocks in caches are free ones, and a large block is a group of its own."""
        return self.packed_classes(self.packing(), self.store.classes(root), self.asked_sizes(root), root)
