"""Cores: real ones against their processes, made ones against their contents, damaged ones."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import kernel, programs
from support.core_files import PAGE, make_core, note, prstatus
from support.symbols_program import compile_program

from gdbheap._native import data_extents
from gdbheap.errors import Fault, GdbheapError, NoTarget, Unsupported, UsageError
from gdbheap.machines.machine import X86_64
from gdbheap.targets.core import Core, CoreSegment, present_runs
from gdbheap.targets.cores.notes import parse_files, read_notes
from gdbheap.targets.mappings import Mappings, parse_smaps

SPARSE = """
import mmap, os, random, signal, sys, threading
rng = random.Random(sys.argv[1])
private = mmap.mmap(-1, 300 * 4096, flags=mmap.MAP_PRIVATE)
for page in rng.sample(range(300), 120):
    private[page * 4096 + rng.randrange(4096)] = rng.randrange(1, 256)
for page in range(300):
    private[page * 4096]
shared = mmap.mmap(-1, 40 * 4096)
shared[:6] = b"shared"
threading.Thread(target=signal.pause, daemon=True).start()
signal.pause()
"""


def files_note(entries: Iterable[tuple[int, int, int, bytes]]) -> bytes:
    """Return NT_FILE."""
    rows = list(entries)
    table = b"".join(struct.pack("<QQQ", start, end, pages) for start, end, pages, _ in rows)
    return note(b"CORE", 0x46494C45, struct.pack("<QQ", len(rows), PAGE) + table + b"".join(r[3] + b"\0" for r in rows))


@pytest.fixture(params=["gcore", "kernel core"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random) -> tuple[Core, Mappings, dict[int, bytes]]:
    """Return a core, the smaps of the process before it was written, and bytes of its mappings read while it lived."""
    command = [programs.interpreter_of("stripped"), "-I", "-c", SPARSE, str(rng.random())]
    with programs.running(command, tmp_path) as running:
        smaps = parse_smaps(Path(f"/proc/{running.pid}/smaps").read_bytes())
        readable = [m for m in smaps if m.readable and not m.path.startswith("[v")]
        memory = {m.start: kernel.read(running.pid, m.start, min(m.size, 1 << 16)) for m in readable}
        core = Core(running.as_form(request.param))
        assert core.pid == running.pid
    return core, smaps, memory


def test_a_core_is_its_process(pair: tuple[Core, Mappings, dict[int, bytes]]) -> None:
    """Check mappings, program, threads, stack, build-ids and every byte that can be known against the process."""
    core, smaps, memory = pair
    wanted = {(m.start, m.end, m.path) for m in smaps if m.path.startswith("/") and "w" not in m.perms and m.private}
    assert wanted <= {(m.start, m.end, m.path) for m in core.mappings}
    stack = next(m for m in smaps if m.path == "[stack]")
    assert core.main_stack is not None and core.main_stack.end == stack.end
    assert core.exe == str(Path(programs.interpreter_of("stripped")).resolve())
    assert len(core.threads) == 2 and all(smaps.find(thread.thread_pointer) for thread in core.threads)
    assert not core.damage and not core.partial
    absent = []
    for start, data in memory.items():
        found = core.space.read_available(start, len(data))
        assert found == data[: len(found)]
        absent += [core.mappings.find(start)] if len(found) < len(data) else []
    code = {mapping.path for owner in core.objects for mapping in owner.mappings}
    assert all(mapping is None or mapping.path not in code for mapping in absent)
    assert all(owner.file for owner in core.objects) and len(core.objects) >= 3


def test_residency_of_a_core(pair: tuple[Core, Mappings, dict[int, bytes]]) -> None:
    """Check that the residency of each private anonymous mapping by the kernel's core equals smaps, and that gdb's
    core has none."""
    core, smaps, _ = pair
    if "written-by-gdb" in str(core.core):
        assert core.pages is None and core.rss.bytes is None and len(core.warnings) == 1
        return
    assert core.pages is not None and not core.warnings
    # The kernel always dumps its own mappings, or never.
    anonymous = [m for m in smaps if m.anonymous and m.private and not m.path.startswith("[v")]
    counts = [(m, core.pages.count(m.start, m.end)) for m in anonymous]
    assert [m for m, count in counts if (count.resident, count.swapped) != (m.rss, 0)] == []
    assert core.rss.private and core.rss.source == "resident private memory, from the core's holes"
    assert core.rss.bytes == sum(core.pages.count(m.start, m.end).resident for m in core.mappings)


def test_a_copied_core_does_not_tell_residency(tmp_path: Path) -> None:
    """Check that a copy without holes has the same bytes and unknown residency, never a wrong one."""
    with programs.running([programs.interpreter_of("stripped"), "-I", "-c", SPARSE, "1"], tmp_path) as running:
        path = running.kernel_core()
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    assert Core(str(copy)).pages is None and Core(str(path)).pages is not None


def test_a_core_that_may_have_lost_its_holes(tmp_path: Path) -> None:
    """Check that a warning is given if no page of private memory is missing, although the file has a hole elsewhere."""
    with programs.running([programs.interpreter_of("stripped"), "-I", "-c", SPARSE, "1"], tmp_path) as running:
        (vdso,) = [mapped for mapped in kernel.maps(running.pid) if mapped.path == "[vdso]"]
        path = running.kernel_core()
    (segment,) = [segment for segment in kernel.segments(path) if segment.start == vdso.start]
    copy, end = tmp_path / "copy", segment.offset + segment.file_size
    with path.open("rb") as whole, copy.open("wb") as filled:
        filled.write(whole.read(segment.offset))
        filled.seek(end)
        whole.seek(end)
        filled.write(whole.read())
    lossy = Core(str(copy))
    assert lossy.pages is not None and ["may have filled its holes" in warning for warning in lossy.warnings] == [True]


def test_a_changed_library_is_not_read(tmp_path: Path) -> None:
    """Check that text that the core left out is absent, and not read from another file, if the program was rebuilt."""
    program = compile_program(tmp_path)
    original = shutil.copy(program, tmp_path / "original")
    with programs.running([str(program)], tmp_path) as running:
        path = running.kernel_core()
    code = next(m for m in Core(str(path)).mappings if m.path == str(program) and m.perms[2] == "x")
    assert Core(str(path)).space.contains(code.start, code.size)
    program.unlink()
    compile_program(tmp_path, "-O2")
    core = Core(str(path))
    assert not core.space.contains(code.start, 1)
    kept = Core(str(path), exe=str(original))
    assert kept.space.contains(code.start, code.size) and not kept.warnings
    other = Core(str(path), exe="/bin/sh")
    assert not other.space.contains(code.start, 1) and "build-id" in other.warnings[0]
    with pytest.raises(UsageError):
        Core(str(path), exe=str(tmp_path / "program.c"))


def test_libraries_of_another_root_folder(tmp_path: Path) -> None:
    """Check that the libraries are found by their build-ids in a copy of the root folder that has the named program."""
    old, root = tmp_path / "old", tmp_path / "copy"
    old.mkdir()
    source = tmp_path / "library.c"
    source.write_text("int answer(void) { return 42; }\n")
    library = old / "libanswer.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,--build-id", str(source), "-o", str(library)], check=True)
    program = compile_program(old, "-Wl,--no-as-needed", str(library))
    with programs.running([str(program)], tmp_path) as running:
        path = running.kernel_core()
    moved = Path(f"{root}{old}")
    moved.parent.mkdir(parents=True)
    old.rename(moved)
    lost = {loaded.path: loaded.file for loaded in Core(str(path)).objects}
    assert (lost[str(program)], lost[str(library)]) == (None, None)
    kept = Core(str(path), exe=str(moved / program.name))
    found = {loaded.path: loaded.file for loaded in kept.objects}
    assert (found[str(program)], found[str(library)]) == (str(moved / program.name), str(moved / library.name))
    assert not kept.warnings


@pytest.mark.parametrize("form", ["gcore", "kernel core"])
def test_truncated_cores(form: str, tmp_path: Path, rng: random.Random) -> None:
    """Check that a core cut anywhere is refused without a complete header, otherwise a partial target with the
    core's own bytes."""
    with programs.running([programs.interpreter_of("stripped"), "-I", "-c", SPARSE, "2"], tmp_path) as running:
        whole = Path(running.as_form(form))
    data, complete = whole.read_bytes(), Core(str(whole))
    cut = tmp_path / "cut"
    sizes = [0, 1, 63, 64, 100, 5000] + [rng.randrange(len(data)) for _ in range(20)]
    for size in sizes:
        cut.write_bytes(data[:size])
        if size < 64:
            with pytest.raises(NoTarget):
                Core(str(cut))
            continue
        core = Core(str(cut))
        assert core.partial and core.damage and "truncated" in core.warnings[0]
        for mapping in core.mappings:
            found = core.space.read_available(mapping.start, mapping.size)
            assert complete.space.read(mapping.start, len(found)) == found


def test_more_mappings_than_16_bits(tmp_path: Path) -> None:
    """Check a core of 70,000 mappings (PN_XNUM), whole and cut after its notes."""
    loads = [(0x10000 + 2 * PAGE * i, PAGE, b"", 6) for i in range(70_000)] + [(1 << 40, PAGE, b"x" * PAGE, 6)]
    path = make_core(tmp_path / "core", prstatus(7, thread_pointer=1 << 40), loads)
    core = Core(str(path))
    assert len(core.mappings) == 70_001 and not core.damage and core.space.read(1 << 40, 4) == b"xxxx"
    data = path.read_bytes()
    path.write_bytes(data[: 64 + 56 * 70_002 + 600])
    core = Core(str(path))
    assert len(core.mappings) == 70_001 and core.partial
    with pytest.raises(Fault):
        core.space.read(1 << 40, 1)


def test_contradictions_are_damage(tmp_path: Path) -> None:
    """Check overlapping segments, more bytes in the file than in memory, and an end beyond the address space."""
    loads = [
        (0x1000, 2 * PAGE, b"a" * 2 * PAGE, 6),
        (0x2000, PAGE, b"b" * PAGE, 6),
        (0x10000, PAGE, b"c" * 2 * PAGE, 6),
        ((1 << 64) - PAGE, 2 * PAGE, b"", 6),
    ]
    core = Core(str(make_core(tmp_path / "core", prstatus(7), loads)))
    assert [damage.address for damage in core.damage] == [0x2000, 0x10000, (1 << 64) - PAGE]
    assert core.space.read(0x2000, 2) == b"aa" and core.space.read_available(0x10000, 2 * PAGE) == b"c" * PAGE
    assert len(core.mappings) == 2


def test_what_was_not_dumped_is_absent(tmp_path: Path) -> None:
    """Check that the part of a segment that is not in the file is absent; gdb shows zeros there."""
    core = Core(str(make_core(tmp_path / "core", prstatus(7), [(0x1000, 4 * PAGE, b"z" * PAGE, 4)])))
    with pytest.raises(Fault) as fault:
        core.space.read(0x1000, 2 * PAGE)
    assert fault.value.args[0] == 0x2000


def test_notes() -> None:
    """Check threads, files with odd names, and the process id from NT_PRPSINFO rather than from the first thread."""
    info = bytes(24) + struct.pack("<I", 41) + bytes(12) + b"name\0".ljust(16, b"\0") + bytes(80)
    files = files_note([(PAGE, 3 * PAGE, 2, b"/a b\n"), (8 * PAGE, 9 * PAGE, 0, b"/\xff")])
    data = prstatus(43, 1, 2, 3) + prstatus(42) + note(b"CORE", 3, info) + files
    found = read_notes(X86_64, data)
    assert [(t.tid, t.thread_pointer, t.sp, t.pc) for t in found.threads] == [(43, 1, 2, 3), (42, 0, 0, 0)]
    assert (found.pid, found.name, found.by_gdb) == (41, "name", False)
    rows = [(file.start, file.offset, os.fsencode(file.path)) for file in found.files]
    assert rows == [(PAGE, 2 * PAGE, b"/a b\n"), (8 * PAGE, 0, b"/\xff")]
    assert read_notes(X86_64, prstatus(43)).pid == 43


@given(st.binary(max_size=400), st.integers(0, 800))
def test_notes_of_any_bytes(noise: bytes, at: int) -> None:
    """Check that reading random notes ends, and that no result is longer than the notes."""
    good = prstatus(43) + files_note([(PAGE, 2 * PAGE, 0, b"/x")])
    found = read_notes(X86_64, good[:at] + noise + good[at:])
    assert len(found.files) < 100 and len(found.threads) < 10
    parse_files(X86_64, noise)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400), st.binary(min_size=1, max_size=9)), max_size=12))
def test_cores_of_any_bytes(changes: list[tuple[int, int, bytes]]) -> None:
    """Check that a made core with bytes overwritten in its headers and notes is refused in one line, or read within
    its bounds."""
    with tempfile.TemporaryDirectory() as folder:
        loads = [(0x400000, PAGE, b"\x7fELF" + bytes(PAGE - 4), 5), (0x7F0000000000, 2 * PAGE, b"d" * 2 * PAGE, 6)]
        path = make_core(Path(folder) / "core", prstatus(7) + files_note([(0x400000, 0x401000, 0, b"/x")]), loads)
        data = bytearray(path.read_bytes())
        for fine, coarse, noise in changes:
            data[fine + coarse : fine + coarse + len(noise)] = noise
        path.write_bytes(data)
        try:
            core = Core(str(path))
        except GdbheapError as error:
            assert error.status in (4, 5) and "\n" not in str(error)
            return
        for mapping in core.mappings:
            core.space.read_available(mapping.start, min(mapping.size, 1 << 20))


@pytest.mark.parametrize(
    ("start", "error", "words"),
    [
        (b"", NoTarget, "empty"),
        (b"hello", NoTarget, "not a core"),
        (b"gdbheap calls 1\n", NoTarget, "is a trace, not a core: 'gdbheap calls .*' summarizes it"),
        (b"\x1f\x8b\x08" + bytes(70), NoTarget, "the gzip file is cut off or damaged"),
        (b"\x28\xb5\x2f\xfd" + bytes(70), NoTarget, "the zstd file is cut off or damaged"),
        (gzip.compress(b"hello", mtime=0), NoTarget, "not a core"),
        (b"\x7fELF\x02\x01\x01", NoTarget, "truncated"),
        (b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HH", 4, 3) + bytes(60), Unsupported, "32-bit 386"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 4, 243) + bytes(60), Unsupported, "riscv"),
        (b"\x7fELF\x02\x02\x01" + bytes(9) + struct.pack(">HH", 4, 22) + bytes(60), Unsupported, "s390"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, 62) + bytes(60), NoTarget, "library"),
    ],
)
def test_files_that_are_no_cores(start: bytes, error: type[GdbheapError], words: str, tmp_path: Path) -> None:
    """Check that each kind of wrong file has its own line."""
    (tmp_path / "file").write_bytes(start)
    with pytest.raises(error, match=words):
        Core(str(tmp_path / "file"))


def test_a_dump_of_the_kernel(tmp_path: Path) -> None:
    """Check a vmcore, which is an ELF core as well, but of no process."""
    path = make_core(tmp_path / "vmcore", note(b"VMCOREINFO", 0, b"OSRELEASE=6"), [])
    with pytest.raises(Unsupported, match="kernel"):
        Core(str(path))


@settings(max_examples=60)
@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 40), st.integers(1, 40))
def test_runs_like_page_by_page(present: list[bool], first: int, count: int) -> None:
    """Check that the resident pages of a segment equal those found by asking for every page of the file on its own."""
    with tempfile.TemporaryFile() as file:
        for page, there in enumerate(present):
            if there:
                os.pwrite(file.fileno(), b"x", page * PAGE)
        file.truncate(len(present) * PAGE)
        extents = data_extents(f"/proc/self/fd/{file.fileno()}", len(present) + 1)
        first = min(first, len(present) - 1)
        count = min(count, len(present) - first)
        part = CoreSegment(1 << 30, (1 << 30) + count * PAGE, first * PAGE, count * PAGE, count * PAGE, "rw-p")
        pages = [
            page for start, end, _ in present_runs(X86_64, part, extents) for page in range(start // PAGE, end // PAGE)
        ]
    if any(not there for there in present) and len(extents) == 1 and extents[0] == (0, len(present) * PAGE):
        pytest.skip("this file system keeps no holes")
    assert pages == [(1 << 18) + page for page in range(count) if present[first + page]]


def test_a_live_process_is_not_asked_about_a_core(tmp_path: Path) -> None:
    """Check that the answer is the core's, even if its process id is that of a living process by now."""
    path = make_core(tmp_path / "core", prstatus(os.getpid()), [(0x1000, PAGE, b"q" * PAGE, 6)])
    core = Core(str(path))
    assert core.pid == os.getpid() and len(core.mappings) == 1 and core.exe is None
