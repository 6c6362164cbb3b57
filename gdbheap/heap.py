"""Everything read from one target during one stop, each part when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from gdbheap import _native
from gdbheap.allocators.allocator import A, Allocator, Block, WalkedBlocks
from gdbheap.allocators.finding import KINDS, MALLOC
from gdbheap.allocators.library_memory import Held, find_held
from gdbheap.allocators.recognised import OtherAllocator, find_other
from gdbheap.allocators.runtimes import Runtime, find_runtimes
from gdbheap.contents.cxx.kinds import Libraries, Structures, find_libraries
from gdbheap.contents.postgresql.contexts import Context, find_contexts
from gdbheap.contents.python.names.paths import ObjectPaths
from gdbheap.contents.python.objects.census import Objects, Owner
from gdbheap.contents.python.objects.collector import Collector, find_collector
from gdbheap.contents.python.objects.references import References
from gdbheap.contents.python.objects.roots import Roots
from gdbheap.contents.python.running.interpreter import Interpreter
from gdbheap.contents.python.running.tracemalloc_tables import Traces
from gdbheap.contents.python.text.disclosure import Disclosure
from gdbheap.errors import GdbheapError, NotAPython, NotInUse, Unsupported, one_line
from gdbheap.graph.blocks import BlockReferences
from gdbheap.graph.hidden import with_hidden_words
from gdbheap.graph.mapped import Mapped, find_mapped, mapped_files, shared_ranges
from gdbheap.graph.nodes import Nodes, Root
from gdbheap.graph.paths import BlockPaths, Paths
from gdbheap.graph.roots import block_roots, kernel_roots
from gdbheap.host.kernel_pointers import KernelPointers, kernel_pointers
from gdbheap.host.tmpfs import memory_devices
from gdbheap.layout.facts import Facts
from gdbheap.targets.ended_stacks import EndedStack, find_ended
from gdbheap.targets.mappings import Mapping
from gdbheap.targets.ranges import Ranges, containing, joined, subtract, within
from gdbheap.targets.stack_mappings import LARGEST_GUARDED, Stack, find_stacks, live_parts, unbounded
from gdbheap.targets.target import Damage, Target
from gdbheap.targets.unseen_files import about

Progress = Callable[[str, int, int], object]
N = TypeVar("N", bound=Nodes)

CUT_OFF = "not all references could be read: a holder has at least the bytes that are listed for it"

# Unidentified blocks that are described at most.
MAX_UNIDENTIFIED = 10_000
# Blocks among which containers are looked for without being asked: a second.
MAX_STRUCTURES = 1_000_000
# With more blocks in use the graph, which takes longer than all else, is not drawn to find the owners of less than this
# share of their bytes.
MANY_BLOCKS = 1_000_000
LEAST_SHARE = 0.01


class Heap:
    """One target at one stop. Parts that cannot be had raise the same error each time they are asked for.

    ``progress`` is called as (label, bytes done, bytes in all) during long walks, on the calling thread.
    ``disclosure`` says whether texts show contents of strings, bytes and keys; it may change between answers.
    ``kinds``: the allocators that are looked for, in order.
    """

    def __init__(
        self, target: Target, progress: Progress | None = None, kinds: Sequence[type[Allocator]] = KINDS
    ) -> None:
        self.target = target
        self.progress = progress
        self.kinds = tuple(kinds)
        self.facts = Facts()
        # Not a method of this: the cycle would hold the target's files open.
        self.disclosure = Disclosure(is_place=partial(_is_place, target))
        self._parts: dict[str, Any] = {}
        self._failures: dict[str, tuple[type[GdbheapError], str]] = {}
        self._notes: list[str] = []

    def _part(self, name: str, make: Callable[[], Any]) -> Any:
        if name in self._failures:
            kind, message = self._failures[name]
            raise kind(message)
        if name not in self._parts:
            if self.target.refusal is not None:
                raise self.target.refusal
            try:
                self._parts[name] = make()
            except _native.Fault as fault:
                raise self._failed(
                    name, Unsupported(f"{name} cannot be read: nothing is at {fault.args[0]:#x}")
                ) from fault
            except GdbheapError as error:
                raise self._failed(name, self._cut_short(error)) from error
        return self._parts[name]

    def _failed(self, name: str, error: GdbheapError) -> GdbheapError:
        """A new error of that kind; only its words are kept: an error with its traceback would refer to this heap and
        keep the target's files open."""
        self._failures[name] = type(error), str(error)
        return type(error)(str(error))

    def _cut_short(self, error: GdbheapError) -> GdbheapError:
        """What is missing from a truncated core is no proof that it never was there."""
        if not self.target.partial or isinstance(error, NotAPython):
            return error
        return type(error)(f"the core is truncated, and what this needs may be cut off: {error}")

    def allocator(self, kind: type[A]) -> A:
        """An allocator of this target. Raises NotAPython, NotInUse, or Unsupported."""
        found: A = self._part(kind.name, lambda: kind(self))
        return found

    def find_allocator(self, kind: type[A]) -> A | None:
        """An allocator of this target, None where it is not there or not known."""
        try:
            return self.allocator(kind)
        except GdbheapError:
            return None

    @property
    def unknown_allocators(self) -> dict[type[Allocator], GdbheapError]:
        """Those that should be there and could not be found, with the reasons."""
        found: dict[type[Allocator], GdbheapError] = {}
        for kind in self.kinds:
            try:
                self.allocator(kind)
            except (NotAPython, NotInUse):
                continue
            except GdbheapError as error:
                found[kind] = error
        replaced = {type(allocator).replaces for allocator in self.allocators}
        return {kind: error for kind, error in found.items() if kind not in replaced}

    @property
    def malloc(self) -> Allocator:
        """The C library's, whichever that is. Raises Unsupported when it is not known."""
        other = next((found for found in self.standing_in if found.replaces is MALLOC), None)
        return self.allocator(MALLOC) if other is None else other

    def _find_malloc(self) -> Allocator | None:
        try:
            return self.malloc
        except GdbheapError:
            return None

    @property
    def allocators(self) -> list[Allocator]:
        """Those that the target has, those inside of others after them."""
        return [found for found in map(self.find_allocator, self.kinds) if found is not None]

    @property
    def walked(self) -> WalkedBlocks:
        """The blocks of all allocators, for the native half."""
        return _walked(self.allocators)

    def block_at(self, address: int) -> Block | None:
        """The innermost allocator's block that holds ``address``, used or free."""
        found = (allocator.find(address) for allocator in reversed(self.allocators))
        return next((block for block in found if block is not None), None)

    def outside(self, ranges: Ranges, of: type[Allocator]) -> Ranges:
        """The parts of ranges that are no stack, and not known to be that of an allocator looked for before ``of``."""
        ranges = subtract(ranges, [(stack.start, stack.end) for stack in self.stacks])
        for allocator in filter(None, map(self.find_allocator, self.kinds[: self.kinds.index(of)])):
            ranges = allocator.leaves(ranges)
        return ranges

    @property
    def other_allocator(self) -> OtherAllocator | None:
        """The allocator that is there beside the C library's, or in its place; None when none shows."""
        malloc = self.find_allocator(MALLOC)
        idle = malloc is None or malloc.idle
        walked = {found.walks for found in self.standing_in}
        found: OtherAllocator | None = self._part("other allocator", lambda: find_other(self.target, idle, walked))
        return found

    @property
    def standing_in(self) -> list[Allocator]:
        """The allocators that take the place of the C library's, or are there beside it, and are walked."""
        found = (self.find_allocator(kind) for kind in self.kinds if kind.walks is not None)
        return [allocator for allocator in found if allocator is not None]

    @property
    def runtimes(self) -> list[Runtime]:
        """The runtimes and servers that were recognised, with what is known of where their memory lies."""
        found: list[Runtime] = self._part("runtimes", self._find_runtimes)
        return found

    def _find_runtimes(self) -> list[Runtime]:
        return find_runtimes(self.target, self.other_allocator is not None)

    def note_others(self, idle: bool) -> None:
        """Warn of allocators whose blocks are not walked, as the C library's are listed, which holds nothing if
        ``idle``."""
        other = self.other_allocator
        if other is None and idle and self.standing_in:
            *first, last = (found.title for found in self.standing_in)
            names = f"{', '.join(first)} and {last}" if first else last
            self.note(f"{MALLOC.name}'s malloc holds nothing: {names} is here in its place")
        elif other is None and idle:
            cause = "nobody has called it, or because another allocator is used that cannot be recognised"
            then = "the memory of such an allocator counts as other memory"
            self.note(f"{MALLOC.name}'s malloc holds nothing, because {cause}: {then}")
        elif other is not None:
            name, where = other.kind.name, f"{one_line(other.path)}, {other.evidence}"
            empty = f"malloc here is {name}'s ({where}) and {MALLOC.name}'s own arenas are empty"
            self.note(
                f"{empty if idle else f'{name} is here too ({where})'}: {name}'s blocks are not walked and not counted"
            )

    @property
    def stacks(self) -> list[Stack]:
        """The threads' stacks, ascending."""
        found: list[Stack] = self._part("stacks", lambda: find_stacks(self.target))
        return found

    @property
    def ended_stacks(self) -> list[EndedStack]:
        """The stacks of ended threads that the C library keeps, ascending, without what a block of malloc has."""
        found: list[EndedStack] = self._part("stacks of ended threads", self._find_ended)
        return found

    def _find_ended(self) -> list[EndedStack]:
        found = find_ended(self.target, self.stacks)
        malloc = self._find_malloc() if found else None
        blocks = [] if malloc is None else joined(sorted([*malloc.ranges(), *malloc.single_blocks()]))
        return [stack for stack in found if not within(blocks, stack.start, stack.end)]

    @property
    def stack_ranges(self) -> Ranges:
        """The threads' stacks, ascending, without those that lie in blocks of malloc: that memory is malloc's."""
        provided = [(stack.start, stack.end) for stack in self.stacks if stack.provided]
        if provided:
            malloc = self._find_malloc()
            if malloc is not None:
                provided = subtract(provided, sorted([*malloc.ranges(), *malloc.single_blocks()]))
        return sorted(self._own_stacks() + provided)

    def _own_stacks(self) -> Ranges:
        return [(stack.start, stack.end) for stack in self.stacks if not stack.provided]

    def live_stacks(self) -> tuple[Ranges, Ranges]:
        """What may be in use of the threads' stacks, and above stack pointers outside all of them: those are on stacks
        of coroutines or of signals, in a block of malloc up to its end."""
        loose = []
        for start, end in unbounded(self.target, self.stacks):
            block = self.block_at(start)
            last = end if block is None else block.end
            loose.append((start, min(last, start + LARGEST_GUARDED)))
        return live_parts(self.target, self.stacks), loose

    @property
    def interpreter(self) -> Interpreter:
        """CPython itself, whatever allocates its objects. Raises NotAPython, or Unsupported."""
        found: Interpreter = self._part("interpreter", self._make_interpreter)
        return found

    def _make_interpreter(self) -> Interpreter:
        named = [allocator.interpreter for allocator in self.allocators if allocator.interpreter is not None]
        tagged = any(allocator.is_free_threaded for allocator in self.allocators)
        return Interpreter(self.target, self.facts, named[0] if named else None, tagged)

    @property
    def objects(self) -> Objects:
        """The Python objects. Raises NotAPython, or Unsupported."""

        found: Objects = self._part("objects", self._make_objects)
        return found

    def _make_objects(self) -> Objects:
        other = self.other_allocator
        own = sorted(self._heap_ranges() + self._books())
        live, loose = self.live_stacks()
        loose = loose + self.interpreter.threads.uncounted
        roots = Roots(self.target, self.interpreter.module, live, loose, own)
        unwalked = self.unwalked_ranges() if other is not None else []
        finding = self.labelled("looking for objects in memory that is not walked")
        _known, blocks = self.malloc, self.walked
        return Objects(
            self.target, self.interpreter.release, blocks, roots, self.facts, unwalked, finding, self.disclosure
        )

    @property
    def objects_or_none(self) -> Objects | None:
        """The Python objects, None when there are none or they are not known."""
        try:
            return self.objects
        except GdbheapError:
            return None

    @property
    def structures(self) -> Structures:
        """What the blocks are that hold no Python objects. Raises Unsupported where no allocator is known."""
        found: Structures = self._part("structures", lambda: self._find_structures(None))
        return found

    def _find_structures(self, libraries: Libraries | None) -> Structures:
        _known, blocks = self.malloc, self._blocks_of_c
        stacks = joined(sorted(pair for ranges in self.live_stacks() for pair in ranges))
        progress, contexts = self.labelled("looking for structures"), self.contexts_or_none or []
        named = [
            (start, f"block of memory context {one_line(context.name)}")
            for context in contexts
            for start, _end in context.blocks
        ]
        is_v8 = any(runtime.kind.id == "v8" for runtime in self.runtimes)
        return Structures(self.target, blocks, stacks, progress, libraries, named, is_v8, self._books())

    @property
    def _blocks_of_c(self) -> WalkedBlocks:
        """The blocks of allocators that are not Python's own, in which C code asks for memory."""
        return _walked(self._of_c)

    @property
    def _of_c(self) -> list[Allocator]:
        return [allocator for allocator in self.allocators if allocator.interpreter is None]

    @property
    def structures_of_c(self) -> Structures | None:
        """What the blocks of C code are; None in a program with Python in which no library has such structures. Raises
        Unsupported."""
        return self.structures if self._has_libraries or self.objects_or_none is None else None

    @property
    def _has_libraries(self) -> bool:
        """Whether a library is there whose containers are known."""
        found: Libraries = self._part("libraries", lambda: find_libraries(self.target))
        return any(vars(found).values())

    @property
    def known_structures(self) -> Structures | None:
        """The same; None also where that cannot be known, or takes long and nobody has asked for it."""
        if "structures" not in self._parts and self._used(self._of_c) > MAX_STRUCTURES:
            return None
        try:
            # Over a slow line a program with Python is not read whole for the names of what is not Python's.
            is_slow = self.target.remote and "structures" not in self._parts
            return None if is_slow and self.objects_or_none is not None else self.structures_of_c
        except GdbheapError:
            return None

    @property
    def known_kinds(self) -> Structures | None:
        """As ``known_structures``; where that would take long, objects with vtables alone are told."""
        found = self.known_structures
        if found is not None:
            return found
        if self._has_libraries:
            more = "'heap chunks --by=type' tells them"
            self.note(f"of more than {MAX_STRUCTURES:,} blocks containers are not told from others: {more}")
        try:
            classes: Structures = self._part("classes", lambda: self._find_structures(Libraries(False, False)))
        except GdbheapError:
            return None
        return classes

    @property
    def used_blocks(self) -> int:
        """Blocks in use of all allocators."""
        found: int = self._part("used blocks", lambda: self._used(self.allocators))
        return found

    def _used(self, allocators: Sequence[Allocator]) -> int:
        return sum(count for allocator in allocators for _size, count in allocator.used_sizes())

    @property
    def contexts(self) -> list[Context]:
        """The memory contexts of a PostgreSQL backend, each before its children. Raises Unsupported for others."""
        found: list[Context] = self._part("memory contexts", lambda: find_contexts(self.target, self.facts))
        return found

    @property
    def contexts_or_none(self) -> list[Context] | None:
        """The memory contexts, None where there are none."""
        try:
            return self.contexts
        except GdbheapError:
            return None

    @property
    def collector(self) -> Collector | None:
        """The state of the cyclic garbage collector, None where it is not found. Raises NotAPython, or Unsupported."""
        found: Collector | None = self._part("collector", self._find_collector)
        return found

    def _find_collector(self) -> Collector | None:
        data, head = self.interpreter.module.writable_ranges(), self.objects.layout.gc_head
        return find_collector(self.target.space, head, data, lambda: self.interpreter.threads.interpreters)

    @property
    def traces(self) -> Traces:
        """tracemalloc's tables. Raises NotAPython, or Unsupported."""
        found: Traces = self._part("tracemalloc", self._find_traces)
        return found

    def _find_traces(self) -> Traces:
        return Traces(self.target.space, self.interpreter.release, self.interpreter.module)

    @property
    def references(self) -> Nodes:
        """The graph of all references: of Python's objects, or of blocks where there is no Python. Raises
        Unsupported."""
        return self.object_references if self.is_python else self.block_references

    @property
    def is_python(self) -> bool:
        """Whether it runs Python, whose objects can be told. Raises Unsupported where they should be and cannot."""
        try:
            _known = self.objects
        except NotAPython:
            return False
        return True

    @property
    def paths(self) -> Paths:
        """Names for the nodes of the graph of references. Raises Unsupported."""
        return self.object_paths if self.is_python else self.block_paths

    @property
    def block_paths(self) -> BlockPaths:
        """Names for the nodes of the graph of blocks. Raises Unsupported."""
        found: BlockPaths = self._part("paths of blocks", lambda: BlockPaths(self.block_references))
        return found

    @property
    def object_references(self) -> References:
        """The graph of Python's objects. Raises NotAPython, or Unsupported."""
        draw = self.labelled("following references")
        found: References = self._part(
            "references",
            lambda: References(
                self.objects,
                self.interpreter.threads,
                draw,
                [(one.address, one.end) for one in self.mapped],
                self._lacks_memory() or self.interpreter.threads.is_cut,
                self.known_structures,
            ),
        )
        return self._told(found)

    def _lacks_memory(self) -> bool:
        """Return whether memory that may lead to blocks is missing."""
        is_absent = any(damage.is_absence and not damage.transient for damage in self.damage)
        return bool(is_absent or self.target.partial or self.target.lacking or self.target.cut_short)

    def _told(self, references: N) -> N:
        if references.graph.is_cut:
            self.note(CUT_OFF)
        return references

    @property
    def mapped(self) -> list[Mapped]:
        """The memory that Python's objects and the libraries' structures say they mapped, ascending. Raises NotAPython,
        or Unsupported."""
        found: list[Mapped] = self._part("mapped memory", self._find_mapped)
        return found

    def _find_mapped(self) -> list[Mapped]:
        looking = self.labelled("looking for owners of mapped memory")
        return find_mapped(self.target, self.objects.heaps, self._mappable, looking)

    def is_shared_memory(self, mapping: Mapping) -> bool:
        """Return whether a mapping is shared and no file on a disk is behind it."""
        place = self.target.proc
        devices = () if place is None else self._part("devices of memory", lambda: memory_devices(place))
        return mapping.is_shared_memory(devices)

    @property
    def _mappable(self) -> Ranges:
        """Mapped files, shared memory, and anonymous memory that no allocator is known to have."""
        found: Ranges = self._part("mappable memory", self._find_mappable)
        return found

    def _find_mappable(self) -> Ranges:
        files = mapped_files(self.target)
        if self.other_allocator is not None:
            return files
        # Read-only pages in between are part of a mapping too.
        owned = sorted([*self.owned_ranges(), *self.single_blocks()])
        return sorted([*files, *subtract(self.anonymous(writable=False), owned)])

    def mapped_at(self, address: int) -> Mapped | None:
        """Return the mapped memory of an object that holds ``address``; None also where there is no Python."""
        if self.target.refusal is not None or containing(self._mappable, address) is None:
            return None
        try:
            return next((one for one in self.mapped if one.address <= address < one.end), None)
        except GdbheapError:
            return None

    @property
    def object_paths(self) -> ObjectPaths:
        """Names for the nodes of the graph of Python's objects. Raises NotAPython, or Unsupported. They keep what they
        have said, so there is another instance for answers without contents."""
        name = "paths" if self.disclosure.contents else "paths without contents"
        found: ObjectPaths = self._part(name, lambda: ObjectPaths(self.object_references))
        return found

    @property
    def block_references(self) -> BlockReferences:
        """The graph of the blocks alone. Raises Unsupported."""
        found: BlockReferences = self._part("references of blocks", self._draw_blocks)
        return self._told(found)

    @property
    def kernel_pointers(self) -> KernelPointers:
        """Addresses that the kernel keeps for the program."""
        found: KernelPointers = self._part("kernel's pointers", lambda: kernel_pointers(self.target.proc))
        return found

    def _draw_blocks(self) -> BlockReferences:
        _known = self.malloc
        provided = [(stack, self._live_part(stack)) for stack in self.stacks]
        _live, loose = self.live_stacks()
        kept = [stack.kept for stack in self.ended_stacks]
        own = self._heap_ranges(), self._books()
        shared, is_whole = shared_ranges(self.target)
        others = sorted([*self.unwalked_ranges(), *self.of_others(), *shared])
        roots = [*block_roots(self.target, provided, loose, others, own, kept), *kernel_roots(self.kernel_pointers)]
        following = self.labelled("following references")
        # Both number the same blocks where none is Python's own.
        kinds = self.known_kinds if self._of_c == self.allocators else None
        stores = self.walked.stores
        is_partial = self._lacks_memory() or not is_whole

        def draw(roots: Sequence[Root], hidden: Sequence[tuple[int, int]]) -> BlockReferences:
            return BlockReferences(self.target, stores, roots, kinds, following, is_partial, hidden)

        return with_hidden_words(self.target, draw, roots, own[0])

    def _heap_ranges(self) -> Ranges:
        """Where blocks lie, ascending."""
        return sorted(self.single_blocks() + [pair for allocator in self.allocators for pair in allocator.ranges()])

    def _books(self) -> Ranges:
        """Return the allocators' own records in static data."""
        return [pair for allocator in self.allocators for pair in allocator.books()]

    def _live_part(self, stack: Stack) -> Ranges:
        return live_parts(self.target, [stack])

    def owned_census(self) -> _native.Census:
        """The same with whose the blocks of C code are, as the graph says; kept. Of many blocks these stay nobody's
        where they have next to nothing of the bytes."""
        found: _native.Census = self._part("census with owners", self._census_with_owners)
        return found

    @property
    def draws_for_owners(self) -> bool:
        """Whether a table of all types is worth the graph, which finds the owners of the blocks of C code."""
        stores = self.census().stores
        count, used = sum(store.used.count for store in stores), sum(store.used.bytes for store in stores)
        return count <= MANY_BLOCKS or sum(store.unclassified.bytes for store in stores) >= LEAST_SHARE * used

    def _census_with_owners(self) -> _native.Census:
        if not self.draws_for_owners:
            return self.census()
        return self.objects.census((), self.classifying, MAX_UNIDENTIFIED, self._object_references_or_none())

    def owners_of(self, blocks: Sequence[int], draws: bool = True) -> dict[int, Owner | None]:
        """Return the owner of each block that is no object (user addresses). ``draws``: whether the graph may be drawn
        for those that no field names. Raises NotAPython, or Unsupported."""
        if not draws or "references" not in self._parts:
            found = self.objects.owners_of(blocks, self.classifying)
            if not draws or None not in found.values():
                return found
        return self.objects.owners_of(blocks, self.classifying, self._object_references_or_none())

    def _object_references_or_none(self) -> References | None:
        try:
            return self.object_references
        except GdbheapError:
            return None

    def census(self) -> _native.Census:
        """The count of all Python objects and of what their fields own, kept."""
        found: _native.Census = self._part(
            "census", lambda: self.objects.census((), self.classifying, MAX_UNIDENTIFIED)
        )
        return found

    def classifying(self, done: int, total: int) -> None:
        """Progress of a census."""
        if self.progress is not None:
            self.progress("classifying blocks", done, total)

    def labelled(self, label: str) -> Callable[[int, int], None]:
        """Progress of long work under a name."""

        def report(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(label, done, total)

        return report

    def unowned_ranges(self) -> Ranges:
        """Writable private anonymous memory that is no allocator's, no stack and no .bss; mappings of single blocks are
        among it."""
        return subtract(self.anonymous(), self.owned_ranges())

    def anonymous(self, writable: bool = True) -> Ranges:
        """Private anonymous memory, what may not be written too if not ``writable``. The kernel keeps an mmapped chunk
        as several mappings when a part of it was given to madvise (numpy does so) or mprotect."""
        return joined([
            (mapping.start, mapping.end)
            for mapping in self.target.mappings
            if mapping.anonymous and mapping.private and mapping.readable and (mapping.writable or not writable)
            # To read the kernel's vdso would put a page of it into the process.
            and not mapping.is_kernels
        ])  # fmt: skip

    def unwalked_ranges(self) -> Ranges:
        """Writable private anonymous memory that may be that of an allocator whose blocks are not walked."""
        return subtract(self.unowned_ranges(), self.single_blocks())

    def of_others(self) -> Ranges:
        """Return what of the allocators' ranges somebody else got from the system, ascending."""
        return sorted(pair for allocator in self.allocators for pair in allocator.of_others())

    def single_blocks(self) -> Ranges:
        """The mappings that hold one block of an allocator each, ascending."""
        return sorted(pair for allocator in self.allocators for pair in allocator.single_blocks())

    def owned_ranges(self) -> Ranges:
        """What stacks, allocators and .bss have, ascending; the mappings of single blocks are not among it."""
        ended = [(stack.start, stack.end) for stack in self.ended_stacks]
        return sorted(self.stack_ranges + ended + self._of_allocators())

    def taken(self) -> Ranges:
        """What .bss, the allocators and those stacks have that lie in no block, ascending."""
        return sorted(self._own_stacks() + self._of_allocators())

    def _of_allocators(self) -> Ranges:
        owned = [pair for loaded in self.target.objects for pair in loaded.bss]
        return owned + [pair for allocator in self.allocators for pair in allocator.ranges()]

    @property
    def held(self) -> list[Held]:
        """Memory that is no heap, by the library whose static data points there; none where another allocator is known,
        or the C library's is not."""
        found: list[Held] = self._part("held", self._find_held)
        return found

    def _find_held(self) -> list[Held]:
        if self.other_allocator is not None or self._find_malloc() is None:
            return []
        return find_held(self.target, self.unwalked_ranges())

    @property
    def versions(self) -> dict[str, str | None]:
        """The JSON's ``python`` and that of the C library: versions as far as they are known, whatever was asked."""
        self.find_allocator(MALLOC)
        with suppress(GdbheapError):
            _known = self.interpreter
        facts = {fact.fact: fact.value for fact in self.facts.all()}
        return {"python": facts.get("python"), MALLOC.name: facts.get(MALLOC.name)}

    def note(self, warning: str) -> None:
        """Add a warning to the answer, once."""
        if warning not in self._notes:
            self._notes.append(warning)

    @property
    def warnings(self) -> list[str]:
        """What a reader of the answer must know: from the target, the allocators and the answers."""
        cut = self.target.cut_short
        own = [warning for allocator in self._found for warning in allocator.warnings]
        own += self._parts["interpreter"].warnings if "interpreter" in self._parts else []
        known = self.target.warnings + self.target.unread_symbols + self._unseen()
        found = known + own + self._notes + ([cut] if cut else [])
        return [self.disclosure.numbers(warning) for warning in found]

    def _unseen(self) -> list[str]:
        """Which files are not to be seen, unless that is why malloc is not known, whose error says so."""
        if not self.target.unseen or MALLOC.name in self._failures:
            return []
        return [f"{about(self.target.unseen)}: what their data point to is known, and their symbols are not"]

    @property
    def damage(self) -> list[Damage]:
        """All damage met so far. None is listed where reading ended early, or where memory without pointers was not
        copied: what was not read looks the same."""
        if self.target.cut_short or self.target.space.left_out:
            return []
        return [self.disclosure.damage(damage) for damage in self._met]

    @property
    def _met(self) -> list[Damage]:
        return self.target.damage + [damage for allocator in self._found for damage in allocator.damage]

    @property
    def _found(self) -> list[Allocator]:
        """The allocators that were asked for so far, and are there."""
        return [self._parts[kind.name] for kind in self.kinds if kind.name in self._parts]

    @property
    def partial(self) -> bool:
        """Whether an answer may lack something: then the exit status is 1."""
        if self.target.partial or self.target.cut_short:
            return True
        if any(isinstance(part, Nodes) and part.graph.is_cut for part in self._parts.values()):
            return True
        return any(not damage.transient for damage in self._met)


def _walked(allocators: Sequence[Allocator]) -> WalkedBlocks:
    blocks = WalkedBlocks()
    for allocator in allocators:
        allocator.give(blocks)
    return blocks


def _is_place(target: Target, number: int) -> bool:
    """Whether a number is an address in a mapping, or the end of one."""
    find = target.mappings.find
    return find(number) is not None or find(number - 1) is not None
