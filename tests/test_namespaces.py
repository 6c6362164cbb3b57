"""Programs whose paths lead elsewhere here: another root, and libraries replaced or removed."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from support import kernel, programs
from support.arena_cases import Table, check_figures, check_states
from support.ledger_lines import check_families, roots
from support.library import heap_of
from support.programs import Running, ask, running

THREADS = 3
LDD = re.compile(r"(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root folder with recorder.c and its libraries, and nothing else."""
    if not programs.has_mount_namespaces() or not all(map(shutil.which, ("chroot", "ldd"))):
        pytest.skip("needs mount namespaces, chroot and ldd")
    folder, program = tmp_path / "root", programs.build("recorder")
    for path in LDD.findall(subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout):
        copy = folder / path.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    shutil.copy(program, folder / "recorder")
    return folder


@pytest.fixture
def inside(root: Path, rng: random.Random, tmp_path: Path) -> Iterator[Running]:
    """Yield recorder.c, waiting in its own mount namespace and root; its table is root/table."""
    arguments = (THREADS, rng.getrandbits(30), 20_000, 2000, 300_000, 0, "/table")
    command = ["unshare", "-m", "chroot", str(root), "/recorder", *map(str, arguments)]
    with running(command, tmp_path) as target:
        yield target


def libc_of(root: Path) -> Path:
    """Return the C library of a root."""
    return next(root.rglob("libc.so*"))


def other_build(library: Path) -> bytes:
    """Return the bytes of an ELF file with another build-id, as after the upgrade of a package."""
    data = bytearray(library.read_bytes())
    with library.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".note.gnu.build-id")
        assert section is not None
        last = section["sh_offset"] + section["sh_size"] - 1
    data[last] ^= 0xFF
    return bytes(data)


def replace(path: Path, data: bytes) -> None:
    """Replace a file, as package managers do."""
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").rename(path)


def check_all(target: Running, root: Path) -> None:
    """Check that arenas, states of all pointers and the ledger are as usual."""
    answer = ask("", str(target.pid))
    check_families(answer["ledger"])
    assert roots(answer["ledger"], "resident") == kernel.rollup(target.pid)[0]
    check_figures(ask("arenas", str(target.pid)), target)
    assert ask("check", str(target.pid))["ok"]
    check_states(str(target.pid), Table(root / "table"), THREADS)


def check_files(target: Running) -> int:
    """Check that every trusted file has the build-id that is in memory; return how many are trusted."""
    trusted = 0
    with heap_of(str(target.pid)) as heap:
        for loaded in heap.target.objects:
            if loaded.file is not None:
                with open(loaded.file, "rb") as stream:
                    section = ELFFile(stream).get_section_by_name(".note.gnu.build-id")
                    assert section is not None and section.data()[16:].hex() == loaded.build_id
                trusted += 1
    return trusted


def test_another_root(inside: Running, root: Path) -> None:
    """Check that all files are found, and that all questions are answered."""
    check_all(inside, root)
    assert check_files(inside) == 3


def test_core_from_another_root(inside: Running, root: Path) -> None:
    """Check a core whose paths are in another root folder, where they name other files than here, or files that do not
    exist here.
    """
    table = Table(root / "table")
    check_states(str(inside.gcore()), table, THREADS)
    inside.directory = root  # the program's folder, for its core
    path = inside.kernel_core()
    check_states(str(path), table, THREADS)
    with heap_of(str(path)) as heap:
        assert [loaded.path for loaded in heap.target.objects if loaded.path == "/recorder"]


@pytest.mark.parametrize("linked", [True, False], ids=["kernel's links", "paths only"])
@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_files_changed_underneath(
    how: str, linked: bool, inside: Running, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a library in memory that is no longer on disk: it is still reachable by the kernel's links, but not by
    its path."""
    if not linked:  # as without CAP_CHECKPOINT_RESTORE
        monkeypatch.setattr("gdbheap.targets.process.map_file", lambda folder, mapping: folder.path("map_files/none"))
    before = kernel.rollup(inside.pid)
    libc = libc_of(root)
    if how == "replaced":
        replace(libc, other_build(libc))
    else:
        shutil.rmtree(libc.parent)
        (root / "recorder").unlink()
    found = check_files(inside)
    assert found == 3 if linked else found < 3
    check_states(str(inside.pid), Table(root / "table"), THREADS)
    check_all(inside, root)
    if linked:  # without links, non-resident parts of a file can only be read through the process
        assert kernel.rollup(inside.pid) == before


def test_paths_of_a_chroot_without_links(inside: Running, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the paths that the kernel reports for a chroot, as seen from here, are enough without its links."""
    monkeypatch.setattr("gdbheap.targets.process.map_file", lambda folder, mapping: folder.path("map_files/none"))
    assert check_files(inside) == 3
    check_states(str(inside.pid), Table(root / "table"), THREADS)
