"""Kinds of contents: what a library, a runtime or a server keeps in blocks in use, and what each answers."""

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
    """A holder that only its contents know: its ``name``, a word for what it is (``kind``), the addresses of the
    ``blocks`` from which on all is its own, and its ``ranges`` of memory beside the allocators that lead to others."""

    name: str
    kind: str
    blocks: Sequence[int]
    ranges: Ranges = field(default_factory=list)


class Content(Parts, ABC):
    """One kind of contents of one target, for as long as its surroundings are there. What it lacks it leaves as it is
    here; all of it raises Unsupported where the target does not have it. ``beside_python``: blocks that it names are
    looked for in a program with Python too, where that reads all blocks of C code."""

    beside_python: ClassVar[bool] = True

    def __init__(self, around: KnownContents) -> None:
        super().__init__(around.target)
        # A weak reference: with a strong one the two would hold the target's files open until the collector runs.
        self._around: KnownContents = proxy(around)

    @property
    @abstractmethod
    def is_here(self) -> bool:
        """Whether the target has it. Raises Unsupported where it should be there and is not known."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for any answer, about what was read so far."""
        return ()

    @property
    def is_known(self) -> bool:
        """Whether the target is known to have it."""
        return bool(or_none(lambda: self.is_here))

    def named_blocks(self, heaps: _native.Heaps, progress: Progress | None) -> Sequence[tuple[int, str]]:
        """(address in a block in use, what that is, in words) of the blocks among ``heaps`` that it knows."""
        return []

    def holders(self) -> Sequence[ContentHolder]:
        """Holders of blocks that no variable names."""
        return []

    def roots(self) -> Sequence[ContentHolder]:
        """Holders of blocks that a program gets at although no word in its memory is their address."""
        return []

    @property
    def mapped(self) -> Sequence[Mapped]:
        """The memory that its blocks say they mapped, ascending."""
        return []

    def check(self) -> None:
        """Look at all of it; what is wrong is added to the target's damage."""

    def drawn_paths(self) -> Paths | None:
        """Names for the nodes of a graph of its own, drawn by the layouts of what lies in the blocks; None where it
        draws none, or is not here. Raises Unsupported where it should be here and is not known."""
        return None


class KnownContents(AllocatedMemory, ABC):
    """The memory of one target with the kinds of contents that may be in it, which are told of it."""

    def __init__(
        self,
        target: Target,
        progress: LabelledProgress | None,
        kinds: Sequence[type[Allocator]],
        contents: Sequence[type[Content]],
    ) -> None:
        super().__init__(target, progress, kinds)
        # Not a method of this: the cycle would hold the target's files open.
        self.disclosure = Disclosure(is_place=partial(_is_place, target))
        self._contents = {kind: kind(self) for kind in contents}

    @property
    @abstractmethod
    def known_structures(self) -> Kinds | None:
        """What the blocks of C code are; None where that is not known, or takes long and nobody has asked for it."""

    def content(self, kind: type[C]) -> C:
        """That kind of contents, whether it is here or not."""
        found = self._contents[kind]
        assert isinstance(found, kind)
        return found

    @property
    def asked_contents(self) -> list[Content]:
        """The kinds of contents that are looked for."""
        return list(self._contents.values())

    def content_roots(self) -> list[ContentHolder]:
        """The roots that all kinds which are here know."""
        return [held for content in self.contents for held in content.roots()]

    def content_holders(self) -> list[ContentHolder]:
        """The holders that all kinds which are here know."""
        return [held for content in self.contents for held in content.holders()]

    @property
    def contents(self) -> list[Content]:
        """The kinds of contents that the target has, as far as that is known."""
        return [found for found in self._contents.values() if found.is_known]

    def has_beside(self, python: Content) -> bool:
        """Whether another kind is here whose blocks are looked for beside Python's."""
        others = (found for found in self._contents.values() if found is not python)
        return any(found.beside_python and found.is_known for found in others)

    def told(self, references: N) -> N:
        """The graph; a warning says if it is cut."""
        if references.graph.is_cut:
            self.note("cut-graph")
        return references


def _is_place(target: Target, number: int) -> bool:
    """Whether a number is an address in a mapping, or the end of one."""
    find = target.mappings.find
    return find(number) is not None or find(number - 1) is not None
