"""Another user of this machine, who plants names in folders where files are written."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# No account has this number.
STRANGER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as another user")


def as_stranger(attack: Callable[[], object]) -> int:
    """Start a process of the stranger that runs ``attack``; return its id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setgroups([])
            os.setresgid(STRANGER, STRANGER, STRANGER)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            os.umask(0)
            attack()
            status = 0
        os._exit(status)
    return pid


def planted(attack: Callable[[], object]) -> None:
    """Let the stranger run ``attack`` to its end."""
    assert os.waitstatus_to_exitcode(os.waitpid(as_stranger(attack), 0)[1]) == 0


@contextlib.contextmanager
def attacking(attack: Callable[[], object]) -> Iterator[None]:
    """Let the stranger run ``attack`` again and again until the block ends."""

    def storm() -> None:
        while True:
            with contextlib.suppress(OSError):
                attack()

    pid = as_stranger(storm)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def place(mode: int, owner: int = 0) -> Iterator[Path]:
    """Yield a folder that others can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="gdbheap-shared-", dir="/tmp") as name:
        os.chown(name, owner, owner)
        os.chmod(name, mode)
        yield Path(name)
