"""Decide whether a file is the one that was mapped, if its build-id is not in memory.

A core without the pages of ELF headers has no build-ids either, but it has the data of each object. The data includes
the table of the dynamic section, and words that the dynamic linker relocated and then made read-only (PT_GNU_RELRO).
The file and its load address determine each of these words. In another version of the file nearly all of them differ,
because the places to which they point have moved. Present pages of code and read-only data must equal the file's, byte
for byte. Source: the System V ABI (gABI 4.3, chapter 5), glibc's elf/dynamic-link.h.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING

from gdbheap.dataclass import dataclass
from gdbheap.machines import image
from gdbheap.machines.machine import Machine
from gdbheap.targets.elf import ElfFile, LoadedObject, read_build_id
from gdbheap.targets.ranges import holds

if TYPE_CHECKING:
    from gdbheap._native import Space

DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_DEBUG, DT_JMPREL, DT_RELRSZ, DT_RELR = 2, 7, 8, 21, 23, 35, 36
TABLE_LIMIT = 64 << 20
# The most bytes of DT_RELR that are read. Each word describes 63 words of data, so all together describe 66 MB.
RELR_LIMIT = 1 << 20
LOOKED_AT = 64 << 10
# The most bytes of locked data that are read. In Python each word takes some dozens of bytes.
LOCKED_LIMIT = 1 << 20
# Fewer equal words prove nothing. One word in 32 may differ, as libraries change some words before these are locked.
LEAST_WORDS, PARTS = 16, 32
# The most words and relocations that are compared, in total for all files that a core names.
ALL_WORDS = 1 << 25


@dataclass(frozen=True)
class Agreement:
    """The evidence that a file is the one that was mapped.

    ``by_id``: whether its build-id equals the one in memory.
    ``compared``: without a build-id in memory, the number of compared words of data and of the dynamic section.
    ``equal``: how many of these words have the values that this file at its load address requires.
    ``contradicted``: whether any other fact excludes the file.
    """

    by_id: bool = False
    compared: int = 0
    equal: int = 0
    contradicted: bool = False

    @property
    def refuted(self) -> bool:
        """Whether the memory shows that another file was mapped: a fact excludes this one, or too few words are
        equal.
        """
        return self.contradicted or PARTS * self.equal < (PARTS - 1) * self.compared

    @property
    def holds(self) -> bool:
        """Whether the file is certainly the mapped one, so that it may be used: by its build-id, or by enough equal
        words.
        """
        return not self.refuted and (self.by_id or self.compared >= LEAST_WORDS)


@dataclass
class ComparisonBudget:
    """The number of words and relocations that may still be compared. It is limited, because a core may name a large
    file many times.
    """

    words: int = field(default_factory=lambda: ALL_WORDS)


def agreement(machine: Machine, space: Space, loaded: LoadedObject, elf: ElfFile, left: ComparisonBudget) -> Agreement:
    """Return the evidence that the mapped object ``loaded`` comes from the file ``elf``, whose program headers fit the
    object.

    The file is compared with the memory that the core has. ``left``: the number of comparisons that are still allowed.
    If it is 0, only the build-id and the pages of code and read-only data are compared.
    """
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
    """Return (tag, value) of each entry in the file's dynamic section, without DT_NULL; empty if the file has no such
    section.

    A tag says what the value means, such as DT_RELA for the address of the relocations (gABI, "Dynamic Section").
    """
    segment = next((segment for segment in elf.segments if segment.type == image.PT_DYNAMIC), None)
    raw = elf.bytes_at(segment.address, min(segment.file_size, LOOKED_AT)) if segment is not None else b""
    return entries_of(machine, raw)


def entries_of(machine: Machine, raw: bytes) -> list[tuple[int, int]]:
    """Return (tag, value) of each entry in a dynamic section's bytes, up to DT_NULL."""
    words = machine.words_of(raw)
    found: list[tuple[int, int]] = []
    for tag, value in zip(words[::2], words[1::2]):
        if not tag:
            break
        found.append((tag, value))
    return found


def _same_pages(machine: Machine, space: Space, loaded: LoadedObject, elf: ElfFile) -> bool:
    """Return whether the read-only pages in memory equal the file's.

    Data that the dynamic linker relocated and then made read-only is not compared here.
    """
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
    """Return how many entries of the dynamic section are in memory, and whether any of these entries differs from the
    file's.

    The dynamic linker adds the bias to some of the addresses and stores its own address in DT_DEBUG. These differences
    are ignored.
    """
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
    machine: Machine, space: Space, loaded: LoadedObject, elf: ElfFile, table: dict[int, int], left: ComparisonBudget
) -> Iterator[tuple[int, int]]:
    """Yield (expected word, word in memory) for data that the dynamic linker relocated and then made read-only.

    The expected word is the one that this file produces when it is loaded at the object's address. Words that depend on
    other objects are left out. Words that are zero in the file are left out too, because a library may set them.
    """
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
"""The mark of a relocation in DT_RELR: its value is the word in the file plus the bias."""


def _relocated(
    machine: Machine, elf: ElfFile, table: dict[int, int], bias: int, places: range, left: ComparisonBudget
) -> Iterator[tuple[int, int | None]]:
    """Yield (linked address, value) for the relocations at the addresses ``places``, and perhaps for others.

    The value is what the dynamic linker writes. It is OWN for an entry of DT_RELR, and None if it depends on other
    objects.
    """
    entry = machine.structure("PPN")
    for start, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
        raw = elf.bytes_at(table.get(start, 0), min(table.get(size, 0), TABLE_LIMIT, entry.size * max(0, left.words)))
        left.words -= len(raw) // entry.size
        for place, info, addend in entry.iter_unpack(raw[: len(raw) - len(raw) % entry.size]):
            relative = info == machine.relative_relocation
            yield place, (bias + addend) % machine.address_end if relative else None
    packed = elf.bytes_at(table.get(DT_RELR, 0), min(table.get(DT_RELRSZ, 0), RELR_LIMIT))
    left.words -= BITS * len(packed)
    # Each place is in the table at most once.
    yield from ((place, OWN) for place in islice(_unpacked(machine, packed, places), len(places)))


def _unpacked(machine: Machine, packed: bytes, places: range) -> Iterator[int]:
    """Yield each of the addresses ``places`` that a DT_RELR table names.

    An even word is an address; an odd word is a bitmap for the words after the last address.
    """
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
