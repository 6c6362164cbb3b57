"""The program that makes recorded calls again (native/replayer), and what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gdbheap
from gdbheap.errors import EXHAUSTED, GdbheapError, Unsupported
from gdbheap.host.headroom import memory_left, threads_left
from gdbheap.host.procfs import PROC, kib, parse_status
from gdbheap.tracing.replay_settings import Setting

__all__ = ["Ended", "Grown", "Moment", "Replayer"]

GO_ON = b"\n"
WORDS_BYTES = 1000
# One part of so many of the threads that may still be started.
THREADS_SPARED = 2
# One part of so many of the memory that is left is not given away: what a program touches between two looks at it.
MEMORY_SPARED = 8
LOOK_SECONDS = 0.02


class Ended(GdbheapError):
    """The replayer ended before the calls did; the message says how."""


@dataclass(frozen=True)
class Moment:
    """After so many calls. Bytes: ``rss`` and ``peak_rss`` of the allocator's pages, now and at most so far; ``usable``
    of what is handed out, of ``blocks``; ``system`` and ``in_use`` as glibc says, None of another. ``failures``: calls
    that gave nothing although they had given something. ``fixed``: addresses are the same in each run. ``file``: whose
    malloc it is."""

    is_end: bool
    calls: int
    rss: int
    peak_rss: int
    system: int | None
    in_use: int | None
    blocks: int
    usable: int
    failures: int
    nanoseconds: int
    fixed: bool
    file: str


@dataclass(frozen=True)
class Grown:
    """A call that made an arena of glibc's larger by ``bytes``. ``size``, ``alignment``: what it asked for; ``arena``:
    its address in the replay, 0 for the main one."""

    call: int
    size: int
    alignment: int
    arena: int
    bytes: int


def replayer_program() -> str:
    """Its path. Raises Unsupported where it is missing."""
    path = Path(gdbheap.__file__).resolve().parent / "_replayer"
    if not os.access(path, os.X_OK):
        raise Unsupported("the replayer is missing: gdbheap was installed without it")
    return str(path)


class Replayer:
    """One replay, in a block: it is gone when that ends. ``pid``: of the process, which waits at each moment.
    ``growths``: those up to there, where they were asked for."""

    def __init__(
        self, plan: int, setting: Setting, fill: bool, stops: Sequence[int] = (), with_growths: bool = False
    ) -> None:
        """``plan``: the descriptor of one. ``stops``: calls after which it waits, besides the last. Raises Unsupported,
        GdbheapError."""
        self.growths: list[Grown] = []
        # Read only where it ends too early, and never waited for.
        self._errors = tempfile.TemporaryFile(prefix="gdbheap-errors-")
        left = memory_left("self")
        # 0: the kernel's limit counts what nobody touches too, so that there is none without ``fill``.
        memory = max(1, left) if fill else 0
        self._memory, self._is_over, self._took_all = left - left // MEMORY_SPARED, threading.Event(), False
        numbers = [plan, int(fill) + 2 * with_growths, threads_left() // THREADS_SPARED, memory, *sorted(set(stops))]
        words = [replayer_program(), *map(str, numbers)]
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=[plan],
                env=setting.environment(),
                # A terminal's Ctrl-C is for us.
                start_new_session=True,
            )
        except OSError as error:
            raise GdbheapError(f"the replayer cannot be started: {error.strerror}") from None
        self.pid = self._process.pid
        self._watching = threading.Thread(target=self._watch, daemon=True)
        try:
            self._watching.start()
        except RuntimeError:
            self._process.kill()
            self._process.wait()
            raise GdbheapError("the replayer cannot be watched: no thread can be started") from None

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *_: object) -> None:
        # Before the process is waited for: then another one may get its number.
        self._is_over.set()
        self._watching.join()
        with suppress(OSError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _watch(self) -> None:
        """End it once it has touched more memory than it may: by --fill, or by what an allocator writes itself."""
        while not self._is_over.wait(LOOK_SECONDS):
            if _private_memory(self.pid) > self._memory:
                self._took_all = True
                self._process.kill()
                return

    def moments(self) -> Iterator[Moment]:
        """Each stop, and the end; it goes on once the next is asked for. Raises Ended, Unsupported."""
        while True:
            moment = self._next()
            yield moment
            if moment.is_end:
                return
            stream = self._process.stdin
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.write(GO_ON)
                stream.flush()

    def _next(self) -> Moment:
        said = self._said()
        while "grew" in said:
            self.growths.append(Grown(said["grew"], said["size"], said["alignment"], said["arena"], said["bytes"]))
            said = self._said()
        if "error" in said:
            raise _refused(said["error"], said["errno"])
        return Moment(
            said["at"] == "end",
            said["calls"],
            said["rss"],
            said["peak_rss"],
            said.get("system"),
            said.get("in_use"),
            said["blocks"],
            said["usable"],
            said["failures"],
            said["nanoseconds"],
            said["fixed"],
            said["file"],
        )

    def _said(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise Ended(self._how_it_ended())
        said: dict[str, Any] = json.loads(line)
        return said

    def _how_it_ended(self) -> str:
        self._is_over.set()
        self._watching.join()
        code = self._process.wait()
        if self._took_all:
            return f"ended: it took more than the {self._memory >> 20:,} MiB of memory that a replay may take here"
        self._errors.seek(0)
        words = self._errors.read(WORDS_BYTES).decode(errors="replace").strip()
        if code < 0:
            with suppress(ValueError):
                return f"ended by {signal.Signals(-code).name}{': ' if words else ''}{words}"
        return f"ended with status {code}{': ' if words else ''}{words}"


def _private_memory(pid: int) -> int:
    """Return the bytes of a process that are no file's and that nobody shares; 0 where it has ended."""
    with suppress(OSError):
        fields = parse_status(Path(f"{PROC}/{pid}/status").read_bytes())
        return sum(kib(fields.get(name, "")) or 0 for name in ("RssAnon", "VmSwap"))
    return 0


def _refused(why: str, number: int) -> GdbheapError:
    reason = EXHAUSTED.get(number, os.strerror(number))
    if why == "allocator":
        return Unsupported("the allocator lacks a function that a replay calls")
    if why == "threads":
        return GdbheapError(f"the calls need more threads at once than the {number:,} that a replay may start here")
    if why in ("memory", "thread"):
        return GdbheapError(f"the replayer could not go on: {reason}")
    return GdbheapError("the replayer cannot read its plan")
