"""Parse ELF headers, program headers and notes from bytes of a file or of memory.

pyelftools follows section headers, names and offsets to the end of the file, and believes the size that a note claims.
But an image in memory has no section headers. A core may be truncated, and have 65,535 program headers or more. An
untrusted file may state any size. So this module reads these structures itself, in bulk and within bounds. For an image
that is not 64-bit and little-endian, it reads only the header. Layouts: elf(5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAGIC = b"\x7fELF"
CLASS_32, CLASS_64 = 1, 2
LITTLE_ENDIAN = 1
TYPE_SHARED, TYPE_CORE = 3, 4
MACHINE_X86_64, MACHINE_AARCH64 = 62, 183
PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_PHDR, PT_TLS = 1, 2, 4, 6, 7
PT_GNU_RELRO = 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4
PN_XNUM = SHN_XINDEX = 0xFFFF
SHT_NOBITS, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_COMPRESSED = 8, 2, 4, 1 << 10, 1 << 11
NT_GNU_BUILD_ID = 3
BUILD_ID_LIMIT = 64

_HEADER_64 = struct.Struct("<QQQIHHHHHH")
_SEGMENT_64 = struct.Struct("<IIQQ8xQQQ")
_SECTION_64 = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
HEADER_SIZE = 64
SEGMENT_SIZE = _SEGMENT_64.size
FILE_SIZE_OFFSET = 32
"""The offset of p_filesz in a program header."""
SECTION_SIZE = _SECTION_64.size


class Header(NamedTuple):
    """The fields of an ELF header, named as in elf(5). ``entry`` and all later fields are 0 unless the image is 64-bit
    and little-endian.
    """

    elf_class: int
    byte_order: int
    type: int
    machine: int
    entry: int = 0
    phoff: int = 0
    shoff: int = 0
    phentsize: int = 0
    phnum: int = 0
    shnum: int = 0
    names: int = 0

    @property
    def bits(self) -> str:
        """The size of the image's addresses: ``32-bit`` or ``64-bit``."""
        return "32-bit" if self.elf_class == CLASS_32 else "64-bit"

    @property
    def machine_name(self) -> str:
        """The machine's name in elf.h in lower case, such as ``386``, ``aarch64`` or ``x86_64``; a number if it is
        unknown.
        """
        # Imported here, because nearly all of gdbheap imports this file, and few callers need the name.
        from elftools.elf.enums import ENUM_E_MACHINE

        names = (name for name, number in ENUM_E_MACHINE.items() if number == self.machine)
        return str(next(names, f"machine {self.machine}")).replace("EM_", "").lower()


class Segment(NamedTuple):
    """One program header. ``offset``: in the file. ``address``: as linked. Sizes are in bytes."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int

    @property
    def perms(self) -> str:
        """The permissions, such as ``rw-p``. The last letter is always ``p``, because a program header does not
        distinguish shared from private.
        """
        bits = ((PF_R, "r"), (PF_W, "w"), (PF_X, "x"))
        return "".join(letter if self.flags & bit else "-" for bit, letter in bits) + "p"


class SectionHeader(NamedTuple):
    """One section header: ``name`` is an offset in the table of names, ``offset`` an offset in the file; sizes in
    bytes.
    """

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class Note(NamedTuple):
    """One note of an ELF image.

    ``owner``: such as ``GNU`` or ``CORE``.
    ``type``: a number, whose meaning depends on the owner.
    ``data``: the contents.
    """

    owner: bytes
    type: int
    data: bytes


def parse_header(data: bytes) -> Header | None:
    """Return the ELF header at the start of ``data``, or None if there is none or it is cut short."""
    if len(data) < 20 or data[:4] != MAGIC or data[4] not in (CLASS_32, CLASS_64) or data[5] not in (1, 2):
        return None
    order = "<" if data[5] == LITTLE_ENDIAN else ">"
    elf_type, machine = struct.unpack_from(order + "HH", data, 16)
    if (data[4], data[5]) != (CLASS_64, LITTLE_ENDIAN):
        return Header(data[4], data[5], elf_type, machine)
    if len(data) < HEADER_SIZE:
        return None
    entry, phoff, shoff, _flags, _size, phentsize, phnum, _shentsize, shnum, names = _HEADER_64.unpack_from(data, 24)
    return Header(data[4], data[5], elf_type, machine, entry, phoff, shoff, phentsize, phnum, shnum, names)


def parse_segments(table: bytes) -> list[Segment]:
    """Return the program headers in ``table``. A truncated last header is left out."""
    whole = len(table) - len(table) % SEGMENT_SIZE
    return [Segment(*fields) for fields in _SEGMENT_64.iter_unpack(table[:whole])]


def parse_sections(table: bytes) -> list[SectionHeader]:
    """Return the section headers in ``table``. A truncated last header is left out."""
    whole = len(table) - len(table) % SECTION_SIZE
    return [SectionHeader(*fields) for fields in _SECTION_64.iter_unpack(table[:whole])]


def extended_segment_count(section: bytes) -> int | None:
    """Return the number of program headers if it does not fit into 16 bits (PN_XNUM).

    The number is ``sh_info`` of the first section header. ``section``: this header. Return None if it is cut short.
    """
    if len(section) < SECTION_SIZE:
        return None
    return int(_SECTION_64.unpack_from(section)[7])


def has_code(sections: bytes) -> bool:
    """Return whether the section headers belong to a file with code, not to a separate debug file, whose code was
    removed.
    """
    return not any(one.type == SHT_NOBITS and one.flags & SHF_EXECINSTR for one in parse_sections(sections))


def iter_notes(data: bytes, align: int = 4) -> Iterator[Note]:
    """Yield the notes in ``data``, up to the first one that does not fit into it.

    ``align``: the segment's alignment; any number except 8 means 4.
    """
    step = 8 if align == 8 else 4
    position = 0
    while position + _NOTE.size <= len(data):
        owner_size, size, kind = _NOTE.unpack_from(data, position)
        start = position + _NOTE.size
        body = _round_up(start + owner_size, step)
        if body + size > len(data):
            return
        yield Note(data[start : start + owner_size].rstrip(b"\0"), kind, data[body : body + size])
        position = _round_up(body + size, step)


def build_id(notes: Iterable[Note]) -> str | None:
    """Return the GNU build-id among the notes, as hex digits; None if there is none."""
    for note in notes:
        if note.owner == b"GNU" and note.type == NT_GNU_BUILD_ID and 0 < len(note.data) <= BUILD_ID_LIMIT:
            return note.data.hex()
    return None


def _round_up(value: int, step: int) -> int:
    return (value + step - 1) // step * step
