"""Classify the blocks of a C++ or Rust program: objects by their vtables, and blocks proven to belong to containers.

A block that only looks like an object or a container is not classified; ``native/core/src/structures/`` describes each
proof.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from os.path import basename
from typing import Optional

from gdbheap import _native
from gdbheap.allocators.allocator import Progress, WalkedBlocks
from gdbheap.contents.content import Content
from gdbheap.contents.rust import types as rust
from gdbheap.dataclass import dataclass
from gdbheap.machines.image import PF_X, PT_LOAD
from gdbheap.targets.parts import part
from gdbheap.targets.ranges import Ranges, joined, subtract
from gdbheap.targets.target import Target
from gdbheap.targets.text_search import mentions

# Names in the file of a program that is statically linked with a C++ library: STATIC_NAME for any such library,
# LIBCXX_NAME, a namespace, for libc++.
STATIC_NAME, LIBCXX_NAME = re.compile(b"N10__cxxabiv117__class_type_infoE"), re.compile(b"NSt3__1")
BACKED = "string or backing store"
TEXTS = {
    "object": "C++ object of class {}",
    "named": "{}",
    "make_shared": "C++ object of class {} with its std::shared_ptr counts",
    "destroyed": "memory of destroyed C++ objects of class {}, kept by std::weak_ptr",
    "shared_ptr": "std::shared_ptr counts of {}",
    "string": "std::string buffer",
    BACKED: "buffer of a std::string or an ArrayBuffer",
    "vector": "std::vector items",
    "map": "std::map or std::set node",
    "list": "std::list node",
    "unordered": "std::unordered_map or std::unordered_set node",
    "buckets": "std::unordered_map or std::unordered_set buckets",
    "deque": "std::deque items",
    "deque map": "std::deque map",
    **rust.TEXTS,
}
OF_CLASS = {"vector": "std::vector items of class {}", **rust.OF_TYPE, **rust.OF_CHANNEL}

NamedBlocks = Callable[[_native.Heaps, Optional[Progress]], Sequence[tuple[int, str]]]
"""A function that returns (address, description of the block there) for the blocks that it knows."""


@dataclass(frozen=True)
class CxxKind:
    """The kind of a block.

    ``family``: a key of TEXTS, such as "vector".
    ``type``: the class of the objects in the block, None if unknown; for a channel, the number of waiting messages.
    """

    family: str
    type: str | None

    @property
    def text(self) -> str:
        """A short description of the kind, for people."""
        words = TEXTS[self.family] if self.type is None else OF_CLASS.get(self.family, TEXTS[self.family])
        # For a channel, ``type`` is the number of waiting messages.
        return words.format(f"{int(self.type):,}" if self.type is not None and self.type.isdigit() else self.type)

    @property
    def name(self) -> str:
        """The class of an object with a vtable, if the class is known; otherwise ``text``."""
        return self.type if self.family == "object" and self.type is not None else self.text


@dataclass(frozen=True)
class Libraries:
    """A flag for each C++ and Rust library: whether it is loaded or linked into the program."""

    libstdcxx: bool
    libcxx: bool
    rust: bool = False


@dataclass(frozen=True)
class KindSum:
    """The number of blocks in use of one kind, and their bytes with headers."""

    kind: CxxKind
    number: int
    count: int
    bytes: int


@dataclass(frozen=True)
class Capacity:
    """The capacity of all containers of one kind, in bytes.

    ``capacity``: the bytes that items could fill. ``used``: the part that holds items. The unused part consists of
    ``small`` bytes in pages that also hold items, and of ``pages`` bytes in whole resident pages. ``most``: the most
    unused bytes in a single container, whose block is at ``address``.
    """

    kind: CxxKind
    count: int
    capacity: int
    used: int
    small: int
    pages: int
    most: int
    address: int


class CxxContent(Content):
    """The contents of C++ and Rust programs. This class finds only their libraries; ``Structures`` finds the blocks."""

    @property
    def is_here(self) -> bool:
        """Whether the program uses a C++ or Rust library, loaded or linked statically."""
        return any(vars(self.libraries).values())

    @part("libraries")
    def libraries(self) -> Libraries:
        """The libraries of C++ and Rust that are loaded, or linked into the program."""
        return find_libraries(self.target)


class Structures:
    """The blocks in use of one target, by kind. A kind has the same number in ``native`` and in the graph."""

    def __init__(
        self,
        target: Target,
        blocks: WalkedBlocks,
        stacks: Ranges,
        progress: Progress | None = None,
        libraries: Libraries | None = None,
        named: Sequence[NamedBlocks] = (),
        is_v8: bool = False,
        books: Ranges | None = None,
    ) -> None:
        """Classify the blocks.

        ``stacks``: the parts of stacks that may be in use.
        ``named``: functions that return (address, description) for blocks that they recognise.
        ``libraries``: the libraries whose containers are searched for, if they are known already.
        ``is_v8``: whether V8 is loaded. Its BackingStore begins in the same way as a std::string.
        ``books``: static data of allocators. It is not searched for pointers: it may point to the last word of a block
        in use.
        """
        heaps = _native.Heaps(target.space, blocks.stores)
        data = sorted(pair for loaded in target.objects for pair in loaded.writable_ranges())
        statics = subtract(data, joined(sorted(books or [])))
        self.libraries = libraries or find_libraries(target)
        known = [row for tell in named for row in tell(heaps, progress)]
        self.native = _native.find_structures(
            heaps, object_ranges(target), code_ranges(target), statics, sorted(stacks), self.libraries, known, progress
        )
        self._target, self._is_v8 = target, is_v8

    @cached_property
    def sums(self) -> list[KindSum]:
        """The number and the bytes of the blocks in use of each kind; kinds without blocks are left out."""
        rows = [(number, row) for number, row in enumerate(self.native.rows(), 1) if row.count]
        vtables = {row.class_name for _, row in rows if row.family in rust.WITH_VTABLES and row.class_name}
        types = rust.types_of(self._target, {name: int(name, 16) for name in vtables})
        names = {row.class_name: types.get(row.class_name) for _, row in rows if row.class_name in vtables}
        return [
            KindSum(
                CxxKind(self._family(row.family), names.get(row.class_name, row.class_name) or None),
                number,
                row.count,
                row.bytes,
            )
            for number, row in rows
        ]

    def _family(self, name: str) -> str:
        return BACKED if self._is_v8 and name == "string" else name

    @cached_property
    def rooms(self) -> list[Capacity]:
        """The used and unused capacity of containers, with a row for each kind; the kinds with the most unused capacity
        come first.
        """
        found = [
            Capacity(kind, row.count, row.capacity, row.used, row.small, row.pages, row.most, row.address)
            for row in self.native.capacities(self._target.pages)
            if (kind := self._by_number.get(row.kind)) is not None
        ]
        return sorted(found, key=lambda room: (-(room.small + room.pages), room.kind.text))

    @cached_property
    def _by_number(self) -> dict[int, CxxKind]:
        return {row.number: row.kind for row in self.sums}

    def name_of(self, number: int) -> str:
        """Return the name of the kind with this number in a graph."""
        return self._by_number[number].name

    def name_at(self, address: int) -> str | None:
        """Return the name of the kind of the block in use that holds ``address``; None if unknown."""
        (kind,) = self.kinds_at([address])
        return None if kind is None else kind.name

    def family_of(self, number: int) -> str:
        """Return the key in TEXTS of the kind with this number; "" if there is no such kind."""
        kind = self._by_number.get(number)
        return kind.family if kind is not None else ""

    def type_of(self, number: int) -> str:
        """Return the class of the kind with this number; "" if unknown."""
        kind = self._by_number.get(number)
        return (kind.type or "") if kind is not None else ""

    def kinds_at(self, addresses: Sequence[int]) -> list[CxxKind | None]:
        """Return the kind of the block in use at each address; None if unknown."""
        return [self._by_number.get(number) for number in self.native.kinds_at(addresses)]


def kind_texts(structures: Structures) -> list[str | None]:
    """Return the description of each kind in the order of the kinds' numbers, beginning with 1; None for a kind without
    blocks.
    """
    texts = {each.number: each.kind.text for each in structures.sums}
    return [texts.get(number) for number in range(1, max(texts, default=0) + 1)]


def class_names(target: Target, addresses: Sequence[int]) -> list[str | None]:
    """Return the class of the C++ object that begins at each address; None for an address without a vtable pointer."""
    return _native.classes_at(target.space, object_ranges(target), addresses)


def object_ranges(target: Target) -> Ranges:
    """Return the memory of all loaded objects, ascending and disjoint."""
    pairs = sorted(
        pair
        for loaded in target.objects
        for pair in [*((mapping.start, mapping.end) for mapping in loaded.mappings), *loaded.bss]
    )
    found: Ranges = []
    for start, end in pairs:
        # If objects overlap, the target is damaged.
        start = max(start, found[-1][1]) if found else start
        if start < end:
            found.append((start, end))
    return found


def code_ranges(target: Target) -> Ranges:
    """Return the executable parts of the loaded objects, ascending. They come from the objects' segments, because the
    mappings of a core may not say which are executable.
    """
    pairs = [
        (loaded.bias + load.address, loaded.bias + load.address + load.memory_size, loaded)
        for loaded in target.objects
        for load in loaded.segments
        if load.type == PT_LOAD and load.flags & PF_X
    ]
    # The bias comes from the target, and may be any number.
    return joined(sorted((start, end) for start, end, loaded in pairs if loaded.base <= start < end <= loaded.end))


def find_libraries(target: Target) -> Libraries:
    """Return which C++ and Rust libraries the target uses. The names of loaded files and text in the program show
    this.
    """
    names = [basename(loaded.path) for loaded in target.objects]
    libstdcxx = any(name.startswith("libstdc++.so") for name in names)
    libcxx = any(name.startswith("libc++.so") for name in names)
    if not libstdcxx and not libcxx and target.objects:
        program = target.objects[0]
        if mentions(target, program, STATIC_NAME):
            libcxx = mentions(target, program, LIBCXX_NAME)
            libstdcxx = not libcxx
    return Libraries(libstdcxx, libcxx, rust.is_rust(target))
