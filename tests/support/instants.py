"""Programs that never rest, with any malloc, stopped at random instants: compare their tables of blocks in use with the
blocks that gdbheap finds.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gdbheap.allocators.allocator import Allocator, Block
from support.library import heap_of, warnings_of
from support.programs import Running, why_no_cores
from support.tables import busy, held

__all__ = ["INSTANTS", "Instant", "Seen", "Subject", "seen"]

# The number of instants for each build; ``make matrix`` takes 200.
INSTANTS = int(os.environ.get("GDBHEAP_INSTANTS") or 5)
# The number of instants in one program. Then its core is read, and another program is started.
OF_A_PROGRAM = 20
STOPPED = " stopped inside "
# A row of the table: pointer, usable, requested.
Held = tuple[int, int, int]


@dataclass(frozen=True)
class Subject:
    """What to compare. ``allocator``: the allocator to read. ``fits``: returns whether a row's block is in use with its
    size.
    """

    allocator: type[Allocator]
    fits: Callable[[Held, Block | None], bool]


@dataclass(frozen=True)
class Instant:
    """The result at one instant.

    ``off``: the rows whose blocks were not found with the right size. ``beyond``: the addresses of blocks that are in
    use but not in the table. ``noted``: whether a warning says that a thread was stopped inside the allocator.
    """

    off: Sequence[Held]
    beyond: frozenset[int]
    noted: bool


@dataclass
class Seen:
    """The instants of one program, in order."""

    instants: list[Instant] = field(default_factory=list)

    def moving(self) -> Iterator[tuple[Instant, int]]:
        """Yield each instant with its number of additional blocks, except blocks that are additional at
        every instant.
        """
        rest = self.resting()
        return ((one, len(one.beyond - rest)) for one in self.instants)

    def resting(self) -> frozenset[int]:
        """Return the blocks that are in use at all instants and in no table."""
        return frozenset.intersection(*(one.beyond for one in self.instants))


def look(subject: Subject, target: str, folder: Path) -> Instant:
    """Compare one instant, and fail if there is damage that a thread's unfinished work does not explain."""
    with heap_of(target) as heap:
        _visited, rows = held(folder)
        found = heap.allocator(subject.allocator)
        blocks = [(row, found.find(row[0])) for row in rows]
        off = [row for row, block in blocks if not subject.fits(row, block)]
        known = {block.address for _row, block in blocks if block is not None}
        used = {address for address, _size in found.first_used(0, 1 << 62, 1 << 62)}
        found.check()
        noted = any(STOPPED in warning for warning in warnings_of(heap))
        lasting = [row for row in (*heap.damage, *found.damage) if not row.transient]
        assert not lasting, (lasting[:5], warnings_of(heap))
        assert noted or not heap.damage, heap.damage
        return Instant(off, frozenset(used - known), noted)


def seen(
    subject: Subject,
    command: Callable[[Path], list[str]],
    environment: dict[str, str],
    rng: random.Random,
    folder: Path,
) -> list[Seen]:
    """Compare INSTANTS instants, in one program after another: in the process, and the last instant of each program in
    its core.
    """
    programs, left = [], INSTANTS
    while left > 0:
        of_this = min(left, OF_A_PROGRAM)
        left -= of_this
        own = folder / f"from-{left}"
        own.mkdir()
        programs.append(_of_one(subject, command(own), environment, rng, own, of_this))
    return programs


def _of_one(
    subject: Subject, command: list[str], environment: dict[str, str], rng: random.Random, folder: Path, count: int
) -> Seen:
    found, cores = Seen(), int(why_no_cores() is None)
    with busy(command, folder, environment) as process:
        for _ in range(count - cores):
            time.sleep(rng.uniform(0.0, 0.05))
            found.instants.append(look(subject, str(process.pid), folder))
        if cores:
            core = Running(process, folder).kernel_core()
            found.instants.append(look(subject, str(core), folder))
            core.unlink()
    return found
