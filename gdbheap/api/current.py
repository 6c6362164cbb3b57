"""What gdb looks at, as gdb's commands say once they are loaded. It imports nothing: they need it at each start."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gdbheap.heap import Heap

__all__ = ["Stop", "current", "provide"]


class Stop:
    """What gdb looks at at one stop: its ``heap``, its ``name``, and whether it ``is_over``: the process ran since."""

    def __init__(self, heap: Heap, name: str, is_over: Callable[[], bool]) -> None:
        self.heap, self.name, self.is_over = heap, name, is_over


_provider: Callable[[], Stop] | None = None


def provide(provider: Callable[[], Stop]) -> None:
    """Say how to find what gdb looks at."""
    global _provider
    _provider = provider


def current() -> Stop | None:
    """Return what gdb looks at now; None outside of gdb. Raises GdbheapError where gdb has no process."""
    return None if _provider is None else _provider()
