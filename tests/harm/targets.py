"""Programs under load that are stopped; their own checks, or their client's, reveal any harm."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support import programs
from support.ports import free_port

from harm.table import Line, Table

CLIENT = Path(__file__).with_name("client.py")
PATIENCE = 60
POSTGRES = "postgres"
DEVNULL = subprocess.DEVNULL


@dataclass
class Target:
    """A running program. ``pid`` is the process that is stopped, ``table`` its own table or that of its client."""

    name: str
    pid: int
    table: Table
    server: subprocess.Popen[bytes]
    client: subprocess.Popen[bytes] | None = None

    def status(self, key: str) -> list[str]:
        """Return a field of /proc/PID/task/*/status for each present thread."""
        found = []
        for task in Path(f"/proc/{self.pid}/task").glob("*/status"):
            with contextlib.suppress(OSError):
                lines = task.read_text().splitlines()
                found += [line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{key}:")]
        return found

    @property
    def is_alive(self) -> bool:
        """Return whether the target runs, and its client."""
        ended = self.server.poll() is not None or (self.client is not None and self.client.poll() is not None)
        return not ended and any(not state.startswith(("Z", "X")) for state in self.status("State"))

    @property
    def is_free(self) -> bool:
        """Return whether no thread of it is traced or stopped."""
        return set(self.status("TracerPid")) <= {"0"} and not any(
            s.startswith(("T", "t")) for s in self.status("State")
        )

    @property
    def tracers(self) -> set[str]:
        """Return the ids of the processes that trace its threads. The kernel names one of their threads."""
        return {process_of(thread) for thread in set(self.status("TracerPid")) - {"0"}}

    @property
    def is_traced(self) -> bool:
        """Return whether the target's first thread is traced."""
        with contextlib.suppress(OSError):
            return "TracerPid:\t0\n" not in Path(f"/proc/{self.pid}/status").read_text()
        return False

    def lines(self) -> dict[str, Line]:
        """Return the target's table."""
        return self.table.lines()

    def descriptors(self) -> int:
        """Return the number of its open files."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def close(self) -> None:
        """End the target. The program that checks itself removes its files that outlive it."""
        if self.server.stdin is not None:
            self.server.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.server.wait(5)
        for process in (self.client, self.server):
            if process is not None and process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                if process.poll() is None:
                    process.kill()
                    process.wait()


def checking(folder: Path) -> Target:
    """Start the C program that checks itself."""
    command = programs.c_program("checking", folder / "checking")
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=DEVNULL, cwd=folder)
    wait_for(lambda: (folder / "checking").exists() and (folder / "checking").stat().st_size > 0, "it did not start")
    return Target("self-checking C program", server.pid, Table(folder / "checking"), server)


def web(folder: Path) -> Target:
    """Start a Python server with its client."""
    port = folder / "http-port"
    command = [sys.executable, str(programs.SOURCES / "server.py"), str(port)]
    server = subprocess.Popen(command, cwd=folder, stdout=DEVNULL, env=programs.plain_environment())
    wait_for(port.exists, "the server did not start")
    return _served("http", server, int(port.read_text()), folder, "Python's HTTP server")


def redis(folder: Path) -> Target:
    """Start redis-server, which keeps nothing on disk, with its client."""
    port = free_port()
    command = [_found("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(command, cwd=folder, stdout=DEVNULL)
    wait_for(lambda: _listens(port), "redis-server did not start")
    return _served("redis", server, port, folder, "redis-server")


def postgres(folder: Path) -> Target:
    """Start PostgreSQL, which root may not run, with its client; the process that serves the client is stopped."""
    programs_of = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), None)
    binary = shutil.which("initdb") or (programs_of and str(programs_of / "initdb"))
    if not binary:
        raise LookupError("PostgreSQL is not installed")
    user = pwd.getpwnam(POSTGRES) if os.geteuid() == 0 else None
    as_user = {"user": user.pw_uid, "group": user.pw_gid} if user else {}
    data, port = folder / "data", free_port()
    data.mkdir()
    if user:
        os.chown(data, user.pw_uid, user.pw_gid)
        _open_way(folder)
    initdb = [str(Path(binary).resolve()), "-D", str(data), "-A", "trust", "-U", POSTGRES, "-N"]
    subprocess.run(initdb, check=True, stdout=DEVNULL, cwd="/", **as_user)  # type: ignore[call-overload]
    command = [str(Path(binary).resolve().with_name("postgres")), "-D", str(data), "-p", str(port)]
    command += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={data}", "-c", "fsync=off"]
    server = subprocess.Popen(command, cwd="/", stderr=DEVNULL, stdout=DEVNULL, **as_user)  # type: ignore[call-overload]
    wait_for(lambda: _listens(port), "PostgreSQL did not start")
    time.sleep(2)
    target = _served("postgres", server, port, folder, "PostgreSQL, a backend")
    wait_for(lambda: _backend(server.pid) is not None, "no backend serves the client")
    target.pid = _backend(server.pid) or 0
    return target


def _open_way(folder: Path) -> None:
    """Give another user access to the folder."""
    for above in (folder, *folder.parents):
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)


def _backend(postmaster: int) -> int | None:
    for process in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
        if b"127.0.0.1" in Path(f"/proc/{process}/cmdline").read_bytes():
            return int(process)
    return None


def _served(kind: str, server: subprocess.Popen[bytes], port: int, folder: Path, name: str) -> Target:
    table = folder / f"{kind}-table"
    errors = (folder / f"{kind}-client").open("wb")
    client = subprocess.Popen([sys.executable, str(CLIENT), kind, str(port), str(table)], cwd=folder, stderr=errors)
    target = Target(name, server.pid, Table(table), server, client)
    wait_for(lambda: any(line.rounds > 20 for line in target.lines().values()), f"the client of {name} gets no replies")
    return target


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise LookupError(f"{program} is not installed")
    return path


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition: Callable[[], object], failure: str, patience: float = PATIENCE) -> None:
    """Return when ``condition`` is true; raise AssertionError if it does not become so."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, failure
        time.sleep(0.005)


STARTERS: dict[str, Callable[[Path], Target]] = {
    "checking": checking,
    "http": web,
    "redis": redis,
    "postgres": postgres,
}


@contextlib.contextmanager
def started(names: list[str], folder: Path) -> Iterator[list[Target]]:
    """Yield the targets that are available here, under load; they are ended whatever happens."""
    found: list[Target] = []
    try:
        for name in names:
            try:
                found.append(STARTERS[name](folder))
            except LookupError as missing:
                print(f"left out: {name} ({missing})")
        yield found
    finally:
        for target in found:
            target.close()


def process_of(thread: str) -> str:
    """Return the id of a thread's process; the thread's own if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{thread}/status").read_text().splitlines():
            if line.startswith("Tgid:"):
                return line.split()[1]
    return thread
