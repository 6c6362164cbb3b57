"""Invalid characters in a str of the target: no text, and no traceback."""

from __future__ import annotations

import pytest

from gdbheap.contents.python.objects.reading import read_str

ADDRESS, LENGTH, STATE, HEADER = 0x1000, 16, 32, 56
# struct PyUnicodeObject: compact, four bytes a character.
LAYOUT = {"unicode_length": LENGTH, "unicode_state": STATE, "sizeof_ascii": 40, "sizeof_compact": HEADER}
COMPACT_WIDE = 4 << 2 | 1 << 5


class Words:
    """Memory with one str in it."""

    def __init__(self, character: int) -> None:
        """Make a str of one character."""
        self.data = bytearray(HEADER) + character.to_bytes(4, "little")
        self.data[LENGTH : LENGTH + 8] = (1).to_bytes(8, "little")
        self.data[STATE : STATE + 4] = COMPACT_WIDE.to_bytes(4, "little")

    def read(self, address: int, size: int) -> bytes:
        """Return bytes."""
        return bytes(self.data[address - ADDRESS :][:size])

    def word(self, address: int) -> int:
        """Return a word."""
        return int.from_bytes(self.read(address, 8), "little")

    def u32(self, address: int) -> int:
        """Return half a word."""
        return int.from_bytes(self.read(address, 4), "little")


@pytest.mark.parametrize("character", [0x1F600, 0x110000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], ids=hex)
def test_wide_characters(character: int) -> None:
    """Check that a character beyond the last valid one is rejected, also beyond the range of a C int."""
    expected = chr(character) if character < 0x110000 else None
    assert read_str(Words(character), LAYOUT, ADDRESS) == expected  # type: ignore[arg-type]
