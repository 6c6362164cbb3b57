"""All data that is read from one target during one stop. Each part is read when it is first used."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from gdbheap.allocators.allocator import Allocator
from gdbheap.allocators.memory import LabelledProgress
from gdbheap.allocators.registry import KINDS, MALLOC
from gdbheap.contents.content import Content, KnownContents
from gdbheap.contents.cxx.kinds import CxxContent, Libraries, Structures
from gdbheap.contents.python.content import PythonContent
from gdbheap.contents.registry import CONTENTS
from gdbheap.errors import GdbheapError, or_none
from gdbheap.graph.blocks import BlockReferences
from gdbheap.graph.hidden import with_hidden_words
from gdbheap.graph.mapped import MappedMemory, shared_ranges
from gdbheap.graph.nodes import Nodes, Root
from gdbheap.graph.paths import BlockPaths, Paths
from gdbheap.graph.roots import BY_STATIC, BlockRoot, block_roots, kernel_roots
from gdbheap.host.kernel_pointers import KernelPointers, kernel_pointers
from gdbheap.remarks import Remark
from gdbheap.targets.parts import part
from gdbheap.targets.ranges import joined
from gdbheap.targets.stack_mappings import live_parts
from gdbheap.targets.target import Damage, Target
from gdbheap.targets.unseen_files import about

# If there are more blocks, gdbheap looks for containers only when asked, because that takes about a second.
MAX_STRUCTURES = 1_000_000


class Heap(KnownContents):
    """Everything known about one target at one stop.

    If a property cannot be read, each use of it raises the same error. During long walks ``progress`` is called with
    (label, bytes done, bytes in all), on the calling thread. ``disclosure`` decides whether texts show contents of
    strings, bytes and keys; it may change between answers. ``kinds``: the allocators to search for, in this order.
    ``contents``: the kinds of contents to search for.
    """

    def __init__(
        self,
        target: Target,
        progress: LabelledProgress | None = None,
        kinds: Sequence[type[Allocator]] = KINDS,
        contents: Sequence[type[Content]] = CONTENTS,
    ) -> None:
        super().__init__(target, progress, kinds, contents)
        # A target without Python has this object too.
        self.python = self.content(PythonContent)

    @part("structures")
    def structures(self) -> Structures:
        """The contents of each block without a Python object, for example a container of C++. Raises Unsupported if
        no allocator is known.
        """
        return self._find_structures(self.content(CxxContent).libraries)

    @part("classes")
    def _classes(self) -> Structures:
        return self._find_structures(Libraries(False, False))

    def _find_structures(self, libraries: Libraries) -> Structures:
        self.require_malloc()
        stacks = joined(sorted(pair for ranges in self.live_stacks() for pair in ranges))
        is_v8 = any(runtime.kind.id == "v8" for runtime in self.runtimes)
        progress = self.labelled("looking for structures")
        named = [content.named_blocks for content in self.contents]
        found = Structures(self.target, self.blocks_of_c, stacks, progress, libraries, named, is_v8, self.books())
        if found.native.left_out:
            self.note("containers-cut-off")
        return found

    @property
    def structures_of_c(self) -> Structures | None:
        """The contents of each block of C code. None in a Python program in which gdbheap finds no other kind of
        contents. Raises Unsupported.
        """
        return self.structures if self.has_beside(self.python) or self.python.objects_or_none is None else None

    @property
    def known_structures(self) -> Structures | None:
        """The contents of each block of C code. None if they are unknown, or take long to find and no command asked for
        them.
        """
        if not self.has("structures") and self.used_of_c > MAX_STRUCTURES:
            return None
        try:
            # Reading all of a Python program only to name blocks that are not Python's takes too long over a slow
            # connection.
            is_slow = self.target.remote and not self.has("structures")
            return None if is_slow and self.python.objects_or_none is not None else self.structures_of_c
        except GdbheapError:
            return None

    @property
    def known_kinds(self) -> Structures | None:
        """The contents of each block of C code; None if unknown. If it would take long to find all of them, only
        objects with vtables are recognised.
        """
        found = self.known_structures
        if found is not None:
            return found
        if self.content(CxxContent).is_here:
            self.note("containers-not-told", blocks=MAX_STRUCTURES)
        return or_none(lambda: self._classes)

    @property
    def references(self) -> Nodes:
        """The graph of all references.

        If a kind of contents, such as Python's objects, knows the layouts of blocks, the graph follows these layouts.
        Otherwise each pointer-sized word in a block may be a reference. Raises Unsupported.
        """
        return self.paths.references

    @property
    def is_python(self) -> bool:
        """Whether the target runs a Python whose objects can be recognised.

        Raises Unsupported if there is a Python, but its objects cannot be recognised.
        """
        return self.python.is_here

    @property
    def paths(self) -> Paths:
        """The object that names the nodes of the graph of references, by the path from a root. Raises Unsupported if
        there is no graph.
        """
        drawn = (content.drawn_paths() for content in self.asked_contents)
        return next((paths for paths in drawn if paths is not None), None) or self.block_paths

    @property
    def mapped(self) -> list[MappedMemory]:
        """The memory that objects mapped outside all allocators, in address order. A block contains the address and the
        size of each such mapping.
        """
        return sorted((one for content in self.contents for one in content.mapped), key=lambda one: one.address)

    @part("paths of blocks")
    def block_paths(self) -> BlockPaths:
        """The object that names the nodes of the graph of blocks, by the path from a root. Raises Unsupported if there
        is no graph.
        """
        return BlockPaths(self.block_references)

    @part("references of blocks")
    def block_references(self) -> BlockReferences:
        """The graph of references between blocks, built without knowledge of Python's objects. Raises Unsupported."""
        self.require_malloc()
        parts = live_parts(self.target, self.stacks)
        provided = [(stack, [part]) for stack, part in zip(self.stacks, parts)]
        _live, loose = self.live_stacks()
        kept = [stack.kept for stack in self.ended_stacks]
        own = self.heap_ranges(), self.books()
        shared, is_whole = shared_ranges(self.target)
        others = sorted([*self.unwalked_ranges(), *self.of_others(), *shared])
        roots = [*block_roots(self.target, provided, loose, others, own, kept), *kernel_roots(self.kernel_pointers)]
        roots += (BlockRoot(held.name, BY_STATIC, list(held.blocks), [], held.kind) for held in self.content_roots())
        following = self.labelled("following references")
        # The kinds and the graph number the same blocks only if no block belongs to Python's own allocator.
        kinds = self.known_kinds if self.is_all_of_c else None
        stores = self.walked.stores
        is_partial = self.lacks_memory() or not is_whole

        def draw(roots: Sequence[Root], hidden: Sequence[tuple[int, int]]) -> BlockReferences:
            return BlockReferences(self.target, stores, roots, kinds, following, is_partial, hidden)

        return self.told(with_hidden_words(self.target, draw, roots, own[0]))

    @part("kernel's pointers")
    def kernel_pointers(self) -> KernelPointers:
        """The addresses that the program gave to the kernel, for example with epoll."""
        return kernel_pointers(self.target.proc)

    @property
    def versions(self) -> dict[str, str | None]:
        """The versions of Python and of the C library, and the allocator that serves malloc, by their keys in JSON.

        A version is None if it is unknown. Every command reports those that are known.
        """
        own = self.find_allocator(MALLOC)
        with suppress(GdbheapError):
            self.python.require_interpreter()
        facts = {fact.fact: fact.value for fact in self.facts.all()}
        serving = [] if own is None or own.idle else [" ".join(filter(None, [own.name, facts.get(own.name)]))]
        serving += [found.title for found in self.standing_in]
        allocator = " and ".join(serving) or (own.name if own is not None else None)
        return {"python": facts.get("python"), "allocator": allocator, MALLOC.name: facts.get(MALLOC.name)}

    @property
    def warnings(self) -> list[str | Remark]:
        """Warnings about data that the answer may lack and about possible errors in it. The target, the allocators, the
        contents and the answers add warnings.
        """
        cut = self.target.cut_short
        own = [warning for allocator in self.asked_allocators for warning in allocator.warnings]
        own += [warning for content in self.asked_contents for warning in content.warnings]
        known = self.target.warnings + self.target.unread_symbols + self._unseen()
        change = self.disclosure.numbers
        remarks = [remark.changed(change) for remark in self._remarks]
        return [*map(change, known + own), *remarks, *([change(cut)] if cut else [])]

    def _unseen(self) -> list[str]:
        """Return warnings about files that cannot be read.

        The list is empty if malloc's own error already names these files.
        """
        if not self.target.unseen or MALLOC.name in self._failures:
            return []
        return [f"{about(self.target.unseen)}: their symbols are unknown, but what their data point to is known"]

    @property
    def damage(self) -> list[Damage]:
        """The damage that was found in all memory, without contents that may not be shown."""
        return [self.disclosure.damage(damage) for damage in super().damage]

    @property
    def partial(self) -> bool:
        """Whether the answer may be incomplete; the exit status is then 1."""
        if self.target.partial or self.target.cut_short:
            return True
        made = [each for parts in (self, *self.asked_contents) for each in vars(parts).values()]
        if any(isinstance(each, Nodes) and each.graph.is_cut for each in made):
            return True
        return any(not damage.transient for damage in self.all_damage)
