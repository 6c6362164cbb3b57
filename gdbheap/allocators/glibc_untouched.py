"""glibc's ``main_arena`` before the first call of malloc, which is what fills in its bins.

The compiler's initial value is all that is there: a ring of one (``next`` points to the arena itself), one attached
thread, and zeros. So it is in programs that never call malloc, and in those that have another malloc than glibc's.
"""

from __future__ import annotations

import struct
from typing import Any

from gdbheap.layout.tables import variants
from gdbheap.target.elf import LoadedObject
from gdbheap.target.mappings import Mapping
from gdbheap.target.target import Target

AFTER_ATTACHED = 24
MOST_DATA = 64 << 20


def find_untouched(target: Target, loaded: LoadedObject) -> tuple[int, dict[str, Any]] | None:
    """(address, layout) of the arena in initialised data of ``loaded`` that is as the compiler made it, or None."""
    found = (_in_mapping(target, mapping) for mapping in loaded.mappings if mapping.writable and mapping.readable)
    return next(filter(None, found), None)


def _in_mapping(target: Target, mapping: Mapping) -> tuple[int, dict[str, Any]] | None:
    raw = target.space.read_available(mapping.start, min(mapping.size, MOST_DATA))
    layouts = variants("glibc", "malloc_state")
    distances = {layout["next"] for layout in layouts}
    for index, (word,) in enumerate(struct.iter_unpack("<Q", raw[: len(raw) // 8 * 8])):
        place = mapping.start + 8 * index
        if place - word in distances and word >= mapping.start:
            layout = next((layout for layout in layouts if _is_initial(raw, word - mapping.start, word, layout)), None)
            if layout is not None:
                return word, layout
    return None


def _is_initial(raw: bytes, offset: int, address: int, layout: dict[str, Any]) -> bool:
    """Whether all words are zero but ``next`` and, since 2.23, the 1 of ``attached_threads``."""
    words = struct.unpack_from(f"<{layout['size'] // 8}Q", raw.ljust(offset + layout["size"], b"\0"), offset)
    wanted = {layout["next"]: address}
    if layout["system_mem"] - layout["next"] == AFTER_ATTACHED:
        wanted[layout["next"] + 16] = 1
    return {8 * place: word for place, word in enumerate(words) if word} == wanted
