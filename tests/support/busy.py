"""Programs that count the effects of a stop, a clone or a call on themselves: tests/programs/blocked.c and similar
ones."""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import programs

KINDS = ("epoll_wait", "recv", "sigtimedwait", "semtimedop", "semop", "read", "nanosleep", "poll")
COUNTS = ("sent", "received", "children", "strange", "wrong", "checked", "early", "other")
# Numbers of system calls on x86-64 and on aarch64, where pause(2) is ppoll(2).
CALLS = {
    "x86_64": {"write": 1, "pause": 34, "nanosleep": 35, "rt_sigtimedwait": 128, "clock_nanosleep": 230},
    "aarch64": {"write": 64, "pause": 73, "nanosleep": 101, "rt_sigtimedwait": 137, "clock_nanosleep": 115},
}[platform.machine()]
HARMS = ("children", "strange", "wrong", "early", "other")


@dataclass
class Busy:
    """A program that counts in the 64-bit words of a file."""

    process: subprocess.Popen[bytes]
    file: Path

    @property
    def pid(self) -> int:
        """Return the program's process id."""
        return self.process.pid

    def words(self) -> tuple[int, ...]:
        """Return the program's counters."""
        return struct.unpack("<64Q", self.file.read_bytes().ljust(512, b"\0")[:512])

    def counts(self) -> dict[str, int]:
        """Return the numbers of signals, wrong bytes and so on of blocked.c."""
        return dict(zip(COUNTS, self.words()[32:]))

    def unharmed(self, but: tuple[str, ...] = ()) -> None:
        """Fail if blocked.c noticed any disturbance, or waits for a signal that never came.

        ``but`` "EINTR": allowed after a tracer was killed between a stop and its repair.
        """
        assert self.process.poll() is None, self.process.returncode
        ended = {kind: count for kind, count in zip(KINDS, self.words()) if count}
        assert "EINTR" in but or not ended, f"EINTR: {ended}"
        wait_for(lambda: self.counts()["sent"] == self.counts()["received"], f"a signal was lost: {self.counts()}")
        counts = self.counts()
        harms = {name: counts[name] for name in HARMS if counts[name]}
        assert not harms, f"the program counts {harms}"
        assert children_of(self.pid) == []
        before = self.words()
        wait_for(lambda: all(now > then for now, then in zip(self.words()[37:38], before[37:38])), "it stands still")


def children_of(pid: int) -> list[str]:
    """Return the state letters of a process's children, zombies too."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
            state, parent = words[:2]
        except OSError:
            continue
        if int(parent) == pid:
            found.append(state)
    return found


def wait_for(condition: Callable[[], object], failure: str) -> None:
    """Return when ``condition`` is true; fail if it does not become so."""
    deadline = time.monotonic() + programs.PATIENCE
    while not condition():
        assert time.monotonic() < deadline, failure
        time.sleep(0.0005)


def wait_for_call(pid: int, call: str) -> None:
    """Return when the first thread of a process waits in one of CALLS; its earlier work is then done."""
    wait_for(lambda: Path(f"/proc/{pid}/syscall").read_text().startswith(f"{CALLS[call]} "), f"it is not in {call}")


@contextmanager
def started(name: str, folder: Path, *arguments: object, counters: int = 1) -> Iterator[Busy]:
    """Yield tests/programs/NAME.c once its first ``counters`` words, or those of blocked.c, have begun to count."""
    file = folder / f"{name}-counters"
    file.touch()
    command = programs.c_program(name, file, *arguments)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        busy = Busy(process, file)
        try:
            begun = (
                (lambda: busy.counts()["checked"] > 0) if name == "blocked" else lambda: all(busy.words()[:counters])
            )
            wait_for(begun, f"{name} did not start")
            yield busy
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(programs.PATIENCE)
            finally:
                process.kill()
