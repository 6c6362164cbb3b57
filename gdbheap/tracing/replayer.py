"""Run the replayer (native/replayer), which repeats recorded calls, and parse its output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gdbheap
from gdbheap.dataclass import dataclass
from gdbheap.errors import EXHAUSTED, GdbheapError, Unsupported
from gdbheap.host.headroom import memory_left, threads_left
from gdbheap.host.procfs import PROC, kib, parse_status
from gdbheap.machines.machine import THIS_MACHINE
from gdbheap.tracing.replay_settings import Setting

__all__ = ["ReplayerEnded", "GrowthCall", "ReplayMoment", "Replayer"]

GO_ON = b"\n"
WORDS_BYTES = 1000
# The number of threads that may still be started is divided by this; the replay may start as many.
THREADS_SPARED = 2
# The free memory is divided by this; the result stays unused, for memory that a program touches between two checks.
MEMORY_SPARED = 8
LOOK_SECONDS = 0.02


class ReplayerEnded(GdbheapError):
    """Raised if the replayer ended before it had made all calls. The message says how it ended."""


@dataclass(frozen=True)
class ReplayMoment:
    """The replayer's state after a number of calls; sizes in bytes.

    ``rss``, ``peak_rss``: the resident bytes of the allocator's pages, now and the highest so far.
    ``blocks``, ``usable``: the blocks in use, and their usable bytes.
    ``system``, ``in_use``: as glibc reports them, None for other allocators.
    ``failures``: how many calls failed now but not when recorded.
    ``fixed``: whether addresses are the same in each run.
    ``file``: the file that contains the replayer's malloc.
    """

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
class GrowthCall:
    """A call that made an arena of glibc grow by ``bytes``.

    ``size``, ``alignment``: the call's arguments; ``arena``: the arena's address in the replayer, 0 for the main
    arena."""

    call: int
    size: int
    alignment: int
    arena: int
    bytes: int


def replayer_program() -> str:
    """Return the path of the replayer's program. Raises Unsupported if it is missing."""
    path = Path(gdbheap.__file__).resolve().parent / "_replayer"
    if not os.access(path, os.X_OK):
        if not THIS_MACHINE.has_patches:
            raise Unsupported("gdbheap can replay a trace only on x86-64: copy the trace to such a machine")
        raise Unsupported("the replayer is missing: gdbheap was installed without it")
    return str(path)


class Replayer:
    """One run of the replayer: a context manager that kills the replayer at the end of the ``with`` block.

    ``pid``: the pid of the replayer, which waits at each moment that ``moments`` yields. ``growths``: the arena growths
    so far, if ``with_growths`` was set."""

    def __init__(
        self, plan: int, setting: Setting, fill: bool, stops: Sequence[int] = (), with_growths: bool = False
    ) -> None:
        """Start the replayer.

        ``plan``: the descriptor of a plan; ``stops``: the calls after which the replayer waits; it also waits after the
        last call. Raises Unsupported, GdbheapError."""
        self.growths: list[GrowthCall] = []
        # The replayer's standard error, which is read only if the replayer ends too early. It is a file, so that
        # writing never blocks.
        self._errors = tempfile.TemporaryFile(prefix="gdbheap-errors-")
        left = memory_left("self")
        # 0 means no limit. The kernel's limit also counts memory that was never touched, so it is set only with
        # ``fill``.
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
                # A terminal's Ctrl-C must reach only gdbheap.
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
            raise GdbheapError("the replayer cannot run: gdbheap cannot start its watching thread") from None

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *_: object) -> None:
        # Set this before waiting for the process, because its id may be reused afterwards.
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
        """Kill the replayer when it has touched more memory than it may use.

        The replayer touches memory because of --fill, or because the allocator writes to it.
        """
        while not self._is_over.wait(LOOK_SECONDS):
            if _private_memory(self.pid) > self._memory:
                self._took_all = True
                self._process.kill()
                return

    def moments(self) -> Iterator[ReplayMoment]:
        """Yield the state at each stop and at the end. The replayer continues when the next state is requested.

        Raises ReplayerEnded, Unsupported, GdbheapError.
        """
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

    def _next(self) -> ReplayMoment:
        said = self._said()
        while "grew" in said:
            self.growths.append(GrowthCall(said["grew"], said["size"], said["alignment"], said["arena"], said["bytes"]))
            said = self._said()
        if "error" in said:
            raise _refused(said["error"], said["errno"])
        return ReplayMoment(
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
            raise ReplayerEnded(self._how_it_ended())
        said: dict[str, Any] = json.loads(line)
        return said

    def _how_it_ended(self) -> str:
        self._is_over.set()
        self._watching.join()
        code = self._process.wait()
        if self._took_all:
            return f"ended: the replay took more than the {self._memory >> 20:,} MiB of memory that it may use here"
        self._errors.seek(0)
        words = self._errors.read(WORDS_BYTES).decode(errors="replace").strip()
        if code < 0:
            with suppress(ValueError):
                return f"ended by {signal.Signals(-code).name}{': ' if words else ''}{words}"
        return f"ended with status {code}{': ' if words else ''}{words}"


def _private_memory(pid: int) -> int:
    """Return a process's private anonymous memory in bytes, swapped memory included; 0 if it has ended."""
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
        return GdbheapError(f"the replayer could not continue: {reason}")
    return GdbheapError("the replayer cannot read its plan")
