"""Use ``gdbheap shell`` through pipes: many questions about one reading of a target, with only one start of the
command.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator
from typing import Any

from support.programs import GDBHEAP, PATIENCE, whole_lists


class Session:
    """A session on pipes."""

    def __init__(self, target: object, *options: str, **more: Any) -> None:
        command = [str(GDBHEAP), "shell", str(target), *options]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, "GDBHEAP_DEBUG": "1"}
        self.process: subprocess.Popen[str] = subprocess.Popen(command, text=True, env=environment, **pipes, **more)

    def type(self, line: str) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line with --json, and return the document that answers it. It has all rows unless the line sets a
        number.
        """
        assert self.process.stdout is not None
        self.type(" ".join([line, *whole_lists(*line.split()), "--json"]))
        assert select.select([self.process.stdout], [], [], PATIENCE)[0], "no answer"
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def end(self) -> tuple[str, str, int]:
        """Close the session's input; return the rest of its output, its errors and its status."""
        output, errors = self.process.communicate(timeout=PATIENCE)
        assert "Traceback" not in errors, errors
        return output, errors, self.process.returncode


@contextlib.contextmanager
def session(target: object, *options: str, **more: Any) -> Iterator[Session]:
    """Yield a session, which is ended in any case."""
    found = Session(target, *options, **more)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()
