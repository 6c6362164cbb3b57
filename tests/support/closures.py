"""The objects that a process can reach, as tests/programs/closure.py writes them, and the comparison with answers."""

from __future__ import annotations

import bisect
import functools
import random
from collections import Counter
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from gdbheap.answers.at import at
from support import kernel
from support.library import heap_of

SAMPLE = 1000


def closure(path: Path) -> dict[int, str]:
    """Return the output of closure.py: {address: type}."""
    pairs = (line.split(" ", 1) for line in path.read_text().splitlines())
    return {int(address): kind for address, kind in pairs}


class Heaps:
    """The memory in which objects are allocated: anonymous mappings, except the .bss that follows a file's data."""

    def __init__(self, pid: int) -> None:
        mappings = kernel.maps(pid)
        first = {m.path: m.start for m in reversed(mappings) if m.inode}
        own = []
        for before, mapping in zip([mappings[0], *mappings], mappings):
            if mapping.path == "[heap]":
                own.append((mapping.start, mapping.end))
            elif not mapping.path:
                # A .bss and an arena that follows it are one mapping to the kernel.
                follows = before.inode and before.end == mapping.start and before.perms.startswith("rw")
                start = bss_end(before.path, first[before.path]) if follows else mapping.start
                own.append((max(start, mapping.start), mapping.end))
        self.ranges = sorted(own)

    def __contains__(self, address: int) -> bool:
        place = bisect.bisect_right(self.ranges, (address, 1 << 64)) - 1
        return place >= 0 and self.ranges[place][0] <= address < self.ranges[place][1]


@functools.cache
def bss_end(path: str, base: int) -> int:
    """Return the end of the data of an ELF file mapped at ``base``, with its .bss."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        ends = [s["p_vaddr"] + s["p_memsz"] for s in elf.iter_segments("PT_LOAD")]
        end = max(ends) + (base if elf["e_type"] == "ET_DYN" else 0)
    return int(end + 4095) & ~4095


def reached_in_heaps(pid: int, path: Path) -> dict[int, str]:
    """Return {address: type} from closure.py, without the objects in the data of files."""
    heaps = Heaps(pid)
    return {address: kind for address, kind in closure(path).items() if address in heaps}


def some(reached: dict[int, str], rng: random.Random) -> list[int]:
    """Return the sampled addresses."""
    return rng.sample(sorted(reached), min(len(reached), SAMPLE))


def same(found: Any, address: int, kind: str) -> bool:
    """Return whether the answer names this object and this type."""
    return found is not None and (found.address, found.type) == (address, kind)


def check_objects(target: str, reached: dict[int, str], sample: list[int]) -> None:
    """Check each address: no wrong type, and no type for at most one in a thousand."""
    with heap_of(target) as heap:
        found = {address: at(heap, address).object for address in sample}
    other = [(hex(a), reached[a], found[a]) for a in sample if not same(found[a], a, reached[a])]
    assert not [row for row in other if row[2] is not None], other[:20]
    assert len(other) <= len(sample) // 1000, other[:20]


def check_counts(reached: dict[int, str], rows: dict[str, tuple[int, int, int]]) -> None:
    """Check that the census counts, for each type, at least as many objects as are reachable; one in a thousand of all
    may be missing.
    """
    counts = Counter(reached.values())
    short = {name: max(0, count - rows.get(name, (0, 0, 0))[0]) for name, count in counts.items()}
    assert sum(short.values()) <= len(reached) // 1000, short
