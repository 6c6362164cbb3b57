"""The Python of a target: its interpreter, its objects, and the graph of their references."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap import _native
from gdbheap.contents.content import Content
from gdbheap.contents.python.names.paths import ObjectPaths
from gdbheap.contents.python.objects.census import Objects, Owner
from gdbheap.contents.python.objects.collector import Collector, find_collector
from gdbheap.contents.python.objects.references import References
from gdbheap.contents.python.objects.roots import Roots
from gdbheap.contents.python.running.interpreter import Interpreter
from gdbheap.contents.python.running.tracemalloc_tables import Traces
from gdbheap.errors import NotAPython, or_none
from gdbheap.graph.mapped import MappedMemory, find_mapped, mapped_files
from gdbheap.targets.parts import part
from gdbheap.targets.ranges import Ranges, containing, subtract

# The most unidentified blocks that are described.
MAX_UNIDENTIFIED = 10_000
# The limits for building the graph to find the owners of C blocks. It is not built if there are more than MANY_BLOCKS
# blocks in use, of whose bytes less than LEAST_SHARE belong to C code: building it would then take longer than
# everything else.
MANY_BLOCKS = 1_000_000
LEAST_SHARE = 0.01


class PythonContent(Content):
    """The Python of a target.

    Its parts (``interpreter``, ``objects``, …) raise NotAPython if the target has no Python, and Unsupported if gdbheap
    cannot read it.
    """

    @property
    def is_here(self) -> bool:
        """Whether the target runs a Python whose objects gdbheap can read."""
        try:
            return self.objects is not None
        except NotAPython:
            return False

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about the interpreter's layout; empty until the interpreter is read."""
        return self.interpreter.warnings if self.has("interpreter") else ()

    def require_interpreter(self) -> Interpreter:
        """Return the CPython interpreter of the target. Finding it adds facts to the heap."""
        return self.interpreter

    @part("interpreter")
    def interpreter(self) -> Interpreter:
        """The CPython interpreter of the target. Any allocator may hold its objects."""
        around = self._around
        named = [allocator.interpreter for allocator in around.allocators if allocator.interpreter is not None]
        tagged = any(allocator.is_free_threaded for allocator in around.allocators)
        return Interpreter(self.target, around.facts, named[0] if named else None, tagged)

    @part("objects")
    def objects(self) -> Objects:
        """The Python objects in all blocks, and in the memory of an allocator whose blocks gdbheap cannot list. Raises
        Unsupported if their layout is unknown.
        """
        around = self._around
        other = around.other_allocator
        own = sorted(around.heap_ranges() + around.books())
        live, loose = around.live_stacks()
        loose = loose + self.interpreter.threads.uncounted
        roots = Roots(self.target, self.interpreter.module, live, loose, own)
        unwalked = around.unwalked_ranges() if other is not None else []
        finding = around.labelled("looking for objects in memory whose blocks gdbheap cannot list")
        around.require_malloc()
        release, blocks = self.interpreter.release, around.walked
        return Objects(self.target, release, blocks, roots, around.facts, unwalked, finding, around.disclosure)

    @property
    def objects_or_none(self) -> Objects | None:
        """The Python objects; None if the target has none or their layout is unknown."""
        return or_none(lambda: self.objects)

    @part("collector")
    def collector(self) -> Collector | None:
        """The state of the cyclic garbage collector; None if it is not found."""
        data, head = self.interpreter.module.writable_ranges(), self.objects.layout.gc_head
        return find_collector(self.target.space, head, data, lambda: self.interpreter.threads.interpreters)

    @part("tracemalloc")
    def traces(self) -> Traces:
        """The tables in which tracemalloc keeps its traces; empty if it traces nothing."""
        return Traces(self.target.space, self.interpreter.release, self.interpreter.module)

    @part("references")
    def references(self) -> References:
        """The graph of the references between Python objects, with the blocks and roots that refer to them."""
        around = self._around
        found = References(
            self.objects,
            self.interpreter.threads,
            around.labelled("following references"),
            [(one.address, one.end) for one in self.mapped],
            around.lacks_memory() or self.interpreter.threads.is_cut,
            around.known_structures,
            [(held.name, held.blocks) for held in around.content_roots()],
        )
        return around.told(found)

    def drawn_paths(self) -> ObjectPaths | None:
        """Return names for the nodes of the graph of Python objects; None without Python."""
        return self.paths if self.is_here else None

    @property
    def paths(self) -> ObjectPaths:
        """Names for the nodes of the graph of Python objects, with the contents of keys if they may be shown."""
        return self._paths if self._around.disclosure.contents else self._paths_without_contents

    # There are two objects, with and without contents, because each caches the names that it has made.
    @part("paths")
    def _paths(self) -> ObjectPaths:
        return ObjectPaths(self.references)

    @part("paths without contents")
    def _paths_without_contents(self) -> ObjectPaths:
        return ObjectPaths(self.references)

    @part("mapped memory")
    def mapped(self) -> list[MappedMemory]:
        """The memory that the program mapped, as Python objects and structures of libraries describe it."""
        looking = self._around.labelled("looking for owners of mapped memory")
        return find_mapped(self.target, self.objects.heaps, self._mappable, looking)

    @part("mappable memory")
    def _mappable(self) -> Ranges:
        """The memory that objects may have mapped: files, shared memory, and anonymous memory outside of known
        allocators.
        """
        files, around = mapped_files(self.target), self._around
        if around.other_allocator is not None:
            return files
        # Read-only memory is included, because read-only pages may be part of such memory.
        owned = sorted([*around.owned_ranges(), *around.single_blocks()])
        return sorted([*files, *subtract(around.anonymous(writable=False), owned)])

    def mapped_at(self, address: int) -> MappedMemory | None:
        """Return the memory that an object mapped and that contains ``address``; None if there is none, or no
        Python."""
        if self.target.refusal is not None or containing(self._mappable, address) is None:
            return None
        return next((one for one in or_none(lambda: self.mapped) or [] if one.address <= address < one.end), None)

    @part("census")
    def census(self) -> _native.Census:
        """The number and the bytes of all Python objects by type, with the blocks that their fields own. The graph is
        not needed.
        """
        return self.objects.census((), self.classifying, MAX_UNIDENTIFIED)

    @part("census with owners")
    def owned_census(self) -> _native.Census:
        """Like ``census``, but a block of C code counts for the object that owns it according to the graph.

        If ``draws_for_owners`` is False, the graph is not built, and blocks of C code have no owner.
        """
        if not self.draws_for_owners:
            return self.census
        return self.objects.census((), self.classifying, MAX_UNIDENTIFIED, or_none(lambda: self.references))

    @property
    def draws_for_owners(self) -> bool:
        """Whether the graph may be built to find the owners of C blocks for a table of all types. False if that would
        take too long.
        """
        stores = self.census.stores
        count, used = sum(store.used.count for store in stores), sum(store.used.bytes for store in stores)
        return count <= MANY_BLOCKS or sum(store.unclassified.bytes for store in stores) >= LEAST_SHARE * used

    def owners_of(self, blocks: Sequence[int], draws: bool = True) -> dict[int, Owner | None]:
        """Return the owners of blocks that are not objects, by the program's pointer to the block.

        The owner is None if the block has none. ``draws``: build the graph of references, if needed, to find owners
        that no field names.
        """
        if not draws or not self.has("references"):
            found = self.objects.owners_of(blocks, self.classifying)
            if not draws or None not in found.values():
                return found
        return self.objects.owners_of(blocks, self.classifying, or_none(lambda: self.references))

    def classifying(self, done: int, total: int) -> None:
        """Report the progress of a census."""
        self._around.labelled("classifying blocks")(done, total)
