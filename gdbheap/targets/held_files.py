"""Files of other programs that a Space reads, held open until the Space has opened them."""

from __future__ import annotations

from gdbheap._native import Descriptor
from gdbheap.host import open_files

FILE_LIMIT = 400


class HeldFiles:
    """Files for a Space, at most as many as may be open at once.

    The files are held open until the Space has opened them, so that nobody can replace them before.
    """

    def __init__(self) -> None:
        self._held: list[Descriptor] = []
        # The Space opens each file a second time.
        self._limit = max(1, min(FILE_LIMIT, open_files.free() * 2 // 5))

    @property
    def is_full(self) -> bool:
        """Whether the limit on files that are held open is reached."""
        return len(self._held) >= self._limit

    def add(self, file: Descriptor) -> int:
        """Hold a file open; return its index in ``paths``."""
        self._held.append(file)
        return len(self._held) - 1

    @property
    def paths(self) -> list[str]:
        """Paths below /proc/self/fd for the files, in the order in which they were added. They are valid while the
        files are held open.
        """
        return [f"/proc/self/fd/{file.number}" for file in self._held]
