"""Files that a target names, planted for gdbheap: only regular files are opened, tables are read only as far as the
file has bytes, and a file that cannot be opened is left out."""

from __future__ import annotations

import fcntl
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support import programs
from support.busy import wait_for

from gdbheap.errors import UsageError
from gdbheap.files import open_regular, open_to_read
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.procfs import ProcessFolder
from gdbheap.machines.machine import X86_64
from gdbheap.targets import elf as objects
from gdbheap.targets.elf import NAME_LIMIT, SECTION_LIMIT, ElfFile, ElfFiles
from gdbheap.targets.mappings import Mapping, Mappings
from gdbheap.targets.process import MappedFiles

MEGA = 1 << 20
ADDRESS_SPACE = 2 << 30
CPU_SECONDS = 30
# gdbheap reads the symbols of a file with this name.
NAME = "libpython3.11.so.1.0"
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
STRTAB, DYNSYM, ALLOC = 3, 11, 2
MAPS = """
import mmap, os, sys, signal
for path in sys.argv[1:]:
    file = os.open(path, os.O_RDONLY)
    globals()[path] = mmap.mmap(file, 4096, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
    os.close(file)
signal.pause()
"""
LEASES = """
import fcntl, mmap, os, sys, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDONLY)
mapped = mmap.mmap(file, 4096, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
signal.pause()
"""
WRITES = "import os, sys; os.open(sys.argv[1], os.O_WRONLY)"
READS = """
import sys
from gdbheap.targets.elf import ElfFiles
file = ElfFiles().get(sys.argv[1])
if file is not None:
    rows = file.dynamic.starting_in(0, 1 << 40, 0, 1 << 30)
    names = sum(len(row[2]) for row in rows), sum(len(row[0]) for row in file.sections)
    print(int(file.find("A" * 4096) is not None), *names)
"""


def bounded() -> None:
    """Limit a child's address space and its processor time."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def read_by_a_child(path: Path) -> list[int]:
    """Return, read within limits: whether the file has a symbol of the longest name, and how many characters the
    names of its symbols and sections have."""
    command = [sys.executable, "-c", READS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=bounded, cwd="/")
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    return [int(word) for word in done.stdout.split()]


def assert_answers(pid: int) -> None:
    """Check that the shell command answers for a process within limits."""
    done = programs.gdbheap("info", str(pid), preexec_fn=bounded)
    assert done.returncode in (0, 1) and done.stdout, (done.returncode, done.stderr)
    assert "another thread could not" not in done.stderr and "fault of gdbheap" not in done.stderr


@contextmanager
def unopened(path: Path) -> Iterator[None]:
    """Make a pipe with a writer that waits for a reader, however short; check that no reader came."""
    os.mkfifo(path)
    with subprocess.Popen([sys.executable, "-c", WRITES, str(path)]) as writer:
        try:
            wait_for(lambda: _is_opening(writer.pid), "the writer does not wait")
            yield
            # A reader wakes the writer before the reader's own open(2) returns.
            assert _is_opening(writer.pid)
        finally:
            writer.kill()


def _is_opening(pid: int) -> bool:
    """Return whether a process is inside openat(2), to write."""
    try:
        words = Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        return False
    return len(words) > 3 and words[3] == hex(os.O_WRONLY | os.O_CLOEXEC)


def elf(path: Path, contents: bytes, sections: list[bytes], count: int | None = None, names: int = 0) -> Path:
    """Write the header and segments of a program, ``contents`` at ``contents_at``, and sections at the end."""
    whole = bytearray(programs.build("mappings").read_bytes().ljust(contents_at(), b"\0"))
    whole += contents.ljust(-(-len(contents) // 4096) * 4096, b"\0")
    struct.pack_into("<Q", whole, 0x28, len(whole))
    struct.pack_into("<HHH", whole, 0x3A, SECTION.size, len(sections) if count is None else count, names)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(whole) + b"".join(sections))
    return path


def contents_at() -> int:
    """Return the offset at which ``elf`` puts the contents."""
    return -(-programs.build("mappings").stat().st_size // 4096) * 4096


def section(kind: int, offset: int, size: int, link: int = 0, name: int = 0) -> bytes:
    """Return a section header."""
    return SECTION.pack(name, kind, ALLOC, 0x1000, offset, size, link, 0, 1, 0)


def endless_sections(folder: Path) -> Path:
    """Write a sparse file with room for 2^30 sections, whose first section states that number."""
    path = elf(folder / NAME, b"", [section(0, 0, 1 << 30)], count=0)
    with suppress(OSError):
        os.truncate(path, 1 << 37)
    return path


def one_section_too_many(folder: Path) -> Path:
    """Write a file with one section more than are read, all in the file."""
    return elf(folder / NAME, b"", [section(0, 0, SECTION_LIMIT + 1), *[section(0, 0, 0)] * SECTION_LIMIT], count=0)


def endless_names(folder: Path) -> Path:
    """Write a file with 10,000 symbols, each with a name that reaches to the end of a million letters."""
    symbols = b"".join(SYMBOL.pack(place + 9, 0x12, 0, 1, 0x1000 + place, 8) for place in range(10_000))
    start = contents_at()
    table, names = b"\0.dynsym\0".ljust(MEGA, b"A"), start + len(symbols)
    headers = [section(0, 0, 0), section(DYNSYM, start, len(symbols), 2, name=1), section(STRTAB, names, MEGA)]
    return elf(folder / NAME, symbols + table, headers, names=2)


def endless_section_names(folder: Path) -> Path:
    """Write a file with 50,000 sections, each with a name that reaches to the end of a million letters."""
    headers = [section(STRTAB, contents_at(), MEGA), *(section(1, 0, 8, name=place) for place in range(1, 50_000))]
    return elf(folder / NAME, b"A" * MEGA, headers)


BOMBS = [endless_sections, one_section_too_many, endless_names, endless_section_names]


@pytest.mark.parametrize("bomb", BOMBS)
def test_tables_that_say_more_than_the_file_has(tmp_path: Path, bomb: Callable[[Path], Path]) -> None:
    """Check that at most twice a bomb's table of names is kept, and that not all of its sections are read."""
    path = bomb(tmp_path / "bomb")
    known, symbols, sections = read_by_a_child(path)
    assert symbols <= 3 * MEGA and sections <= 2 * MEGA
    assert known == bool(symbols) == (bomb is endless_names)
    assert bool(sections) == (bomb in (endless_names, endless_section_names))


def test_a_name_ends_with_its_limit(tmp_path: Path) -> None:
    """Check that a name without an end is cut at the limit, and that the names before it are complete."""
    path = endless_names(tmp_path / "bomb")
    file = ElfFile(str(path))
    assert file.find("A" * NAME_LIMIT) is not None and file.find("A" * (NAME_LIMIT + 1)) is None


def test_a_process_that_maps_bombs(tmp_path: Path) -> None:
    """Check that the shell command answers for a process that maps all these files under the name of a library."""
    paths = [str(bomb(tmp_path / bomb.__name__)) for bomb in BOMBS]
    with programs.running([sys.executable, "-c", MAPS, *paths], tmp_path) as target:
        assert_answers(target.pid)


def test_a_pipe_in_the_place_of_a_library_is_not_opened(tmp_path: Path) -> None:
    """Check that a link to a pipe in the place of a mapped file is examined but never opened."""
    library, pipe = tmp_path / NAME, tmp_path / "pipe"
    library.write_bytes(programs.build("mappings").read_bytes())
    with programs.running([sys.executable, "-c", MAPS, str(library)], tmp_path) as target:
        library.unlink()
        library.symlink_to(pipe)
        with unopened(pipe):
            assert_answers(target.pid)


def test_no_opener_opens_a_pipe(tmp_path: Path) -> None:
    """Check that a named pipe is opened neither by a target's name nor by a typed one."""
    pipe = tmp_path / "pipe"
    with unopened(pipe):
        with pytest.raises(OSError):
            open_regular(str(pipe))
        with pytest.raises(UsageError):
            open_to_read(str(pipe))
        assert ElfFiles().get(str(pipe)) is None


def test_a_pipe_of_our_own_is_read() -> None:
    """Check that a pipe that was given to gdbheap at its start is read to its end."""
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    with open_to_read(f"/dev/fd/{reader}") as stream:
        assert stream.read() == b"text"
    os.close(reader)


def test_a_mapped_file_is_held(tmp_path: Path) -> None:
    """Check that a file that replaces a mapped file after the check is not opened."""
    path, kept = tmp_path / NAME, tmp_path / "kept"
    path.write_bytes(b"x" * 4096)
    os.link(path, kept)
    with programs.running([sys.executable, "-c", MAPS, str(path)], tmp_path) as target:
        folder = ProcessFolder(target.pid)
        files, status = MappedFiles(folder, FileSystems(folder)), path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        # No such mapping exists, so only the path leads to the file.
        index = files.index(Mapping(0, 4096, "r--p", 0, device, status.st_ino, str(path)))
        path.unlink()
        path.symlink_to("/dev/null")
        assert os.path.samefile(files.paths[index], kept)


def test_a_file_with_a_lease_is_left_out(tmp_path: Path) -> None:
    """Check that a file that cannot be opened at once, because its owner has a lease on it, counts as unreadable."""
    path = tmp_path / NAME
    path.write_bytes(programs.build("mappings").read_bytes())
    with open(path, "rb") as stream:
        try:
            fcntl.fcntl(stream, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            pytest.skip(f"no leases here: {error}")
    with programs.running([sys.executable, "-c", LEASES, str(path)], tmp_path) as target:
        with pytest.raises(OSError, match="lease"):
            open_regular(str(path))
        assert_answers(target.pid)


def test_files_of_the_kernel_are_not_read() -> None:
    """Check a target that names /proc/kmsg as a mapped file: reading it would take records from the system's log."""
    for path in ("/proc/version", "/proc/self/maps"):
        with pytest.raises(OSError, match="is empty, or not a regular file"):
            open_regular(path)
        assert ElfFiles().get(path) is None


def test_files_of_devices_are_not_read(tmp_path: Path) -> None:
    """Check a target with a link to a file of sysfs in the place of its library: that file has a size, and reading
    it may ask a device."""
    path = next((path for path in Path("/sys/devices").rglob("*") if path.is_file() and path.stat().st_size), None)
    if path is None:
        pytest.skip("no files in /sys/devices")
    (tmp_path / "libm.so.6").symlink_to(path)
    for name in (str(path), str(tmp_path / "libm.so.6")):
        with pytest.raises(OSError, match="in a file system of the kernel"):
            open_regular(name)
        assert ElfFiles().get(name) is None


def test_one_file_of_many_names_is_read_once(tmp_path: Path) -> None:
    """Check that hard links cost nothing: a target may map thousands."""
    names = [tmp_path / f"libc-{number}.so" for number in range(3)]
    names[0].write_bytes(Path(sys.executable).resolve().read_bytes())
    for name in names[1:]:
        os.link(names[0], name)
    files = ElfFiles()
    found = [files.get(str(name)) for name in names]
    assert found[0] is not None and all(file is found[0] for file in found)


def test_a_file_that_is_no_object_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a file that fails to parse is given up after some mappings: each of its mappings is compared with
    all that follow."""
    tried: list[int] = []
    monkeypatch.setattr(objects, "_read_object", lambda _machine, _mappings, index, _space: tried.append(index))
    pieces = [Mapping(at << 12, (at + 1) << 12, "r--p", 0, "fe:00", 7, "/lib/evil.so") for at in range(1, 500)]
    other = Mapping(1 << 30, (1 << 30) + 4096, "r--p", 0, "fe:00", 8, "/lib/other.so")
    assert objects.find_objects(X86_64, Mappings([*pieces, other]), None, ElfFiles(), lambda first: []) == []  # type: ignore[arg-type]
    assert len(tried) == objects.MAX_REFUSED + 1 and tried[-1] == len(pieces)
