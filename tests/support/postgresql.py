"""A PostgreSQL server for one test, and a session of it."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.programs import PATIENCE

VERSIONS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
ROW = re.compile(
    r"level: (\d+); (.*?): (\d+) total in \d+ blocks(?: \(\d+ chunks\))?; (\d+) free \(\d+ chunks\); \d+ used"
)


class Server:
    """A cluster for one test, whose socket is in its folder, with one session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = ["psql", "-h", str(folder), "-U", "tester", "-d", "postgres", "-qAtX", "-F", "\t"]
        self._session = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.other = command
        self.pid = int(self.ask("select pg_backend_pid()")[0])

    def ask(self, query: str) -> list[str]:
        """Return the lines of an answer in the session."""
        assert self._session.stdin is not None and self._session.stdout is not None
        self._session.stdin.write(f"{query};\n\\echo ended\n")
        self._session.stdin.flush()
        lines = iter(self._session.stdout.readline, "ended\n")
        return [line.rstrip("\n") for line in lines]

    def told(self, pid: int = 0) -> list[tuple[str, int, int, int]]:
        """Return (name and ident, level, total, free) of each context in the order of the tree, from the log to which
        the idle backend writes them.
        """
        pid = pid or self.pid
        command = [*self.other, "-c", f"select pg_log_backend_memory_contexts({pid})"]
        before = (self.folder / "log").stat().st_size
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            log = (self.folder / "log").read_bytes()[before:].decode()
            _others, _started, text = log.partition(f"logging memory contexts of PID {pid}\n")
            if "Grand total" in text:
                rows = re.findall(ROW, text)
                return [(name, int(level), int(total), int(free)) for level, name, total, free in rows]
            time.sleep(0.05)
        raise AssertionError("the backend did not answer")

    def close(self) -> None:
        """End the session."""
        self._session.kill()
        self._session.communicate()


@contextlib.contextmanager
def cluster() -> Iterator[Path]:
    """Yield the folder of a server; skip the test if there is none."""
    if not VERSIONS or not shutil.which("psql"):
        pytest.skip("no PostgreSQL server in /usr/lib/postgresql, or no psql")
    tools, root = VERSIONS[-1].parent, Path(tempfile.mkdtemp(prefix="gdbheap-postgresql-"))
    before: list[str] = []
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("a server does not run as root, and there is no user postgres")
        os.chown(root, user.pw_uid, user.pw_gid)
        before = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    data, options = str(root / "data"), f"-c listen_addresses='' -c wal_level=logical -c autovacuum=off -k {root}"
    # An idle backend would free its counters ten seconds after its last statement.
    options += " -c track_counts=off"
    control = [*before, str(tools / "pg_ctl"), "-w", "-D", data]
    quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "cwd": root}
    subprocess.run([*before, str(VERSIONS[-1]), "-D", data, "-A", "trust", "-U", "tester", "-N"], **quiet)
    subprocess.run([*control, "-o", options, "-l", str(root / "log"), "start"], **quiet)
    try:
        yield root
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **quiet)
        shutil.rmtree(root, ignore_errors=True)
