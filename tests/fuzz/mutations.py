"""Damage to a core, of every kind that may break a walk: each is a function of the bytes, the core and a generator.

One mutant is damaged in one place or in a thousand: little damage leaves the deeper structures reachable.
"""

from __future__ import annotations

import functools
import os
import random
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from support import kernel
from support.hostile_cores import evil_word, headers, truncated

PAGE, POOL = 4096, 16 * 1024
ZEROS = bytes(1 << 20)
# The sizes of the header of an ELF file, and of a program header.
MAGIC, HEADER, SEGMENT = b"\x7fELF", 64, 56
USER_ADDRESSES = 1 << 47
MASK = (1 << 64) - 1
INTERESTING = (
    *(0, 1, 2, 7, 8, 15, 16, 17, 24, 31, 32, 33, 0x7F, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x10000, (1 << 31) - 1),
    *(1 << 31, (1 << 32) - 1, 1 << 32, 1 << 46, (1 << 47) - 1, 1 << 47, (1 << 48) - 8, (1 << 60) - 1, 1 << 61),
    *((1 << 62) - 1, (1 << 63) - 1, 1 << 63, (1 << 63) + 8, MASK - 4095, MASK - 63, MASK - 15, MASK - 7, MASK),
)


class Base:
    """An undamaged core in memory; places are offsets in its file."""

    def __init__(self, path: Path) -> None:
        """Read the core and its program headers."""
        self.path = path
        self.data = path.read_bytes()
        self.segments = kernel.segments(path)
        self.written = [segment for segment in self.segments if segment.file_size >= PAGE]
        self._ordered = sorted(self.written, key=lambda segment: segment.start)
        self._starts = [segment.start for segment in self._ordered]
        self.first = min(segment.offset for segment in self.segments)
        self.extents = list(_extents(path, len(self.data)))

    @functools.cached_property
    def pointers(self) -> list[int]:
        """Return the places of the words that point into the core."""
        low = min(segment.start for segment in self.segments)
        high = max(segment.start + segment.size for segment in self.segments if segment.start < USER_ADDRESSES)
        places: list[int] = []
        for segment in self.written:
            words = array("Q", self.data[segment.offset : segment.offset + segment.file_size // 8 * 8])
            places += [segment.offset + 8 * number for number, word in enumerate(words) if low <= word < high]
        return places

    @functools.cached_property
    def links(self) -> list[int]:
        """Return the places of entries that point to a next one, which points back: the dynamic linker's list among
        them."""
        found: list[int] = []
        for place in self.pointers:
            next_one = int.from_bytes(self.data[place : place + 8], "little")
            back = self.offset(next_one + 32)
            if back is not None and self.data[back : back + 8] == struct.pack("<Q", self.address(place) - 24):
                found.append(place - 24)
        return found

    @functools.cached_property
    def images(self) -> list[int]:
        """Return the places of ELF headers that program headers directly follow, of programs and libraries."""
        starts = [segment.offset for segment in self.written]
        return [place for place in starts if self.data[place : place + 4] == MAGIC and self.data[place + 32] == HEADER]

    def offset(self, address: int) -> int | None:
        """Return the place of the byte at an address; None where the core has none."""
        index = bisect_right(self._starts, address) - 1
        one = self._ordered[index] if index >= 0 else None
        if one is None or not 0 <= address - one.start < one.file_size - 8:
            return None
        return one.offset + address - one.start

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Return the places of the words that may be the size of a chunk."""
        places: list[int] = []
        for segment in self.written:
            words = array("Q", self.data[segment.offset : segment.offset + segment.file_size // 8 * 8])
            places += [
                segment.offset + 8 * n for n, word in enumerate(words) if 0x20 <= word < 1 << 20 and not word & 8
            ]
        return places

    @functools.cached_property
    def pools(self) -> list[int]:
        """Return the places at which a pool may start."""
        return [
            place
            for segment in self.written
            for place in range(segment.offset + -segment.start % POOL, segment.offset + segment.file_size - 64, POOL)
        ]

    def place(self, rng: random.Random) -> int:
        """Return a word's place: each segment is as likely as another, a page of pointers as a heap."""
        segment = rng.choice(self.written)
        return segment.offset + 8 * rng.randrange(segment.file_size // 8)

    def page(self, rng: random.Random) -> int:
        """Return the place of a page."""
        segment = rng.choice(self.written)
        return segment.offset + PAGE * rng.randrange(segment.file_size // PAGE)

    def address(self, place: int) -> int:
        """Return the address of the byte at a place."""
        return next(one.start + place - one.offset for one in self.written if 0 <= place - one.offset < one.file_size)

    def save(self, data: bytes | bytearray, path: Path) -> None:
        """Write a damaged copy; holes of the file stay holes, except where bytes were damaged."""
        with path.open("wb") as file:
            file.truncate(len(data))
            end = 0
            for start, stop in [*self.extents, (len(data), len(data))]:
                for place, piece in _damaged(data, end, min(start, len(data))):
                    os.pwrite(file.fileno(), piece, place)
                if start < len(data):
                    os.pwrite(file.fileno(), memoryview(data)[start:stop], start)
                end = stop


def _damaged(data: bytes | bytearray, start: int, end: int, step: int = 1 << 20) -> Iterator[tuple[int, bytes]]:
    """Yield (place, bytes) of the pages of former holes that are no longer all zeros."""
    for place in range(start, end, step):
        piece = bytes(memoryview(data)[place : min(place + step, end)])
        if piece == ZEROS[: len(piece)]:
            continue
        if step == PAGE:
            yield place, piece
        else:
            yield from _damaged(data, place, place + len(piece), PAGE)


def _extents(path: Path, size: int) -> list[tuple[int, int]]:
    """Return the stretches of a file that are no holes."""
    found, end = [], 0
    with path.open("rb") as file:
        while end < size:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # no data up to the end
                break
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            found.append((start, end))
    return found


def many(rng: random.Random, most: int = 1000) -> range:
    """Return a number of repetitions: once is as likely as hundreds."""
    return range(max(1, int(most ** rng.random())))


def put(data: bytearray, place: int, value: int) -> None:
    """Overwrite a word."""
    struct.pack_into("<Q", data, place, value & MASK)


def bits(data: bytearray, base: Base, rng: random.Random) -> None:
    """Turn single bits of any segment."""
    for _ in many(rng):
        data[base.place(rng) + rng.randrange(8)] ^= 1 << rng.randrange(8)


def words(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite words of any segment with extremes, small numbers, addresses, other words of the target."""
    for _ in many(rng):
        place = base.place(rng)
        data[place : place + 8] = evil_word(data, base.segments, rng)


def interesting(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite words with values at which arithmetic wraps, signs change and tables end."""
    for _ in many(rng):
        put(data, base.place(rng), rng.choice(INTERESTING))


def halves(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite fields of 16 and 32 bits with values at which tables end."""
    for _ in many(rng):
        width = rng.choice((2, 4))
        place = base.place(rng) + rng.randrange(0, 8, width)
        data[place : place + width] = (rng.choice(INTERESTING) & (1 << 8 * width) - 1).to_bytes(width, "little")


def strangers(data: bytearray, base: Base, rng: random.Random) -> None:
    """Let pointers point to the targets of other pointers: lists meet, types become text."""
    for _ in many(rng):
        place, other = rng.choice(base.pointers), rng.choice(base.pointers)
        data[place : place + 8] = base.data[other : other + 8]


def crossed(data: bytearray, base: Base, rng: random.Random) -> None:
    """Exchange two pointers."""
    for _ in many(rng):
        one, two = rng.choice(base.pointers), rng.choice(base.pointers)
        data[one : one + 8], data[two : two + 8] = data[two : two + 8], data[one : one + 8]


def shifted(data: bytearray, base: Base, rng: random.Random) -> None:
    """Move pointers a little."""
    for _ in many(rng):
        place = rng.choice(base.pointers)
        value = int.from_bytes(data[place : place + 8], "little")
        put(data, place, value + rng.choice((-4096, -64, -16, -8, -1, 1, 7, 8, 16, 24, 64, 4096)))


def loops(data: bytearray, base: Base, rng: random.Random) -> None:
    """Change pointers so that they point to themselves, to a place shortly before, or to a word that points to them."""
    for _ in many(rng):
        place = rng.choice(base.pointers)
        back = place if rng.random() < 0.7 else rng.choice(base.pointers)
        put(data, place, base.address(back) - rng.choice((0, 0, 8, 16, 16, 24, 32, 48)))


def fields(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite words right after a possible reference count and type of an object: sizes, lengths, pointers to its
    buffers."""
    for _ in many(rng):
        place = rng.choice(base.pointers)
        count = int.from_bytes(base.data[place - 8 : place], "little")
        if 0 < count < 1 << 32 and place + 64 < len(data):
            field = place + 8 * rng.randrange(1, 7)
            data[field : field + 8] = evil_word(data, base.segments, rng)
            if rng.random() < 0.6:
                put(data, field, rng.choice(INTERESTING))


def linked(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite words of entries of doubly linked lists: a bias, a name, a section, the entries before and after."""
    for _ in many(rng, 30) if base.links else ():
        place = rng.choice(base.links) + 8 * rng.randrange(5)
        data[place : place + 8] = evil_word(data, base.segments, rng)
        if rng.random() < 0.3:
            put(data, place, base.address(rng.choice(base.links)) - rng.choice((0, 0, 8, 4096)))


def summits(data: bytearray, base: Base, rng: random.Random) -> None:
    """Let pointers point to the last bytes of the address space, where offsets wrap."""
    for _ in many(rng, 10_000):
        put(data, rng.choice(base.pointers), (1 << 64) - rng.choice((1, 8, 16, 40, 4096)))


def chunk_sizes(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite possible sizes of chunks with another's, with other flags, or with an extreme."""
    for _ in many(rng):
        place, other = rng.choice(base.sizes), rng.choice(base.sizes)
        if rng.random() < 0.5:
            data[place : place + 8] = evil_word(data, base.segments, rng)
        else:
            put(data, place, int.from_bytes(data[other : other + 8], "little") ^ rng.choice((0, 1, 2, 4, 8)))


def pool_headers(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite words of the headers of pools, and of the first blocks."""
    for _ in many(rng, 300):
        place = rng.choice(base.pools) + 8 * rng.randrange(8)
        data[place : place + 8] = evil_word(data, base.segments, rng)


def swapped_pages(data: bytearray, base: Base, rng: random.Random) -> None:
    """Exchange pages."""
    for _ in many(rng, 100):
        one, two = base.page(rng), base.page(rng)
        data[one : one + PAGE], data[two : two + PAGE] = data[two : two + PAGE], data[one : one + PAGE]


def filled_pages(data: bytearray, base: Base, rng: random.Random) -> None:
    """Fill pages with zeros, ones or noise."""
    for _ in many(rng, 100):
        page = base.page(rng)
        data[page : page + PAGE] = rng.choice((bytes(PAGE), b"\xff" * PAGE, rng.randbytes(PAGE)))


def repeated_pages(data: bytearray, base: Base, rng: random.Random) -> None:
    """Copy one page over others."""
    source = base.page(rng)
    for _ in many(rng, 100):
        page = base.page(rng)
        data[page : page + PAGE] = data[source : source + PAGE]


def moved(data: bytearray, base: Base, rng: random.Random) -> None:
    """Move some consecutive words by a few words."""
    for _ in many(rng, 20):
        place, size = base.place(rng), 8 * rng.randrange(1, 2000)
        by = 8 * rng.choice((-2, -1, 1, 2))
        piece = data[place : place + size]
        data[place + by : place + by + len(piece)] = piece


def program_headers(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite words of the program headers and notes."""
    headers(data, base.segments, rng)


def header_bytes(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite single bytes of the ELF header, the program headers and the notes."""
    for _ in many(rng, 50):
        data[rng.randrange(4, base.first)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def segments(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite fields of the core's program headers."""
    _header_fields(data, 0, base, rng)


def images(data: bytearray, base: Base, rng: random.Random) -> None:
    """Overwrite fields of the program headers of programs and libraries in memory."""
    for _ in many(rng, 10) if base.images else ():
        _header_fields(data, rng.choice(base.images), base, rng)


def _header_fields(data: bytearray, image: int, base: Base, rng: random.Random) -> None:
    """Overwrite fields of an image's program headers: flags, offsets, addresses, sizes, near their values or far."""
    count = int.from_bytes(base.data[image + 56 : image + 58], "little")
    for _ in many(rng, 20) if count else ():
        place = image + HEADER + SEGMENT * rng.randrange(count) + 8 * rng.randrange(SEGMENT // 8)
        near = int.from_bytes(data[place : place + 8], "little") + PAGE * rng.randrange(-100, 100)
        segment = rng.choice(base.segments)
        put(data, place, rng.choice((near, segment.start, segment.start + segment.size, rng.choice(INTERESTING))))


def cut(data: bytearray, base: Base, rng: random.Random) -> None:
    """Remove the end."""
    truncated(data, base.segments, rng)


Mutation = Callable[[bytearray, Base, random.Random], None]
IN_MEMORY: tuple[Mutation, ...] = (
    *(
        bits,
        words,
        interesting,
        halves,
        strangers,
        crossed,
        shifted,
        loops,
        fields,
        fields,
        summits,
        chunk_sizes,
        pool_headers,
        linked,
        images,
    ),
    *(swapped_pages, filled_pages, repeated_pages, moved),
)
OF_FILE: tuple[Mutation, ...] = (program_headers, segments, header_bytes, cut)


def mutant(base: Base, rng: random.Random) -> tuple[bytearray, list[str]]:
    """Return a damaged copy and the names of the damages."""
    chosen = rng.choices(IN_MEMORY, k=rng.choice((1, 1, 1, 2, 3))) if rng.random() < 0.9 else []
    if not chosen or rng.random() < 0.06:
        chosen.append(rng.choice(OF_FILE))
    data = bytearray(base.data)
    for mutation in chosen:
        mutation(data, base, rng)
    return data, [mutation.__name__ for mutation in chosen]
