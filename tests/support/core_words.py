"""The words of a core, read and changed in its file."""

from __future__ import annotations

import struct
from pathlib import Path

from elftools.elf.elffile import ELFFile

WORD = struct.Struct("<Q")


class Memory:
    """The bytes of a core file, by the target's addresses."""

    def __init__(self, path: Path) -> None:
        """Read the program headers."""
        self.path = path
        with path.open("rb") as file:
            segments = [segment.header for segment in ELFFile(file).iter_segments("PT_LOAD")]
        self.segments: list[tuple[int, int, int]] = [
            (head.p_vaddr, head.p_vaddr + head.p_filesz, head.p_offset) for head in segments
        ]

    def place(self, address: int) -> int:
        """Return the file offset of an address."""
        return next(address - start + offset for start, end, offset in self.segments if start <= address < end)

    def word(self, address: int) -> int:
        """Return the word at an address."""
        with self.path.open("rb") as file:
            file.seek(self.place(address))
            return int(WORD.unpack(file.read(8))[0])

    def put(self, address: int, value: int) -> None:
        """Overwrite the word at an address."""
        with self.path.open("r+b") as file:
            file.seek(self.place(address))
            file.write(WORD.pack(value))
