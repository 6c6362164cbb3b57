"""The kernel's memory figures of many processes, summed by program, as ps_mem, psm and smem print them.

RAM is the sum of the processes' PSS and of their hugetlbfs pages, which PSS does not include. Half a KiB is added for
each PSS that the kernel rounded down to whole KiB, as ps_mem does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gdbheap._native import ProcessAccount
from gdbheap.dataclass import dataclass
from gdbheap.processes.programs import ProcessSums, name_of, program_of, read, script_of, summed

__all__ = [
    "HeapSums", "ProgramRow", "ProgramSums", "ProgramTable", "by_program", "name_of", "program_of", "read", "script_of",
]  # fmt: skip


@dataclass(frozen=True)
class HeapSums:
    """Resident bytes of the heaps of a program's processes.

    ``looked``: how many processes had a heap that could be read. The sums cover only these.
    """

    looked: int
    in_use: int
    free: int
    reclaimable: int


@dataclass(frozen=True)
class ProgramSums:
    """The memory of a program's processes, or of all programs, in bytes."""

    ram: int
    private: int
    shared: int
    swapped: int


@dataclass(frozen=True)
class ProgramRow(ProgramSums):
    """The processes that run one program; a Python program is named by its script.

    ``script``: the script's file name, ``-m`` and the module, ``-c``, or the name that the process gave itself."""

    name: str
    script: str | None
    count: int
    pids: list[int]
    heap: HeapSums | None = None


@dataclass(frozen=True)
class ProgramTable:
    """The programs, and the sums over all of them. ``refused``: the number of processes that may not be read."""

    rows: list[ProgramRow]
    total: ProgramSums
    refused: int
    left_out: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether every figure that was requested is known. False if ``left_out`` is not empty."""
        return not self.left_out


def by_program(rows: Iterable[ProcessAccount], pattern: re.Pattern[str] | None = None) -> ProgramTable:
    """Return the table of programs, largest first; with ``pattern``, only those whose name or script matches it."""
    found = summed(rows, pattern.search if pattern is not None else None)
    total = ProgramSums(*_sizes(found.total))
    return ProgramTable([_program(one) for one in found.rows], total, found.refused)


def _program(one: ProcessSums) -> ProgramRow:
    return ProgramRow(*_sizes(one), one.name, one.script, one.count, one.pids)


def _sizes(one: ProcessSums) -> tuple[int, int, int, int]:
    return one.ram, one.private, one.shared, one.swapped
