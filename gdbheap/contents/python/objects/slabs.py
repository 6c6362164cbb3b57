"""Blocks of malloc that hold many objects: ``int`` and ``float`` of Python 2."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.layout.cpython import Release


@dataclass(frozen=True)
class Slab:
    """Blocks of ``block`` bytes: ``header`` bytes, then objects of ``item`` bytes each.

    See native/core/src/python/slabs.rs.
    """

    block: int
    header: int
    item: int
    names: list[str]


def slab(release: Release) -> Slab | None:
    """Return how this release keeps numbers in shared blocks; None if each number has a block of its own."""
    if release.get("slab_block") is None:
        return None
    return Slab(release["slab_block"], release["slab_header"], release["slab_item"], ["int", "float"])
