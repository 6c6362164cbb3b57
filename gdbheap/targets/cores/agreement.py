"""Whether a file is the one that was mapped, where its build-id is not to be seen in memory.

A core without the pages of ELF headers has no build-ids either. What it does have is the data of each object: the table
of its dynamic section, and what the dynamic linker wrote when it relocated the object (PT_GNU_RELRO), which stays as it
is from then on. Each of those words follows from the file and from where it is loaded; in another version of the file
nearly all of them differ, because what they point to has moved. Pages of code and of read-only data that are there must
be the file's, byte for byte. Source: the System V ABI (gABI 4.3, chapter 5), glibc's elf/dynamic-link.h.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from gdbheap.machines import image
from gdbheap.machines.machine import Machine
from gdbheap.targets.elf import ElfFile, LoadedObject, read_build_id
from gdbheap.targets.ranges import holds

if TYPE_CHECKING:
    from gdbheap._native import Space

DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_DEBUG, DT_JMPREL, DT_RELRSZ, DT_RELR = 2, 7, 8, 21, 23, 35, 36
TABLE_LIMIT = 64 << 20
# The most words of DT_RELR that are read: each stands for 63 places, together for 66 MB of pointers.
RELR_LIMIT = 1 << 20
LOOKED_AT = 64 << 10
# Of what was locked after it was relocated: each word becomes some dozens of bytes here.
LOCKED_LIMIT = 1 << 20
# Fewer words prove nothing; one in thirty-two may differ, because libraries set some of theirs before they lock them.
LEAST_WORDS, PARTS = 16, 32
# Words, and relocations, that are looked at for all names of files in a core.
ALL_WORDS = 1 << 25


@dataclass(frozen=True)
class Agreement:
    """What speaks for a file: its build-id is the one in memory (``by_id``), or of ``compared`` words of data and of
    the dynamic section ``equal`` are as that file, loaded there, makes them. ``contradicted``: something else rules it
    out."""

    by_id: bool = False
    compared: int = 0
    equal: int = 0
    contradicted: bool = False

    @property
    def refuted(self) -> bool:
        """Whether the memory shows that it is another file."""
        return self.contradicted or PARTS * self.equal < (PARTS - 1) * self.compared

    @property
    def holds(self) -> bool:
        """Whether the file may be taken."""
        return not self.refuted and (self.by_id or self.compared >= LEAST_WORDS)


@dataclass
class Left:
    """How many words, and relocations, may still be looked at: a core may name a large file many times."""

    words: int = field(default_factory=lambda: ALL_WORDS)


def agreement(machine: Machine, space: Space, loaded: LoadedObject, elf: ElfFile, left: Left) -> Agreement:
    """Compare ``elf``, by whose program headers ``loaded`` was placed, with the memory that is there; where nothing is
    ``left`` nothing speaks for it."""
    found = read_build_id(machine, space, loaded.segments, loaded.bias)
    if found is not None:
        return Agreement(by_id=found == elf.build_id, contradicted=found != elf.build_id)
    if not _same_pages(machine, space, loaded, elf):
        return Agreement(contradicted=True)
    if left.words <= 0:
        return Agreement()
    table = dynamic_table(machine, elf)
    left.words -= len(table)
    entries, wrong = _compare_dynamic(machine, space, loaded, table, elf)
    if wrong:
        return Agreement(contradicted=True)
    compared = equal = 2 * entries
    for expected, word in _locked_words(machine, space, loaded, elf, dict(table), left):
        compared += 1
        equal += expected == word
    return Agreement(compared=compared, equal=equal)


def dynamic_table(machine: Machine, elf: ElfFile) -> list[tuple[int, int]]:
    """(tag, value) of the file's dynamic section, without the end; empty for a program that has none."""
    segment = next((segment for segment in elf.segments if segment.type == image.PT_DYNAMIC), None)
    raw = elf.bytes_at(segment.address, min(segment.file_size, LOOKED_AT)) if segment is not None else b""
    return entries_of(machine, raw)


def entries_of(machine: Machine, raw: bytes) -> list[tuple[int, int]]:
    """(tag, value) of a dynamic section's bytes, up to DT_NULL."""
    words = machine.words_of(raw)
    found: list[tuple[int, int]] = []
    for tag, value in zip(words[::2], words[1::2]):
        if not tag:
            break
        found.append((tag, value))
    return found


def _same_pages(machine: Machine, space: Space, loaded: LoadedObject, elf: ElfFile) -> bool:
    """Whether the read-only pages that are in memory are those of the file. Data that was relocated and then locked is
    none of them."""
    data = loaded.data_ranges(machine)
    for mapping in loaded.mappings:
        if mapping.writable or holds(data, mapping.start):
            continue
        there = space.read_available(mapping.start, min(mapping.size, LOOKED_AT))
        stored = elf.read(mapping.offset, len(there))
        if there[: len(stored)] != stored:
            return False
    return True


def _compare_dynamic(
    machine: Machine, space: Space, loaded: LoadedObject, table: Sequence[tuple[int, int]], elf: ElfFile
) -> tuple[int, bool]:
    """How many entries of the dynamic section are in memory, and whether one of them is not the file's. The dynamic
    linker adds the bias to some of the addresses, and keeps an address of its own in DT_DEBUG."""
    segment = next((segment for segment in elf.segments if segment.type == image.PT_DYNAMIC), None)
    if segment is None:
        return 0, False
    size = 2 * machine.word * len(table)
    words = machine.words_of(space.read_available(loaded.bias + segment.address, size))
    there = list(zip(words[::2], words[1::2]))
    end = machine.address_end
    wrong = any(
        tag != other or (tag != DT_DEBUG and value not in (wanted, (wanted + loaded.bias) % end))
        for (tag, wanted), (other, value) in zip(table, there)
    )
    return len(there), wrong


def _locked_words(
    machine: Machine, space: Space, loaded: LoadedObject, elf: ElfFile, table: dict[int, int], left: Left
) -> Iterator[tuple[int, int]]:
    """(word as the file makes it, word in memory) of what was locked after it was relocated; without what is zero in
    the file, which a library may set, and what depends on other objects."""
    locked = next((segment for segment in elf.segments if segment.type == image.PT_GNU_RELRO), None)
    if locked is None or locked.address % machine.word or not locked.file_size:
        return
    size = min(locked.file_size, LOCKED_LIMIT)
    words = machine.words_of(space.read_available(loaded.bias + locked.address, size))
    if not words:
        return
    stored = machine.words_of(elf.bytes_at(locked.address, machine.word * len(words)))
    expected: list[int | None] = [word or None for word in stored]
    left.words -= len(expected)
    places = range(locked.address, locked.address + machine.word * len(expected), machine.word)
    for place, value in _relocated(machine, elf, table, loaded.bias, places, left):
        index, rest = divmod(place - locked.address, machine.word)
        if 0 <= index < len(expected) and not rest:
            own = expected[index] or 0
            expected[index] = None if value is None else (value if value >= 0 else own + loaded.bias)
    for segment in elf.segments:
        if segment.type == image.PT_DYNAMIC:
            first = max(0, (segment.address - locked.address) // machine.word)
            last = max(0, (segment.address + segment.memory_size - locked.address) // machine.word)
            expected[first:last] = [None] * len(expected[first:last])
    yield from ((wanted, word) for wanted, word in zip(expected, words) if wanted is not None)


BITS = 8
OWN = -1
"""The bias is added to the word that is in the file (DT_RELR)."""


def _relocated(
    machine: Machine, elf: ElfFile, table: dict[int, int], bias: int, places: range, left: Left
) -> Iterator[tuple[int, int | None]]:
    """(address as linked, what is written there) of the relocations of ``places``, and maybe of others; None where that
    depends on other objects."""
    entry = machine.structure("PPN")
    for start, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
        raw = elf.bytes_at(table.get(start, 0), min(table.get(size, 0), TABLE_LIMIT, entry.size * max(0, left.words)))
        left.words -= len(raw) // entry.size
        for place, info, addend in entry.iter_unpack(raw[: len(raw) - len(raw) % entry.size]):
            relative = info == machine.relative_relocation
            yield place, (bias + addend) % machine.address_end if relative else None
    packed = elf.bytes_at(table.get(DT_RELR, 0), min(table.get(DT_RELRSZ, 0), RELR_LIMIT))
    left.words -= BITS * len(packed)
    # No place is in the table twice.
    yield from ((place, OWN) for place in islice(_unpacked(machine, packed, places), len(places)))


def _unpacked(machine: Machine, packed: bytes, places: range) -> Iterator[int]:
    """Those of the places that are in a table of DT_RELR: an even word is an address, an odd one a bitmap of the words
    behind it."""
    place, bits = 0, machine.address_end.bit_length() - 2
    for word in machine.words_of(packed):
        if not word & 1:
            if word in places:
                yield word
            place = word + machine.word
            continue
        if place < places.stop and place + machine.word * bits > places.start:
            behind = (place + machine.word * bit for bit in range(bits) if word >> (bit + 1) & 1)
            yield from (one for one in behind if one in places)
        place += machine.word * bits
