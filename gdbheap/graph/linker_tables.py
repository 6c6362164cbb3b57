"""Find tables of glibc's dynamic linker whose words are not references, although they may look like addresses.

One kind of table records where objects are mapped. The unused part of such a table still has words from earlier uses of
the memory. The other kind has the hashes of the names of symbol versions. These numbers of 28 bits look like addresses
in the heap of a program that is linked at a fixed address. Other structures of the linker keep alive everything to
which the tables point, so no reference is lost when the tables are ignored.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from gdbheap import _native
from gdbheap.errors import Fault
from gdbheap.targets.target import Target

__all__ = ["linker_tables"]

# elf/dl-find_object.c (glibc 2.35 and later), struct dlfo_mappings_segment: previous, to_free, size, allocated. A
# segment begins at the first multiple of LINE bytes (two cache lines) in its block; to_free is the block's address.
WORD, HEAD, LINE = 8, 4, 128
# The most words that are tried as segments; each segment points to the previous one.
MAX_SEGMENTS = 1 << 10
# The most words of the linker's static data that are searched; it has about a thousand.
MAX_WORDS = 1 << 16
# include/link.h, struct link_map: l_addr, l_name, l_ld, l_next, l_prev; and, in its private part, l_versions, a pointer
# to an array of struct r_found_version: name, hash and hidden (in one word), filename.
LINKS, MAP_WORDS, ROW_WORDS = 5, 200, 3
MAX_OBJECTS, MAX_ROWS, MAX_NAME = 5_000, 64, 256


def linker_tables(target: Target) -> list[int]:
    """Return the addresses of the blocks with such tables, ascending."""
    linkers = [loaded for loaded in target.objects if loaded.is_dynamic_linker]
    data = (place for one in linkers for start, end in one.writable_ranges() for place in range(start, end, WORD))
    words = {word for word in _native.words_at(target.space, list(islice(data, MAX_WORDS))) if word}
    return sorted(_mapping_tables(target, words) | _version_tables(target, words))


def _mapping_tables(target: Target, words: set[int]) -> set[int]:
    """Return the addresses of the blocks with the dynamic linker's tables of mapped objects
    (``dlfo_mappings_segment``).

    ``words``: the linker's words that may point into the first table; each table points to the one before it."""
    waiting = {word for word in words if word % LINE == 0}
    seen: set[int] = set()
    found: set[int] = set()
    while waiting and len(seen) < MAX_SEGMENTS:
        segment = waiting.pop()
        seen.add(segment)
        previous, block, size, allocated = _words(target, segment, range(HEAD))
        if segment - LINE < block <= segment and size <= allocated != 0:
            found.add(block)
            waiting |= {previous} - seen - {0}
    return found


def _version_tables(target: Target, words: set[int]) -> set[int]:
    """Return the addresses of the tables of versions of all loaded objects."""
    biases = {loaded.bias for loaded in target.objects}
    waiting, seen, found = words, set[int](), set[int]()
    places = range(LINKS, MAP_WORDS)
    while waiting and len(seen) < MAX_OBJECTS:
        seen |= waiting
        wanted = [at for at in waiting if at % WORD == 0 and at < target.machine.address_end - MAP_WORDS * WORD]
        first = zip(wanted, _native.words_at(target.space, wanted))
        heads = {at: _words(target, at, range(LINKS)) for at, bias in first if bias in biases}
        maps = [at for at, head in heads.items() if target.object_of(head[2]) is not None]
        for at in maps:
            for place, table in zip(places, _words(target, at, places)):
                if table % WORD == 0 and _is_version_table(target, table):
                    # The table has the same offset in the structures of all objects.
                    places = range(place, place + 1)
                    found.add(table)
                    break
        waiting = {word for at in maps for word in heads[at][3:] if word} - seen
    return found


def _words(target: Target, address: int, places: range) -> list[int]:
    """Return the words numbered ``places`` of the structure at ``address``; 0 for a word that cannot be read."""
    addresses = range(address + places.start * WORD, address + places.stop * WORD, WORD)
    return [word or 0 for word in _native.words_at(target.space, addresses)]


def _is_version_table(target: Target, address: int) -> bool:
    """Return whether a table of symbol versions is at ``address``.

    Its first row that is not zero must hold a name in a loaded file and the hash of this name.
    """
    if not 0 < address < target.machine.address_end - MAX_ROWS * ROW_WORDS * WORD:
        return False
    words = _words(target, address, range(MAX_ROWS * ROW_WORDS))
    for name, number, file in zip(words[::ROW_WORDS], words[1::ROW_WORDS], words[2::ROW_WORDS]):
        if name and target.object_of(name) is not None:
            with suppress(Fault):
                return _hash(target.space.cstring(name, MAX_NAME)) == number & 0xFFFF_FFFF
        if name or number or file:
            break
    return False


def _hash(name: bytes) -> int:
    """Return the hash of the name of a symbol version (System V ABI, chapter 5)."""
    found = 0
    for byte in name:
        found = (found << 4) + byte
        high = found & 0xF000_0000
        found = (found ^ high >> 24) & ~high & 0xFFFF_FFFF
    return found
