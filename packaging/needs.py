"""Print the libraries that the programs and modules in a wheel name as needed (DT_NEEDED), each once, in one line."""

from __future__ import annotations

import io
import sys
import zipfile

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile


def needed(path: str) -> set[str]:
    """Return the libraries that any ELF file in the wheel needs."""
    found: set[str] = set()
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            content = wheel.read(name)
            if content.startswith(b"\x7fELF"):
                section = ELFFile(io.BytesIO(content)).get_section_by_name(".dynamic")
                if isinstance(section, DynamicSection):
                    found.update(tag.needed for tag in section.iter_tags("DT_NEEDED"))
    return found


if __name__ == "__main__":
    print(*sorted(needed(sys.argv[1])))
