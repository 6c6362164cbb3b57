"""Memory that a program mapped itself, and the parts of it that have a holder."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.library import heap_of
from support.programs import ask, c_program, running

from gdbheap.allocators.library_memory import MIN_RANGE_BYTES, find_held


def test_mappings_by_who_leads_there(rng: random.Random, tmp_path: Path) -> None:
    """Check that memory to which static data lead is a finding with the touched bytes, and that other memory has no
    holder.
    """
    with running(c_program("keeper", rng.getrandbits(30), rng.randrange(20, 60)), tmp_path) as target:
        answer = ask("", str(target.pid))
        with heap_of(str(target.pid)) as heap:
            found = {held.name: held.ranges for held in heap.held}
        rows = [line.split() for line in target.stderr.splitlines()]
        regions = [(int(at, 16), int(size), kept == "1") for at, size, kept in rows]
        asked = rng.sample(regions, 8)
        words = {at: ask("at", str(target.pid), hex(at))["mapping"]["whose"] for at, _size, _kept in asked}
    kept = sorted((at, at + size) for at, size, is_kept in regions if is_kept)
    assert found == {"keeper": kept}
    (finding,) = (finding for finding in answer["findings"] if finding["id"] == "other-held")
    assert finding["bytes"] == sum(end - start for start, end in kept)
    assert "reached from 'kept' in keeper" in finding["text"]
    (row,) = (row for row in answer["holders"] if row["path"] == "memory that keeper mapped")
    assert row["what"] == "reached from 'kept' in keeper"
    expected = {at: "other, reached from keeper" if is_kept else "other" for at, _size, is_kept in asked}
    assert words == expected


def test_what_the_dynamic_linker_leads_to(rng: random.Random, tmp_path: Path) -> None:
    """Check that a reference from a thread's block or from the dynamic linker's own mapping does not make a mapping
    the program's."""
    with running(c_program("keeper", rng.getrandbits(30), 20), tmp_path) as target, heap_of(str(target.pid)) as heap:
        linkers = [loaded for loaded in heap.target.objects if loaded.is_dynamic_linker]
        if not linkers:
            pytest.skip("no dynamic linker apart from the C library")
        data = [pair for loaded in linkers for pair in loaded.writable_ranges()]
        words = {heap.target.space.word(at) for start, end in data for at in range(start, end, 8)}
        anonymous = [one for one in heap.target.mappings if one.anonymous and one.writable and not one.path]
        led_to = [one for one in anonymous if any(one.start <= word < one.end for word in words)]
        assert led_to
        for mapping in led_to:
            reached = (mapping.start, max(mapping.end, mapping.start + MIN_RANGE_BYTES))
            assert not [held for held in find_held(heap.target, [reached]) if held.path == linkers[0].path]
