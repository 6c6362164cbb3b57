"""Find the classes of the C++ objects to which Python objects point."""

from __future__ import annotations

from functools import cached_property

from gdbheap import _native
from gdbheap.contents.cxx.kinds import object_ranges
from gdbheap.contents.python.objects.bounded_reads import Pages
from gdbheap.errors import Fault
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Target


class Classes:
    """Finds classes by their vtables, also in stripped libraries; each vtable is read once."""

    def __init__(self, memory: Pages, target: Target) -> None:
        self._memory = memory
        self._target = target
        self._names: dict[int, str] = {}

    @cached_property
    def _ranges(self) -> Ranges:
        return object_ranges(self._target)

    def name(self, address: int) -> str:
        """Return the class of the object at ``address``; "" if no object with a vtable is there."""
        try:
            vtable = self._memory.word(address)
        except (Fault, OverflowError):
            return ""
        if vtable not in self._names:
            found = _native.classes_at(self._target.space, self._ranges, [address])[0]
            self._names[vtable] = found or ""
        return self._names[vtable]
