"""Locate the tables for unwinding stacks (``.eh_frame``), through their header (``.eh_frame_hdr``)."""

from __future__ import annotations

from typing import NamedTuple

from gdbheap._native import Space
from gdbheap.host.headroom import room_for_copy
from gdbheap.machines import image
from gdbheap.targets.elf import load_bias, read_segments
from gdbheap.targets.target import AT_SYSINFO_EHDR, Target

PT_GNU_EH_FRAME = 0x6474E550
# The most bytes of all tables of a target. Compilers write some MB of them for the largest libraries.
TABLES_LIMIT, TABLES_SHARE = 256 << 20, 4


class Module(NamedTuple):
    """A loaded object [start, end) and its unwind tables.

    ``table_start``: the address of its .eh_frame_hdr.
    ``table_end``: the end of the file's bytes in the segment with this table.
    """

    start: int
    end: int
    table_start: int
    table_end: int


def room_for_tables() -> int:
    """Return how many bytes the tables of all objects may take: a share of the memory that is left."""
    return min(TABLES_LIMIT, room_for_copy() // TABLES_SHARE)


def modules_of(target: Target, space: Space) -> list[Module]:
    """Return the loaded objects that have unwind tables, and the vDSO if it has some too. ``space``: reads the vDSO."""
    objects = [(loaded.base, loaded.end, loaded.bias, loaded.segments) for loaded in target.objects]
    base = target.auxv.get(AT_SYSINFO_EHDR, 0)
    vdso = target.mappings.find(base)
    segments = read_segments(target.machine, space, base) if vdso is not None else []
    bias = load_bias(target.machine, segments, base)
    if vdso is not None and bias is not None:
        objects.append((vdso.start, vdso.end, bias, segments))
    rows = [_module(*loaded) for loaded in objects]
    end = target.machine.address_end
    return [row for row in rows if row is not None and all(0 <= number < end for number in row)]


def _module(start: int, end: int, bias: int, segments: list[image.Segment]) -> Module | None:
    """Return an object with its tables; None for an object without tables."""
    table = next((segment.address for segment in segments if segment.type == PT_GNU_EH_FRAME), None)
    for load in segments:
        if table is not None and load.type == image.PT_LOAD and 0 <= table - load.address < load.file_size:
            return Module(start, end, bias + table, bias + load.address + load.file_size)
    return None
