"""The lists of mappings: parsed as the kernel writes them, with any paths, and searched like a plain list."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheap.answers import at
from gdbheap.answers.accounting import partition
from gdbheap.heap import Heap
from gdbheap.targets.mappings import Mapping, Mappings, parse_maps, parse_smaps
from gdbheap.targets.target import Target

SMAPS = b"""55d0a0000000-55d0a0002000 r--p 00000000 fe:00 247766                     /usr/bin/sleep
Size:                  8 kB
Rss:                   8 kB
Pss:                   0 kB
SwapPss:               0 kB
Swap:                  4 kB
VmFlags: rd mr mw me
7f0000000000-7f0000001000 rw-s 00001000 00:01 1024                       /dev/zero (deleted)
Size:                  4 kB
7ffe53400000-7ffe53421000 rw-p 00000000 00:00 0                          [stack]
Rss:                  12 kB
Private_Hugetlb:       0 kB
Swap:                  0 kB
7fff53400000-7fff53800000 rw-p 00000000 00:10 1234                       /anon_hugepage (deleted)
Rss:                   0 kB
Shared_Hugetlb:     2048 kB
Private_Hugetlb:    2048 kB
Swap:                  0 kB
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
Rss:                   0 kB
"""


def test_smaps() -> None:
    """Check that Rss and Swap belong to the mapping above them, that SwapPss is not Swap, and that a missing line is
    None and not 0. [vsyscall] is not the process's."""
    sleep, shared, stack, huge = parse_smaps(SMAPS)
    assert sleep == Mapping(0x55D0A0000000, 0x55D0A0002000, "r--p", 0, "fe:00", 247766, "/usr/bin/sleep", 8192, 4096)
    assert (shared.private, shared.offset, shared.rss, shared.anonymous) == (False, 4096, None, False)
    assert (stack.writable, stack.rss, stack.swap, stack.name, stack.anonymous) == (True, 12288, 0, "[stack]", True)
    assert (huge.rss, huge.swap) == (4 << 20, 0)


def test_own_maps() -> None:
    """Check all mappings of this process against a plain reading of the same text."""
    text = Path("/proc/self/maps").read_bytes()
    lines = [line.split(None, 5) for line in text.decode(errors="surrogateescape").splitlines()]
    lines = [line for line in lines if line[-1] != "[vsyscall]"]
    found = [(f"{m.start:x}-{m.end:x}".zfill(8), m.perms, m.offset, m.inode, m.path) for m in parse_maps(text)]
    plain = [(line[0], line[1], int(line[2], 16), int(line[4]), "".join(line[5:6])) for line in lines]
    assert [row[1:] for row in found] == [row[1:] for row in plain]
    assert [int(row[0].split("-")[0], 16) for row in found] == [int(row[0].split("-")[0], 16) for row in plain]


def test_odd_paths(tmp_path: Path) -> None:
    """Check a path with a line break, spaces, a backslash, and bytes that are no text; its name can be printed."""
    odd = os.fsencode(tmp_path) + b"/a b\\n c\nff000-ff001 rw-p\x1b[31m\xff (deleted)"
    Path(os.fsdecode(odd)).write_bytes(bytes(mmap.PAGESIZE))
    with open(odd, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        found = [m for m in parse_maps(Path("/proc/self/maps").read_bytes()) if os.fsencode(m.path) == odd]
    assert len(found) == 1
    assert found[0].name.isprintable() and "\n" not in found[0].name
    found[0].name.encode()


@given(st.binary(max_size=300), st.integers(0, len(SMAPS)))
def test_any_bytes(noise: bytes, at: int) -> None:
    """Check that parsing any text ends, with results in order."""
    for parse in (parse_maps, parse_smaps):
        found = parse(SMAPS[:at] + noise + SMAPS[at:])
        starts = [mapping.start for mapping in found]
        assert starts == sorted(starts)


def test_find_like_a_plain_list(rng: random.Random) -> None:
    """Check that the search equals a test of every mapping, at and around every border."""
    borders = sorted(rng.sample(range(1, 400), 60))
    pairs = list(zip(borders[::2], borders[1::2]))
    kept = [Mapping(start, end, "rw-p", 0, "00:00", 0, "") for start, end in pairs if rng.random() < 0.9]
    mappings = Mappings(rng.sample(kept, len(kept)))
    for address in range(402):
        plain = [mapping for mapping in kept if mapping.start <= address < mapping.end]
        assert mappings.find(address) == (plain[0] if plain else None)


def test_ranges_cover_the_same_bytes(rng: random.Random) -> None:
    """Check that joined neighbours cover exactly the bytes of the mappings, in fewer and disjoint ranges."""
    borders = [0]
    while len(borders) < 80:
        borders.append(borders[-1] + rng.randrange(1, 5))
    kept = [Mapping(a, b, "rw-p", 0, "00:00", 0, "") for a, b in zip(borders, borders[1:]) if rng.random() < 0.7]
    ranges = Mappings(kept).ranges()
    assert [x for m in kept for x in range(m.start, m.end)] == [x for start, end in ranges for x in range(start, end)]
    assert all(end < start for (_, end), (start, _) in zip(ranges, ranges[1:]))


@pytest.mark.parametrize("name", ["[vdso]", "[vvar]", "[vvar_vclock]", "[uprobes]"])
def test_what_the_kernel_put_there(name: str) -> None:
    """Check that the ledger and ``heap at`` give it the same name."""
    (mapping,) = parse_maps(f"7f0000000000-7f0000001000 r-xp 00000000 00:00 0  {name}\n".encode())
    heap = Heap(Target("process"))
    assert mapping.is_kernels and partition._Layout(heap)._owner_of(mapping, None, None) == "other.kernel"
    assert at._whose_mapping(heap, mapping, mapping.start) == f"the kernel's {name.strip('[]')}"
