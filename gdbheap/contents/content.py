"""The protocol of a kind of contents: the data that a library, a runtime or a server keeps in blocks in use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import ClassVar, TypeVar
from weakref import proxy

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator, Progress
from gdbheap.allocators.memory import AllocatedMemory, LabelledProgress
from gdbheap.contents.python.text.disclosure import Disclosure
from gdbheap.dataclass import dataclass
from gdbheap.errors import or_none
from gdbheap.graph.blocks import Kinds
from gdbheap.graph.mapped import MappedMemory
from gdbheap.graph.nodes import Nodes
from gdbheap.graph.paths import Paths
from gdbheap.graph.roots import MEMORY
from gdbheap.targets.parts import Parts
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Target

__all__ = ["Content", "ContentHolder", "KnownContents"]

C = TypeVar("C", bound="Content")
N = TypeVar("N", bound=Nodes)


@dataclass(frozen=True)
class ContentHolder:
    """A holder of blocks that is found in the data of a library, runtime or server, not through a variable.

    A memory context of PostgreSQL is an example. ``name``: the holder's name in answers. ``kind``: what the holder is,
    such as a memory context. ``blocks``: the addresses of the holder's first blocks; every block that these reach
    belongs to the holder. ``ranges``: the holder's memory outside the allocators that points to other blocks.
    """

    name: str
    kind: str
    blocks: Sequence[int]
    ranges: Ranges = field(default_factory=list)


class Content(Parts, ABC):
    """One kind of contents in one target. It must not be used after the target is closed.

    A kind that lacks a feature does not override the method for it. Every method raises Unsupported if the target does
    not have these contents. ``beside_python``: whether blocks of this kind are also searched for in a Python program.
    That search reads all blocks of C code.
    """

    beside_python: ClassVar[bool] = True

    def __init__(self, around: KnownContents) -> None:
        super().__init__(around.target)
        # A weak reference: a cycle would keep the target's files open until the collector runs.
        self._around: KnownContents = proxy(around)

    @property
    @abstractmethod
    def is_here(self) -> bool:
        """Whether the target has these contents. Raises Unsupported if it should have them but they cannot be read."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about the contents read so far, which apply to any answer."""
        return ()

    @property
    def is_known(self) -> bool:
        """Whether the target has these contents. False also if ``is_here`` raises an error."""
        return bool(or_none(lambda: self.is_here))

    def named_blocks(self, heaps: _native.Heaps, progress: Progress | None) -> Sequence[tuple[int, str]]:
        """Return (address in a block in use, description) for each block in ``heaps`` that belongs to this kind."""
        return []

    def holders(self) -> Sequence[ContentHolder]:
        """Return the holders that only the data of this kind names, such as the memory contexts of PostgreSQL."""
        return []

    def roots(self) -> Sequence[ContentHolder]:
        """Return holders that count as roots: the program can reach their blocks, but no pointer in its memory shows
        it. The list is empty unless a kind overrides this method.
        """
        return []

    @property
    def mapped(self) -> Sequence[MappedMemory]:
        """The mapped memory outside of allocators that this kind of contents recognises, by ascending address."""
        return []

    def check(self) -> None:
        """Read all data of this kind, and add inconsistencies to the target's damage."""

    def drawn_paths(self) -> Paths | None:
        """Return names for the nodes of the graph that gdbheap builds from the layouts of this kind's blocks.

        Return None if this kind builds no graph, or if the target lacks these contents. Raises Unsupported if the
        target should have them but they cannot be read.
        """
        return None


class KnownContents(AllocatedMemory, ABC):
    """The memory of one target, with one object for each kind of contents that gdbheap knows."""

    def __init__(
        self,
        target: Target,
        progress: LabelledProgress | None,
        kinds: Sequence[type[Allocator]],
        contents: Sequence[type[Content]],
    ) -> None:
        super().__init__(target, progress, kinds)
        # Not a method of this class: that would be a cycle, which would keep the target's files open.
        self.disclosure = Disclosure(is_place=partial(_is_place, target))
        self._contents = {kind: kind(self) for kind in contents}

    @property
    @abstractmethod
    def known_structures(self) -> Kinds | None:
        """The kinds of the blocks of C code. None if unknown, or if classifying takes long and was not requested
        yet."""

    def content(self, kind: type[C]) -> C:
        """Return the object for this kind of contents. It exists even if the target lacks such contents."""
        found = self._contents[kind]
        assert isinstance(found, kind)
        return found

    @property
    def asked_contents(self) -> list[Content]:
        """The kinds of contents that gdbheap searches for."""
        return list(self._contents.values())

    def content_roots(self) -> list[ContentHolder]:
        """Return the roots of all kinds of contents that the target has. Also return the blocks that allocators made
        for themselves without keeping a pointer.
        """
        loose = ((allocator.title, allocator.loose_blocks()) for allocator in self.allocators)
        own = [ContentHolder(f"{title}'s own blocks", MEMORY, list(blocks)) for title, blocks in loose if blocks]
        return [held for content in self.contents for held in content.roots()] + own

    def content_holders(self) -> list[ContentHolder]:
        """Return the holders of all kinds of contents that the target has."""
        return [held for content in self.contents for held in content.holders()]

    @property
    def contents(self) -> list[Content]:
        """The kinds of contents that the target is known to have."""
        return [found for found in self._contents.values() if found.is_known]

    def has_beside(self, python: Content) -> bool:
        """Return whether the target has contents of another kind that gdbheap also searches for in Python programs."""
        others = (found for found in self._contents.values() if found is not python)
        return any(found.beside_python and found.is_known for found in others)

    def told(self, references: N) -> N:
        """Return the graph ``references``. If a limit cut it off, add the warning "cut-graph" to the answer."""
        if references.graph.is_cut:
            self.note("cut-graph")
        return references


def _is_place(target: Target, number: int) -> bool:
    """Return whether a number is an address in a mapping, or the end of a mapping."""
    find = target.mappings.find
    return find(number) is not None or find(number - 1) is not None
