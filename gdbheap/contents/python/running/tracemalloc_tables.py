"""Read tracemalloc's tables from memory. If the program traces blocks, the tables show which line of Python code
allocated a block.

Sources: Modules/_tracemalloc.c and Modules/hashtable.c (Python/hashtable.c). A pointer in the interpreter's data points
to a table of the traces of all blocks. In 3.8 and later, another pointer leads to a table of further such tables, one
for each domain. No symbol is needed. A table's buckets, the hashes of its keys and the tracebacks of its entries prove
that it contains traces.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gdbheap import _native
from gdbheap.contents.python.objects.bounded_reads import Pages
from gdbheap.contents.python.objects.reading import read_str
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import FLAG_UNICODE, OB_TYPE, TP_FLAGS, Release
from gdbheap.layout.debug_offsets import windows
from gdbheap.machines.machine import LOWEST_ADDRESS
from gdbheap.targets.elf import LoadedObject

# HASHTABLE_MIN_SIZE; a table grows when half of its buckets are in use.
FEWEST_BUCKETS, MOST_BUCKETS = 16, 1 << 40
# A block's address is hashed by rotating it by four bits (_Py_HashPointerRaw).
TURNED = 4
# The most entries of a table that are checked to prove it.
PROVEN = 16
MAX_CHAIN = 1 << 10
MAX_DOMAINS = 1 << 10
# The most structures shaped like a table that are tried, and the most entries that are read in all of these structures;
# an interpreter's data points to few such structures. STEP bytes of empty buckets count as one entry.
MAX_TABLES, LOOKED_AT, STEP = 1 << 16, 1 << 22, 4 << 10
REMEMBERED = 1 << 16
# Up to 3.8 a table states the size of its keys and of its data. A key is a block's address, followed by the domain if
# there are several. Later tables have functions instead of these two sizes.
ADDRESS_SIZE, KEY_SIZES, TRACE_SIZE, NO_DATA = 8, (8, 12), 16, 0
# traceback_t: hash, nframe, then packed frames of a pointer and a line number. Since 3.9 nframe has 16 bits and is
# followed by the total count. The pointer is to a str; since 3.15 to its bytes.
FRAMES_AT = 12
# The bytes of an entry before its key: its link and its hash.
HEAD = 16
MAX_FRAMES = 1 << 16
MAX_PATH = 4 << 10
# A file name counts as NAME_COST entries, and as one more for each CHARACTERS characters.
NAME_COST, CHARACTERS = 16, 4


@dataclass(frozen=True)
class TraceTable:
    """A table of traces, as the native count expects it; see native/core/src/python/traces.rs.

    ``count``: the number of its buckets.
    ``key``: the size of a key in bytes if the trace follows the key in an entry; 0 if the entry points to the trace.
    """

    address: int
    buckets: int
    count: int
    entries: int
    key: int


@dataclass(frozen=True)
class Trace:
    """The trace of one block: the bytes that the program asked for, and the address of the traceback."""

    size: int
    traceback: int


class Traces:
    """The tracemalloc tables of one target.

    ``tables``: the tables of traces; empty if nothing is traced.
    ``tracebacks``: the hash tables whose keys are tracebacks.
    """

    def __init__(self, space: _native.Space, release: Release, module: LoadedObject) -> None:
        self._space, self._memory = space, Pages(space)
        self._release = release
        self._lines: dict[int, tuple[str, int] | None] = {}
        self._files: dict[int, str | None] = {}
        self._left = LOOKED_AT
        self.tracebacks: list[TraceTable] = []
        self.tables = self._find(space, module)

    def _find(self, space: _native.Space, module: LoadedObject) -> list[TraceTable]:
        """Return the table with the traces of all blocks, then the tables of other domains."""
        own: dict[int, TraceTable] = {}
        others: dict[int, TraceTable] = {}
        for table in islice(self._tables(space, module), MAX_TABLES):
            (own if self._is_traces(table) else others)[table.address] = table
        self.tracebacks = [table for table in others.values() if self._is_tracebacks(table)] if own else []
        domains = [table for one in others.values() for table in self._domains(one)]
        return list({table.address: table for table in [*map(own.__getitem__, sorted(own)), *domains]}.values())

    def _tables(self, space: _native.Space, module: LoadedObject) -> Iterator[TraceTable]:
        """Yield every object shaped like a hash table to which the module's data points.

        The data is read in parts.
        """
        word = space.machine.word
        for _address, raw in windows(space, module):
            for one in sorted(set(space.machine.words_of(raw))):
                if one > LOWEST_ADDRESS and one % word == 0:
                    yield from self._table(one)

    def _table(self, address: int) -> list[TraceTable]:
        """Return a list with the table at ``address``, if it has the shape of a hash table; otherwise an empty list."""
        try:
            words = self._memory.machine.words_of(self._memory.read(address, 5 * self._memory.machine.word))
        except (Fault, OverflowError):
            return []
        first, second, buckets, key, data = words
        inline = key in KEY_SIZES and data in (TRACE_SIZE, NO_DATA)
        count, entries = (first, second) if inline else (second, first)
        shaped = FEWEST_BUCKETS <= count <= MOST_BUCKETS and count & (count - 1) == 0 and 0 < entries <= count
        if not shaped or buckets <= LOWEST_ADDRESS or buckets % self._memory.machine.word:
            return []
        return [TraceTable(address, buckets, count, entries, key if inline else 0)]

    def _is_traces(self, table: TraceTable) -> bool:
        """Return whether the first entries of a table are traces, and most of them have a line. In a damaged table,
        some traces may have no line.
        """
        found = lines = 0
        try:
            for bucket, entry in islice(self._entries(table), PROVEN):
                hashed, key = (self._memory.word(entry + at) for at in (8, 16))
                trace = self._trace(table, entry)
                is_hash = table.key > ADDRESS_SIZE or hashed == _turned(key)
                known = hashed & (table.count - 1) == bucket and is_hash
                if not known or trace.size >> 48:
                    return False
                found, lines = found + 1, lines + (self.line_of(trace.traceback) is not None)
        except (Fault, OverflowError):
            return False
        return lines > found // 2

    def _is_tracebacks(self, table: TraceTable) -> bool:
        """Return whether the keys of a table's first entries are tracebacks."""
        try:
            keys = [self._memory.word(entry + HEAD) for _bucket, entry in islice(self._entries(table), PROVEN)]
        except (Fault, OverflowError):
            return False
        return bool(keys) and all(self.line_of(key) is not None for key in keys)

    def _entries(self, table: TraceTable) -> Iterator[tuple[int, int]]:
        """Yield (index of the bucket, address of the entry) for each entry of a hash table, by bucket. Raises Fault."""
        word, top = self._memory.machine.word, self._memory.machine.address_end - 1
        at, end = table.buckets, table.buckets + word * table.count
        while self._left > 0 and at < end:
            # Neighbouring addresses are in neighbouring buckets, so most of a large table may be empty.
            last = min(end, at + self._left * STEP)
            found = _native.find_pointer(self._space, at, last, LOWEST_ADDRESS, top)
            self._left -= 1 + ((last if found is None else found) - at) // STEP
            if found is None:
                return
            bucket = (found - table.buckets) // word
            for entry in self._chain(table, bucket):
                self._left -= 1
                yield bucket, entry
            at = found + word

    def _chain(self, table: TraceTable, bucket: int) -> Iterator[int]:
        """Yield the addresses of the entries in one bucket, at most MAX_CHAIN. Raises Fault."""
        entry = self._memory.word(table.buckets + self._memory.machine.word * bucket)
        for _ in range(MAX_CHAIN):
            if not entry:
                return
            yield entry
            entry = self._memory.word(entry)

    def _trace(self, table: TraceTable, entry: int) -> Trace:
        at = entry + 16 + table.key if table.key else self._memory.word(entry + 24)
        return Trace(self._memory.word(at), self._memory.word(at + 8))

    def _domains(self, table: TraceTable) -> Iterator[TraceTable]:
        """Yield the tables of traces to which the values of a table point."""
        try:
            for _bucket, entry in islice(self._entries(table), MAX_DOMAINS):
                value = self._memory.word(entry + 24)
                for found in self._table(value):
                    if self._is_traces(found):
                        yield found
        except (Fault, OverflowError):
            return

    def first_blocks(self, table: TraceTable) -> list[int]:
        """Return the address of a table's first entry and, if its trace is a separate block, the address of the trace.

        The list is empty if the table has no entries. Raises Fault.
        """
        _bucket, entry = next(self._entries(table), (0, 0))
        apart = [] if table.key or not entry else [self._memory.word(entry + 24)]
        return [entry, *apart] if entry else []

    def of(self, address: int) -> Trace | None:
        """Return the trace of the block at ``address``; None if it has none. ``address``: the address that the
        allocator returned.
        """
        for table in self.tables[:1]:
            try:
                # Keys may include a domain. The domain of Python's own blocks is 0, which does not change the hash.
                for entry in self._chain(table, _turned(address) & (table.count - 1)):
                    domain = self._memory.u32(entry + 24) if table.key > ADDRESS_SIZE else 0
                    if self._memory.word(entry + 16) == address and not domain:
                        return self._trace(table, entry)
            except (Fault, OverflowError):
                continue
        return None

    def line_of(self, traceback: int) -> tuple[str, int] | None:
        """Return (file, line) of the innermost frame of a traceback; None if the frame cannot be read."""
        if traceback not in self._lines:
            if len(self._lines) >= REMEMBERED:
                self._lines.clear()
            try:
                self._lines[traceback] = self._read_line(traceback)
            except (Fault, OverflowError):
                self._lines[traceback] = None
        return self._lines[traceback]

    def _read_line(self, traceback: int) -> tuple[str, int] | None:
        memory = self._memory
        count = int.from_bytes(memory.read(traceback + 8, 4), "little")
        # Since 3.9 both halves are counts, and the first is at most the second.
        kept = count & (MAX_FRAMES - 1)
        file, line = memory.word(traceback + FRAMES_AT), memory.u32(traceback + FRAMES_AT + memory.machine.word)
        if not kept or (count >> 16 and count >> 16 < kept):
            return None
        name = self._file(file)
        return None if name is None else (name, line)

    def _file(self, address: int) -> str | None:
        """Return a file's name, which is cached; None if it cannot be read. Raises Fault.

        All names share a limit, because forged names may overlap."""
        if address not in self._files:
            if self._left <= 0:
                return None
            self._left -= NAME_COST
            name = self._read_file(address)
            self._left -= len(name or "") // CHARACTERS
            self._files[address] = name
        return self._files[address]

    def _read_file(self, address: int) -> str | None:
        memory, release = self._memory, self._release
        if release.get("traceback_text"):
            return memory.cstring(address, MAX_PATH).decode("utf-8", "replace") or None
        kind = memory.word(address + release.at(OB_TYPE))
        is_str = memory.word(kind + release.at(TP_FLAGS)) & FLAG_UNICODE
        return read_str(memory, release, address, MAX_PATH) if is_str else None


def _turned(address: int) -> int:
    return address >> TURNED | (address & ((1 << TURNED) - 1)) << 64 - TURNED
