"""The modules of gdbheap and of its crates, by their files."""

from __future__ import annotations

import re

from support.scripts import ROOT, script

rooms = script("rooms")
ORDER, imports, modules, room_of = rooms.ORDER, rooms.imports, rooms.modules, rooms.room_of
ACCESS = ROOT / "native" / "access" / "src"
CORE = ROOT / "native" / "core" / "src"
BINDING = ROOT / "native" / "binding" / "src"
# The folders of `access` for each processor; `arch` is the one that is built. They take the place of each other, file
# by file.
PROCESSORS = {"x86_64", "aarch64"}
# The tests of a Rust file, in a module at its end.
TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[.*\]\n)*(?:pub(?:\([a-z]+\))? )?mod \w+ \{", re.MULTILINE)


def without_tests(source: str) -> str:
    """Return a Rust source up to its own tests; a single item that is built only for tests ends nothing."""
    return TESTS.split(source)[0]
