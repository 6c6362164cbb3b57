"""Find the Java heap of a HotSpot JVM with the table that libjvm exports for debuggers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from gdbheap.contents.content import Content, ContentHolder
from gdbheap.errors import Fault
from gdbheap.targets.parts import part
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Target

__all__ = ["JavaContent", "java_heap"]

TABLE = "gHotSpotVMStructs"
# vmStructs.hpp, VMStructEntry: typeName, fieldName, typeString, isStatic, offset, address; ends with a row of zeros.
STRIDE, FIELD_NAME, OFFSET, ADDRESS = 48, 8, 32, 40
MAX_ROWS, MAX_NAME = 1 << 14, 128
HEAP = ("Universe", "_collectedHeap")
RESERVED, START, WORDS = ("CollectedHeap", "_reserved"), ("MemRegion", "_start"), ("MemRegion", "_word_size")
JAVA, IN_JAVA = "java heap", "objects in the Java heap (Deflater, Inflater, direct ByteBuffer and the like)"


class JavaContent(Content):
    """The Java heap of a HotSpot JVM, whose objects point to blocks of C code."""

    # This kind names no blocks.
    beside_python = False

    @property
    def is_here(self) -> bool:
        """Whether a JVM is loaded whose heap can be located."""
        return bool(self._ranges)

    @part("java heap")
    def _ranges(self) -> Ranges:
        return java_heap(self.target)

    def holders(self) -> Sequence[ContentHolder]:
        """Return one holder: the ranges of the Java heap, from which pointers lead to blocks of C code."""
        return [ContentHolder(IN_JAVA, JAVA, [], self._ranges)]


def java_heap(target: Target) -> Ranges:
    """Return the range that the JVM reserved for the Java heap; empty without a JVM or if its table lacks the range."""
    for loaded in target.objects:
        if not loaded.path.endswith("/libjvm.so"):
            continue
        pointer = loaded.symbol(TABLE)
        with suppress(Fault):
            return [] if pointer is None else _reserved(target, target.space.word(pointer))
    return []


def _reserved(target: Target, table: int) -> Ranges:
    """Return the range in CollectedHeap::_reserved; empty if it is unknown or not mapped. Raises Fault."""
    wanted, found = {HEAP, RESERVED, START, WORDS}, {}
    for key, offset, address in _rows(target, table):
        if key in wanted:
            found[key] = address if key == HEAP else offset
        if len(found) == len(wanted):
            break
    else:
        return []
    word = target.space.word
    region = word(found[HEAP]) + found[RESERVED]
    start, size = word(region + found[START]), word(region + found[WORDS]) * target.machine.word
    return [(start, start + size)] if start and target.mappings.find(start) is not None else []


def _rows(target: Target, table: int) -> Iterator[tuple[tuple[str, str], int, int]]:
    """Yield the rows of the JVM's table of fields. Raises Fault.

    Each row is ((name of the type, name of the field), offset in bytes, address). Only a static field has an address;
    otherwise it is 0.
    """
    space = target.space
    for at in range(table, table + MAX_ROWS * STRIDE, STRIDE):
        kind, name = space.word(at), space.word(at + FIELD_NAME)
        if not kind or not name:
            return
        texts = tuple(space.cstring(address, MAX_NAME).decode("latin-1") for address in (kind, name))
        yield (texts[0], texts[1]), space.word(at + OFFSET), space.word(at + ADDRESS)
