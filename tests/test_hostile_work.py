"""Targets and files that would cost work or memory out of proportion to their size: nested loops over numbers that
an attacker chooses, and reads of sizes that he writes."""

from __future__ import annotations

import contextlib
import functools
import mmap
import platform
import random
import resource
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.busy import wait_for
from support.gdb_side import compiled
from support.library import heap_of
from support.programs import ask, build, c_program, gdbheap, running
from support.work import peak, steps

from gdbheap._native import Heaps, Space, SymbolTable, blocks_with
from gdbheap.allocators.glibc.arenas import Glibc
from gdbheap.answers.threads import threads as answers_of_threads
from gdbheap.commands.growth import drawn_stacks
from gdbheap.contents.cxx import kinds
from gdbheap.contents.openssl import connections as openssl
from gdbheap.contents.postgresql import contexts as postgresql
from gdbheap.contents.python.names import type_names
from gdbheap.contents.python.objects import attributes, roots
from gdbheap.contents.python.objects import reading as contents
from gdbheap.contents.python.running import line_tables as lines
from gdbheap.contents.python.running import threads
from gdbheap.contents.python.running import tracemalloc_tables as traces
from gdbheap.errors import Fault, Unsupported
from gdbheap.findings.cycles import rule as cycles
from gdbheap.findings.lost_blocks import rule as lost_blocks
from gdbheap.findings.lost_references import rule as lost_references
from gdbheap.following import following_growth, growth
from gdbheap.graph import mapped
from gdbheap.graph.roots import block_roots
from gdbheap.host import tmpfs
from gdbheap.host.mounts import Mount
from gdbheap.layout import debug_offsets
from gdbheap.layout.cpython import TP_BASICSIZE, TP_DICTOFFSET, Release
from gdbheap.layout.shipped_tables import table, variants
from gdbheap.machines import image
from gdbheap.machines.machine import X86_64
from gdbheap.report.text.style import Style
from gdbheap.report.words import growth as words_of_growth
from gdbheap.stacks import CapturedStack, Stacks
from gdbheap.targets import core as core_module
from gdbheap.targets import elf, frames, unwind_tables
from gdbheap.targets.core import Core, SegmentRow
from gdbheap.targets.cores import notes
from gdbheap.targets.elf import ElfFile, ElfFiles, LoadedObject, find_objects, placed_object
from gdbheap.targets.ended_stacks import find_ended
from gdbheap.targets.frames import EFFORT
from gdbheap.targets.mappings import Mapping, Mappings
from gdbheap.targets.stack_mappings import Stack, find_stacks
from gdbheap.targets.target import Target, Thread
from gdbheap.tracing import replay

PAGE, WORD = X86_64.page, X86_64.word
BASE = 0x20000000
ADDRESS_SPACE = 2 << 30
# Four times the size takes four times the work if it is in proportion, and sixteen times if all pairs are compared: the
# bound is between.
TIMES, MOST = 4, 8


def is_in_proportion(make: Callable[[int], Callable[[], object]], size: int) -> bool:
    """Return whether four times the size takes less than eight times the instructions."""
    least, most = (steps(make(count)) for count in (size, TIMES * size))
    return most < MOST * least


def page(place: int, perms: str = "rw-p", path: str = "", offset: int = 0) -> Mapping:
    """Return a mapping of the page with that number."""
    start = BASE + place * PAGE
    device, inode = ("fe:00", 7) if path else ("00:00", 0)
    return Mapping(start, start + PAGE, perms, offset, device, inode, path)


def load(start: int, size: int, memory: int | None = None) -> image.Segment:
    """Return a writable segment with as many bytes in the file as in memory."""
    memory = size if memory is None else memory
    return image.Segment(image.PT_LOAD, image.PF_R | image.PF_W, start, start, size, memory, PAGE)


def space_of(path: Path, contents: bytes, base: int = BASE) -> Space:
    """Return an address space with these bytes."""
    path.write_bytes(contents)
    return Space.for_core(X86_64, [SegmentRow(base, base + len(contents), 0, 0)], [str(path)])


def elf_file(path: Path, parts: list[image.Segment], size: int) -> Path:
    """Write a sparse ELF file with these program headers."""
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(parts), 64, 0, 0
    )
    rows = (struct.pack("<IIQQQQQQ", *one[:4], 0, *one[4:]) for one in parts)
    with path.open("wb") as stream:
        stream.write(header + b"".join(rows))
        stream.truncate(size)
    return path


# Types.


def test_chains_of_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check many types with thousands of bases each: all chains together have a budget."""
    asked = 0

    def word(place: int) -> int:
        nonlocal asked
        asked += 1
        return place + 8

    space, release = SimpleNamespace(word=word), SimpleNamespace(at=lambda _field: 0)
    names = type_names.TypeNames(cast(Any, space), cast(Any, release))
    monkeypatch.setattr(names, "name", lambda _address: "x")
    names._bases_left = 10_000
    for kind in range(10_000):
        assert 0 < sum(1 for _name in names.with_bases(BASE + 8 * kind)) <= attributes.MAX_BASES
    assert asked <= 10_000 * (1 + type_names.FEW_BASES) + attributes.MAX_BASES


# Files of the target.


def test_what_is_left_over_on_the_stack_of_a_frame() -> None:
    """Check that a word that leads nowhere ends the iterators of loops, and not the frames of the thread."""

    def word(place: int) -> int:
        if place >= 1 << 40:
            raise Fault(place)
        return 1 << 40

    one: Any = object.__new__(threads.ThreadStates)
    one._space = SimpleNamespace(word=word, machine=SimpleNamespace(word=8))
    one._release = SimpleNamespace(at=lambda _field: 8)
    assert list(one._iterators(1 << 20, ~0)) == []


def test_a_core_that_claims_the_whole_address_space() -> None:
    """Check that heaps of threads' arenas are searched for only where memory exists, also if an arena misleads."""
    span, there = 64 << 20, [5 << 26, (9 << 26) + 8, 1 << 40]
    one: Any = object.__new__(Glibc)
    backed = [*there, 0]

    def next_backed(at: int) -> int | None:
        return min((place for place in backed if place >= at), default=None)

    mapping = SimpleNamespace(start=4096, end=1 << 60, writable=True, anonymous=True)
    one.target = SimpleNamespace(mappings=[mapping], space=SimpleNamespace(next_backed=next_backed))
    assert list(one._backed_places(span)) == [5 << 26, 1 << 40]


def test_a_segment_at_the_end_of_all_addresses(tmp_path: Path) -> None:
    """Check that a segment that ends at 2^64 is damage: no process has the last page, whose addresses are errors."""
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 4, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    note = struct.pack("<IIQQQQQQ", 4, 0, 176, 0, 0, 0, 0, 4)
    load = struct.pack("<IIQQQQQQ", 1, 6, 4096, (1 << 64) - 4096, 0, 4096, 4096, 4096)
    path = tmp_path / "core"
    path.write_bytes((header + note + load).ljust(4096, b"\0") + bytes(4096))
    core = Core(str(path))
    assert [one.what for one in core.damage] == ["segment"] and not len(core.mappings)


def test_one_piece_of_data_many_times(tmp_path: Path, rng: random.Random) -> None:
    """Check a process whose file claims the same 64 MiB of holes as its data two hundred times."""
    command = c_program("overlapping", tmp_path / "evil.so", rng.randrange(180, 220))
    with running(command, tmp_path) as target:
        done = gdbheap("owners", str(target.pid), preexec_fn=_limit)
    assert done.returncode == 0, done.stderr[-2000:]


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def test_data_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that all writable segments together have one budget, whether they overlap or not."""
    monkeypatch.setattr(elf, "DATA_LIMIT", 1 << 20)
    parts = [load(PAGE * rng.randrange(4), 1 << 20) for _ in range(50)]
    found = ElfFile(str(elf_file(tmp_path / "evil.so", parts, 2 << 20))).initial_data()
    assert sum(len(data) for _address, data in found) == 1 << 20


def test_notes_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a thousand segments with the same thousands of empty notes, in the file and in memory."""
    found: list[object] = []
    monkeypatch.setattr(image, "Note", lambda *fields: found.append(fields) or SimpleNamespace(owner=b"", type=0))
    part = image.Segment(image.PT_NOTE, image.PF_R, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 4)
    path = elf_file(tmp_path / "evil.so", [load(0, 2 << 16), *[part] * 1000], 2 << 16)
    file = ElfFile(str(path))
    assert file.build_id is None and 0 < len(found) <= elf.MAX_NOTES
    space = space_of(tmp_path / "memory", path.read_bytes())
    assert elf.read_build_id(X86_64, space, file.segments, BASE) is None and len(found) <= 2 * elf.MAX_NOTES


def test_thread_local_symbols(tmp_path: Path, rng: random.Random) -> None:
    """Check a table of symbols that are all thread-local: symbols beyond a thread's room are not kept."""
    count = rng.randrange(60_000, 90_000)
    symbols = struct.pack("<IBBHQQ", 1, 6, 0, 1, 1 << 40, 1 << 41) * count
    table = SymbolTable([(symbols, b"\0name\0")], False)
    # The largest static thread-local data that is read has room for that many bytes.
    assert 0 < len(table.thread_local()) <= 16 << 10


def test_copies_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that the symbols of a file that is mapped a hundred times are read only once for each possible
    namespace."""
    note = image.Segment(image.PT_NOTE, image.PF_R, 0x800, 0x800, 36, 36, 4)
    path = elf_file(tmp_path / "evil.so", [note, load(0, PAGE)], PAGE)
    with path.open("r+b") as stream:
        stream.seek(0x800)
        stream.write(struct.pack("<III4s", 4, 20, 3, b"GNU") + rng.randbytes(20))
    rows = [SegmentRow(one.start, one.end, 0, 0) for one in map(page, range(0, 200, 2))]
    space = Space.for_core(X86_64, rows, [str(path)])
    mappings = Mappings(page(place, path=str(path)) for place in range(0, 200, 2))
    found = find_objects(X86_64, mappings, space, ElfFiles(), lambda _first: [str(path)])
    monkeypatch.setattr(elf, "ALL_SEGMENTS", 20, raising=False)
    few = find_objects(X86_64, mappings, space, ElfFiles(), lambda _first: [str(path)])
    assert len(few) == 10 and len(found) == 100 and 1 <= sum(one.elf is not None for one in found) <= 16


# Mappings, segments, sections.


def of_file(place: int, offset: int) -> Mapping:
    """Return a page of the file of these tests."""
    return page(place, path="/evil.so", offset=offset * PAGE)


def test_segments_and_mappings(tmp_path: Path) -> None:
    """Check an object with as many segments as mappings, each with some .bss."""

    def make(count: int) -> Callable[[], object]:
        rows = [one for at in range(count) for one in (of_file(2 * at, 2 * at), page(2 * at + 1))]
        segments = [load(2 * at * PAGE, PAGE, 2 * PAGE) for at in range(count)]

        def place() -> None:
            found = placed_object(X86_64, Mappings(rows), 0, segments)
            assert found is not None and len(found.bss) == count

        return place

    assert is_in_proportion(make, 50)


def test_bss_that_overlaps() -> None:
    """Check that segments that all claim all memory count it once."""
    rows = [of_file(0, 0), *(page(1 + at) for at in range(200))]
    segments = [load(0, PAGE, 201 * PAGE)] * 500
    assert peak(lambda: placed_object(X86_64, Mappings(rows), 0, segments)) < 1 << 20


def test_what_an_address_belongs_to() -> None:
    """Check the search for the objects of many addresses, with one object of many mappings and with many objects."""

    def of_one(count: int) -> Callable[[], object]:
        rows = [of_file(2 * at, 2 * at) for at in range(count)]
        one = LoadedObject("/evil.so", BASE, BASE, None, rows, [])
        return lambda: [one.contains(mapping.end) for mapping in rows]

    def of_many(count: int) -> Callable[[], object]:
        rows = [of_file(2 * at, 0) for at in range(count)]
        objects = [LoadedObject(str(one.start), one.start, one.start, None, [one], []) for one in rows]
        target = Target("process", mappings=Mappings(rows), objects=objects)
        return lambda: mapped.mapped_files(target)

    assert is_in_proportion(of_one, 100) and is_in_proportion(of_many, 100)


def test_mapped_memory_in_a_chain(rng: random.Random) -> None:
    """Check a chain of a thousand memory ranges, each valid only because the next one is."""

    def make(count: int) -> Callable[[], object]:
        size = 64 << 10
        chain = {BASE + at * size: (rng.randrange(1 << 30), BASE + (at + 1) * size) for at in range(count)}
        target = Target("process", mappings=Mappings([Mapping(BASE, BASE + count * size, "rw-p", 0, "", 0, "")]))

        def prove() -> None:
            found = list(mapped._proven(target, [(BASE - PAGE, BASE)], chain))
            assert [one.address for one in found] == sorted(chain)

        return prove

    assert is_in_proportion(make, 50)


class _File:
    """The parts of an ELF file that roots read."""

    def __init__(self, count: int) -> None:
        self.sections = [(f".s{at}", at * 16, 8) for at in range(count)]
        names = b"".join(b"%08d\0" % at for at in range(count))
        symbols = b"".join(struct.pack("<IBBHQQ", 9 * at, 0x11, 0, 1, 16 * at + 8, 8) for at in range(count))
        self.static, self.dynamic = SymbolTable([(symbols, names)], False), SymbolTable([], False)

    def initial_data(self) -> list[tuple[int, bytes]]:
        """Return no initial data."""
        return []


def test_sections_and_symbols(tmp_path: Path) -> None:
    """Check an object with a section and a symbol for every other word of its data."""

    def make(count: int) -> Callable[[], object]:
        size = 16 * count
        space = space_of(tmp_path / f"{count}", struct.pack("<Q", BASE) * (size // WORD))
        whole = Mapping(BASE, BASE + size, "rw-p", 0, "fe:00", 7, "/evil.so")
        one = LoadedObject("/evil.so", BASE, BASE, None, [whole], [], elf=_File(count))  # type: ignore[arg-type]
        target = Target("process", mappings=Mappings([whole]), space=space, objects=[one])

        def draw() -> None:
            found = block_roots(target, [], [], [], ([(BASE, BASE + size)], []), [])
            assert not found
            around = [(BASE - PAGE, BASE), (BASE + size, BASE + size + PAGE)]
            found = block_roots(target, [], [], [], (around, []), [])
            assert len(found) == 2 * count

        return draw

    assert is_in_proportion(make, 50)


def test_names_of_many_objects() -> None:
    """Check that each object's name is searched for once, and not among all others."""

    def make(count: int) -> Callable[[], object]:
        rows = [of_file(2 * at, 0) for at in range(count)]
        objects = [LoadedObject(f"/{one.start}", one.start, one.start, None, [one], []) for one in rows]
        target = Target("process", mappings=Mappings(rows), objects=objects)
        return lambda: roots.Roots(target, objects[0], [], [])

    assert is_in_proportion(make, 50)


# Threads.


def test_records_of_stacks(tmp_path: Path) -> None:
    """Check threads with one descriptor, full of records of one stack of as many mappings."""

    def make(count: int) -> Callable[[], object]:
        rows = [page(at, rng_perms) for at, rng_perms in zip(range(count), ["rw-p", "r--p"] * count)]
        pointer = BASE + (count - 2) * PAGE
        record = struct.pack("<QQQ", BASE, count * PAGE, 1)
        contents = bytes(pointer - BASE) + struct.pack("<Q", pointer) + record * 170
        space = space_of(tmp_path / f"{count}", contents.ljust(count * PAGE, b"\0"))
        alive = [Thread(number, pointer, 0, 0) for number in range(1, count // 16)]
        target = Target("process", mappings=Mappings(rows), threads=alive, space=space)
        return lambda: find_stacks(target)

    assert is_in_proportion(make, 64)


def test_stacks_without_a_record(tmp_path: Path) -> None:
    """Check threads on one range of memory that consists of many mappings."""

    def make(count: int) -> Callable[[], object]:
        rows = [page(0, "---p"), *(page(1 + at) for at in range(count))]
        alive = [Thread(number, 0, BASE + number * PAGE, 0) for number in range(1, count)]
        target = Target("process", mappings=Mappings(rows), threads=alive)

        def find() -> None:
            (stack,) = find_stacks(target)
            assert (stack.start, stack.end) == (rows[0].start, rows[-1].end)

        return find

    assert is_in_proportion(make, 50)


def test_stacks_of_ended_threads(tmp_path: Path) -> None:
    """Check pages that look like stacks of ended threads, and as many threads whose number is nowhere."""

    def make(count: int) -> Callable[[], object]:
        places = range(BASE + PAGE, BASE + count * PAGE, PAGE)
        pages = (struct.pack("<13Q", at, 0, at, *[0] * 7, at, PAGE, 0).ljust(PAGE, b"\0") for at in places)
        space = space_of(tmp_path / f"{count}", bytes(PAGE) + b"".join(pages))
        whole = Mapping(BASE, BASE + count * PAGE, "rw-p", 0, "00:00", 0, "")
        alive = [Thread(number, BASE, BASE, 0) for number in range(1, 100 * count)]
        target = Target("process", mappings=Mappings([whole]), threads=alive, space=space)

        def find() -> None:
            assert len(find_ended(target, [])) == count - 1

        return find

    assert is_in_proportion(make, 4)


def test_rings_of_ended_threads(tmp_path: Path) -> None:
    """Check links that lead from one ended thread to the next, but never back to the first."""

    def make(count: int) -> Callable[[], object]:
        links = 0x2C0

        def descriptor(at: int, number: int) -> bytes:
            words = struct.pack("<13Q", at, 0, at, *[0] * 7, at, PAGE, 0).ljust(links, b"\0")
            return (words + struct.pack("<QQI", at + PAGE + links, at - PAGE + links, number)).ljust(PAGE, b"\0")

        places = range(BASE + PAGE, BASE + count * PAGE, PAGE)
        content = descriptor(BASE, 77_777) + b"".join(descriptor(at, 0) for at in places)
        space = space_of(tmp_path / f"{count}", content)
        whole = Mapping(BASE, BASE + count * PAGE, "rw-p", 0, "00:00", 0, "")
        alive = [Thread(77_777, BASE, BASE, 0)]
        target = Target("process", mappings=Mappings([whole]), threads=alive, space=space)

        def find() -> None:
            found = find_ended(target, [])
            assert len(found) == count - 1 and not any(stack.is_joinable for stack in found)

        return find

    assert is_in_proportion(make, 4)


def test_stacks_and_threads(tmp_path: Path) -> None:
    """Check as many stacks as threads, which all become roots."""

    def make(count: int) -> Callable[[], object]:
        rows = [page(2 * at) for at in range(count)]
        space = Space.for_core(X86_64, [], [])
        alive = [Thread(at, one.start + 64, one.start + 128, 0) for at, one in enumerate(rows)]
        target = Target("process", mappings=Mappings(rows), threads=alive, space=space)
        stacks = [(Stack(at, one.start, one.end), [(one.start, one.end)]) for at, one in enumerate(rows)]
        return lambda: block_roots(target, stacks, [], [], ([(0, PAGE)], []), [])

    assert is_in_proportion(make, 50)


# Python.


class _Release(dict[str, Any]):
    """Made-up offsets of the fields of an interpreter."""

    def at(self, name: object) -> int:
        """Return a made-up offset."""
        return 8 * len(str(name))


FIELDS = {"interp_tstates": 0, "thread_id": 0, "ts_interp": 8, "ts_next": 16, "ts_frame": 24, "f_back": 0}


def module_of(size: int) -> LoadedObject:
    """Return a module with ``size`` bytes of data."""
    whole = Mapping(BASE, BASE + size, "rw-p", 0, "fe:00", 7, "/evil.so")
    return LoadedObject("/evil.so", BASE, BASE, None, [whole], [])


def _interpreters(space: Space, module: LoadedObject) -> object:
    target = Target("process", space=space)
    return threads.ThreadStates(target, module, _Release(FIELDS)).interpreters  # type: ignore[arg-type]


def _tables(space: Space, module: LoadedObject) -> object:
    return traces.Traces(space, _Release(), module).tables  # type: ignore[arg-type]


@pytest.mark.parametrize("look", [_interpreters, _tables])
def test_large_static_data(
    look: Callable[[Space, LoadedObject], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    """Check that data full of different words is searched piece by piece: more pieces need no more memory."""
    for searching in (debug_offsets, threads, traces):
        monkeypatch.setattr(searching, "WINDOW", 16 << 10, raising=False)
    assert threads.FEW < 8  # few pieces are kept
    first = rng.randrange(1 << 40, 1 << 41) & -8
    sizes = [128 << 10, 512 << 10]
    peaks = []
    for size in sizes:
        space = space_of(tmp_path / f"{size}", struct.pack(f"<{size // 8}Q", *range(first, first + size, 8)))
        peaks.append(peak(lambda space=space, size=size: look(space, module_of(size))))  # type: ignore[misc]
    assert peaks[1] - peaks[0] < sizes[1] - sizes[0]


def test_tables_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check words that lead to a false table with an endless number of empty buckets."""
    asked: Counter[str] = Counter()
    find = traces._native.find_pointer

    def counted(space: Space, start: int, end: int, low: int, high: int) -> int | None:
        asked["bytes"] += end - start
        return find(space, start, end, low, high)

    monkeypatch.setattr(traces._native, "find_pointer", counted)
    monkeypatch.setattr(traces, "LOOKED_AT", 1 << 10)
    count, empty = rng.randrange(20, 40), BASE + (1 << 16)
    tables = b"".join(struct.pack("<5Q", 1, 1 << 30, empty, 0, 0) for _ in range(count))
    words = struct.pack(f"<{count}Q", *(BASE + PAGE + 40 * at for at in range(count)))
    space = space_of(tmp_path / "memory", (words.ljust(PAGE, b"\0") + tables).ljust(2 << 20, b"\0"))
    assert _tables(space, module_of(PAGE)) == []
    assert 0 < asked["bytes"] <= traces.LOOKED_AT * traces.STEP


def test_threads_that_share_their_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check thread states that all claim the same running frames: each frame is read once."""
    states, frames = rng.randrange(20, 50), rng.randrange(20, 50)
    frame = threads.PythonFrame(0, 0, "f", "f.py", 1, [], [], True)
    monkeypatch.setattr(threads.ThreadStates, "read", lambda _threads, _address, _is_object: frame)
    interpreter, first, chain = BASE + PAGE, BASE + 2 * PAGE, BASE + 8 * PAGE
    rows = [(7, interpreter, first + 32 * (at + 1) if at + 1 < states else 0, chain) for at in range(states)]
    links = [chain + 8 * (at + 1) for at in range(frames - 1)] + [0]
    parts = [
        struct.pack("<Q", interpreter).ljust(PAGE, b"\0"),
        struct.pack("<Q", first).ljust(PAGE, b"\0"),
        b"".join(struct.pack("<4Q", *row) for row in rows).ljust(6 * PAGE, b"\0"),
        struct.pack(f"<{frames}Q", *links).ljust(PAGE, b"\0"),
    ]
    space = space_of(tmp_path / "memory", b"".join(parts))
    target = Target("process", space=space, threads=[Thread(1, 7, 0, 0)])
    found = threads.ThreadStates(target, module_of(PAGE), _Release(FIELDS))  # type: ignore[arg-type]
    assert len(found.states) == states and sum(len(state.frames) for state in found.states) == frames


def test_threads_share_a_walk_of_the_graph(rng: random.Random) -> None:
    """Check that the graph is asked once for the variables of all claimed threads together, and once about an object
    in many frames."""
    asked = Counter[str]()

    class Graph:
        def retained_together(self, sets: list[list[int]]) -> list[int]:
            asked["together"] += 1
            return [sum(one) for one in sets]

        def retained(self, numbers: list[int]) -> list[int]:
            asked["alone"] += 1
            return numbers

        def find(self, address: int) -> int:
            return address

        def edges(self, _number: int) -> list[Any]:
            return []

    def type_at(_address: int) -> str:
        asked["types"] += 1
        return "str"

    counts = [rng.randrange(4) for _ in range(rng.randrange(50, 100))]
    frame = threads.PythonFrame(0, 0, "f", "f.py", 1, [threads.Local("name", 0, 5)], [], True)
    states = [SimpleNamespace(thread=None, frames=[frame] * count) for count in counts]
    references = SimpleNamespace(
        graph=Graph(), roots=[], first_root=0, find=lambda _address: None, nodes=lambda _numbers: [],
        objects=SimpleNamespace(type_at=type_at),
    )  # fmt: skip
    interpreter = SimpleNamespace(threads=SimpleNamespace(states=states))
    heap = SimpleNamespace(python=SimpleNamespace(references=references, interpreter=interpreter))
    found = answers_of_threads(cast(Any, heap)).rows
    assert [[running.retained for running in thread.running] for thread in found] == [[5] * count for count in counts]
    assert asked == {"together": 2, "alone": 1, "types": 1}


BYTES, PAIRS, ENTRIES = {}, {"co_linetable": 1}, {"co_linetable": 1, "linetable_entries": 1}


@pytest.mark.parametrize("number", [b"\x7f" * 20_000 + b"\1", b"\x7f" * 5 + b"\x3e"])
def test_large_numbers_of_lines(number: bytes) -> None:
    """Check line numbers of 120,000 and of 36 bits: neither is a number of C's, and Python does not print the first."""
    table = bytes([0x80 | lines.LONG_FORM << 3]) + number + bytes(3)
    with pytest.raises(IndexError):
        lines.line_of(_Release(ENTRIES), table, 1, 0)  # type: ignore[arg-type]


def test_long_numbers_of_lines() -> None:
    """Check that line numbers of any length cost as much as six bytes."""

    def work() -> None:
        with pytest.raises(IndexError):
            lines.line_of(_Release(ENTRIES), table, 1, 0)  # type: ignore[arg-type]

    table = bytes([0x80 | lines.NO_COLUMNS << 3]) + b"\x7f" * 6
    few = steps(work)
    table += b"\x7f" * 50_000
    assert steps(work) == few


@pytest.mark.parametrize("release", [BYTES, PAIRS, ENTRIES])
def test_lines_of_any_bytes(release: dict[str, int], rng: random.Random) -> None:
    """Check that a line number computed from a table of random bytes is a C int of at least 0, or None."""
    for _ in range(500):
        table, first = rng.randbytes(rng.randrange(200)), rng.choice([0, 1, 1 << 31, (1 << 32) - 1])
        try:
            found = lines.line_of(_Release(release), table, first, rng.randrange(-2, 300))  # type: ignore[arg-type]
        except IndexError:
            continue
        assert found is None or 0 <= found < 1 << 31


LOOK = """
import sys
from gdbheap import _native
from gdbheap.targets.core import SegmentRow
from gdbheap.machines.machine import X86_64
path, size, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = [(1 << 29, (1 << 29) + size)]
space = _native.Space.for_core(X86_64, [SegmentRow(*data[0], 0, 0)], [path])
# Of this program alone: the kernel's other figure (ru_maxrss) is that of the one that started it, too.
most = lambda: int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
before = most()
assert not getattr(_native, name)(space, data, [(1 << 40, 1 << 41)])
print(most() - before)
"""


@pytest.mark.parametrize("name", ["find_trees", "find_span_maps"])
def test_static_data_of_allocators(name: str, tmp_path: Path, rng: random.Random) -> None:
    """Check that words that lead nowhere are not kept while an allocator's root is searched for among them."""
    size = 32 << 20
    (tmp_path / "memory").write_bytes(bytes([rng.randrange(1, 256)]) * size)
    command = [sys.executable, "-c", LOOK, str(tmp_path / "memory"), str(size), name]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=True)
    assert int(done.stdout) << 10 < size


# Cores and texts.


def test_segments_of_one_part_of_a_core(tmp_path: Path) -> None:
    """Check a core with many holes whose segments all have the same bytes."""

    def make(count: int) -> Callable[[], object]:
        parts = [
            image.Segment(image.PT_LOAD, 6, 1 << 16, BASE + (at << 24), 1 << 24, 1 << 24, PAGE) for at in range(count)
        ]
        path = elf_file(tmp_path / f"core-{count}", parts, (1 << 16) + (1 << 24))
        with path.open("r+b") as stream:
            stream.seek(16)
            stream.write(struct.pack("<H", image.TYPE_CORE))
            for at in range(count):
                stream.seek((1 << 16) + at * (64 << 10))
                stream.write(b"x")
        return lambda: Core(str(path))

    assert is_in_proportion(make, 40)


def test_memory_of_one_part_of_a_core(tmp_path: Path, rng: random.Random) -> None:
    """Check segments that share bytes of the file: each byte belongs to one segment, and the last one is complete."""
    size, count = 64 * PAGE, 200
    offsets = [PAGE * rng.randrange(16, 60) for _ in range(count)]
    parts = [
        image.Segment(image.PT_LOAD, 6, at, BASE + (number << 24), 1 << 24, 1 << 24, PAGE)
        for number, at in enumerate(offsets)
    ]
    path = elf_file(tmp_path / "core", parts, size)
    with path.open("r+b") as stream:
        stream.seek(16)
        stream.write(struct.pack("<H", image.TYPE_CORE))
        stream.seek(max(offsets))
        stream.write(b"last")
    core = Core(str(path))
    held = sum(len(core.space.read_available(one.start, size)) for one in core.mappings)
    assert held == size - min(offsets) and core.partial and core.damage
    assert any(core.space.read_available(one.start, 4) == b"last" for one in core.mappings)


def _note(kind: int, data: bytes) -> bytes:
    return struct.pack("<III", 5, len(data), kind) + b"CORE\0\0\0\0" + data


def test_notes_of_a_core(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check a core that names more threads and files than there is memory for."""
    count, room = rng.randrange(2000, 3000), 1 << 20
    monkeypatch.setattr(notes, "room_for_copy", lambda: room, raising=False)
    pages = b"".join(struct.pack("<QQQ", BASE + at * PAGE, BASE + (at + 1) * PAGE, 0) for at in range(count))
    files = _note(notes.NT_FILE, struct.pack("<QQ", count, PAGE) + pages + b"/\0" * count)
    data = _note(notes.NT_PRSTATUS, rng.randbytes(336)) * count + files.ljust((len(files) + 3) // 4 * 4, b"\0")
    found: list[notes.CoreNotes] = []
    most = peak(lambda: found.append(notes.read_notes(X86_64, data)))
    assert 0 < len(found[0].threads) < count and 0 < len(found[0].files) < count and most < room


def test_auxiliary_vector_of_a_core(rng: random.Random) -> None:
    """Check an auxiliary vector of a mebibyte without an end."""
    data = _note(notes.NT_AUXV, struct.pack("<131072Q", *range(1 << 32, (1 << 32) + 131072)))
    assert peak(lambda: notes.read_notes(X86_64, data)) < 2 * len(data)


def test_program_headers_of_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check more program headers than there is memory for."""
    monkeypatch.setattr(core_module, "room_for_copy", lambda: 1 << 20, raising=False)
    count = rng.randrange(1000, 2000)
    path = elf_file(tmp_path / "core", [load(2 * at * PAGE + BASE, 0, PAGE) for at in range(count)], 1 << 20)
    with path.open("r+b") as stream:
        stream.seek(16)
        stream.write(struct.pack("<H", image.TYPE_CORE))
    core = Core(str(path))
    assert 0 < len(core.mappings) < count and core.partial


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_parents_that_repeat(turn: int) -> None:
    """Check a log that names each process as its own parent, or as the parent of its parent."""
    count = 50
    who = [SimpleNamespace(pid=at, began=1, parent=(max(at - 1, 0) if at > turn else turn - at, 1, 1))
           for at in range(count)]  # fmt: skip
    rows: list[Any] = [SimpleNamespace(who=one, frames=[(at, 0)]) for at, one in enumerate(who)]
    log: Any = SimpleNamespace(processes=rows)
    found = replay._parents(log, rows[-1])
    firsts = [frames[0][0] for frames, _number in found]
    assert firsts[-1] == count - 2 and len(set(firsts)) == len(firsts) < count


def test_mounts_of_a_namespace(rng: random.Random) -> None:
    """Check thousands of tmpfs mounts: only the first few are examined, and none behind a server."""

    def make(count: int) -> Callable[[], object]:
        mounts = [Mount(at, f"/{kind}/{at}", "tmpfs", "") for at in range(count) for kind in ("nfs", "local")]
        mounts += [Mount(count, "/nfs", "nfs4", ""), Mount(count + 1, "/", "overlay", "")]

        def look() -> None:
            assert {mount.point.split("/")[1] for mount in tmpfs._of_tmpfs(mounts, {})} == {"local"}

        return look

    assert is_in_proportion(make, 100)


class _Empty:
    """Memory that is backed and read but has no contents."""

    machine = X86_64

    def __init__(self) -> None:
        self.asked = 0

    def next_backed(self, address: int) -> int:
        """Return the address: there are no holes."""
        return address

    def read_available(self, _address: int, size: int) -> bytes:
        """Count the read."""
        self.asked += size
        return b""


def test_texts_in_a_file_of_holes() -> None:
    """Check that a mapped file of a tebibyte is not searched to its end for the names of libraries."""
    whole = Mapping(BASE, BASE + (1 << 40), "r--p", 0, "fe:00", 7, "/evil.so")
    space: Any = _Empty()
    target = Target("process", space=space, objects=[LoadedObject("/evil.so", BASE, BASE, None, [whole], [])])
    assert kinds.find_libraries(target) == kinds.Libraries(False, False, False)
    assert 0 < space.asked < 2 << 30


def test_instructions_for_each_frame(tmp_path: Path) -> None:
    """Check two hundred calls of a function whose unwind entry has 2.5 MB of instructions: all together read at most
    64 MB."""
    with running(c_program("many_rules", 200), tmp_path) as target:
        (thread,) = ask("threads", str(target.pid), "--c-frames")["rows"]
    called = [frame["function"] for frame in thread["running"]]
    assert called.count("deep") == (64 << 20) // (20_000 * 64 * 2 + 1024)


@pytest.mark.parametrize(("reads", "is_followed"), [(16, True), (17, False), (100, False)])
def test_reads_of_one_expression(reads: int, is_followed: bool, tmp_path: Path) -> None:
    """Check that an expression of an unwind entry that reads many words ends the stack: each read may be a page."""
    with running([str(build("many_reads", f"-DREADS={reads}"))], tmp_path) as target:
        (thread,) = ask("threads", str(target.pid), "--c-frames")["rows"]
    called = [frame["function"] for frame in thread["running"]]
    assert "rest" in called and ({"deep", "main"} <= set(called)) == is_followed, called


# Dicts of Python.

RELEASE = Release("3.10", 3, 10, table("cpython")["releases"]["3.10"])
OBJECT, DICT = 32, 64
TABLE_OF_ONE = 40 + 8


def of_one_table(path: Path, count: int, entries: int) -> tuple[Space, list[int], int]:
    """Write objects whose dicts have one table of that many keys, all the string "x".

    Return the memory, the objects, and their type.
    """
    kind, key = BASE, BASE + 512
    first = BASE + PAGE
    table_at = first + count * (OBJECT + DICT)
    objects = [first + number * (OBJECT + DICT) for number in range(count)]
    words = {kind + TP_DICTOFFSET: 16, kind + TP_BASICSIZE: OBJECT, kind + RELEASE["ht_cached_keys"]: 0}
    words |= {key + RELEASE["unicode_length"]: 1, key + RELEASE["unicode_state"]: 3 << 5 | 1 << 2}
    words |= {key + RELEASE["sizeof_ascii"]: ord("x")}
    words |= {one + 16: one + OBJECT for one in objects}
    words |= {one + OBJECT + RELEASE["ma_keys"]: table_at for one in objects}
    words |= {table_at + RELEASE["dk_size"]: 8, table_at + RELEASE["dk_nentries"]: entries}
    words |= {table_at + TABLE_OF_ONE + 8 * place: key for place in range(3 * entries)}
    data = bytearray(max(words) + 64 - BASE)
    for at, word in words.items():
        struct.pack_into("<Q", data, at - BASE, word)
    return space_of(path, bytes(data)), objects, kind


def test_dicts_of_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that only a limited number of keys is read for many types or many objects whose dicts have one table."""
    monkeypatch.setattr(contents, "FIRST_ENTRIES", 300, raising=False)

    def of_types(count: int) -> Callable[[], object]:
        space, objects, _kind = of_one_table(tmp_path / f"{count}", count, 16 * count)
        lookups: Any = contents.Lookups()

        def look() -> None:
            for one in objects:
                with suppress(Fault):
                    assert contents.dict_lookup(space, RELEASE, one + OBJECT, "y", lookups) is None

        return look

    def of_objects(count: int) -> Callable[[], object]:
        space, objects, kind = of_one_table(tmp_path / f"{count}", count, 16 * count)
        read = attributes.Attributes(space, RELEASE).reader(space, objects[0], kind, "y")

        def group() -> None:
            for one in objects:
                with suppress(Fault):
                    assert read(one) == 0

        return group

    size = rng.randrange(10, 15)
    assert is_in_proportion(of_types, size) and is_in_proportion(of_objects, size)


def test_an_attribute_of_many_dicts(tmp_path: Path, rng: random.Random) -> None:
    """Check that the keys within the caller's limit are read, and that nothing is claimed about the others."""
    count = rng.randrange(10, 20)
    space, objects, kind = of_one_table(tmp_path / "memory", count, 100)
    whole = rng.randrange(1, count)
    allowance = contents.Allowance(100 * whole)
    read = attributes.Attributes(space, RELEASE).reader(space, objects[0], kind, "y", allowance)
    assert [read(one) for one in objects[:whole]] == [0] * whole
    with pytest.raises(Fault):
        read(objects[whole])


# PostgreSQL's memory contexts.

OF_ALLOC_SET = next(form for form in variants(postgresql.TABLE, "alloc_set") if form["since"] == "17")
CONTEXT = 1024


def contexts_of(
    path: Path, count: int, chunks: int, *, inside: bool = False, apart: bool = False, loops: bool = False
) -> postgresql._Reader:
    """Return a reader of a tree of contexts whose free lists all lead to the same chunks.

    ``inside``: all contexts have a block that contains these chunks; ``apart``: each context has its own methods, so
    that no layout is known in advance; ``loops``: blocks lead to themselves.
    """
    name = BASE + count * CONTEXT
    first = name + PAGE
    end = first + 16 * chunks
    words = {name: int.from_bytes(b"TopMemor", "little"), name + 8: int.from_bytes(b"yContext", "little")}
    for at in range(first, end, 16):
        words |= {at: postgresql.ALLOC_SET_ID, at + 8: at + 16 if at + 16 < end else 0}
    for number in range(count):
        at = BASE + CONTEXT * number
        block = at + OF_ALLOC_SET["size"]
        stop = end + PAGE if inside else block + 500
        links = {"mem_allocated": OF_ALLOC_SET["size"] + stop - block, "methods": at if apart else BASE, "name": name}
        if number:
            before, after = at - CONTEXT if number > 1 else 0, at + CONTEXT if number < count - 1 else 0
            links |= {"parent": BASE, "prevchild": before, "nextchild": after}
        else:
            links["firstchild"] = BASE + CONTEXT
        words |= {at + table(postgresql.TABLE)["context"][link]: word for link, word in links.items()}
        words |= {at + OF_ALLOC_SET["freelist"] + WORD * place: first for place in range(postgresql.FREE_LISTS)}
        words |= {at + OF_ALLOC_SET["blocks"]: block, block: at, block + 24: block + 40, block + 32: stop}
        words[block + 16] = block if loops else 0
    data = bytearray(end + 2 * PAGE - BASE)
    for at, word in words.items():
        struct.pack_into("<Q", data, at - BASE, word)
    mappings = Mappings([page(at) for at in range(-(-len(data) // PAGE))])
    target: Any = SimpleNamespace(space=space_of(path, bytes(data)), machine=X86_64, mappings=mappings)
    facts: Any = SimpleNamespace(add=lambda *_words: None)
    return postgresql._Reader(target, facts)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_contexts_with_the_same_chunks(inside: bool, apart: bool, tmp_path: Path, rng: random.Random) -> None:
    """Check free lists of all contexts that lead to one chain: outside of their blocks each context is reported with
    damaged lists; contexts with overlapping blocks are rejected."""
    size = rng.randrange(20, 30)

    def make(count: int) -> Callable[[], object]:
        reader = contexts_of(tmp_path / str(count), count, 10 * count, inside=inside, apart=apart)

        def read() -> None:
            with contextlib.suppress(Unsupported):
                list(reader.tree(BASE))

        return read

    assert is_in_proportion(make, size)
    reader = contexts_of(tmp_path / "said", size, size, inside=inside, apart=apart)
    if inside:
        with pytest.raises(Unsupported, match="do not add up"):
            list(reader.tree(BASE))
        return
    found = list(reader.tree(BASE))
    assert len(found) == len(reader.damage) == size
    assert all("free chunks" in damage.what for damage in reader.damage)


def test_blocks_that_lead_to_themselves(tmp_path: Path) -> None:
    """Check that a block that leads to itself is read once."""
    reader = contexts_of(tmp_path / "memory", 2, 1, loops=True)
    found: list[str] = []

    def read() -> None:
        with pytest.raises(Unsupported, match="do not add up"):
            found.extend(context.name for context in reader.tree(BASE))

    assert steps(read) < 50_000 and not found


def test_layouts_of_damaged_contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: random.Random) -> None:
    """Check that the damaged contexts of one kind are counted with the layouts that fit the first of them, not with
    all layouts."""
    tried: list[int] = []
    counts = postgresql._Reader._bump

    @functools.wraps(counts)
    def counting(reader: postgresql._Reader, context: int, form: dict[str, Any]) -> postgresql.ContextSums:
        tried.append(context)
        return counts(reader, context, form)

    monkeypatch.setattr(postgresql._Reader, "_bump", counting)
    size = rng.randrange(20, 30)
    reader = contexts_of(tmp_path / "memory", size, 1)
    assert len(list(reader.tree(BASE))) == len(reader.damage) == size
    assert tried == [BASE]


def test_kinds_of_contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Check that contexts of which each is of another kind are refused, because each takes all layouts."""
    monkeypatch.setattr(postgresql, "MAX_KINDS", 10)
    assert len(list(contexts_of(tmp_path / "few", 10, 1, apart=True).tree(BASE))) == 10
    with pytest.raises(Unsupported, match="more than 10 kinds"):
        list(contexts_of(tmp_path / "many", 11, 1, apart=True).tree(BASE))


@pytest.mark.parametrize("limit", ["MAX_CONTEXTS", "MAX_STEPS", "MAX_CHUNKS"])
def test_limits_of_contexts(limit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: random.Random) -> None:
    """Check that contexts and free chunks beyond a limit are left out, which the answer then says."""
    size, most = rng.randrange(40, 50), rng.randrange(30, 40)
    assert not is_cut(contexts_of(tmp_path / "whole", size, 1), size)
    monkeypatch.setattr(postgresql, limit, most)
    reader = contexts_of(tmp_path / "memory", size, 1)
    if limit == "MAX_CHUNKS":
        assert is_cut(reader, size) and len(reader.damage) < size
    else:
        assert is_cut(reader, most if limit == "MAX_CONTEXTS" else None)


def is_cut(reader: postgresql._Reader, count: int | None) -> bool:
    """Return whether the reader left out a part; check how many contexts it reads."""
    found = list(reader.tree(BASE))
    assert len(found) == count if count is not None else 0 < len(found) < 40
    return reader.is_cut


def test_pointers_to_a_root(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that an address that many pointers contain is tested once, and that a limited number of addresses is
    tested."""
    tested: list[int] = []
    reader: Any = SimpleNamespace(is_top=tested.append)
    program: Any = SimpleNamespace(symbol=lambda _name: None)
    target: Any = SimpleNamespace(machine=X86_64, space=None)
    place, count = 8 * rng.randrange(1, 1 << 30), rng.randrange(20, 90)
    windows = [(0, struct.pack("<Q", place) * count)] * 3
    monkeypatch.setattr(postgresql, "windows", lambda *_words: windows)
    assert postgresql._top(target, program, reader) is None
    assert tested == [place]
    windows = [(0, struct.pack(f"<{count}Q", *range(8, 8 * count + 8, 8)))]
    monkeypatch.setattr(postgresql, "MAX_TOPS", 10)
    assert postgresql._top(target, program, reader) is None
    assert len(tested) == 11


def test_free_chunks_prove_the_layout(tmp_path: Path, rng: random.Random) -> None:
    """Check contexts of PostgreSQL 13 of which only the last has a free chunk: the others fit the layout of 16, too."""
    form = next(form for form in variants(postgresql.TABLE, "alloc_set") if form["since"] == "13")
    count, name = rng.randrange(3, 9), BASE + 9 * CONTEXT
    words = {name: int.from_bytes(b"TopMemor", "little"), name + 8: int.from_bytes(b"yContext", "little")}
    for number in range(count):
        at = BASE + CONTEXT * number
        block, end = at + form["size"], at + CONTEXT
        links = {"mem_allocated": CONTEXT, "methods": BASE, "name": name}
        if number:
            before, after = at - CONTEXT if number > 1 else 0, end if number < count - 1 else 0
            links |= {"parent": BASE, "prevchild": before, "nextchild": after}
        else:
            links["firstchild"] = end
        words |= {at + table(postgresql.TABLE)["context"][link]: word for link, word in links.items()}
        words |= {at + form["blocks"]: block, block: at, block + 24: end - 100, block + 32: end}
    chunk = block + 40
    words |= {at + form["freelist"]: chunk, chunk: postgresql.LEAST_CHUNK}
    data = bytearray(10 * CONTEXT)
    for place, word in words.items():
        struct.pack_into("<Q", data, place - BASE, word)
    mappings = Mappings([page(at) for at in range(-(-len(data) // PAGE))])
    target: Any = SimpleNamespace(space=space_of(tmp_path / "memory", bytes(data)), machine=X86_64, mappings=mappings)
    facts: list[str] = []
    reader = postgresql._Reader(target, SimpleNamespace(add=lambda *words: facts.append(words[1])))  # type: ignore[arg-type]
    found = list(reader.tree(BASE))
    assert not reader.damage and facts == ["as since 13"]
    assert [context.free for context in found] == [100] * (count - 1) + [100 + postgresql.LEAST_CHUNK + 16]


def test_names_of_many_contexts(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that contexts with many names have one holder and one description for all names beyond a limit."""
    most, count = rng.randrange(10, 20), rng.randrange(50, 90)
    monkeypatch.setattr(postgresql, "MAX_NAMES", most)
    places = range(BASE, BASE + 16 * count, 16)
    contexts = [postgresql.Context(f"{at:x}", None, 1, 16, 0, at, ((at, at + 16),)) for at in places]
    content: Any = SimpleNamespace(contexts=contexts)
    holders = postgresql.PostgresqlContent.holders(content)
    assert len(holders) == most + 1 and sorted(at for held in holders for at in held.blocks) == list(places)
    assert holders[-1].name == f"{count - most} memory contexts with other names"
    named = postgresql.PostgresqlContent.named_blocks(content, None, None)  # type: ignore[arg-type]
    assert [at for at, _what in named] == list(places) and len({what for _at, what in named}) == most + 1


POINTERS = """
#include <stdlib.h>
#include <unistd.h>
int main(void) { for (int i = 0; i < %d; i++) *(long *)malloc(24) = %d; for (;;) pause(); }
"""


def test_blocks_with_one_word(tmp_path: Path, rng: random.Random) -> None:
    """Check that a limited number of blocks with a word is listed, those with the lowest addresses."""
    count = openssl.MAX_MATCHED + rng.randrange(1 << 16, 1 << 17)
    word = rng.getrandbits(60)
    with compiled(POINTERS % (count, word), tmp_path) as program, running([str(program)], tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            heaps = Heaps(heap.target.space, heap.walked.stores)
            found = [address for address, _size, _offset in blocks_with(heaps, [word])]
    assert len(found) == openssl.MAX_MATCHED and found == sorted(set(found))
    assert found[-1] - found[0] < 40 * openssl.MAX_MATCHED


# Calls that are followed.


# The function that waits says where its caller's frame is by an expression, with a loop of 31 rounds or without one.
WAITS = """
#include <stdio.h>
#include <unistd.h>
void waits(void);
__asm__(".text\\n.globl waits\\nwaits: .cfi_startproc\\n"
        ".cfi_escape 0x0f,%s\\n"
        "sub $8,%%rsp\\n call pause@PLT\\n add $8,%%rsp\\n ret\\n .cfi_endproc\\n");
int main(void) { puts(""); fflush(stdout); waits(); puts(""); return 0; }
"""
EXPRESSIONS = {
    "plain": "0x02,0x77,0x10",
    "loop": "0x0b,0x4f,0x31,0x1c,0x12,0x28,0xfa,0xff,0x13,0x77,0x10,0x96",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the expressions are for x86-64")
@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_loops_in_unwind_tables(kind: str, tmp_path: Path) -> None:
    """Check that no loop in the expressions of unwind tables is followed: compilers write none, and their steps would
    take long without a limit that all frames share."""
    with compiled(WAITS % EXPRESSIONS[kind], tmp_path) as program, running([str(program)], tmp_path) as target:
        call, pause = Path(f"/proc/{target.pid}/syscall"), "34 "
        wait_for(lambda: call.read_text().startswith(pause), "it does not wait")
        (thread,) = ask("threads", str(target.pid), "--c-frames")["rows"]
    functions = [frame["function"] for frame in thread["running"]]
    assert ("main" in functions) == (kind == "plain"), functions


class _Pairs(list[tuple[int, int, int]]):
    """Saved registers, of which each reading is counted."""

    read = 0

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Count each."""
        for one in super().__iter__():
            self.read += 1
            yield one


def test_frames_of_a_deep_stack(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that the saved registers of all frames are read once, not once for each frame, and that all threads share
    one limit."""
    count = rng.randrange(2000, 4000)
    saved = _Pairs((place, register, 8 * place + register) for place in range(count) for register in range(3, 6))
    asked: list[int] = []

    def unwound(_space: Any, _modules: Any, _room: int, effort: int, _threads: Any) -> list[Any]:
        asked.append(effort)
        counters, pointers = list(range(count)), list(range(0, 8 * count + 8, 8))
        return [SimpleNamespace(counters=counters, pointers=pointers, saved=saved, taken=min(effort, EFFORT // 3))]

    monkeypatch.setattr(frames._native, "unwind_stacks", unwound)
    monkeypatch.setattr(frames, "modules_of", lambda *_: [])
    target: Any = SimpleNamespace(machine=X86_64, space=None, object_of=lambda _address: None)
    stacks = frames.ThreadFrames(target)
    threads: list[Any] = [SimpleNamespace(tid=tid, registers=[0] * 27, sp=0, pc=0) for tid in range(5)]
    found = [stacks.of(thread) for thread in threads]
    assert [len(row) for row in found] == [count] * 5
    assert found[0][7].saved == {8 * 7 + register: register for register in range(3, 6)}
    assert saved.read == 5 * len(saved) and stacks.of(threads[0]) is found[0]
    assert asked[0] == EFFORT and asked[1] < asked[0] and asked[-1] < EFFORT // 3


def memory_calls(count: int, rng: random.Random) -> list[Any]:
    """Return threads that map and unmap a page of any size."""
    names = {name: number for number, name in X86_64.system_calls.of_memory.items()}
    found = []
    for _ in range(count // 2):
        start, size = BASE + PAGE * rng.randrange(1 << 20), PAGE * rng.randrange(1, 1 << 20)
        found.append((names["mmap"], (0, size, 3, mmap.MAP_ANONYMOUS), start))
        found.append((names["munmap"], (start, size), 0))
    return found


class _Stacks:
    """Stacks that all differ."""

    taken = 0
    unread: list[str] = []

    def __init__(self, frames: int = 1) -> None:
        self.frames = frames

    def capture_registers(self, *_: object) -> CapturedStack:
        """Return a new stack, no place of which was met before."""
        first = BASE + self.taken * self.frames
        self.taken += 1
        return CapturedStack(tuple((None, at, at + 1) for at in range(first, first + self.frames)), "", None)

    def name(self, captured: CapturedStack) -> tuple[tuple[object, int, int], ...]:
        """Return the name of a stack."""
        return captured.places


def made_up_following() -> tuple[Any, Any]:
    """Return a process and its follower, of which nothing is real."""
    follower = SimpleNamespace(maps=[b"", b""], hits=0, stood=0.0, held=0.0, finish="", status=None, lost=0)
    live = SimpleNamespace(machine=X86_64, pid=1, folder=None, unread=[])
    return live, SimpleNamespace(follower=follower, what=[], refused=[])


def registers_of_mmap() -> list[int]:
    """Return the registers after a call that maps 4,096 bytes of private memory."""
    known, registers = X86_64.system_calls, [0] * 32
    for place, word in zip(known.arguments, (0, 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)):
        registers[place] = word
    registers[known.result] = BASE
    return registers


def test_calls_that_are_followed(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that ten times as many calls, each from another stack, take no more memory, and that none is missing in
    the sums."""
    monkeypatch.setattr(following_growth, "MAX_STACKS", 10, raising=False)
    stacks = _Stacks()
    monkeypatch.setattr(following_growth._Sums, "_stacks_of", lambda *_: stacks)
    live, following = made_up_following()
    known = X86_64.system_calls

    def follow(count: int) -> tuple[int, Any]:
        calls, sums = memory_calls(count, rng), following_growth._Sums(live, True, following, False)
        registers = [0] * 32

        def add() -> None:
            for number, arguments, result in calls:
                for place, word in zip(known.arguments, arguments):
                    registers[place] = word
                registers[known.result] = result
                sums.add(SimpleNamespace(pid=1, registers=registers, stack=b"", doubtful=True), number)  # type: ignore

        return peak(add), sums

    (few, _), (many, sums) = follow(400), follow(4000)
    assert many < 4 * few
    found = sums.growth(following, 1.0, False)
    assert (found.mmap.calls, sum(share.calls for share in found.mmap.sizes)) == (2000, 2000)
    assert len(found.sites) == 10 and found.other_stacks.calls == 1990
    assert found.other_stacks.bytes + sum(stack.bytes for stack in found.sites) == found.mmap.bytes


def test_deep_stacks_that_are_followed(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that the frames of all stacks that are kept have one limit, that they take no more memory than assumed, and
    that no call is missing in the sums."""
    most = rng.randrange(20_000, 40_000)
    depth, count = most // rng.randrange(3, 9), rng.randrange(20, 40)
    monkeypatch.setattr(following_growth, "MAX_FRAMES", most, raising=False)
    stacks = _Stacks(depth)
    monkeypatch.setattr(following_growth._Sums, "_stacks_of", lambda *_: stacks)
    live, following = made_up_following()
    sums = following_growth._Sums(live, True, following, False)
    registers = registers_of_mmap()
    hit: Any = SimpleNamespace(pid=1, registers=registers, stack=b"", doubtful=True)

    def add() -> None:
        for _ in range(count):
            sums.add(hit, 9)

    # One more stack is captured, and not kept.
    taken = peak(add)
    found = sums.growth(following, 1.0, False)
    assert [len(stack.frames) for stack in found.sites] == [depth] * (most // depth)
    assert sum(weight for _frames, weight, _calls in drawn_stacks(found)) == found.mmap.bytes
    assert taken < following_growth.FRAME_BYTES * (most + 2 * depth)
    assert found.other_stacks is not None
    assert found.other_stacks.calls + sum(stack.calls for stack in found.sites) == found.mmap.calls == count
    assert found.other_stacks.bytes + sum(stack.bytes for stack in found.sites) == found.mmap.bytes


def test_places_of_a_recursion_are_shared(rng: random.Random) -> None:
    """Check that a deep stack of a few functions has a few places, in the right order."""
    counters = [BASE + PAGE * rng.randrange(2, 6) for _ in range(rng.randrange(1000, 2000))]
    starts = [counter - counter % (2 * PAGE) for counter in counters]
    found = SimpleNamespace(counters=counters, starts=starts, cut="")
    stacks: Any = object.__new__(Stacks)
    stacks._running = SimpleNamespace(unwind=lambda *_: found, code_object=lambda _at: None)
    places, _cut = stacks._places([0], None)
    assert len(set(map(id, places))) <= 1 + len(set(counters))
    exact = [counter - bool(place) for place, counter in enumerate(counters)]
    assert list(places) == [(None, max(at, start), start) for at, start in zip(exact, starts)]


def test_stacks_that_take_long(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that the stacks of a process with very many mappings are read for a small part of the time, because others
    wait meanwhile, and that the stacks of another process are all read."""
    clock = SimpleNamespace(now=0.0, spent=0.0)

    class Slow(_Stacks):
        def capture_registers(self, *_: object) -> CapturedStack:
            each = rng.uniform(0.1, 0.5)
            clock.now, clock.spent = clock.now + each, clock.spent + each
            return super().capture_registers()

    for name in ("monotonic", "thread_time"):
        monkeypatch.setattr(following_growth.time, name, lambda: clock.now)
    monkeypatch.setattr(following_growth._Sums, "_stacks_of", lambda _sums, pid: _Stacks() if pid == 1 else Slow())
    live, following = made_up_following()
    sums = following_growth._Sums(live, True, following, False)
    registers = registers_of_mmap()
    count = rng.randrange(5000, 9000)
    for number in range(count):
        clock.now += 0.01
        sums.add(SimpleNamespace(pid=number % 2 + 1, registers=registers, stack=b"", doubtful=True), 9)  # type: ignore
    assert 0 < clock.spent <= following_growth.STACK_SHARE * clock.now + 0.5
    found = sums.growth(following, 1.0, False)
    assert found.other_stacks is not None and found.mmap.calls == count
    assert count // 2 > found.other_stacks.calls > count // 4


def test_stacks_of_calls_that_are_left(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that stacks of the calls that are read after the end are read for a limited time, and that no call is
    missing in the sums."""
    count, each, clock = rng.randrange(200, 400), rng.uniform(0.1, 0.5), SimpleNamespace(now=0.0)
    stacks = _Stacks()

    def read(*_: object) -> tuple[int, bytes]:
        clock.now += each
        return _Stacks.capture_registers(stacks)

    monkeypatch.setattr(following_growth.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(stacks, "capture_registers", read, raising=False)
    monkeypatch.setattr(following_growth._Sums, "_stacks_of", lambda *_: stacks)
    live, following = made_up_following()
    registers = registers_of_mmap()
    hits = [SimpleNamespace(pid=1, registers=registers, stack=b"", doubtful=True) for _ in range(count)]
    following.follower.next = lambda _timeout: hits.pop() if hits else None
    following.place = lambda _hit: 9
    sums = following_growth._Sums(live, True, following, False)
    sums.add_rest(following)
    found = sums.growth(following, 1.0, False)
    assert clock.now <= following_growth.REST_SECONDS + each
    assert found.mmap.calls == count and found.other_stacks is not None
    assert found.other_stacks.calls + sum(stack.calls for stack in found.sites) == count


@pytest.mark.parametrize("access", [3, 0])
def test_ranges_that_are_never_unmapped(access: int, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check ranges that are unmapped by unseen calls: they are forgotten beyond the number that a process can have.

    The answer mentions this, and reports nothing about memory that came without a call.
    """
    most, page = rng.randrange(20, 100), X86_64.page
    monkeypatch.setattr(growth, "mappings_limit", lambda: most, raising=False)
    live: Any = SimpleNamespace(machine=X86_64, pid=1, folder=None, unread=[])
    line = f"{BASE - page:x}-{BASE:x} rw-p 00000000 00:00 0 \n".encode()
    follower = SimpleNamespace(maps=[line, line], hits=0, stood=0.0, held=0.0, finish="", status=None, lost=0)
    following: Any = SimpleNamespace(follower=follower, what=[], refused=[])
    known = X86_64.system_calls
    sums = following_growth._Sums(live, False, following, False)
    registers, answers = [0] * 32, []
    for count in range(4 * most):
        if count in (most, 4 * most - 1):
            answers.append(sums.growth(following, 1.0, False))
        for place, word in zip(known.arguments, (0, page, access, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)):
            registers[place] = word
        registers[known.result] = BASE + 2 * page * count
        sums.add(SimpleNamespace(pid=1, registers=registers, stack=b"", doubtful=False), 9)  # type: ignore[arg-type]
    kept = sums._processes[1]
    assert max(len(kept.expected.ranges()), len(kept.memory._reserved.ranges())) <= 2 * most
    whole, cut = answers
    assert whole.unseen.went == most * page and not whole.is_cut
    assert cut.unseen is None and cut.is_cut
    said = [words_of_growth.render(answer, 0, False, Style()) for answer in answers]
    assert ["lost track of the mappings" in text for text in said] == [False, True]


@pytest.mark.parametrize("rule", [cycles, lost_blocks, lost_references])
def test_causes_are_read_once(rule: Any, rng: random.Random) -> None:
    """Check that the list of causes is made once: each access to it makes all causes, and a target may have as many
    as lost blocks."""
    count, looks = rng.randrange(2, 50), []

    class Unreachable:
        rows = [SimpleNamespace(cause=number, bytes=1, buffers=0) for number in range(count)]

        @property
        def causes(self) -> list[SimpleNamespace]:
            looks.append(1)
            return [SimpleNamespace(group="", kind="")] * count

    heap = SimpleNamespace(target=SimpleNamespace(lacking=0))
    evidence = SimpleNamespace(
        unreachable=Unreachable(),
        references=1,
        heap=heap,
        absent_unreached=0,
        worth=lambda size: False,
        resident_of_lost=lambda row: row.bytes,
    )
    assert rule.find(evidence) == [] and len(looks) == 1


def test_unwind_tables_end_where_the_file_does() -> None:
    """Check that the memory after the file's part (.bss) has no unwind table, however large an object claims to be."""
    segments = [
        image.Segment(image.PT_LOAD, 4, 0, 0, 0x1000, 1 << 40, PAGE),
        image.Segment(unwind_tables.PT_GNU_EH_FRAME, 4, 0x800, 0x800, 0x100, 0x100, 4),
    ]
    loaded = SimpleNamespace(base=BASE, end=BASE + PAGE, bias=BASE, segments=segments)
    target = Target("core", pid=None, proc=None, machine=X86_64)
    target.objects = [cast("LoadedObject", loaded)]
    (module,) = unwind_tables.modules_of(target, cast("Space", None))
    assert (module.table_start, module.table_end) == (BASE + 0x800, BASE + 0x1000)
