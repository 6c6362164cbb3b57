"""The layout of blocks that hold many objects each: ``int`` and ``float`` objects of Python 2."""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.layout.cpython import Release


@dataclass(frozen=True)
class Slab:
    """The layout of a block of ``block`` bytes that holds many objects: a header, then the items.

    ``header``: the bytes of the header. ``item``: the bytes of each item. See native/core/src/python/slabs.rs.
    """

    block: int
    header: int
    item: int
    names: list[str]


def slab(release: Release) -> Slab | None:
    """Return the layout of shared blocks for numbers in this release; None if each number has its own block."""
    if release.get("slab_block") is None:
        return None
    return Slab(release["slab_block"], release["slab_header"], release["slab_item"], ["int", "float"])
