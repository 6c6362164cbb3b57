"""gdbheap as another user, from a copy that this user may read."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import PATIENCE

NOBODY = 65534


@contextlib.contextmanager
def unprivileged(*rights: str) -> Iterator[list[str]]:
    """Yield the beginning of a command that runs gdbheap as an unprivileged user with only these capabilities.

    Skip the test if that is impossible.
    """
    setpriv = shutil.which("setpriv")
    if os.getuid() != 0 or setpriv is None:
        pytest.skip("needs root and setpriv to become another user")
    become = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if rights:
        named = ",".join(f"+{right}" for right in rights)
        become += [f"--inh-caps={named}", f"--ambient-caps={named}"]
    # pytest's own folder cannot be used: each new pytest closes it to other users.
    with tempfile.TemporaryDirectory() as folder:
        copy_packages(Path(folder))
        script = f"import sys; sys.path.insert(0, {folder!r})\n"
        script += "from gdbheap.commands.shell.main import main; sys.exit(main(sys.argv[1:]))"
        for python in (sys.executable, "/usr/bin/python3"):
            command = [*become, python, "-c", script]
            if run_as(command, "--version").returncode == 0:
                yield command
                return
    pytest.skip("no Python here that an unprivileged user may run")


def copy_packages(folder: Path) -> None:
    """Copy gdbheap and its dependencies, readable by all."""
    for name in ("gdbheap", "elftools"):
        found = installed(name)
        (shutil.copytree if found.is_dir() else shutil.copy)(found, folder / found.name)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o055)


def installed(name: str) -> Path:
    """Return the folder of an installed package, or the file of a module."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def let_nobody_write(path: Path) -> None:
    """Permit another user to write, only by an access list (acl(5)). The mode then shows the list's mask instead of the
    group's rights.

    Skip the test if the file system has no access lists.
    """
    everybody, read, write = 0xFFFFFFFF, 4, 6
    # The entries: the owner, a user by number, the owner's group, the mask, all others.
    entries = (
        (1, write, everybody),
        (2, write, NOBODY),
        (4, read, everybody),
        (16, write, everybody),
        (32, read, everybody),
    )
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", packed)
    except OSError as error:
        pytest.skip(f"this file system has no access lists: {error.strerror}")


def run_as(nobody: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run gdbheap as the unprivileged user."""
    return subprocess.run([*nobody, *arguments], capture_output=True, text=True, timeout=PATIENCE, cwd="/")


@contextlib.contextmanager
def own_process(nobody: list[str], script: str) -> Iterator[int]:
    """Yield the id of a Python process of the unprivileged user that rests in pause(2)."""
    become = nobody[: nobody.index("-c")]
    process = subprocess.Popen([*become, "-c", script], cwd="/")
    deadline = time.monotonic() + PATIENCE
    try:
        while not Path(f"/proc/{process.pid}/syscall").read_text().startswith("34 "):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
