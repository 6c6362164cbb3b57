"""Kinds of contents: what a library, a runtime or a server keeps in blocks in use, and what each kind answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, TypeVar
from weakref import proxy

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator, Progress
from gdbheap.allocators.memory import AllocatedMemory, LabelledProgress
from gdbheap.contents.python.text.disclosure import Disclosure
from gdbheap.errors import or_none
from gdbheap.graph.blocks import Kinds
from gdbheap.graph.mapped import Mapped
from gdbheap.graph.nodes import Nodes
from gdbheap.graph.paths import Paths
from gdbheap.targets.parts import Parts
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Target

__all__ = ["Content", "ContentHolder", "KnownContents"]

C = TypeVar("C", bound="Content")
N = TypeVar("N", bound=Nodes)


@dataclass(frozen=True)
class ContentHolder:
    """A holder of blocks that only a kind of contents knows.

    ``kind``: a word for what it is. ``blocks``: addresses of the first blocks; all that they reach is its own.
    ``ranges``: its memory outside the allocators, which points to other blocks."""

    name: str
    kind: str
    blocks: Sequence[int]
    ranges: Ranges = field(default_factory=list)


class Content(Parts, ABC):
    """One kind of contents of one target; it must not outlive its surroundings.

    A method that a kind does not override means that the kind lacks the feature. Every method raises Unsupported if the
    target does not have these contents. ``beside_python``: the blocks that this kind names are searched for in a Python
    program too, although that reads all C blocks."""

    beside_python: ClassVar[bool] = True

    def __init__(self, around: KnownContents) -> None:
        super().__init__(around.target)
        # A weak reference: a cycle would keep the target's files open until the collector runs.
        self._around: KnownContents = proxy(around)

    @property
    @abstractmethod
    def is_here(self) -> bool:
        """Whether the target has these contents. Raises Unsupported if they should be present but are unknown."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for any answer, about what was read so far."""
        return ()

    @property
    def is_known(self) -> bool:
        """Whether the target is known to have these contents."""
        return bool(or_none(lambda: self.is_here))

    def named_blocks(self, heaps: _native.Heaps, progress: Progress | None) -> Sequence[tuple[int, str]]:
        """Return (address in a block in use, description) for each block among ``heaps`` that this kind knows."""
        return []

    def holders(self) -> Sequence[ContentHolder]:
        """Return holders of blocks that no variable names."""
        return []

    def roots(self) -> Sequence[ContentHolder]:
        """Return holders of blocks that the program can reach although no word in its memory is their address."""
        return []

    @property
    def mapped(self) -> Sequence[Mapped]:
        """The memory that was mapped according to its blocks, ascending."""
        return []

    def check(self) -> None:
        """Read all of it, and add what is inconsistent to the target's damage."""

    def drawn_paths(self) -> Paths | None:
        """Return names for the nodes of a graph that this kind draws from the layouts of its blocks.

        None if it draws none, or is absent. Raises Unsupported if it should be present but is unknown."""
        return None


class KnownContents(AllocatedMemory, ABC):
    """The memory of one target, with the kinds of contents that may be in it."""

    def __init__(
        self,
        target: Target,
        progress: LabelledProgress | None,
        kinds: Sequence[type[Allocator]],
        contents: Sequence[type[Content]],
    ) -> None:
        super().__init__(target, progress, kinds)
        # Not a method of this class: the cycle would keep the target's files open.
        self.disclosure = Disclosure(is_place=partial(_is_place, target))
        self._contents = {kind: kind(self) for kind in contents}

    @property
    @abstractmethod
    def known_structures(self) -> Kinds | None:
        """What the blocks of C code are; None if unknown, or if finding out takes long and nobody has asked for it."""

    def content(self, kind: type[C]) -> C:
        """Return the contents of this kind, whether the target has them or not."""
        found = self._contents[kind]
        assert isinstance(found, kind)
        return found

    @property
    def asked_contents(self) -> list[Content]:
        """The kinds of contents that are looked for."""
        return list(self._contents.values())

    def content_roots(self) -> list[ContentHolder]:
        """Return the roots that all kinds in the target know."""
        return [held for content in self.contents for held in content.roots()]

    def content_holders(self) -> list[ContentHolder]:
        """Return the holders that all kinds in the target know."""
        return [held for content in self.contents for held in content.holders()]

    @property
    def contents(self) -> list[Content]:
        """The kinds of contents that the target is known to have."""
        return [found for found in self._contents.values() if found.is_known]

    def has_beside(self, python: Content) -> bool:
        """Return whether another kind is present whose blocks are searched for next to Python's."""
        others = (found for found in self._contents.values() if found is not python)
        return any(found.beside_python and found.is_known for found in others)

    def told(self, references: N) -> N:
        """Return the graph, and add a warning if it is cut."""
        if references.graph.is_cut:
            self.note("cut-graph")
        return references


def _is_place(target: Target, number: int) -> bool:
    """Return whether a number is an address in a mapping, or the end of one."""
    find = target.mappings.find
    return find(number) is not None or find(number - 1) is not None
