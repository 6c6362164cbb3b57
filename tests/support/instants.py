"""Programs that never rest, by whatever malloc, stopped anywhere: what their tables say that they hold, and what is
found."""

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

# How many instants each build is looked at; ``make matrix`` takes 200.
INSTANTS = int(os.environ.get("GDBHEAP_INSTANTS") or 5)
# After so many another program is looked at, and the last one's core.
OF_A_PROGRAM = 20
CAUGHT = "caught inside "
# A row of the table: pointer, usable, requested.
Held = tuple[int, int, int]


@dataclass(frozen=True)
class Subject:
    """An ``allocator``; ``fits`` tells of a row of the table whether its block is in use and as large as it says."""

    allocator: type[Allocator]
    fits: Callable[[Held, Block | None], bool]


@dataclass(frozen=True)
class Instant:
    """Rows whose blocks were ``off``, and the blocks ``beyond``: in use and not in the table, by address; whether
    something ``noted`` says that a thread was caught inside."""

    off: Sequence[Held]
    beyond: frozenset[int]
    noted: bool


@dataclass
class Seen:
    """What was seen of one program after the other."""

    instants: list[Instant] = field(default_factory=list)

    def moving(self) -> Iterator[tuple[Instant, int]]:
        """Of each instant the blocks beyond, without those that are there all the time."""
        rest = self.resting()
        return ((one, len(one.beyond - rest)) for one in self.instants)

    def resting(self) -> frozenset[int]:
        """The blocks that are in use at all instants and in no table."""
        return frozenset.intersection(*(one.beyond for one in self.instants))


def look(subject: Subject, target: str, folder: Path) -> Instant:
    """Compare one instant; nothing is damaged but what a thread leaves for a moment, and that is noted."""
    with heap_of(target) as heap:
        _visited, rows = held(folder)
        found = heap.allocator(subject.allocator)
        blocks = [(row, found.find(row[0])) for row in rows]
        off = [row for row, block in blocks if not subject.fits(row, block)]
        known = {block.address for _row, block in blocks if block is not None}
        used = {address for address, _size in found.first_used(0, 1 << 62, 1 << 62)}
        found.check()
        noted = any(warning.startswith(CAUGHT) for warning in warnings_of(heap))
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
    """Look at INSTANTS of one program after the other, in processes and, of each the last, in a core."""
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
