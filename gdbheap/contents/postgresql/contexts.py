"""Read the memory contexts of a PostgreSQL backend, with the figures of the view ``pg_backend_memory_contexts``.

Contexts form a tree with links in both directions. Each context has its own blocks from malloc. A context states how
many bytes its blocks have (``mem_allocated``, PostgreSQL 13 and later). gdbheap uses the layout in
``layout/tables/postgresql.json`` with which the blocks add up to this number.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from os.path import basename
from sys import getsizeof
from typing import Any, NamedTuple

from gdbheap import _native
from gdbheap.allocators.allocator import Progress
from gdbheap.contents.content import Content, ContentHolder
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, NotInUse, Unsupported, one_line, or_none
from gdbheap.layout.debug_offsets import windows
from gdbheap.layout.facts import Facts
from gdbheap.layout.shipped_tables import table, variants
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.parts import part
from gdbheap.targets.ranges import containing
from gdbheap.targets.target import Damage, Target
from gdbheap.text import named

CONTEXT = "context"
OTHERS = "memory contexts with other names"
OTHER_BLOCK = "block of a memory context with another name"
TABLE = "postgresql"
TOP = "TopMemoryContext"
NAME_LIMIT, IDENT_LIMIT = 64, 1024
"""The part of an ident that the view shows (mcxtfuncs.c: MEMORY_CONTEXT_IDENT_DISPLAY_SIZE)."""
HASH_TABLE = "dynahash"
ROOM_FOR_TEXTS, ROOM_FOR_COPIES, CUT = 64 << 20, 16 << 20, "…"
"""The most bytes that the names and idents of all contexts may take; the most that those may take in the rows of an
answer whose text another context has, too; and what stands for a text after that."""
MAX_CONTEXTS, MAX_KINDS, MAX_NAMES, MAX_LISTED = 1 << 20, 1 << 8, 10_000, 100
"""Limits for contexts, kinds of contexts, names, and contradictions to report. A real server has at most five kinds and
a few hundred names.
"""
MAX_STEPS, MAX_CHUNKS, MAX_TOPS = 1 << 21, 1 << 22, 1 << 18
"""Limits for all contexts together: steps, free chunks, and addresses tested for the root. A step reads a block or
tries a layout.
"""
MAX_LISTS = 1 << 22
FREE_LISTS, LEAST_CHUNK = 11, 8
"""Constants of aset.c: ALLOCSET_NUM_FREELISTS, the number of free lists; and 1 << ALLOC_MINBITS, the smallest chunk."""
ALLOC_SET_ID, ID_BITS = 3, 7
"""Constants of memutils_internal.h, in all releases: MCTX_ASET_ID, and the mask of the bits that hold such an id in a
chunk's header."""
BLOCK_WORDS = 5
"""The number of words of AllocBlockData (aset.c): aset, prev, next, freeptr, endptr."""
MOST_OWN = 4 << 10
"""A limit for the bytes of a context's own fields, if these lie outside its blocks."""
UNREADABLE = (Fault, OverflowError)
"""The exceptions raised when a pointer leads to absent memory or exceeds the largest address."""
ALIGNMENT, PAGE_BITS = 8, 12
"""MAXALIGN of c.h, the alignment of all blocks and chunks; and the number of address bits within a page, for
``_Met``."""


class Context(NamedTuple):
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
    blocks: Sequence[tuple[int, int]] = ()

    @property
    def used(self) -> int:
        """The bytes that the context handed out, headers included; used_bytes of the view."""
        return self.total - self.free


@dataclass(frozen=True)
class ContextSums:
    """The sums over a context's blocks. ``total`` and ``free``: bytes as in PostgreSQL's statistics.

    ``allocated``: bytes as in ``mem_allocated``. ``damage``: the damage that ended a list of free chunks too early, or
    None. Its parts are the address of the pointer, the size of the list's chunks, and a description of the wrong value.
    """

    total: int
    free: int
    allocated: int
    blocks: list[tuple[int, int]]
    damage: tuple[int, int, str] | None = None


_Layout = tuple[Callable[[int, dict[str, Any]], ContextSums], dict[str, Any]]
"""A way to count a context: a function that returns the context's sums, and the layout that it uses."""


class _NoSuch(Exception):
    """The bytes of a context do not fit a layout, so the next layout is tried."""


class _TooMuch(Exception):
    """Raised if reading the contexts takes more than MAX_STEPS steps."""


class _Met:
    """The addresses that were found so far, as a bit for each address where a chunk can begin.

    A block, a chunk or a list head belongs to only one context. Following all lists therefore ends after at most as
    many steps as there are such addresses.
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
    """The memory contexts of a PostgreSQL backend. All of them are read at the first use."""

    @property
    def is_here(self) -> bool:
        """Whether the process is a PostgreSQL backend with a known layout. Raises Unsupported otherwise."""
        return bool(self.contexts)

    @part("memory contexts")
    def contexts(self) -> list[Context]:
        """The memory contexts, each before its children."""
        found, is_cut = find_contexts(self.target, self._around.facts)
        if is_cut:
            self._around.note("contexts-cut-off")
        return found

    def named_blocks(self, heaps: _native.Heaps, progress: Progress | None) -> list[tuple[int, str]]:
        """Return (address, description) of the blocks that memory contexts have from malloc."""
        named = []
        for name, found in named_contexts(self.contexts).items():
            what = OTHER_BLOCK if name is None else f"block of memory context {one_line(name)}"
            named += [(start, what) for context in found for start, _end in context.blocks]
        return named

    def check(self) -> None:
        """Read all contexts, so that their damage is recorded. If they cannot be read, no error is raised."""
        or_none(lambda: self.contexts)

    def holders(self) -> list[ContentHolder]:
        """Return a holder for each name of contexts, with the blocks of all contexts of this name."""
        return [
            ContentHolder(_title(name, len(found)), CONTEXT, [start for one in found for start, _end in one.blocks])
            for name, found in named_contexts(self.contexts).items()
        ]


def named_contexts(contexts: Iterable[Context]) -> dict[str | None, list[Context]]:
    """Return the contexts of each name. The contexts of all names after the first MAX_NAMES are listed under None."""
    found: dict[str | None, list[Context]] = {}
    for context in contexts:
        is_listed = context.name in found or len(found) < MAX_NAMES
        found.setdefault(context.name if is_listed else None, []).append(context)
    return found


def _title(name: str | None, count: int) -> str:
    if name is None:
        return f"{count:,} {OTHERS}"
    return f"memory context {name}" if count == 1 else f"{count:,} memory contexts {name}"


def find_contexts(target: Target, facts: Facts) -> tuple[list[Context], bool]:
    """Return all contexts, each before its children; and whether contexts or free chunks beyond a limit were left out.

    Raises NotInUse if the program is not a PostgreSQL backend. Raises Unsupported if its contexts have no known layout.
    """
    program = next((loaded for loaded in target.objects if basename(loaded.path) in ("postgres", "postmaster")), None)
    if program is None:
        raise NotInUse("only PostgreSQL has memory contexts, and this program is not postgres")
    reader = _Reader(target, facts)
    top = _top(target, program, reader)
    if top is None:
        raise Unsupported(
            f"no {TOP} was found: tried the symbol, and the first {MAX_TOPS:,} pointers in the data of "
            f"{named(program.path)}"
        )
    found = list(reader.tree(top))
    if not found:
        raise Unsupported(f"{TOP} at {top:#x} has more than {MAX_STEPS:,} blocks: it is damaged")
    _check_apart(found)
    target.damage.extend(reader.damage)
    return found, reader.is_cut


def _check_apart(contexts: list[Context]) -> None:
    """Raise Unsupported if two contexts claim the same memory. The sum of all contexts could then exceed the existing
    memory.
    """
    blocks = sorted(block for context in contexts for block in context.blocks)
    for one, other in zip(blocks, blocks[1:]):
        if other[0] < one[1]:
            owners = [context.address for context in contexts if one in context.blocks or other in context.blocks]
            raise Unsupported(
                f"the memory contexts at {owners[0]:#x} and {owners[-1]:#x} claim the same memory: they are damaged"
            )


def _top(target: Target, program: LoadedObject, reader: _Reader) -> int | None:
    symbol = program.symbol(TOP)
    known = [] if symbol is None else [target.space.read_available(symbol, target.machine.word)]
    tested = {0}
    for raw in chain(known, (raw for _address, raw in windows(target.space, program))):
        for address in dict.fromkeys(target.machine.words_of(raw)):
            if address % target.machine.word or address in tested:
                continue
            if len(tested) > MAX_TOPS:
                return None
            tested.add(address)
            with suppress(*UNREADABLE):
                if reader.is_top(address):
                    return address
    return None


def _misplaced(chunk: int, size: int, blocks: list[tuple[int, int]]) -> str | None:
    """Return a description of a chunk that is outside all ``blocks``, which are sorted; None if it is in a block."""
    place = bisect(blocks, (chunk, chunk)) - 1
    is_inside = place >= 0 and chunk + size <= blocks[place][1]
    return None if is_inside else f"{chunk:#x}, outside of its blocks"


def _broken_list(context: int, place: int, size: int, wrong: str) -> Damage:
    what = f"list of free chunks of {size} bytes of the memory context at {context:#x}"
    return Damage(place, what, "a free chunk of the context's own", wrong)


class _Reader:
    """Reads contexts, and determines the layout of each kind of context once.

    ``damage``: the contradictions found so far.
    ``is_cut``: whether contexts or free chunks beyond a limit were left out.
    """

    def __init__(self, target: Target, facts: Facts) -> None:
        self.space = target.space
        self.facts = facts
        self.damage: list[Damage] = []
        self._machine = target.machine
        self._word = target.machine.word
        self._mapped = target.mappings.ranges()
        self.offsets: dict[str, int] = table(TABLE)["context"]
        self._fields = {name: offset // self._word for name, offset in self.offsets.items()}
        kinds = (self._alloc_set, self._generation, self._slab, self._bump)
        self._all = [(count, form) for count in kinds for form in variants(TABLE, count.__name__.strip("_"))]
        # The layouts that fit all contexts read so far, for each kind of context.
        self._forms: dict[tuple[int, int], list[_Layout]] = {}
        self._seen: set[int] = set()
        self._steps_left, self._chunks_left, self.is_cut = MAX_STEPS, MAX_CHUNKS, False
        self._met: dict[str, _Met] = defaultdict(_Met)
        # Many contexts share their names, and some their idents.
        self._texts: dict[tuple[int, int], str] = {}
        self._room_left, self._copies_left = ROOM_FOR_TEXTS, ROOM_FOR_COPIES

    def _link(self, context: int, name: str) -> int:
        return self.space.word(context + self.offsets[name])

    def _text(self, address: int, limit: int) -> str:
        return self.space.cstring(address, limit).decode("utf-8", "replace")

    def _kept_text(self, address: int, limit: int) -> str:
        """Return a text of at most ``limit`` bytes; CUT if the texts together take more than ROOM_FOR_TEXTS, or their
        copies more than ROOM_FOR_COPIES."""
        found = self._texts.get((address, limit))
        if found is not None:
            self._copies_left -= len(found)
            return found if self._copies_left >= 0 else CUT
        found = self._text(address, limit)
        size = getsizeof(found)
        if size > self._room_left:
            return CUT
        self._room_left -= size
        self._texts[address, limit] = found
        return found

    def is_top(self, address: int) -> bool:
        """Return whether the context at ``address`` is TopMemoryContext, the root of the tree."""
        return self._link(address, "parent") == 0 and self._text(self._link(address, "name"), NAME_LIMIT) == TOP

    def _words(self, address: int, count: int) -> tuple[int, ...]:
        return self._machine.words_of(self.space.read(address, self._word * count))

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise _TooMuch

    def tree(self, top: int) -> Iterator[Context]:
        """Yield the context ``top`` and all contexts below it, at most MAX_CONTEXTS.

        Raises Unsupported if links contradict each other. Raises Unsupported if the bytes of a context's blocks do not
        add up to the number that it states."""
        # The address of a context, of its parent and of the context before it in the list of children; its level.
        waiting = [(top, 0, 0, 0)]
        while waiting:
            address, parent, before, level = waiting.pop()
            if address in self._seen:
                raise Unsupported(f"the memory context at {address:#x} occurs twice: the tree is damaged or changing")
            if len(self._seen) >= MAX_CONTEXTS:
                self.is_cut = True
                return
            self._seen.add(address)
            try:
                words = self._words(address, max(self._fields.values()) + 1)
                child, after = words[self._fields["firstchild"]], words[self._fields["nextchild"]]
                if words[self._fields["parent"]] != parent:
                    raise Unsupported(f"the memory context at {address:#x} does not point to its parent")
                if words[self._fields["prevchild"]] != before and parent:
                    raise Unsupported(
                        f"the list of children of the memory context at {parent:#x} is damaged or changing: a "
                        "prevchild link is wrong"
                    )
                yield self._context(address, words, level)
            except UNREADABLE as fault:
                raise Unsupported(f"the memory context at {address:#x} cannot be read") from fault
            except _TooMuch:
                self.is_cut = True
                return
            if after and parent:
                waiting.append((after, parent, address, level))
            if child:
                waiting.append((child, address, 0, level + 1))

    def _context(self, address: int, words: Sequence[int], level: int) -> Context:
        name = self._kept_text(words[self._fields["name"]], NAME_LIMIT)
        place = words[self._fields["ident"]]
        ident = self._kept_text(place, IDENT_LIMIT) if place else None
        if name == HASH_TABLE and ident is not None:
            name, ident = ident, None
        counted = self._counted(address, words)
        return Context(name, ident, level, counted.total, counted.free, address, tuple(counted.blocks))

    def _counted(self, address: int, words: Sequence[int]) -> ContextSums:
        key = (self.space.u32(address), words[self._fields["methods"]])
        allocated = words[self._fields["mem_allocated"]]
        if key not in self._forms and len(self._forms) >= MAX_KINDS:
            raise Unsupported(f"there are more than {MAX_KINDS} kinds of memory contexts: they are damaged")
        known = self._forms.get(key, self._all)
        found: list[tuple[ContextSums, _Layout]] = []
        for count, form in known:
            self._step()
            with suppress(_NoSuch, *UNREADABLE):
                counted = count(address, form)
                if counted.allocated == allocated and self._is_possible(counted):
                    found.append((counted, (count, form)))
        if not found:
            raise Unsupported(
                f"the blocks of the memory context at {address:#x} do not add up to the {allocated} bytes that it "
                f"counts: tried the layouts of PostgreSQL 13 to 18"
            )
        # If there is no free chunk, both layouts of free chunks fit.
        fitting = [one for one in found if one[0].damage is None] or found
        self._learn(key, [layout for _counted, layout in fitting])
        best = max((counted for counted, _layout in fitting), key=lambda counted: counted.free)
        if best.damage is not None and len(self.damage) < MAX_LISTED:
            self.damage.append(_broken_list(address, *best.damage))
        return best

    def _learn(self, key: tuple[int, int], fitting: list[_Layout]) -> None:
        if len(fitting) == 1 and len(self._forms.get(key, self._all)) > 1:
            ((count, form),) = fitting
            kind = count.__name__.strip("_").replace("_", " ")
            self.facts.add(f"PostgreSQL's {kind} contexts", f"as since {form['since']}", "blocks add up")
        self._forms[key] = fitting

    def _is_possible(self, counted: ContextSums) -> bool:
        """Return whether the blocks in ``counted`` are mapped, do not overlap, and are large enough for its sums."""
        blocks = sorted(counted.blocks)
        mapped = (containing(self._mapped, start) for start, _end in blocks)
        are_mapped = all(place is not None and end <= place[1] for place, (_start, end) in zip(mapped, blocks))
        are_apart = all(end <= start for (_start, end), (start, _end) in zip(blocks, blocks[1:]))
        held = MOST_OWN + sum(end - start for start, end in blocks)
        return are_mapped and are_apart and 0 <= counted.free <= counted.total <= held

    def _alloc_set(self, context: int, form: dict[str, Any]) -> ContextSums:
        """Return the sums of an AllocSet context, counted as AllocSetStats() does.

        Blocks are a list, and the first block contains the context. Free chunks are in lists."""
        blocks: list[tuple[int, int]] = []
        total, free = form["size"], 0
        met = self._met["alloc_set" + form["since"]]
        first_list = form["freelist"] // self._word
        words = self._words(context, first_list + FREE_LISTS)
        block = words[form["blocks"] // self._word]
        while block:
            self._step()
            owner, _before, after, freeptr, endptr = self._words(block, BLOCK_WORDS)
            if owner != context or not block < freeptr <= endptr or not met.add(block):
                raise _NoSuch
            start = context if block == context + form["size"] else block
            blocks.append((start, endptr))
            total += endptr - block
            free += endptr - freeptr
            block = after
        if not any(start == context for start, _end in blocks):
            raise _NoSuch
        chunks, damage = self._free_chunks(context, form, words[first_list:], sorted(blocks), met)
        return ContextSums(total, free + chunks, total, blocks, damage)

    def _free_chunks(
        self, context: int, form: dict[str, Any], heads: Sequence[int], blocks: list[tuple[int, int]], met: _Met
    ) -> tuple[int, tuple[int, int, str] | None]:
        """Return the bytes of all chunks in free lists, headers included, and the damage that ended a list (or None).
        ``heads``: the first chunk of each list, or 0.

        Up to PostgreSQL 15, a chunk's header is its size and a pointer. A free chunk points to the next free chunk, a
        chunk in use points to its context. Since 16 the header is one word of bits. In a free chunk, the pointer to the
        next one follows it.
        """
        has_size, found = form["chunk"] == "size", 0
        header = 2 * self._word if has_size else self._word
        damage = None
        for number, chunk in enumerate(heads):
            size = LEAST_CHUNK << number
            place = context + form["freelist"] + self._word * number
            while chunk:
                if not self._chunks_left:
                    self.is_cut = True
                    return found, damage
                self._chunks_left -= 1
                wrong = _misplaced(chunk, size + header, blocks) or (
                    None if met.add(chunk) else "a chunk that is already in a list"
                )
                if wrong is None:
                    head, after = self._words(chunk, 2)
                    is_right = head == size if has_size else head & ID_BITS == ALLOC_SET_ID
                    wrong = None if is_right else f"the header {head:#x}"
                if wrong is not None:
                    damage = damage or (place, size, wrong)
                    break
                found += size + header
                place, chunk = chunk + self._word, after
        return found, damage

    def _ring(self, head: int) -> Iterator[int]:
        """Yield the nodes of a dlist (lib/ilist.h). A node's first word points to the previous node, its second to the
        next."""
        at, before = self.space.word(head + self._word), head
        if at == 0:  # The head points to itself in contexts of every kind after their initialisation.
            raise _NoSuch
        while at != head:
            self._step()
            previous, after = self._words(at, 2)
            if previous != before:
                raise _NoSuch
            yield at
            before, at = at, after

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
        if not 0 < chunk <= size or lists > MAX_LISTS or not 0 < own < 1 << 30:
            raise _NoSuch
        blocks: list[tuple[int, int]] = []
        free, met = 0, self._met["slab" + form["since"]]
        for place in range(lists):
            self._step()
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
        """Yield the empty blocks that a slab context keeps (PostgreSQL 16 and later). They are in a dclist, whose last
        field is their number.
        """
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
