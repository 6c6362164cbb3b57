"""Names of a target and files of a container must not make gdb run anything while ``heap attach`` reads symbols."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.gdb_side import executed, gdb, home, needs_gdb
from support.programs import PATIENCE, entered, has_mount_namespaces

pytestmark = needs_gdb
WRITES = "import pathlib; pathlib.Path({path!r}).write_text('')"
ENTERS = "mount --bind {jail} {safe} && exec {safe}/program"
PAUSES = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program that waits."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(PAUSES)
    subprocess.run([compiler, "-o", str(folder / "program"), str(folder / "program.c")], check=True)
    return folder / "program"


@contextmanager
def waiting(command: list[str], name: str) -> Iterator[int]:
    """Yield the id of a process once it runs a program with this name."""
    with subprocess.Popen(entered(command)) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while os.path.basename(os.readlink(f"/proc/{process.pid}/exe")) != name:
                if process.poll() is not None:
                    pytest.skip("no separate mount namespace can be made here")
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield process.pid
        finally:
            process.kill()


def attached(pid: int, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run gdb that attaches to a process, with scripts of tmp_path/safe allowed."""
    return gdb(["-q", "-batch", *options, "-x", "gdbheap", *executed([f"heap attach {pid}"])], home(folder), folder)


def test_a_name_of_two_lines(program: Path, tmp_path: Path) -> None:
    """Check that a line break in a program's name does not end a command of gdb."""
    name = "x\n!true>PLANTED"
    for copy in (name, "x"):
        shutil.copy(program, tmp_path / copy)
    with waiting([str(tmp_path / name)], name) as pid:
        done = attached(pid, tmp_path)
    assert not (tmp_path / "PLANTED").exists() and "detached" in done.stdout, done


@pytest.mark.skipif(not has_mount_namespaces(), reason="no mount namespace may be made here")
def test_a_script_of_a_container(program: Path, tmp_path: Path) -> None:
    """Check that a container's files are not taken for the host's, which have the same paths and which gdb trusts."""
    safe, jail = tmp_path / "safe", tmp_path / "jail"
    for folder in (safe, jail):
        folder.mkdir()
    # The host has a script of that name but no program: gdb keeps the container's path, and trusts the script's path.
    shutil.copy(program, jail)
    (safe / "program-gdb.py").write_text("")
    (jail / "program-gdb.py").write_text(WRITES.format(path=str(tmp_path / "PLANTED")))
    enters = ENTERS.format(jail=jail, safe=safe)
    with waiting(["unshare", "--mount", "sh", "-c", enters], "program") as pid:
        done = attached(pid, tmp_path, "-iex", f"set auto-load safe-path {safe}")
    assert not (tmp_path / "PLANTED").exists() and "detached" in done.stdout, done
