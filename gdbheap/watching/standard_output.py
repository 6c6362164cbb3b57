"""Print the lines of a watch without waiting for their reader: a full pipe must not stop the watch."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

__all__ = ["LineOutput"]

# At most this many lines wait for their reader; further ones are dropped and counted.
MOST_LINES = 10_000
# If poll(2) reports a pipe or a terminal as writable, a write of this size does not block (PIPE_BUF).
PART = select.PIPE_BUF
# At the end of the watch, its reader has this many seconds to read the remaining lines.
LAST_SECONDS = 5.0


class LineOutput:
    """Lines that wait until the file ``descriptor`` can take them. ``lost``: returns the line that replaces a number of
    dropped lines.
    """

    def __init__(self, descriptor: int, lost: Callable[[int], bytes]) -> None:
        self._descriptor, self._lost = descriptor, lost
        self._lines, self._dropped = deque[bytes](), 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def add(self, line: bytes) -> None:
        """Print a line, now or later. If too many lines wait already, drop it."""
        self.flush()
        if len(self._lines) >= MOST_LINES:
            self._dropped += 1
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._lines.append(self._lost(dropped))
        self._lines.append(line)
        self.flush()

    def flush(self, seconds: float = 0.0) -> None:
        """Print the waiting lines as far as the file can take them within this many seconds."""
        deadline = time.monotonic() + seconds
        while self._lines:
            if not self._poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                return
            line = self._lines.popleft()
            written = len(line)
            # If the reader of the output is gone, or the disk is full, the watch goes on.
            with suppress(OSError):
                written = self._write(line)
            if written < len(line):
                self._lines.appendleft(line[written:])

    def end(self) -> None:
        """Print the remaining lines, unless nothing reads them."""
        self.flush(LAST_SECONDS)

    def _write(self, line: bytes) -> int:
        """Write as many bytes of ``line`` as one write takes, at most PART, and return their number. Raises OSError."""
        try:
            return os.write(self._descriptor, line[:PART])
        except BlockingIOError:
            # Another program has made the file non-blocking, and has filled it since it was polled.
            return 0
