"""A process's memory, read page by page from /proc/PID/mem and kept."""

from __future__ import annotations

import os
import struct

PAGE = 4096


class Memory:
    """Bytes of a process that stays stopped meanwhile; absent bytes raise OSError."""

    def __init__(self, pid: int) -> None:
        self._file = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        self._pages: dict[int, bytes] = {}

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _page(self, number: int) -> bytes:
        if number not in self._pages:
            self._pages[number] = os.pread(self._file, PAGE, number * PAGE)
        return self._pages[number]

    def read(self, address: int, size: int) -> bytes:
        """Return ``size`` bytes at an address."""
        numbers = range(address // PAGE, (address + size - 1) // PAGE + 1)
        data = b"".join(map(self._page, numbers))
        return data[address % PAGE : address % PAGE + size]

    def word(self, address: int) -> int:
        """Return the u64 at an address."""
        return int(struct.unpack_from("<Q", self._page(address // PAGE), address % PAGE)[0])
