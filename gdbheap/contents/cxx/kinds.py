"""What the blocks of a program in C++ or Rust are: objects by their vtables, and what proven containers keep in them.

Nothing is named that only looks like something: ``native/core/src/structures/`` says what each proof is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os.path import basename
from typing import Optional

from gdbheap import _native
from gdbheap.allocators.allocator import Progress, WalkedBlocks
from gdbheap.contents.content import Content
from gdbheap.contents.rust import types as rust
from gdbheap.machines.image import PF_X, PT_LOAD
from gdbheap.targets.parts import part
from gdbheap.targets.ranges import Ranges, joined, subtract
from gdbheap.targets.target import Target
from gdbheap.targets.text_search import mentions

# Names that a program has in itself if the C++ library is linked into it; libc++'s own namespace is in all of its.
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
"""(address, what the block there is, in words)."""


@dataclass(frozen=True)
class Kind:
    """What a block is. ``family``: a key of TEXTS; ``type``: the class, where one is known."""

    family: str
    type: str | None

    @property
    def text(self) -> str:
        """A few words."""
        words = TEXTS[self.family] if self.type is None else OF_CLASS.get(self.family, TEXTS[self.family])
        # How many messages wait is a number.
        return words.format(f"{int(self.type):,}" if self.type is not None and self.type.isdigit() else self.type)

    @property
    def name(self) -> str:
        """The same, of an object with a vtable its class alone."""
        return self.type if self.family == "object" and self.type is not None else self.text


@dataclass(frozen=True)
class Libraries:
    """Whose containers there may be."""

    libstdcxx: bool
    libcxx: bool
    rust: bool = False


@dataclass(frozen=True)
class KindSum:
    """How many used blocks are of a kind, and their bytes with headers."""

    kind: Kind
    number: int
    count: int
    bytes: int


@dataclass(frozen=True)
class Room:
    """The room of containers of one kind: the bytes that their blocks can hold (``capacity``) and that hold
    something (``used``); of the rest ``small`` bytes inside of pages in use, ``pages`` resident bytes of whole pages,
    and what the one whose block is at ``address`` has of those, the ``most``."""

    kind: Kind
    count: int
    capacity: int
    used: int
    small: int
    pages: int
    most: int
    address: int


class CxxContent(Content):
    """C++ and Rust. What blocks are of their containers is proven in ``Structures``."""

    @property
    def is_here(self) -> bool:
        """Whether a library is there whose containers are known."""
        return any(vars(self.libraries).values())

    @part("libraries")
    def libraries(self) -> Libraries:
        """Which of them are there."""
        return find_libraries(self.target)


class Structures:
    """The used blocks of one target by what they are. ``native`` numbers them as a graph of the same stores does."""

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
        """``stacks``: what may be in use of them; ``named``: what tells the addresses of blocks with what they are
        known to be; ``libraries``: whose containers are looked for, where that is not to be found out. ``is_v8``: V8 is
        there, whose BackingStore begins as a std::string does. ``books``: static data of allocators, whose lists of
        free blocks may lead to the last word of a used one."""
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
        """A row for each kind that has blocks."""
        rows = [(number, row) for number, row in enumerate(self.native.rows(), 1) if row.count]
        vtables = {row.class_name for _, row in rows if row.family in rust.WITH_VTABLES and row.class_name}
        types = rust.types_of(self._target, {name: int(name, 16) for name in vtables})
        names = {row.class_name: types.get(row.class_name) for _, row in rows if row.class_name in vtables}
        return [
            KindSum(
                Kind(self._family(row.family), names.get(row.class_name, row.class_name) or None),
                number,
                row.count,
                row.bytes,
            )
            for number, row in rows
        ]

    def _family(self, name: str) -> str:
        return BACKED if self._is_v8 and name == "string" else name

    @cached_property
    def rooms(self) -> list[Room]:
        """Return what containers have room for, a row for each kind, those with most room first."""
        found = [
            Room(kind, row.count, row.capacity, row.used, row.small, row.pages, row.most, row.address)
            for row in self.native.capacities(self._target.pages)
            if (kind := self._by_number.get(row.kind)) is not None
        ]
        return sorted(found, key=lambda room: (-(room.small + room.pages), room.kind.text))

    @cached_property
    def _by_number(self) -> dict[int, Kind]:
        return {row.number: row.kind for row in self.sums}

    def name_of(self, number: int) -> str:
        """The name of the kind with that number in a graph."""
        return self._by_number[number].name

    def name_at(self, address: int) -> str | None:
        """The name of the kind of the used block that holds an address; None where that is not known."""
        (kind,) = self.kinds_at([address])
        return None if kind is None else kind.name

    def family_of(self, number: int) -> str:
        """Return the key of TEXTS of the kind with that number; "" for none."""
        kind = self._by_number.get(number)
        return kind.family if kind is not None else ""

    def type_of(self, number: int) -> str:
        """Return the class of the kind with that number; "" where none is known."""
        kind = self._by_number.get(number)
        return (kind.type or "") if kind is not None else ""

    def kinds_at(self, addresses: Sequence[int]) -> list[Kind | None]:
        """What the used block is that holds each address; None where that is not known."""
        return [self._by_number.get(number) for number in self.native.kinds_at(addresses)]


def kind_texts(structures: Structures) -> list[str | None]:
    """What each kind is in words, by its number in a graph from 1 on; None of one without blocks."""
    texts = {each.number: each.kind.text for each in structures.sums}
    return [texts.get(number) for number in range(1, max(texts, default=0) + 1)]


def class_names(target: Target, addresses: Sequence[int]) -> list[str | None]:
    """The class of the C++ object that begins at each address; None where none with a vtable does."""
    return _native.classes_at(target.space, object_ranges(target), addresses)


def object_ranges(target: Target) -> Ranges:
    """The memory of all loaded objects, ascending."""
    pairs = sorted(
        pair
        for loaded in target.objects
        for pair in [*((mapping.start, mapping.end) for mapping in loaded.mappings), *loaded.bss]
    )
    found: Ranges = []
    for start, end in pairs:
        # Objects that overlap are the target's mistake.
        start = max(start, found[-1][1]) if found else start
        if start < end:
            found.append((start, end))
    return found


def code_ranges(target: Target) -> Ranges:
    """What of the loaded objects can be executed, ascending: a core may not say which mappings can."""
    pairs = [
        (loaded.bias + load.address, loaded.bias + load.address + load.memory_size, loaded)
        for loaded in target.objects
        for load in loaded.segments
        if load.type == PT_LOAD and load.flags & PF_X
    ]
    # The bias is the target's word, and may lead anywhere.
    return joined(sorted((start, end) for start, end, loaded in pairs if loaded.base <= start < end <= loaded.end))


def find_libraries(target: Target) -> Libraries:
    """The C++ libraries that are loaded, or part of the program itself."""
    names = [basename(loaded.path) for loaded in target.objects]
    libstdcxx = any(name.startswith("libstdc++.so") for name in names)
    libcxx = any(name.startswith("libc++.so") for name in names)
    if not libstdcxx and not libcxx and target.objects:
        program = target.objects[0]
        if mentions(target, program, STATIC_NAME):
            libcxx = mentions(target, program, LIBCXX_NAME)
            libstdcxx = not libcxx
    return Libraries(libstdcxx, libcxx, rust.is_rust(target))
