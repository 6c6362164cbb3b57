"""Targets that run a set-uid program while gdbheap calls into them or follows them: that program gets neither
registers nor bytes of the old one. As root, the targets belong to another user."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import pytest
from support import programs
from support.programs import gdbheap

from gdbheap import _native
from gdbheap.host.procfs import ProcessFolder

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls are made on x86-64 only")

USER = 65534
DATA, CODE, PAGE = 0x3000_0000, 0x3100_0000, 4096
PLACES = (f"-DCHOSEN_DATA={DATA:#x}UL", f"-DCHOSEN_CODE={CODE:#x}UL", "-no-pie")
JUMP = b"\xe9" + (2 * PAGE - 5).to_bytes(4, "little")


@pytest.fixture
def chosen() -> Iterator[Path]:
    """Yield the program that targets run: as root it is set-uid, and everybody may run it."""
    built = programs.build("chosen", *PLACES, f"-Wl,--section-start=.chosen_data={DATA:#x}",
                           f"-Wl,--section-start=.chosen_code={CODE:#x}")  # fmt: skip
    with shared(built) as path:
        path.chmod(0o4755)
        yield path


@contextlib.contextmanager
def shared(program: Path) -> Iterator[Path]:
    """Yield a copy of a program that other users may run."""
    with tempfile.TemporaryDirectory(prefix="gdbheap-shared-") as folder:
        os.chmod(folder, 0o755)
        path = Path(shutil.copy(program, folder))
        path.chmod(0o755)
        yield path


@contextlib.contextmanager
def hostile(name: str, *words: str, place: int) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a target that waits, another user's if the tests run as root.

    ``place``: the address of its section ".left".
    """
    built = programs.build(name, *PLACES, "-Wl,-Ttext-segment=0x20000000", f"-Wl,--section-start=.left={place:#x}")
    user = {"user": USER, "group": USER, "extra_groups": []} if os.getuid() == 0 else {}
    with shared(built) as path:
        target = subprocess.Popen([str(path), *words], stdin=PIPE, stdout=PIPE, cwd="/", **user)  # type: ignore[call-overload]
        try:
            wait_until(target, lambda: Path(f"/proc/{target.pid}/syscall").read_text().startswith(("34 ", "0 0x")))
            yield target
        finally:
            target.kill()
            target.communicate()


def wait_until(target: subprocess.Popen[bytes], holds: Callable[[], bool]) -> None:
    """Wait until the target is in that state."""
    deadline = time.monotonic() + programs.PATIENCE
    while not holds():
        assert target.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def prove_untouched(target: subprocess.Popen[bytes]) -> None:
    """Check that the chosen program runs with its owner's rights, and that its data and code are unchanged."""
    assert target.stdin is not None and target.stdout is not None
    assert target.stdout.readline() == b"%d\n" % os.getuid()
    with open(f"/proc/{target.pid}/mem", "rb", buffering=0) as memory:
        assert os.pread(memory.fileno(), len(JUMP), CODE) == JUMP
    target.stdin.write(b"x")
    target.stdin.flush()
    assert target.stdout.readline() == b"whole\n"
    assert Path(f"/proc/{target.pid}/status").read_text().split("TracerPid:")[1].split()[0] == "0"


@pytest.mark.parametrize("how", ["self", "thread"])
@pytest.mark.parametrize("function", ["malloc_stats", "malloc_trim", "__errno_location"])
def test_a_call_that_runs_another_program(chosen: Path, function: str, how: str) -> None:
    """Check that nothing of the call is restored if the called function runs a set-uid program."""
    command = ["trim", "--yes"] if function == "malloc_trim" else ["stats"]
    with hostile("turns", str(chosen), function, how, place=0x2F00_0000) as target:
        found = gdbheap(*command, str(target.pid), "--max-stop=1")
        assert found.returncode == 1 and "Traceback" not in found.stderr
        assert found.stderr.count("\n") == 1, found.stderr
        prove_untouched(target)


def test_forged_left_patches(chosen: Path) -> None:
    """Check a target with a forged header of a stub, which becomes a set-uid program when it is traced."""
    with hostile("leaves", str(chosen), place=CODE + PAGE) as target:
        gdbheap("growth", str(target.pid), "--duration=0.2")
        # The process may no longer be traced for this purpose.
        with contextlib.suppress(OSError, TimeoutError):
            _native.Stop(target.pid).release()
        prove_untouched(target)


def test_left_patches_of_another_program(chosen: Path) -> None:
    """Check that a patch is removed only from the program in which it was found: if the process runs another program by
    now, nothing is changed.
    """
    with hostile("leaves", str(chosen), place=CODE + PAGE) as target:
        folder = ProcessFolder(target.pid)
        memory = folder.memory()
        left = SimpleNamespace(address=CODE, original=b"HELLO", replacement=JUMP, start=CODE + 2 * PAGE - 48,
                               end=CODE + 2 * PAGE)  # fmt: skip
        assert _native.restore_left_patches(folder, memory.number, [left])
        prove_untouched(target)


def test_a_file_named_like_the_vdso(tmp_path: Path) -> None:
    """Check that the copy's system call is made in the kernel's own vDSO, even if a mapped file has the same name."""
    script = """
import mmap, signal, sys
with open(sys.argv[1], "wb+") as file:
    file.truncate(mmap.PAGESIZE)
    kept = mmap.mmap(file.fileno(), mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)
signal.pause()
"""
    with programs.running([sys.executable, "-c", script, str(tmp_path / "[vdso]")], tmp_path) as target:
        found = gdbheap("heap", str(target.pid), "--clone")
        assert found.returncode == 0, found.stderr
