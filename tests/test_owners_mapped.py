"""Objects own the memory that they mapped: the program reports the address and size of each mapping, and whether it
is shared; every answer names the variable, the object and these bytes."""

from __future__ import annotations

import json
import mmap
import random
from pathlib import Path

import pytest
from support.installed import python_with
from support.library import heap_of
from support.programs import FORMS, PROCESS, RELEASES, ask, interpreter_of_release, release_program, running

from gdbheap.answers.at import at
from gdbheap.answers.owners import owners
from gdbheap.answers.pyobjects import pyobjects
from gdbheap.answers.retained import OBJECT, retained
from gdbheap.answers.why import why
from gdbheap.heap import Heap

MMAP = "mmap.mmap"
# Beside a mapping, an object has its own block and perhaps a container's.
BESIDE = 4096


def pages(size: int) -> int:
    """Return the bytes of the pages for ``size`` bytes."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


@pytest.mark.cases(3)
@pytest.mark.parametrize("release", RELEASES)
def test_each_mapping_is_its_variable_s(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that owners, retained, pyobjects, at and why agree with the program."""
    interpreter_of_release(release)
    with running(release_program(release, "mapped", rng.getrandbits(30)), tmp_path) as target:
        found = json.loads(target.stderr)
        with heap_of(str(target.pid)) as heap:
            check(heap, found)


@pytest.mark.cases(1)
@pytest.mark.parametrize("form", FORMS)
def test_cores_have_what_the_process_has(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a core without the bytes of shared memory still names its owner, and that the target is not written
    to."""
    with running(release_program("3.11", "mapped", rng.getrandbits(30)), tmp_path) as target:
        found = json.loads(target.stderr)
        rows = ask("owners", target.as_form(form), "--top=all")["rows"]
    for name, _address, size, shared in found:
        (row,) = [row for row in rows if f".{name}" in row["path"]]
        assert pages(size) <= row["bytes"] <= pages(size) + BESIDE
        # A core does not record which mapping of a plain file is shared.
        assert row["shared"] == (pages(size) if shared and (form == PROCESS or name == "shared") else 0)
        assert row["resident"] is None or row["resident"] <= row["bytes"]
        assert form != PROCESS or 0 < row["share"] <= 1


def check(heap: Heap, found: list[tuple[str, int, int, bool]]) -> None:
    """Check every answer about each mapping."""
    rows, kept = owners(heap, None, None).groups, retained(heap, OBJECT, None).rows
    whole = sum(pages(size) for _name, _address, size, _shared in found)
    (of_type,) = [row for row in pyobjects(heap).rows if row.type == MMAP]
    assert (of_type.mapped, of_type.count) == (whole, len(found))
    for name, address, size, shared in found:
        (row,) = [row for row in rows if f".{name}" in (row.root or "")]
        assert pages(size) <= row.bytes <= pages(size) + BESIDE, row
        # Half of it was written to.
        assert row.resident is not None and 0 <= row.resident - pages(size) // 2 <= pages(size) // 8, row
        assert row.shared == (pages(size) if shared else 0)
        (one,) = [one for one in kept if f".{name}" in (one.path or "")]
        assert (one.innermost.type, one.shared) == (MMAP, row.shared)
        assert pages(size) <= one.retained <= pages(size) + BESIDE
        # The last byte of its last page belongs to no other.
        for place in (address, address + size - 1):
            told = at(heap, place)
            assert told.block is not None and told.owner is not None
            assert (told.block.address, told.block.size, told.owner.type) == (address, pages(size), MMAP)
            assert ("shared" in told.owner.what) == shared
            assert f".{name}" in (why(heap, place).expression or "")


def test_no_page_is_read(rng: random.Random, tmp_path: Path) -> None:
    """Check that untouched memory is not resident after all answers were given."""
    script = "import mmap, os; kept = mmap.mmap(-1, 64 << 20); kept[:1] = b'x'; os.read(0, 1)"
    with running([interpreter_of_release("3.11").executable, "-c", script], tmp_path) as target:
        before = resident(target.pid)
        for noun in ("owners", "retained", "pyobjects", "unreachable"):
            ask(noun, str(target.pid))
        assert resident(target.pid) == before


def resident(pid: int) -> int:
    """Return the resident bytes of shared memory of a process, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssShmem"))


LIBRARIES = {
    "numpy": "import numpy; kept = numpy.memmap(path, 'u1', 'r')",
    "pyarrow": "import pyarrow; source = pyarrow.memory_map(path); kept = source.read_buffer()",
    "torch": "import torch; kept = torch.UntypedStorage.from_file(path, False, size)",
    "joblib": "import joblib, numpy; joblib.dump(numpy.zeros(size, 'u1'), path); kept = joblib.load(path, 'r')",
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("library", LIBRARIES)
def test_mapped_by_libraries(library: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a mapped file belongs to the variable through which the program reads it."""
    # More than the modules of any of the libraries.
    python, size = python_with(library), rng.randrange(32 << 20, 48 << 20)
    script = tmp_path / "script.py"
    start = f"import os\npath, size = {str(tmp_path / 'data')!r}, {size}\nopen(path, 'wb').write(bytes(size))\n"
    script.write_text(f"{start}{LIBRARIES[library]}\nos.read(0, 1)\n")
    with running([python, str(script)], tmp_path) as target, heap_of(str(target.pid)) as heap:
        rows = [row for row in owners(heap, None, None).groups if row.bytes >= size]
    (row,) = rows
    assert any(f"['__main__'].{name}" in (row.root or "") for name in ("kept", "source")), row


def test_shared_memory_that_nobody_maps(rng: random.Random, tmp_path: Path) -> None:
    """Check that files of shared memory that the process left behind decide the finding's place, and that the holder of
    the mapped one has no second finding."""
    size = rng.randrange(24, 32) << 20
    script = (
        "from multiprocessing.shared_memory import SharedMemory; import os\n"
        f"blocks = [SharedMemory(create=True, size={size}) for _number in range(3)]\n"
        f"for block in blocks: block.buf[:] = bytes({size})\n"
        f"held = bytearray({size} + (4 << 20))\n"
        "print(*(block.name for block in blocks), file=__import__('sys').stderr, flush=True)\n"
        "for block in blocks[:2]: block.close()\n"
        "os.read(0, 1)"
    )
    with running([interpreter_of_release("3.11").executable, "-c", script], tmp_path) as target:
        names = target.stderr.split()
        try:
            first, *others = ask("", str(target.pid))["findings"]
        finally:
            for name in names:
                Path("/dev/shm", name).unlink(missing_ok=True)
    assert first["id"] == "shared-memory" and size <= first["bytes"] < size + (1 << 20)
    assert "of shared memory is in" in first["text"] and all(name in first["text"] for name in names[:2])
    assert all("SharedMemory" not in row["text"] for row in others)


def test_shared_memory_of_multiprocessing(rng: random.Random, tmp_path: Path) -> None:
    """Check that shared memory of multiprocessing belongs to the variable, and is marked as shared."""
    size = rng.randrange(8 << 20, 16 << 20)
    script = (
        "from multiprocessing.shared_memory import SharedMemory; import os\n"
        f"block = SharedMemory(create=True, size={size}); block.buf[: {size} // 2] = bytes({size} // 2)\n"
        "block.unlink(); os.read(0, 1)"
    )
    with running([interpreter_of_release("3.11").executable, "-c", script], tmp_path) as target:
        row = ask("owners", str(target.pid))["rows"][0]
        text = ask("retained", str(target.pid), "--top=1")["rows"][0]
    assert ".block" in row["path"] and row["shared"] == pages(size) == text["shared"]
