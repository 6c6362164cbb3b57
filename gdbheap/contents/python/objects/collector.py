"""Find the state of CPython's cyclic garbage collector by the shape of its data.

The collector has three generations, each with a threshold, a count, and the head of a circular list of objects. The
head of the permanent generation follows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.machines.machine import LOWEST_ADDRESS, Machine
from gdbheap.targets.ranges import Ranges, WordTest, backed_pieces

GENERATIONS = 3
# The offsets of _gc_next and _gc_prev in PyGC_Head. The lowest bits of _gc_prev are flags.
NEXT, PREVIOUS = 0, 8
FLAGS = 7


@dataclass(frozen=True)
class GenerationLayout:
    """The layout of struct gc_generation for a PyGC_Head of ``head`` bytes.

    ``step``: the bytes from one generation to the next. ``switches``: the offsets of the ints ``enabled`` and
    ``debug``, counted from the start of the first generation and negative. The bytes around the two ints are zero
    between collections. ``pointer``: the bytes, with padding, of a pointer to the youngest generation. Up to 3.13, this
    pointer lies before the permanent generation.
    """

    head: int
    step: int
    switches: tuple[int, int]
    pointer: int


SHAPES = {16: GenerationLayout(16, 24, (-12, -4), 8), 32: GenerationLayout(32, 48, (-20, -12), 16)}
# The largest threshold of the older generations, which count collections of the generation before; the default is 10.
MAX_THRESHOLD = 1 << 16
# The size of struct gc_generation_stats: collections, collected, uncollectable. One such struct for each generation
# follows the permanent generation.
STATS = 24
MOST_COLLECTIONS = 1 << 40
INTERPRETER_BYTES = 64 << 10
WINDOW = 1 << 20


@dataclass(frozen=True)
class Collector:
    """The state of the collector. A field that is a tuple has a value for each generation, the youngest first.

    ``frozen``: whether gc.freeze() has put objects aside.
    ``collections``: how often each generation was collected, together with the younger ones; empty if unknown.
    ``permanent``: the address of the head of the list of frozen objects.
    ``head``: the size of PyGC_Head in bytes.
    """

    address: int
    enabled: bool
    thresholds: tuple[int, ...]
    counts: tuple[int, ...]
    frozen: bool
    collections: tuple[int, ...] = ()
    permanent: int = 0
    head: int = 0

    @property
    def is_off(self) -> bool:
        """Whether the collector runs only when it is called, after gc.disable() or with a threshold of 0."""
        return not self.enabled or self.thresholds[0] == 0


def find_collector(
    space: _native.Space, head: int, data: Ranges, interpreters: Callable[[], Sequence[int]]
) -> Collector | None:
    """Return the collector from the interpreter's static data or, for 3.9 and 3.10, from its state on the heap.

    ``head``: the size of PyGC_Head in bytes. Return None if the collector is not found. The search cannot find it up to
    3.6, where the int ``enabled`` lies elsewhere. Nor can it in the first releases of 3.14, whose generations differ.
    """
    shape = SHAPES.get(head)
    if shape is None:
        return None
    found = next(_search(space, shape, data), None)
    return found or next(_search(space, shape, _around(interpreters())), None)


def collector_at(space: _native.Space, alike: Collector) -> Collector | None:
    """Return the collector of another process that runs the same program, at the address of the collector ``alike``.

    Return None if there is no collector at that address.
    """
    return _read(space, SHAPES[alike.head], alike.address)


def count_frozen(space: _native.Space, collector: Collector, most: int) -> int:
    """Return how many objects gc.freeze() has put aside, at most ``most``.

    A few do not prove a call: 3.12 itself freezes some objects when it starts.
    """
    return sum(1 for _head in frozen_heads(space, collector, most))


def frozen_heads(space: _native.Space, collector: Collector, most: int) -> Iterator[int]:
    """Yield the addresses of the headers (PyGC_Head) of objects that gc.freeze() has put aside, at most ``most``.

    The iteration ends at a header that cannot be read.
    """
    at = collector.permanent
    for _count in range(most):
        try:
            at = space.word(at + NEXT) & ~FLAGS
        except (Fault, OverflowError):
            return
        if at == collector.permanent:
            return
        yield at


def _around(addresses: Sequence[int]) -> Ranges:
    return [(address, address + INTERPRETER_BYTES) for address in addresses]


def _search(space: _native.Space, shape: GenerationLayout, ranges: Ranges) -> Iterator[Collector]:
    tests = _tests(space.machine, shape)
    for start, end in ranges:
        for window, raw in backed_pieces(space, start, end, WINDOW, GENERATIONS * shape.step):
            for offset in _native.find_places(raw, tests):
                found = _read(space, shape, window + offset)
                if found is not None:
                    yield found


def _tests(machine: Machine, shape: GenerationLayout) -> list[WordTest]:
    """Return the tests that the words of a collector pass.

    The first generation begins with two pointers; the thresholds of the two older generations are small.
    """
    every, least = machine.address_end - 1, LOWEST_ADDRESS + 1
    thresholds = [WordTest(shape.step * older + shape.head, 0xFFFFFFFF, 1, MAX_THRESHOLD) for older in (2, 1)]
    return [*thresholds, WordTest(0, every, least, every), WordTest(machine.word, every, least, every)]


def _read(space: _native.Space, shape: GenerationLayout, address: int) -> Collector | None:
    heads = [address + generation * shape.step for generation in range(GENERATIONS)]
    behind = heads[-1] + shape.step
    try:
        permanent = behind + (shape.pointer if space.word(behind) == address else 0)
        if not all(_is_head(space, head) for head in (*heads, permanent)):
            return None
        pairs = [struct.unpack("<ii", space.read(head + shape.head, 8)) for head in heads]
        first, last = (address + place for place in shape.switches)
        enabled = any(space.read(first, last - first))
        frozen = space.word(permanent) != permanent
        stats = [space.word(permanent + shape.step + STATS * generation) for generation in range(GENERATIONS)]
    except (Fault, OverflowError):
        return None
    thresholds, counts = zip(*pairs)
    collections = tuple(stats) if all(number < MOST_COLLECTIONS for number in stats) else ()
    return Collector(address, enabled, thresholds, counts, frozen, collections, permanent, shape.head)


def _is_head(space: _native.Space, address: int) -> bool:
    """Return whether the head of a list is at ``address``: both its neighbours point back to it. Raises Fault."""
    following, previous = space.word(address + NEXT), space.word(address + PREVIOUS)
    return space.word(following + PREVIOUS) & ~FLAGS == address and space.word(previous + NEXT) & ~FLAGS == address
