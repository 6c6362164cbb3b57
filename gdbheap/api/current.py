"""The target that is selected in gdb. gdbheap's commands inside gdb provide it once they are loaded.

This module imports nothing, because those commands import it at each start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gdbheap.heap import Heap

__all__ = ["Stop", "current", "provide"]


class Stop:
    """The target that is selected in gdb, while its process is stopped.

    ``heap``, ``name``: the heap and the name of the target; ``is_over``: returns whether the process has run since.
    """

    def __init__(self, heap: Heap, name: str, is_over: Callable[[], bool]) -> None:
        self.heap, self.name, self.is_over = heap, name, is_over


_provider: Callable[[], Stop] | None = None


def provide(provider: Callable[[], Stop]) -> None:
    """Set the function that returns the target selected in gdb."""
    global _provider
    _provider = provider


def current() -> Stop | None:
    """Return the target that is selected in gdb now; None outside gdb. Raises GdbheapError if gdb has no process."""
    return None if _provider is None else _provider()
