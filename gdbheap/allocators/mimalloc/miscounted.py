"""Pages of mimalloc whose counts or lists are off: damaged, or as a thread leaves them that stands inside mimalloc."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap import _native
from gdbheap.allocators.inside import Inside, caught
from gdbheap.targets.target import Damage

__all__ = ["CAUGHT", "FUNCTIONS", "OWN_STATES", "add_miscounted"]

CAUGHT = "caught inside mimalloc"
FUNCTIONS = ("mi_", "_mi_")
# What mimalloc keeps of its pages; in 3.0 that lies before the blocks of each, and is the page's padding.
OWN_STATES = ("segment header", "padding")


def add_miscounted(damage: list[Damage], found: Sequence[_native.Miscounted], inside: Inside) -> int:
    """Add those that are not there yet; return how many of them the threads ``inside`` may have in their hands, each
    one page."""
    known = {row.address for row in damage}
    off = [row for row in found if row.damage.address not in known]
    passing = [row for row in off if row.passing]
    excused = passing if inside.excuses(len(passing)) else []
    damage.extend(caught(row.damage, CAUGHT) if row in excused else Damage.of(row.damage) for row in off)
    return len(excused)
