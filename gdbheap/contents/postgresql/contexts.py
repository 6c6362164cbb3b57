"""Read the memory contexts of a PostgreSQL backend, with the figures of the view ``pg_backend_memory_contexts``.

Contexts form a tree with links in both directions. Each context has its own blocks from malloc. The layout of a context
is the one of ``layout/tables/postgresql.json`` with which its blocks add up to the number that the context itself
states (``mem_allocated``, PostgreSQL 13 and later).
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field
from itertools import chain
from os.path import basename
from typing import Any

from gdbheap import _native
from gdbheap.allocators.allocator import Progress
from gdbheap.contents.content import Content, ContentHolder
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, NotInUse, Unsupported, one_line, or_none
from gdbheap.layout.debug_offsets import windows
from gdbheap.layout.facts import Facts
from gdbheap.layout.tables import table, variants
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.parts import part
from gdbheap.targets.ranges import containing
from gdbheap.targets.target import Damage, Target
from gdbheap.text import named

CONTEXT = "context"
TABLE = "postgresql"
TOP = "TopMemoryContext"
NAME_LIMIT, IDENT_LIMIT = 64, 1024
"""The part of an ident that the view shows (mcxtfuncs.c: MEMORY_CONTEXT_IDENT_DISPLAY_SIZE)."""
HASH_TABLE = "dynahash"
MAX_CONTEXTS, MAX_BLOCKS, MAX_LISTED = 1 << 20, 1 << 22, 100
FREE_LISTS, LEAST_CHUNK = 11, 8
"""Constants of aset.c: ALLOCSET_NUM_FREELISTS, the number of free lists; and 1 << ALLOC_MINBITS, the smallest chunk."""
ALLOC_SET_ID, ID_BITS = 3, 7
"""Constants of memutils_internal.h, in all releases: MCTX_ASET_ID, and the mask of the bits that hold such an id in a
chunk's header."""
BLOCK_ENDS = {"aset": 0, "next": 16, "freeptr": 24, "endptr": 32}
"""The offsets of the fields of AllocBlockData (aset.c)."""
MOST_OWN = 4 << 10
"""A limit for the bytes of a context's own fields, if these lie outside its blocks."""
UNREADABLE = (Fault, OverflowError)
"""The exceptions raised when a pointer leads to absent memory or exceeds the largest address."""
ALIGNMENT, PAGE_BITS = 8, 12
"""MAXALIGN of c.h, the alignment of all blocks and chunks; and the number of address bits within a page, for
``_Met``."""


@dataclass(frozen=True)
class Context:
    """A memory context. ``total``: the bytes that it got from malloc; ``free``: the bytes that it can hand out again.

    ``total`` and ``free`` are total_bytes and free_bytes of the view. ``level``: the distance from TopMemoryContext.
    ``ident``: None if the context has none. As in the view, the ident of a hash table's context becomes its name.
    ``blocks``: (start, end) of each block."""

    name: str
    ident: str | None
    level: int
    total: int
    free: int
    address: int
    blocks: list[tuple[int, int]] = field(repr=False, default_factory=list)

    @property
    def used(self) -> int:
        """The bytes that the context handed out, headers included; used_bytes of the view."""
        return self.total - self.free


@dataclass(frozen=True)
class ContextSums:
    """The sums over a context's blocks. ``total`` and ``free``: bytes as in PostgreSQL's statistics.

    ``allocated``: bytes as in ``mem_allocated``. ``damage``: what ended a list of free chunks too early, or None."""

    total: int
    free: int
    allocated: int
    blocks: list[tuple[int, int]]
    damage: Damage | None = None


_Counter = Callable[[int, dict[str, Any]], ContextSums]


class _NoSuch(Exception):
    """Raised if the bytes of a context do not fit a layout."""


class _Met:
    """The addresses that were found so far, as a bit for each address where a chunk can begin.

    A block, a chunk or a list head belongs to only one context. So following all lists ends after at most as many steps
    as there are such addresses.
    """

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def add(self, address: int) -> bool:
        """Add an address. Return whether it is aligned and was not added before."""
        if address % ALIGNMENT:
            return False
        places = self._pages.get(address >> PAGE_BITS)
        if places is None:
            places = self._pages[address >> PAGE_BITS] = bytearray(((1 << PAGE_BITS) // ALIGNMENT + 7) >> 3)
        index, bit = divmod(address % (1 << PAGE_BITS) // ALIGNMENT, 8)
        is_new = not places[index] >> bit & 1
        places[index] |= 1 << bit
        return is_new


class PostgresqlContent(Content):
    """The memory contexts of a PostgreSQL backend."""

    @property
    def is_here(self) -> bool:
        """Whether the process is a PostgreSQL backend with a known layout. Raises Unsupported otherwise."""
        return bool(self.contexts)

    @part("memory contexts")
    def contexts(self) -> list[Context]:
        """The memory contexts, each before its children."""
        return find_contexts(self.target, self._around.facts)

    def named_blocks(self, heaps: _native.Heaps, progress: Progress | None) -> list[tuple[int, str]]:
        """Return (address, description) of the blocks that memory contexts have from malloc."""
        return [
            (start, f"block of memory context {one_line(context.name)}")
            for context in self.contexts
            for start, _end in context.blocks
        ]

    def check(self) -> None:
        """Read all contexts as far as possible."""
        or_none(lambda: self.contexts)

    def holders(self) -> list[ContentHolder]:
        """Return the contexts as holders. All contexts of one name are one holder."""
        named: defaultdict[str, list[Context]] = defaultdict(list)
        for context in self.contexts:
            named[context.name].append(context)
        return [
            ContentHolder(_title(name, len(found)), CONTEXT, [start for one in found for start, _end in one.blocks])
            for name, found in named.items()
        ]


def _title(name: str, count: int) -> str:
    return f"memory context {name}" if count == 1 else f"{count:,} memory contexts {name}"


def find_contexts(target: Target, facts: Facts) -> list[Context]:
    """Return all contexts, each before its children.

    Raises NotInUse if the program is not a PostgreSQL backend, Unsupported if its contexts have no known layout."""
    program = next((loaded for loaded in target.objects if basename(loaded.path) in ("postgres", "postmaster")), None)
    if program is None:
        raise NotInUse("only PostgreSQL has memory contexts, and this program is not postgres")
    reader = _Reader(target, facts)
    top = _top(target, program, reader)
    if top is None:
        raise Unsupported(f"no {TOP} was found: tried the symbol, and pointers in the data of {named(program.path)}")
    found = list(reader.tree(top))
    _check_apart(found)
    target.damage.extend(reader.damage)
    return found


def _check_apart(contexts: list[Context]) -> None:
    """Raise Unsupported if two contexts claim the same memory. The sum of all contexts could then exceed the existing
    memory.
    """
    blocks = sorted((start, end, context.address) for context in contexts for start, end in context.blocks)
    for (_start, end, one), (start, _end, other) in zip(blocks, blocks[1:]):
        if start < end:
            raise Unsupported(f"the memory contexts at {one:#x} and {other:#x} claim the same memory: they are damaged")


def _top(target: Target, program: LoadedObject, reader: _Reader) -> int | None:
    symbol = program.symbol(TOP)
    known = [] if symbol is None else [target.space.read_available(symbol, target.machine.word)]
    for raw in chain(known, (raw for _address, raw in windows(target.space, program))):
        for address in filter(None, target.machine.words_of(raw)):
            with suppress(*UNREADABLE):
                if address % target.machine.word == 0 and reader.is_top(address):
                    return address
    return None


def _misplaced(chunk: int, size: int, blocks: list[tuple[int, int]]) -> str | None:
    """Return in words where a chunk lies if it is outside all ``blocks``, which are sorted; None if it is in a
    block.
    """
    place = bisect(blocks, (chunk, chunk)) - 1
    is_inside = place >= 0 and chunk + size <= blocks[place][1]
    return None if is_inside else f"{chunk:#x}, outside of its blocks"


def _broken_list(place: int, context: int, size: int, wrong: str) -> Damage:
    what = f"list of free chunks of {size} bytes of the memory context at {context:#x}"
    return Damage(place, what, "a free chunk of the context's own", wrong)


class _Reader:
    """Reads contexts; determines the layout of each kind of context once."""

    def __init__(self, target: Target, facts: Facts) -> None:
        self.space = target.space
        self.facts = facts
        self.damage: list[Damage] = []
        self._word = target.machine.word
        self._mapped = target.mappings.ranges()
        self.offsets: dict[str, int] = table(TABLE)["context"]
        self._forms: dict[tuple[int, int], tuple[_Counter, dict[str, Any]]] = {}
        self._seen: set[int] = set()
        self._met: dict[str, _Met] = defaultdict(_Met)

    def _link(self, context: int, name: str) -> int:
        return self.space.word(context + self.offsets[name])

    def _text(self, address: int, limit: int) -> str:
        return self.space.cstring(address, limit).decode("utf-8", "replace")

    def is_top(self, address: int) -> bool:
        """Return whether the context at ``address`` is TopMemoryContext, the root of the tree."""
        return self._link(address, "parent") == 0 and self._text(self._link(address, "name"), NAME_LIMIT) == TOP

    def tree(self, top: int) -> Iterator[Context]:
        """Yield the context ``top`` and all contexts below it.

        Raises Unsupported if links contradict each other, or if a context's blocks do not add up to the number that it
        states."""
        waiting = [(top, 0, 0)]
        while waiting:
            address, parent, level = waiting.pop()
            if address in self._seen or len(self._seen) >= MAX_CONTEXTS:
                raise Unsupported(f"the memory context at {address:#x} occurs twice: the tree is damaged or changing")
            self._seen.add(address)
            try:
                if self._link(address, "parent") != parent:
                    raise Unsupported(f"the memory context at {address:#x} does not point to its parent")
                yield self._context(address, level)
                waiting += reversed([(child, address, level + 1) for child in self._children(address)])
            except UNREADABLE as fault:
                raise Unsupported(f"the memory context at {address:#x} cannot be read") from fault

    def _children(self, context: int) -> Iterator[int]:
        child, before = self._link(context, "firstchild"), 0
        met = 0
        while child:
            if self._link(child, "prevchild") != before or met >= MAX_CONTEXTS:
                raise Unsupported(
                    f"the list of children of the memory context at {context:#x} is damaged or changing: a prevchild "
                    "link is wrong, or the list does not end"
                )
            yield child
            met += 1
            child, before = self._link(child, "nextchild"), child

    def _context(self, address: int, level: int) -> Context:
        name = self._text(self._link(address, "name"), NAME_LIMIT)
        place = self._link(address, "ident")
        ident = self._text(place, IDENT_LIMIT) if place else None
        if name == HASH_TABLE and ident is not None:
            name, ident = ident, None
        counted = self._counted(address)
        return Context(name, ident, level, counted.total, counted.free, address, counted.blocks)

    def _counted(self, address: int) -> ContextSums:
        key = (self.space.u32(address), self._link(address, "methods"))
        allocated = self._link(address, "mem_allocated")
        damaged: list[ContextSums] = []
        for count, form in [self._forms[key]] if key in self._forms else self._all_forms():
            try:
                counted = count(address, form)
            except (_NoSuch, *UNREADABLE):
                continue
            if not self._is_possible(counted):
                continue
            if counted.allocated == allocated and counted.damage is None:
                self._learn(key, count, form, counted)
                return counted
            if counted.allocated == allocated:
                damaged.append(counted)
        return self._damaged(address, allocated, damaged)

    def _is_possible(self, counted: ContextSums) -> bool:
        """Return whether the blocks in ``counted`` are mapped, do not overlap, and are large enough for its sums."""
        blocks = sorted(counted.blocks)
        mapped = (containing(self._mapped, start) for start, _end in blocks)
        are_mapped = all(place is not None and end <= place[1] for place, (_start, end) in zip(mapped, blocks))
        are_apart = all(end <= start for (_start, end), (start, _end) in zip(blocks, blocks[1:]))
        held = MOST_OWN + sum(end - start for start, end in blocks)
        return are_mapped and are_apart and 0 <= counted.free <= counted.total <= held

    def _learn(self, key: tuple[int, int], count: _Counter, form: dict[str, Any], counted: ContextSums) -> None:
        # If there is no free chunk, both layouts of free chunks fit.
        if key not in self._forms and (counted.free or count != self._alloc_set):
            self._forms[key] = count, form
            kind = count.__name__.strip("_").replace("_", " ")
            self.facts.add(f"PostgreSQL's {kind} contexts", f"as since {form['since']}", "blocks add up")

    def _damaged(self, address: int, allocated: int, found: list[ContextSums]) -> ContextSums:
        """Return the sums of a context with damaged free lists, by the layout that fits best. Raises Unsupported if
        none fits."""
        if not found:
            raise Unsupported(
                f"the blocks of the memory context at {address:#x} do not add up to the {allocated} bytes that it "
                f"counts: tried the layouts of PostgreSQL 13 to 18"
            )
        best = max(found, key=lambda counted: counted.free)
        if best.damage is not None and len(self.damage) < MAX_LISTED:
            self.damage.append(best.damage)
        return best

    def _all_forms(self) -> Iterator[tuple[_Counter, dict[str, Any]]]:
        kinds = (self._alloc_set, self._generation, self._slab, self._bump)
        for count in kinds:
            yield from ((count, form) for form in variants(TABLE, count.__name__.strip("_")))

    def _alloc_set(self, context: int, form: dict[str, Any]) -> ContextSums:
        """Return the sums of an AllocSet context, counted as AllocSetStats() does.

        Blocks are a list, and the first block contains the context. Free chunks are in lists."""
        blocks: list[tuple[int, int]] = []
        total, free = form["size"], 0
        met = self._met["alloc_set" + form["since"]]
        block = self.space.word(context + form["blocks"])
        while block:
            owner, after, freeptr, endptr = (self.space.word(block + offset) for offset in BLOCK_ENDS.values())
            if owner != context or not block < freeptr <= endptr or not met.add(block):
                raise _NoSuch
            start = context if block == context + form["size"] else block
            blocks.append((start, endptr))
            total += endptr - block
            free += endptr - freeptr
            block = after
        if blocks and not any(start == context for start, _end in blocks):
            raise _NoSuch
        chunks, damage = self._free_chunks(context, form, sorted(blocks), met)
        return ContextSums(total, free + chunks, total, blocks, damage)

    def _free_chunks(
        self, context: int, form: dict[str, Any], blocks: list[tuple[int, int]], met: _Met
    ) -> tuple[int, Damage | None]:
        """Return the bytes of all chunks in free lists, headers included, and the damage that ended a list (or None).

        Up to 15, a chunk's header has its size and a pointer: in a free chunk to the next free chunk, in a chunk in use
        to its context. Since 16 the header is a word of bits, and the pointer to the next free chunk lies after it."""
        has_size, found = form["chunk"] == "size", 0
        header = 2 * self._word if has_size else self._word
        damage = None
        for number in range(FREE_LISTS):
            size = LEAST_CHUNK << number
            place = context + form["freelist"] + self._word * number
            while chunk := self.space.word(place):
                wrong = _misplaced(chunk, size + header, blocks) or (None if met.add(chunk) else "one met before")
                if wrong is None:
                    head = self.space.word(chunk)
                    is_right = head == size if has_size else head & ID_BITS == ALLOC_SET_ID
                    wrong = None if is_right else f"the header {head:#x}"
                if wrong is not None:
                    damage = damage or _broken_list(place, context, size, wrong)
                    break
                found += size + header
                place = chunk + self._word
        return found, damage

    def _ring(self, head: int) -> Iterator[int]:
        """Yield the nodes of a dlist (lib/ilist.h). A node's first word points to the previous node, its second to the
        next."""
        at, before = self.space.word(head + self._word), head
        if at == 0:  # The head points to itself in contexts of every kind after their initialisation.
            raise _NoSuch
        for _ in range(MAX_BLOCKS):
            if at == head:
                return
            if self.space.word(at) != before:
                raise _NoSuch
            yield at
            before, at = at, self.space.word(at + self._word)
        raise _NoSuch

    def _generation(self, context: int, form: dict[str, Any]) -> ContextSums:
        """Return the sums of a Generation context, counted as GenerationStats() does."""
        blocks: list[tuple[int, int]] = []
        own, total, free = form["size"], 0, 0
        for block in self._ring(context + form["blocks"]):
            size, freeptr, endptr = (self.space.word(block + form[name]) for name in ("blksize", "freeptr", "endptr"))
            is_its = form["context"] is None or self.space.word(block + form["context"]) == context
            if not is_its or block + size != endptr or not block < freeptr <= endptr:
                raise _NoSuch
            start = context if block == context + own else block
            blocks.append((start, endptr))
            total, free = total + size, free + endptr - freeptr
        if not blocks:
            raise _NoSuch
        return ContextSums(own + total, free, total, blocks)

    def _slab(self, context: int, form: dict[str, Any]) -> ContextSums:
        """Return the sums of a Slab context, counted as SlabStats() does."""
        number = self.space.u32 if form["half_words"] else self.space.word
        chunk, size = number(context + form["full_chunk"]), number(context + form["block_size"])
        lists = form["list_count"] or self.space.u32(context + form["per_block"]) + 1
        own = form["size"] or self.space.word(context + form["header_size"])
        if not 0 < chunk <= size or lists > MAX_BLOCKS or not 0 < own < 1 << 30:
            raise _NoSuch
        blocks: list[tuple[int, int]] = []
        free, met = 0, self._met["slab" + form["since"]]
        for place in range(lists):
            head = context + form["lists"] + 2 * self._word * place
            if not met.add(head):
                raise _NoSuch
            for node in self._ring(head):
                block = node - form["node"]
                handed_back = chunk * self.space.u32(block + form["nfree"])
                is_its = form["slab"] is None or self.space.word(block + form["slab"]) == context
                if not is_its or handed_back > size:
                    raise _NoSuch
                blocks.append((block, block + size))
                free += handed_back
        blocks += [(block, block + size) for block in self._empty_blocks(context, form)]
        return ContextSums(own + size * len(blocks), free, size * len(blocks), [(context, context + own), *blocks])

    def _empty_blocks(self, context: int, form: dict[str, Any]) -> Iterator[int]:
        """Yield the empty blocks that a slab context keeps (PostgreSQL 16 and later). A dclist, whose last field is the
        number of blocks, contains them."""
        if form["empty_count"] is None:
            return
        place = context + form["empty_count"]
        left = self.space.u32(place)
        if left:
            for node in self._ring(place - 2 * self._word):
                left -= 1
                yield node - form["node"]
        if left:
            raise _NoSuch

    def _bump(self, context: int, form: dict[str, Any]) -> ContextSums:
        """Return the sums of a Bump context, counted as BumpStats() does: the context's own header is left out."""
        blocks: list[tuple[int, int]] = []
        own, total, free = form["size"], 0, 0
        for block in self._ring(context + form["blocks"]):
            freeptr, endptr = self.space.word(block + form["freeptr"]), self.space.word(block + form["endptr"])
            if not block < freeptr <= endptr:
                raise _NoSuch
            blocks.append((context if block == context + own else block, endptr))
            total, free = total + endptr - block, free + endptr - freeptr
        if not blocks:
            raise _NoSuch
        return ContextSums(total, free, own + total, blocks)
