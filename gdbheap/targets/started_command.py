"""A command that gdbheap starts and whose exit status it reads. The command runs by itself, in gdbheap's folder and
with its standard streams.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gdbheap.errors import UsageError, one_line
from gdbheap.host.open_files import be_usual

__all__ = ["StartedProcess"]

KILLED = 128


class StartedProcess:
    """A process that gdbheap started, and whose exit status it reads. Raises UsageError if there is no such command.

    The process is never killed; it continues when gdbheap ends.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the command. ``environment``: the command's variables; None for gdbheap's own variables."""
        try:
            self._process = subprocess.Popen(list(command), env=environment, preexec_fn=be_usual)
        except (OSError, ValueError) as error:
            reason = one_line(error.strerror if isinstance(error, OSError) else error)
            raise UsageError(f"{one_line(command[0])!r} cannot be started: {reason}") from error
        self.pid = self._process.pid

    def status(self) -> int | None:
        """Return the exit status as shells report it; None while the process runs.

        If a signal ended the process, it is 128 plus the number of the signal.
        """
        code = self._process.poll()
        return None if code is None else _status(code)

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the process to end and return its exit status; None if it has not ended within ``seconds``."""
        with suppress(subprocess.TimeoutExpired):
            return _status(self._process.wait(seconds))
        return None

    def let_go(self) -> None:
        """Stop waiting for the process: it continues without gdbheap."""
        self._process.returncode = 0


def _status(code: int) -> int:
    return code if code >= 0 else KILLED - code


def signal_name(status: int) -> str | None:
    """Return the name of the signal that ended a process with this status; None if no signal did."""
    with suppress(ValueError):
        return signal.Signals(status - KILLED).name if status > KILLED else None
    return None
