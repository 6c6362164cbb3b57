"""Calls into a live process: a little of call_storm.py, every refusal, and stacks compared with gdb's."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from call_storm import ATTACHED, SEIZED, Storm, attached, call, kill
from support.gdb_side import batch, compiled, home, needs_gdb, own_lines, runs
from support.programs import ask, c_program, gdbheap, python_program, running

from gdbheap import _native
from gdbheap.commands.gdb.remote_target import unrestorable
from gdbheap.commands.inferior_calls.inferior_call import TRIM, find_libc
from gdbheap.commands.inferior_calls.native_caller import Debugger, NativeCaller
from gdbheap.errors import GdbheapError
from gdbheap.machines.machine import X86_64
from gdbheap.targets.frames import EFFORT
from gdbheap.targets.process import stopped
from gdbheap.targets.unwind_tables import modules_of, room_for_tables


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storm]:
    """Yield the target of call_storm.py."""
    storm = Storm(tmp_path_factory.mktemp("storm"))
    yield storm
    storm.end()


@pytest.mark.parametrize("style", [SEIZED, ATTACHED])
def test_calls_and_kills(style: str, storm: Storm, rng: random.Random) -> None:
    """Check that no thread died, no register or mask changed, and no call was cut short, by the threads' own checks."""
    done = call(storm, rng, style, 10)
    storm.check()
    done.update(kill(storm, rng, style, 10))
    storm.check()
    assert done["killed"] == 10 and sum(done.values()) - done["refused"] >= 20, done


class Pretending(Debugger):
    """A tracer that reports the thread states that a test wants."""

    def __init__(self, **told: object) -> None:
        self.told = told

    def look(self, tid: int) -> Any:
        names = ("registers", "shadow_stack", "dispatched", "sequence", "entering", "restartable", "vector_size")
        found = super().look(tid)
        row = {name: getattr(found, name) for name in names} | self.told
        if "registers" not in self.told and self.told.get("sequence"):
            # The thread is in no system call: a restartable sequence counts only then.
            row["registers"] = [*row["registers"][:15], (1 << 64) - 1, *row["registers"][16:]]
        return SimpleNamespace(**row)

    def call(self, tid: int, plan: object) -> Any:
        raise AssertionError("called")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"shadow_stack": True}, "shadow stack"),
        ({"restartable": False}, "sleeps in a system call that cannot be restarted"),
        ({"dispatched": True}, "redirected to a signal handler"),
        ({"sequence": 4096}, "restartable sequence"),
        ({"entering": True}, "entering a system call"),
    ],
)
def test_refused_states(told: dict[str, object], words: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the refusals for states that this machine lacks, by simulated reports of the kernel; no function is
    called."""
    with running(c_program("holes", rng.randrange(1 << 30), 10, 100_000, 1, 0, tmp_path / "table"), tmp_path) as target:
        with attached(target.pid) as (process, _):
            caller = NativeCaller(process, Pretending(**told), find_libc(process, TRIM), False, 1.0)
            with pytest.raises(GdbheapError, match=words):
                caller.call(1)
        assert runs(target.pid)


CRAMPED = r"""
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *work(void *unused)
{
    for (;;)
        pause();
    return unused;
}
int main(void)
{
    static char stacks[2][40 << 10] __attribute__((aligned(4096)));
    pthread_attr_t attributes;
    pthread_t thread;
    free(malloc(100000));
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stacks[0], sizeof stacks[0]);
    pthread_create(&thread, &attributes, work, NULL);
    /* As a coroutine would. */
    __asm__ volatile("mov %0, %%rsp\n1: mov $34, %%eax\nsyscall\njmp 1b" ::"r"(stacks[1] + 4096));
}
"""


def test_little_stack(tmp_path: Path) -> None:
    """Check that no byte is written below a coroutine's stack or a small stack."""
    with compiled(CRAMPED, tmp_path) as path, subprocess.Popen([str(path)]) as process:
        try:
            while len(os.listdir(f"/proc/{process.pid}/task")) < 2 or not resting(process.pid):
                time.sleep(0.01)
            done = gdbheap("trim", str(process.pid), "--yes")
            assert done.returncode == 1 and re.search("stack of its own|of stack left", done.stderr), done
            assert runs(process.pid)
        finally:
            process.kill()


def resting(pid: int) -> bool:
    """Return whether all threads wait in pause()."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "syscall").read_text().startswith("34 ") for task in tasks)


def stands(task: Path) -> bool:
    """Return whether a thread is in a job-control stop."""
    return "State:\tT" in (task / "status").read_text()


STUCK = r"""
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void handler(int number)
{
    (void)number;
    for (;;)
        pause();
}
int main(void)
{
    void *volatile kept[1000];
    signal(SIGALRM, handler);
    for (int i = 0; i < 1000; i++)
        kept[i] = malloc(3000);
    for (int i = 0; i < 1000; i += 2)
        free(kept[i]);
    ualarm(20000, 0);
    for (;;)
        free(malloc(rand() % 100000 + 2000)), malloc_trim(0);
}
"""


def test_handler_that_interrupted_malloc(tmp_path: Path) -> None:
    """Check that a call is refused if a signal handler interrupted malloc, whose frame is found below the handler's."""
    with compiled(STUCK, tmp_path) as path:
        for _ in range(10):
            with subprocess.Popen([str(path)]) as process:
                try:
                    while not resting(process.pid):
                        time.sleep(0.01)
                    done = gdbheap("trim", str(process.pid), "--yes")
                    assert runs(process.pid)
                finally:
                    process.kill()
            if done.returncode:
                assert "signal handler that interrupted malloc: try again when the handler" in done.stderr, done
                return
    raise AssertionError("in ten programs no handler interrupted malloc")


@needs_gdb
@pytest.mark.parametrize("kind", ["c", "python", "storm"])
def test_stacks_are_gdbs(kind: str, storm: Storm, rng: random.Random, tmp_path: Path) -> None:
    """Check that each frame equals that of gdb's unwinder."""
    command = c_program("trim", rng.getrandbits(30), 3, 1000, 100, 20_000, 0)
    if kind == "python":
        command = python_program("stripped", "trimming", rng.getrandbits(32), 30)
    with running(command, tmp_path) as target:
        pid = storm.pid if kind == "storm" else target.pid
        os.kill(pid, signal.SIGSTOP)
        while not all(stands(task) for task in Path(f"/proc/{pid}/task").iterdir()):
            time.sleep(0.01)
        try:
            with stopped(pid) as process:
                assert process.tracer is not None
                looks = {thread.tid: process.tracer.look(thread.tid).registers for thread in process.threads}
                rows = [[looks[tid][index] for index in X86_64.frames.dwarf] for tid in looks]
                modules = modules_of(process, process.space)
                found = _native.unwind_stacks(process.space, modules, room_for_tables(), EFFORT, rows)
            look = tmp_path / "look.gdb"
            look.write_text(LOOK)
            done = batch(["-p", str(pid)], ["set backtrace past-main on", f"source {look}"], home(tmp_path))
        finally:
            os.kill(pid, signal.SIGCONT)
    theirs = {}
    for line in done.stdout.splitlines():
        if line.startswith("STACK"):
            tid, *counters = line.split()[1:]
            theirs[int(tid)] = [int(counter) for counter in counters]
    assert set(theirs) == set(looks), done.stderr + str(own_lines(done))
    # The assembler code of these threads moves the stack pointer without an entry in a table.
    untold = {slot.tid for slot in storm.slots() if slot.name in ("registers", "receives")}
    for tid, stack in zip(looks, found):
        assert tid in untold or stack.cut == "" and stack.counters == theirs[tid], (
            tid,
            stack.cut,
            [hex(counter) for counter in stack.counters],
        )


LOOK = """python
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame, counters = gdb.newest_frame(), []
    while frame is not None:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            counters.append(frame.pc())
        frame = frame.older()
    print("STACK", thread.ptid[1], *counters)
end
"""


@needs_gdb
def test_called_in_gdb_among_breakpoints(rng: random.Random, tmp_path: Path) -> None:
    """Check that a call in gdb changes no registers and breakpoints, and that the next continue works."""
    names = "('rip', 'rax', 'orig_rax', 'rsp', 'eflags', 'rbx', 'mxcsr')"
    look = f"python print('REGISTERS', *(gdb.newest_frame().read_register(name) for name in {names}))"
    flush = "maintenance flush register-cache"
    with running(c_program("holes", rng.randrange(1 << 30), 10, 100_000, 1, 0, tmp_path / "table"), tmp_path) as target:
        lines = ["break malloc_trim", "break malloc_stats", look, "heap trim --yes", "heap stats", flush, look]
        done = batch(["-p", str(target.pid)], lines, home(tmp_path))
        assert done.returncode == 0, done.stderr
        shown = [line for line in done.stdout.splitlines() if line.startswith("REGISTERS")]
        assert len(shown) == 2 and shown[0] == shown[1]
        assert "was called" in done.stdout and "figures agree" in done.stdout
        assert runs(target.pid)
        target.rest()


def test_status_of_a_damaged_heap(rng: random.Random, tmp_path: Path) -> None:
    """Check that trim refuses a damaged heap in a shell too, because malloc_trim() would abort, and that the process
    runs on."""
    with running(c_program("trim", rng.getrandbits(30), 1, 3000, 300, 20_000, 0), tmp_path) as target:
        chunks = ask("chunks", str(target.pid), "--state=free", "--min=4K")["rows"]
        chunk = next(chunk for chunk in chunks if chunk["list"] and "top" not in str(chunk["list"]))
        with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(chunk["address"] - 8)
            memory.write(b"\x41" * 8)
        done = gdbheap("trim", str(target.pid), "--yes")
        assert done.returncode == 1 and "damaged" in done.stderr and len(done.stderr.splitlines()) == 1, done
        stats = gdbheap("stats", str(target.pid))
        assert stats.returncode == 1, stats
        assert runs(target.pid)


@pytest.mark.parametrize(
    ("version", "cpu", "forced", "refused"),
    [
        (13, b"flags\t\t: fpu amx_tile avx2\n", False, True),
        (13, b"flags\t\t: fpu avx2\n", False, False),
        (13, b"flags\t\t: fpu avx2\n", True, True),
        (13, None, False, True),
        (14, b"flags\t\t: fpu amx_tile\n", True, False),
    ],
)
def test_short_state_of_a_server(version: int, cpu: bytes | None, forced: bool, refused: bool) -> None:
    """Check that gdb makes calls only where it can restore all registers."""
    assert bool(unrestorable(version, cpu, forced)) is refused
