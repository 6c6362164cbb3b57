"""--clone: the same answers from a copy that never runs, without any effect on the process."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import busy, kernel, programs
from support.control_groups import limited_group
from support.gdb_side import compiled
from support.library import warnings_of

from gdbheap._native import Frozen
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.errors import Fault
from gdbheap.heap import Heap
from gdbheap.targets.cloning import cloned
from gdbheap.targets.process import stopped

UNSUPPORTED = 5
NOUNS = ("", "arenas", "pyobjects", "check")
# Arguments: the target, the number of kills, a seed. A child makes copies of the target and is killed at any moment.
KILLED = """
import os, random, signal, sys, time
from gdbheap._native import Frozen
pid, rounds, rng = int(sys.argv[1]), int(sys.argv[2]), random.Random(sys.argv[3])
for _ in range(rounds):
    child = os.fork()
    if child == 0:
        while True:
            copy = Frozen(pid)
            copy.let_go()
            copy.end()
    time.sleep(rng.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
APART = """
import ctypes, mmap, signal
libc = ctypes.CDLL(None, use_errno=True)
def mapped(advice):
    memory = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE)
    memory.write(b"x" * (1 << 20))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert not libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(1 << 20), advice)
    return address, memory
kept = [mapped(advice) for advice in (10, 18)]
import sys
print(*(address for address, _ in kept), file=sys.stderr, flush=True)
signal.pause()
"""
FILTERED = """
import ctypes, signal
libc = ctypes.CDLL(None)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
allow = (ctypes.c_ubyte * 8)(6, 0, 0, 0, 0, 0, 0xFF, 0x7F)
assert not libc.prctl(38, 1, 0, 0, 0)
assert not libc.prctl(22, 2, ctypes.byref(Program(1, ctypes.addressof(allow))), 0, 0)
signal.pause()
"""


def test_nothing_is_noticed(tmp_path: Path, rng: random.Random) -> None:
    """Check some tens of copies under load: no lost signal, no interrupted call, no child, no zombie, no changed
    byte."""
    with busy.started("blocked", tmp_path, 16) as target:
        for _ in range(40):
            copy = Frozen(target.pid)
            copy.let_go()
            assert Path(f"/proc/{copy.pid}/status").exists()
            assert copy.end(), "the copy was not collected"
            time.sleep(rng.uniform(0, 0.003))
        target.unharmed()


def test_two_copies(tmp_path: Path) -> None:
    """Check that an older copy can end while a newer one exists, because neither keeps the other's connection open."""
    with busy.started("blocked", tmp_path) as target:
        older = Frozen(target.pid)
        older.let_go()
        newer = Frozen(target.pid)
        newer.let_go()
        assert older.end()
        assert [Path(f"/proc/{copy.pid}").exists() for copy in (older, newer)] == [False, True]
        assert newer.end()
        target.unharmed(but=("EINTR",))


def test_it_dies_with_us(tmp_path: Path, rng: random.Random) -> None:
    """Check that SIGKILL at any moment of a copy leaves no copy and no zombie, and that the process runs on."""
    with busy.started("blocked", tmp_path) as target:
        command = [sys.executable, "-c", KILLED, str(target.pid), "60", str(rng.random())]
        subprocess.run(command, check=True, cwd=tmp_path, timeout=programs.PATIENCE)
        busy.wait_for(lambda: busy.children_of(target.pid) == [], "a copy is left")
        target.unharmed(but=("EINTR",))


def test_answers_are_those_of_a_stop(rng: random.Random, tmp_path: Path) -> None:
    """Check that every answer about a resting program equals the answer from the stopped process."""
    with programs.running(
        programs.python_program("stripped", "fragmented", rng.getrandbits(30), 20), tmp_path
    ) as target:
        for noun in NOUNS:
            copied, stood = (programs.ask(noun, str(target.pid), *how) for how in (["--clone"], []))
            assert programs.steady(copied) == programs.steady(stood)
        assert busy.children_of(target.pid) == []


def test_findings_are_those_of_a_stop(rng: random.Random, tmp_path: Path) -> None:
    """Check that pages shared with the copy do not count as shared, and that they show no age of containers."""
    command = programs.python_program("stripped", "faults", rng.getrandbits(30), "cache")
    with programs.running(command, tmp_path) as target:
        assert kernel.anonymous(target.pid) > 10 << 20
        copied, stood = (programs.ask("", str(target.pid), *how)["findings"] for how in (["--clone"], []))
    assert [row["id"] for row in stood] == ["leak-like"] and copied == stood


def test_residency_is_the_targets(rng: random.Random, tmp_path: Path) -> None:
    """Check that pages, sizes and threads are those of the process, not of its copy."""
    with programs.running(
        programs.python_program("stripped", "fragmented", rng.getrandbits(30), 20), tmp_path
    ) as target:
        with cloned(target.pid) as process:
            assert programs.tracer(target.pid) == 0 and process.pages is not None
            total = sum(process.pages.count(m.start, m.end).resident for m in process.mappings)
            assert (total, process.rss.swap) == kernel.rollup(target.pid) and process.rss.bytes == total
        assert {thread.tid for thread in process.threads} == {int(n) for n in os.listdir(f"/proc/{target.pid}/task")}
        assert process.warnings == [] and process.stopped_seconds is not None


def test_what_a_copy_has_not(tmp_path: Path) -> None:
    """Check that memory that the program excludes from children is reported as missing, and never read as zeros."""
    with programs.running([programs.interpreter_of("stripped"), "-I", "-c", APART], tmp_path) as target:
        with cloned(target.pid) as process:
            assert process.partial and "2,097,152 bytes in" in process.warnings[-1]
            for word in target.stderr.split():
                with pytest.raises(Fault):
                    process.space.read(int(word), 1)


def test_refused_with_a_reason(tmp_path: Path) -> None:
    """Check that no call is injected under seccomp or in a stopped process, and that one line gives the reason."""
    with programs.running([programs.interpreter_of("stripped"), "-I", "-c", FILTERED], tmp_path) as target:
        done = programs.gdbheap("info", str(target.pid), "--clone")
        assert done.returncode == UNSUPPORTED and "seccomp" in done.stderr and len(done.stderr.splitlines()) == 1
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            done = programs.gdbheap("info", str(process.pid), "--clone")
            assert done.returncode == UNSUPPORTED and "already stopped" in done.stderr, done
        finally:
            process.kill()


def test_refused_by_the_kernel(tmp_path: Path) -> None:
    """Check that the kernel's refusal of a further process is reported, and that the process runs on."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        os.setresuid(54321, 54321, 54321)

    with subprocess.Popen(["sleep", "100"], preexec_fn=limited) as target:
        try:
            time.sleep(0.1)
            done = programs.gdbheap("info", str(target.pid), "--clone")
            assert done.returncode == UNSUPPORTED and "RLIMIT_NPROC" in done.stderr, done
            with pytest.raises(OSError, match="temporarily"):
                Frozen(target.pid)
            assert target.poll() is None and busy.children_of(target.pid) == []
        finally:
            target.kill()


# The program has pages so far apart that each needs its own page table, and prints a line once they exist.
SPARSE = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **words)
{
    long pages = atol(words[1]);
    size_t apart = 2 << 20;
    char *memory = mmap(0, pages * apart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (count < 2 || memory == MAP_FAILED || madvise(memory, pages * apart, MADV_NOHUGEPAGE))
        return 1;
    for (long page = 0; page < pages; page++)
        memory[page * apart] = 1;
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
"""


def test_page_tables_are_reckoned_with(tmp_path: Path, rng: random.Random) -> None:
    """Check that page tables count: the kernel copies them, and would kill if only the process's memory fits."""
    pages = rng.randrange(10_000, 12_000)
    with compiled(SPARSE, tmp_path) as path, limited_group(1 << 30, rng) as group:

        def enter() -> None:
            group.take_in(os.getpid())

        with subprocess.Popen([path, str(pages)], preexec_fn=enter, stdout=subprocess.PIPE) as target:
            try:
                assert target.stdout is not None and target.stdout.readline() == b"ready\n"
                # The group's limit leaves room for the pages and half of the tables.
                group.leave(pages * 6 << 10)
                done = programs.gdbheap("info", str(target.pid), "--clone")
                assert (group.kills, target.poll()) == (0, None)
                assert done.returncode == UNSUPPORTED and "page tables" in done.stderr, done
                assert len(done.stderr.splitlines()) == 1
            finally:
                target.kill()


@pytest.mark.parametrize("noun", ["retained", "unreachable", "owners"])
def test_a_copy_of_the_bytes_gives_the_same(noun: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that commands that compute after the release of the process answer as they do during the stop."""
    command = COMMANDS[noun]
    with programs.running(
        programs.python_program("stripped", "fragmented", rng.getrandbits(30), 20), tmp_path
    ) as target:
        answers = []
        for copies in (True, False):
            with stopped(target.pid, None, copies) as process:
                assert (process.stopped_seconds is not None) == copies
                options, _, _ = parse(command, ["--by=block", "--min=1K"] if noun == "owners" else [])
                heap = Heap(process)
                answers.append((command.answer(heap, options), warnings_of(heap), heap.damage, heap.partial))
    assert answers[0] == answers[1]
