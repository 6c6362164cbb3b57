"""Calls that do not return in time: undone or left to finish; nothing stays locked, and the program continues."""

from __future__ import annotations

import contextlib
import platform
import random
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from call_storm import ATTACHED, SEIZED, held
from support import busy
from support.gdb_side import runs
from support.programs import Running, ask, c_program, gdbheap, running

from gdbheap._native import Stop
from gdbheap.commands.inferior_calls.inferior_call import TRIM, find_libc
from gdbheap.commands.inferior_calls.native_caller import NativeCaller
from gdbheap.errors import CallEnded, GdbheapError
from gdbheap.targets.process import Process, stopped

STYLES = pytest.mark.parametrize("style", [SEIZED, ATTACHED])
LIMIT = 0.3
IS_X86 = platform.machine() == "x86_64"
# Indexes in struct user_regs_struct; -ERESTART_RESTARTBLOCK.
RAX, ORIG_RAX, RIP = 10, 15, 16
RESTART_BLOCK = (1 << 64) - 516
# The register with the number of a system call, and the number of restart_syscall(2). On aarch64 the kernel has already
# set the thread back to its call.
NUMBER, RESTART_SYSCALL = (ORIG_RAX, 219) if IS_X86 else (8, 128)


@dataclass
class Words:
    """The program's own variables: ``word`` is the value that a function stored last, the others are the sleeping
    thread's."""

    pid: int
    places: dict[str, int]

    def __getitem__(self, name: str) -> int:
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(self.places[name])
            return int(struct.unpack("<Q", memory.read(8))[0])


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Running]:
    """Yield the program."""
    with running(c_program("undone"), tmp_path) as found:
        yield found


def places(process: Process, *names: str) -> dict[str, int]:
    """Return the addresses of the program's symbols."""
    found = {name: process.objects[0].symbol(name) for name in names}
    return {name: address for name, address in found.items() if address is not None}


@contextlib.contextmanager
def caller_of(pid: int, style: str, limit: float = LIMIT) -> Iterator[tuple[NativeCaller, Process]]:
    """Yield the caller of functions in the thread that sleeps and counts."""
    with held(pid, style) as (process, tracer):
        caller = NativeCaller(process, tracer, find_libc(process, TRIM), False, limit)
        caller.tid = max(thread.tid for thread in process.threads)
        yield caller, process


def restarted(registers: list[int]) -> list[int]:
    """Return the registers with which the thread continues: an interrupted system call is repeated."""
    if not IS_X86:
        again = registers[NUMBER] == RESTART_SYSCALL
        return [
            *registers[:NUMBER],
            busy.CALLS["clock_nanosleep"] if again else registers[NUMBER],
            *registers[NUMBER + 1 :],
        ]
    again = registers[RAX] == RESTART_BLOCK
    return [*registers[:RAX], registers[ORIG_RAX] if again else registers[RAX], *registers[RAX + 1 : RIP],
            registers[RIP] - 2 * again, *registers[RIP + 1 :]]  # fmt: skip


def goes_on(pid: int, words: Words) -> bool:
    """Return whether the program is not stopped, and its thread continues without an interrupted sleep."""
    before, deadline = words["slept"], time.monotonic() + 20
    while words["slept"] < before + 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    return words["slept"] >= before + 3 and words["cut_short"] == 0 and runs(pid)


@STYLES
@pytest.mark.parametrize("name", ["spin", "spin_in_calls", "sleep_long"])
def test_undone(style: str, name: str, target: Running) -> None:
    """Check that a call that is computing or in a system call when its time is up leaves no trace."""
    with caller_of(target.pid, style) as (caller, process):
        own = places(process, name, "word", "slept", "cut_short")
        words = Words(target.pid, own)
        lock = own["word"]
        registers = caller._tracer.look(caller.tid).registers
        with pytest.raises(CallEnded, match="has not returned after 0.3 s and was undone"):
            caller.captured(-1, [(own[name], ())], [(lock, struct.pack("<Q", 77))], [])
        assert words["word"] == 77, "what is kept was not put back"
        assert restarted(caller._tracer.look(caller.tid).registers) == restarted(registers)
    assert goes_on(target.pid, words)


@STYLES
def test_left(style: str, target: Running) -> None:
    """Check that a function that may not be left in its middle is finished by the program itself."""
    with caller_of(target.pid, style) as (caller, process):
        own = places(process, "sleep_a_while", "word", "slept", "cut_short")
        words = Words(target.pid, own)
        with pytest.raises(CallEnded, match="finishes the call when it runs on"):
            caller.call_to_end(own["sleep_a_while"])
        assert words["word"] == 4
    busy.wait_for(lambda: words["word"] == 5, "the program has not finished it")
    assert goes_on(target.pid, words)


@STYLES
@pytest.mark.parametrize("kind", ["nanosleep", *(["poll"] if IS_X86 else []), "futex"])
def test_left_in_a_wait_that_was_stopped_before(kind: str, style: str, tmp_path: Path) -> None:
    """Check that the kernel repeats the call in which the thread waits, although the kernel no longer reports this
    call."""
    with running(c_program("undone", kind), tmp_path) as target:
        for _ in range(1000):
            Stop(target.pid).release()
            with caller_of(target.pid, style) as (caller, process):
                look = caller._tracer.look(caller.tid)
                if look.registers[NUMBER] == RESTART_SYSCALL and (not IS_X86 or look.registers[RAX] == RESTART_BLOCK):
                    own = places(process, "sleep_a_while", "word", "slept", "cut_short")
                    words = Words(target.pid, own)
                    assert look.restartable
                    with pytest.raises(CallEnded, match="finishes the call when it runs on"):
                        caller.call_to_end(own["sleep_a_while"])
                    break
        else:
            pytest.fail("it was never stopped twice in a wait")
        busy.wait_for(lambda: words["word"] == 5, "the program has not finished it")
        assert goes_on(target.pid, words)


@STYLES
def test_failed(style: str, target: Running) -> None:
    """Check that a function that fails is undone, and that its locks are free."""
    with caller_of(target.pid, style) as (caller, process):
        own = places(process, "fail", "word", "slept", "cut_short")
        words = Words(target.pid, own)
        with pytest.raises(CallEnded, match="ended by SIGSEGV and was undone"):
            caller.call_to_end(own["fail"], freed=[(own["word"], bytes(8))])
        assert words["word"] == 0
    assert goes_on(target.pid, words)


def test_interrupted(target: Running) -> None:
    """Check that Ctrl-C ends a call that would take for ever."""
    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), caller_of(target.pid, SEIZED, 1000) as (caller, process):
            own = places(process, "spin", "word", "slept", "cut_short")
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            caller.call(own["spin"])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 500 and goes_on(target.pid, Words(target.pid, own))


def test_no_time_is_left(target: Running) -> None:
    """Check that no call is begun if the process was stopped for almost the maximum time."""
    with stopped(target.pid, 0.6) as process:
        assert process.tracer is not None
        caller = NativeCaller(process, process.tracer, find_libc(process, TRIM), False, 5)
        own = places(process, "spin", "word", "slept", "cut_short")
        with pytest.raises(GdbheapError, match="--max-stop"):
            caller.call(own["spin"])
    assert goes_on(target.pid, Words(target.pid, own))


@contextlib.contextmanager
def _with_large_chunk(rng: random.Random, folder: Path) -> Iterator[tuple[Running, int]]:
    """Yield a program and a chunk in a bin of large ones of its main arena: not every seed leaves one."""
    for _ in range(20):
        with running(c_program("trim", rng.getrandbits(30), 1, 3000, 300, 20_000, 0), folder) as target:
            chunks = ask("chunks", str(target.pid), "--state=free", "--arena=0", "--top=all")["rows"]
            found = [int(chunk["address"]) for chunk in chunks if chunk["list"] and "large" in chunk["list"]]
            if found:
                yield target, found[0]
                return
    raise AssertionError("no program left a chunk in a large bin")


def _write(pid: int, address: int, word: int) -> None:
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(struct.pack("<Q", word))


@pytest.mark.parametrize("limit", ["1.5", "5"])
def test_statistics_that_never_end(limit: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a bin that leads back into itself: malloc_stats() is undone, and no mutex stays locked, for every
    --max-stop.
    """
    with _with_large_chunk(rng, tmp_path) as (target, chunk):
        main_arena = ask("arenas", str(target.pid))["rows"][0]["address"]
        # bk, which malloc_stats() follows.
        _write(target.pid, chunk + 8, chunk - 16)
        began = time.monotonic()
        done = gdbheap("stats", str(target.pid), f"--max-stop={limit}")
        assert done.returncode == 1 and "undone" in done.stderr and len(done.stderr.splitlines()) == 1, done
        assert time.monotonic() - began < 100 and runs(target.pid)
        with stopped(target.pid) as process:
            libc = find_libc(process, TRIM)
            stderr = process.space.word(process.space.word(libc.address("stderr")) + 136)
            assert process.space.read(stderr, 16) == bytes(16), "the lock of stderr"
            assert process.space.read(main_arena, 4) == bytes(4), "the mutex of the main arena"


def test_trim_follows_the_bins_first(rng: random.Random, tmp_path: Path) -> None:
    """Check that no overwritten link is followed: malloc_trim() would follow it, and release the memory there."""
    with _with_large_chunk(rng, tmp_path) as (target, chunk):
        _write(target.pid, chunk + 8, chunk + 4096)
        done = gdbheap("trim", str(target.pid), "--yes")
        assert done.returncode == 1 and "damaged" in done.stderr and len(done.stderr.splitlines()) == 1, done
        assert runs(target.pid)
