"""Compare what ``malloc_stats()`` prints in the process with gdbheap's own figures."""

from __future__ import annotations

import re

from gdbheap.answers.arenas import Arenas
from gdbheap.dataclass import dataclass
from gdbheap.text import SeveralLines, bounded_number

# malloc_stats() prints each figure as an unsigned int, which has only the low 32 bits.
UNSIGNED_INT = 1 << 32

# The largest figure that is read: a target may print any number of digits.
BEYOND = 10**18
_ARENA = re.compile(r"^Arena (\d+):\s*$")
_TOTAL = re.compile(r"^Total \(incl\. mmap\):\s*$")
_FIGURE = re.compile(r"^(system|in use) bytes\s*=\s*(\d+)\s*$")


@dataclass(frozen=True)
class StatsRow:
    """A figure in bytes, as the process states it (``theirs``) and as gdbheap does (``ours``)."""

    arena_name: str
    what: str
    theirs: int
    ours: int


@dataclass(frozen=True)
class Stats:
    """The answer of ``heap stats``: the text that ``malloc_stats()`` printed, and each figure."""

    text: str
    agrees: bool
    rows: list[StatsRow]


def compare(arenas: Arenas, text: str) -> Stats:
    """Compare the figures in the output of ``malloc_stats`` with ``arenas``.

    The output has only the low 32 bits of each figure, so only these bits are compared."""
    ours = {str(row.index): (row.system, row.in_use) for row in arenas.arenas}
    ours["total"] = (arenas.total.system, arenas.total.in_use)
    rows: list[StatsRow] = []
    section = ""
    for line in text.splitlines():
        arena, figure = _ARENA.match(line), _FIGURE.match(line)
        if arena:
            section = arena[1]
        elif _TOTAL.match(line):
            section = "total"
        elif figure and section in ours:
            value = ours[section][0 if figure[1] == "system" else 1]
            rows.append(StatsRow(section, f"{figure[1]} bytes", bounded_number(figure[2], BEYOND), value))
    complete = len(rows) == 2 * len(ours)
    return Stats(SeveralLines(text), complete and all(row.theirs == row.ours % UNSIGNED_INT for row in rows), rows)
