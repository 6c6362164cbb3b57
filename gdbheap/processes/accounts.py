"""What the kernel says of the memory of many processes, by program: what ps_mem, psm and smem print.

RAM is the proportional share (PSS) of each process, half a KiB more for each sum that the kernel cut to whole KiB, as
ps_mem counts, and pages of hugetlbfs, which are in no PSS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gdbheap._native import ProcessAccount
from gdbheap.processes.programs import Sums, name_of, program_of, read, script_of, summed

__all__ = [
    "HeapSums", "Program", "ProgramSums", "Table", "by_program", "name_of", "program_of", "read", "script_of",
]  # fmt: skip


@dataclass(frozen=True)
class HeapSums:
    """Resident bytes of the heaps of a program's processes."""

    looked: int
    in_use: int
    free: int
    reclaimable: int


@dataclass(frozen=True)
class ProgramSums:
    """Over all programs."""

    ram: int
    private: int
    shared: int
    swapped: int


@dataclass(frozen=True)
class Program(ProgramSums):
    """The processes that run a program, a Python program by its script (``script``: its file, ``-m`` and the module,
    ``-c``, or what the process calls itself)."""

    name: str
    script: str | None
    count: int
    pids: list[int]
    heap: HeapSums | None = None


@dataclass(frozen=True)
class Table:
    """The programs, and the sums over all."""

    rows: list[Program]
    total: ProgramSums
    refused: int
    left_out: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether all is known that was asked for."""
        return not self.left_out


def by_program(rows: Iterable[ProcessAccount], pattern: re.Pattern[str] | None = None) -> Table:
    """The programs whose name, or script, has a match of ``pattern`` in it, the largest first."""
    found = summed(rows, pattern.search if pattern is not None else None)
    total = ProgramSums(*_sizes(found.total))
    return Table([_program(one) for one in found.rows], total, found.refused)


def _program(one: Sums) -> Program:
    return Program(*_sizes(one), one.name, one.script, one.count, one.pids)


def _sizes(one: Sums) -> tuple[int, int, int, int]:
    return one.ram, one.private, one.shared, one.swapped
