"""Report pages of mimalloc with inconsistent counts or lists: damaged, or half changed by a thread inside mimalloc."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap import _native
from gdbheap.allocators.threads_inside import Inside, caught
from gdbheap.targets.target import Damage

__all__ = ["CAUGHT", "FUNCTIONS", "OWN_STATES", "add_miscounted"]

CAUGHT = "caught inside mimalloc"
FUNCTIONS = ("mi_", "_mi_")
# The values of ``Block.state`` for mimalloc's records about its pages. In 3.0 these records lie before the blocks of
# each page, in the page's padding.
OWN_STATES = ("segment header", "padding")


def add_miscounted(damage: list[Damage], found: Sequence[_native.CountMismatch], inside: Inside) -> int:
    """Add the pages in ``found`` to ``damage``, unless it has them already.

    Return how many of the added pages are transient: each of the threads ``inside`` may be changing one page."""
    known = {row.address for row in damage}
    off = [row for row in found if row.damage.address not in known]
    passing = [row for row in off if row.passing]
    excused = passing if inside.excuses(len(passing)) else []
    damage.extend(caught(row.damage, CAUGHT) if row in excused else Damage.of(row.damage) for row in off)
    return len(excused)
