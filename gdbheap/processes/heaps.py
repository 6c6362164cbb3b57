"""Read the heaps of programs' processes one by one, and sum them by program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gdbheap.errors import GdbheapError, reason_of
from gdbheap.heap import Heap
from gdbheap.processes.accounts import HeapSums, ProgramRow
from gdbheap.processes.heap_use import HeapUse, heap_use
from gdbheap.targets.chosen_processes import started_at
from gdbheap.targets.process import stopped
from gdbheap.targets.running_processes import ProcessStat, running

__all__ = ["with_heaps"]


def with_heaps(programs: Sequence[ProgramRow], limit: float | None, missed: list[str]) -> list[ProgramRow]:
    """Return the programs with the sums over their processes' heaps. Each process is stopped for at most ``limit``
    seconds.

    ``missed`` gets a line for each process whose memory may be read, but whose heap could not be read.
    """
    # Reading takes long, and process ids may be reused meanwhile, so remember when each process started.
    there = {pid: running(pid) for program in programs for pid in program.pids}
    return [
        replace(program, heap=_sums([_use(there[pid], limit, missed) for pid in program.pids])) for program in programs
    ]


def _use(one: ProcessStat | None, limit: float | None, missed: list[str]) -> HeapUse | None:
    """Return the figures of a process's heap; None if the process cannot be read or has ended.

    ``missed``: gets a line with the reason if an unexpected error occurs.
    """
    if one is None:
        return None
    try:
        with stopped(started_at(one.pid, one.start), limit, copies=True) as process:
            return None if process.refusal is not None else heap_use(Heap(process))
    except (GdbheapError, OSError):
        return None
    except Exception as error:
        missed.append(f"process {one.pid}: {reason_of(error)}")
        return None


def _sums(rows: Sequence[HeapUse | None]) -> HeapSums:
    known = [row for row in rows if row is not None]
    in_use, free, trim = (sum(sizes) for sizes in ([row.in_use for row in known], [row.free for row in known],
                                                   [row.reclaimable or 0 for row in known]))  # fmt: skip
    return HeapSums(len(known), in_use, free, trim)
