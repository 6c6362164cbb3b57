"""Run gdbheap on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence

import pytest

from support.programs import GDBHEAP, PATIENCE


def on_terminal(words: Sequence[str], columns: int, **variables: str) -> tuple[str, int]:
    """Run gdbheap on a terminal with ``columns`` columns; return its output and its status. Skip the test if there is
    no pty.
    """
    try:
        leader, follower = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal: {error}")
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", **variables}
    process = subprocess.Popen(
        [str(GDBHEAP), *words], env=environment, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    # Not select.select(): it takes no descriptor above 1023.
    waiting = select.poll()
    waiting.register(leader, select.POLLIN)
    shown = b""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if waiting.poll(100):
            try:
                shown += os.read(leader, 1 << 16)
            except OSError:
                break
    os.close(leader)
    return shown.decode().replace("\r\n", "\n"), process.wait(PATIENCE)
