"""Call functions in a process at random moments, and kill callers with SIGKILL during their calls.

Run by hand; test_calls.py runs a little of it.

    python tests/call_storm.py [--calls=N] [--kills=N] [--style=seized|attached|both]

The target is tests/programs/storm.c. Its threads sleep in each kind of system call, compute with all vector registers
of the CPU, and run signal handlers on their own stacks. They check themselves whether anything has changed. The
functions are malloc_trim() and malloc_stats(), called in a random thread by the same code and after the same proof as
``gdbheap trim --yes`` and ``gdbheap stats``. Every caller that is killed dies during its call.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.programs import build

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.commands.inferior_calls.inferior_call import STATS, TRIM, find_libc, prove_safe
from gdbheap.commands.inferior_calls.malloc_stats_call import written_by_stats
from gdbheap.commands.inferior_calls.native_caller import Debugger, NativeCaller, Tracer
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap
from gdbheap.targets.process import Process, Registers, stopped

SLOTS, SLOT = 32, struct.Struct("<QQQ40s")
SEIZED, ATTACHED = "seized", "attached"
PTRACE_CONT, PTRACE_ATTACH, PTRACE_DETACH, WALL = 7, 16, 17, 0x40000000
PTRACE_SETOPTIONS, TRACESYSGOOD = 0x4200, 1
LONGEST_CALL = 0.012
PATIENCE = 60


@dataclass(frozen=True)
class Slot:
    """The state of one thread of the target, as the thread itself reports it."""

    rounds: int
    faults: int
    tid: int
    name: str


class Storm:
    """The running target."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "slots"
        with (directory / "stderr").open("wb") as stream:
            self.process = subprocess.Popen([str(build("storm")), str(self._file)], stderr=stream)
        self.pid = self.process.pid
        self.advance()
        self.advance()
        self.masks = self._masks()

    def slots(self) -> list[Slot]:
        """Return the states of all threads."""
        data = self._file.read_bytes() if self._file.exists() else b""
        if len(data) < SLOTS * SLOT.size:
            return []
        rows = [SLOT.unpack_from(data, place * SLOT.size) for place in range(SLOTS)]
        return [Slot(rounds, faults, tid, name.rstrip(b"\0").decode()) for rounds, faults, tid, name in rows if name[0]]

    def _masks(self) -> dict[str, str]:
        """Return the signals that each thread blocks, as the kernel reports them.

        The receiver blocks one while its handler runs.
        """
        found = {}
        for slot in self.slots():
            lines = Path(f"/proc/{self.pid}/task/{slot.tid}/status").read_text().splitlines()
            found[slot.name] = next(line for line in lines if line.startswith("SigBlk"))
        return {name: mask for name, mask in found.items() if name != "receives"}

    def advance(self) -> None:
        """Return when every thread has finished one more round.

        Raise an error if a thread does not, or if the target is dead.
        """
        before: dict[str, int] = {}
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the target is dead: {self.process.returncode}")
            rounds = {slot.name: slot.rounds for slot in self.slots()}
            before = before or rounds
            if before and all(rounds[name] > before.get(name, 0) for name in rounds):
                return
            time.sleep(0.002)
        raise AssertionError(f"a thread does not go on: {before} and then {rounds}")

    def check(self) -> None:
        """Check that all threads run, found no change, and are not traced, and that their signal masks are as
        before."""
        self.advance()
        wrong = [slot for slot in self.slots() if slot.faults]
        assert not wrong, wrong
        assert "TracerPid:\t0" in Path(f"/proc/{self.pid}/status").read_text()
        assert self._masks() == self.masks, self._masks()

    def end(self) -> None:
        """End the target."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def attached(pid: int) -> Iterator[tuple[Process, Tracer]]:
    """Yield the process, attached by PTRACE_ATTACH as in gdb, and its tracer."""
    libc = ctypes.CDLL(None, use_errno=True)
    tracer = Debugger()
    held: list[int] = []
    try:
        while True:
            fresh = [tid for tid in map(int, os.listdir(f"/proc/{pid}/task")) if tid not in held]
            if not fresh:
                break
            for tid in fresh:
                if libc.ptrace(PTRACE_ATTACH, tid, None, None) == 0:
                    held.append(tid)
                    while os.WSTOPSIG(status := os.waitpid(tid, WALL)[1]) != signal.SIGSTOP:
                        # The signal is delivered at once, because it would be lost with this tracer.
                        libc.ptrace(PTRACE_CONT, tid, None, os.WSTOPSIG(status))
        for tid in held:
            libc.ptrace(PTRACE_SETOPTIONS, tid, None, TRACESYSGOOD)  # as gdb always does
        looks = {tid: tracer.look(tid).registers for tid in held}
        rows = [Registers(tid, words[21], words[19], words[16], words[:15]) for tid, words in sorted(looks.items())]
        yield Process(pid, rows), tracer
    finally:
        for tid in held:
            libc.ptrace(PTRACE_DETACH, tid, None, None)


@contextlib.contextmanager
def held(pid: int, style: str) -> Iterator[tuple[Process, Tracer]]:
    """Yield the stopped process, and the tracer that can make calls in it."""
    if style == ATTACHED:
        with attached(pid) as both:
            yield both
        return
    with stopped(pid) as process:
        assert process.tracer is not None
        yield process, process.tracer


class Session:
    """A stop of the process, in which calls are made in random threads."""

    def __init__(self, process: Process, tracer: Tracer) -> None:
        heap = Heap(process)
        self._mutexes = [arena.address for arena in heap.allocator(GlibcAllocator).malloc.arenas]
        self._libc = find_libc(process, STATS)
        self._caller = NativeCaller(process, tracer, self._libc, False, 30.0)
        prove_safe(self._libc, self._mutexes, self._caller)
        self.fit = [thread for thread in process.threads if not self._caller.unfit(thread)]

    def call(self, rng: random.Random) -> int:
        """Call one of the two functions in a random thread. Return the thread's id."""
        self._caller.tid = rng.choice(self.fit).tid
        if rng.random() < 0.5:
            self._caller.call_to_end(self._libc.address(TRIM.function), 0)
        else:
            text = written_by_stats(self._libc, self._caller, self._mutexes)
            assert text.startswith("Arena 0:") and text.count("in use bytes") == 2, text
        return self._caller.tid


def call(storm: Storm, rng: random.Random, style: str, times: int) -> Counter[str]:
    """Stop the process ``times`` times, with one call in each stop.

    Return how often each thread made a call, and how often the proof failed ("refused").
    """
    done: Counter[str] = Counter()
    names = {slot.tid: slot.name for slot in storm.slots()}
    while sum(done.values()) - done["refused"] < times:
        time.sleep(rng.random() / 200)
        try:
            with held(storm.pid, style) as (process, tracer):
                done[names.get(Session(process, tracer).call(rng), "main")] += 1
        except GdbheapError as error:
            assert "gdbheap did not call" in str(error), error
            done["refused"] += 1
    return done


def kill(storm: Storm, rng: random.Random, style: str, times: int) -> Counter[str]:
    """Kill ``times`` callers during their calls.

    Return the number of deaths, and of deaths before the first call was done.
    """
    done: Counter[str] = Counter()
    while done["killed"] < times:
        done.update(_killed(storm, rng, style))
        deadline = time.monotonic() + PATIENCE
        while "TracerPid:\t0" not in Path(f"/proc/{storm.pid}/status").read_text() and time.monotonic() < deadline:
            time.sleep(0.0005)
        if style == ATTACHED:
            # The SIGSTOP that stops an attached thread survives its sender, also with gdb.
            time.sleep(0.002)
            os.kill(storm.pid, signal.SIGCONT)
        if rng.random() < 0.05:
            storm.advance()
    return done


def _killed(storm: Storm, rng: random.Random, style: str) -> list[str]:
    """Start one caller and kill it. Return words for the counter of ``kill``."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _call_for_ever(storm.pid, random.Random(rng.getrandbits(64)), style, writing)
    os.close(writing)
    try:
        if not os.read(reading, 1):
            return ["refused"]
        time.sleep(rng.random() * LONGEST_CALL)
        os.kill(child, signal.SIGKILL)
        return ["killed"]
    finally:
        os.waitpid(child, 0)
        os.close(reading)


def _call_for_ever(pid: int, rng: random.Random, style: str, writing: int) -> None:
    """Make calls without end in the child process. Write a byte when the first call begins. This never returns."""
    try:
        with held(pid, style) as (process, tracer):
            session = Session(process, tracer)
            os.write(writing, b"x")
            while True:
                session.call(rng)
    except GdbheapError:
        os._exit(0)
    except BaseException as error:
        print(f"the caller failed: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)


def main() -> None:
    """Run the calls and kills that the options request, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--style", choices=[SEIZED, ATTACHED, "both"], default="both")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    print(f"seed {asked.seed}", flush=True)
    for style in [SEIZED, ATTACHED] if asked.style == "both" else [asked.style]:
        with tempfile.TemporaryDirectory() as directory:
            storm = Storm(Path(directory))
            try:
                for what, times in ((call, asked.calls), (kill, asked.kills)):
                    began = time.monotonic()
                    counts = what(storm, rng, style, times)
                    storm.check()
                    print(style, what.__name__, dict(counts), f"{time.monotonic() - began:.0f} s", flush=True)
                print(style, "rounds", {slot.name: slot.rounds for slot in storm.slots()}, "faults 0", flush=True)
            finally:
                storm.end()


if __name__ == "__main__":
    main()
