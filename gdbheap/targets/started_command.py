"""A command that gdbheap starts and reads: it runs on its own, in our folder, with our standard streams."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gdbheap.errors import UsageError, one_line
from gdbheap.host.open_files import be_usual

__all__ = ["Started"]

KILLED = 128


class Started:
    """A process that gdbheap started and collects. Raises UsageError if there is no such command.

    It is never killed: it continues when gdbheap ends.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the command. ``environment``: None for our own."""
        try:
            self._process = subprocess.Popen(list(command), env=environment, preexec_fn=be_usual)
        except (OSError, ValueError) as error:
            reason = one_line(error.strerror if isinstance(error, OSError) else error)
            raise UsageError(f"{one_line(command[0])!r} cannot be started: {reason}") from error
        self.pid = self._process.pid

    def status(self) -> int | None:
        """Return its exit status, 128 plus the signal that ended it as in shells; None while it runs."""
        code = self._process.poll()
        return None if code is None else _status(code)

    def wait(self, seconds: float | None = None) -> int | None:
        """Return its exit status once it has ended; None if it has not within ``seconds``."""
        with suppress(subprocess.TimeoutExpired):
            return _status(self._process.wait(seconds))
        return None

    def let_go(self) -> None:
        """Stop collecting it: it continues without gdbheap."""
        self._process.returncode = 0


def _status(code: int) -> int:
    return code if code >= 0 else KILLED - code


def signal_name(status: int) -> str | None:
    """Return the signal that ended a process with this status; None if it ended by itself."""
    with suppress(ValueError):
        return signal.Signals(status - KILLED).name if status > KILLED else None
    return None
