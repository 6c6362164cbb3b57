"""Merged stacks against the interpreter's own frames and against gdb's, for threads that are stopped one at a time."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from support.one_thread import DETACH, held, ptrace, trace_me
from support.programs import (
    RELEASES,
    Running,
    build,
    c_program,
    plain_environment,
    release_program,
    running,
)

from gdbheap.machines.machine import X86_64
from gdbheap.stack_frames import StackFrame
from gdbheap.stacks import EVALUATORS, CapturedStack, Stacks

needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
LIBRARY = """
#include <unistd.h>
__attribute__((noinline)) static int inner(void) { char line; return (int)read(0, &line, 1); }
int wait_inside(void) { int got = inner(); __asm__ volatile(""); return got; }
"""
LOOK = """python
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame, rows = gdb.newest_frame(), []
    while frame is not None:
        is_inlined = frame.type() == gdb.INLINE_FRAME
        # Lines and inlined functions of libraries depend on the debug files that are installed.
        is_own = gdb.solib_name(frame.pc()) is None
        if frame.type() != gdb.TAILCALL_FRAME and (is_own or not is_inlined):
            line = frame.find_sal().line if is_own else 0
            rows.append("%d:%s:%d:%d" % (frame.pc(), frame.name(), line, is_inlined))
        frame = frame.older()
    print("STACK", thread.ptid[1], *rows)
end
"""


def tasks(pid: int) -> list[int]:
    """Return the ids of a process's threads."""
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))


def stacks_of(pid: int) -> Stacks:
    """Return the capture of stacks of a running process."""
    return Stacks(pid, X86_64)


def captured(stacks: Stacks, tid: int) -> tuple[CapturedStack, int]:
    """Return the stack of one thread, and its thread pointer."""
    with held(tid) as (found, pointer):
        return stacks.capture(found, pointer), pointer


def python_rows(frames: tuple[StackFrame, ...]) -> list[list[object]]:
    """Return [name, file, line] of the Python frames, innermost first."""
    return [[frame.name, frame.file, frame.line] for frame in reversed(frames) if frame.kind == "python"]


def check_python(target: Running, release: str) -> None:
    """Check that every thread's Python frames are exactly its own, that no evaluator is left, and that C's frames
    are where they were called."""
    truth = json.loads(target.stderr)
    stacks = stacks_of(target.pid)
    found = [captured(stacks, tid) for tid in tasks(target.pid)]
    assert len(found) == len(truth)
    for raw, pointer in found:
        frames = stacks.name(raw)
        assert python_rows(frames) == truth[str(pointer)]
        assert not raw.cut
        names = [frame.name for frame in frames]
        assert EVALUATORS[int(release[0])] not in names
        for place, name in enumerate(names):
            if frames[place].kind == "python" and name == "by_c":
                inside = names[place + 1 : place + 1 + names[place + 1 :].index(compare_name(names))]
                assert "qsort_r" in inside or "qsort" in inside, names
                assert all(frame.kind == "native" for frame in frames[place + 1 : place + 1 + len(inside)])


def compare_name(names: list[str]) -> str:
    """Return this release's name of the callback."""
    return "by_c.<locals>.compare" if "by_c.<locals>.compare" in names else "compare"


@pytest.mark.parametrize("release", RELEASES)
def test_python_frames(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check functions, files and lines of every thread, for stacks of every depth."""
    for depth in (3, 12, 60):
        program = release_program(release, "calls", rng.getrandbits(30), depth, rng.randrange(1, 5))
        with running(program, tmp_path) as target:
            check_python(target, release)


@pytest.mark.parametrize("release", RELEASES)
def test_loaded_and_started_later(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a capture that starts when a program has only been executed: its library, interpreter and threads come
    later."""
    program = release_program(release, "calls", rng.getrandbits(30), 10, 2)
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stderr=errors, env=plain_environment(), preexec_fn=trace_me
        )
    target = Running(process, folder, program[0])
    try:
        os.waitpid(process.pid, os.WUNTRACED)
        stacks = stacks_of(process.pid)
        ptrace(DETACH, process.pid)
        target.rest()
        truth = json.loads(target.stderr)
        for tid in tasks(process.pid):
            raw, pointer = captured(stacks, tid)
            assert python_rows(stacks.name(raw)) == truth[str(pointer)]
    finally:
        target.close()


@needs_gdb
def test_native_frames_are_gdbs(rng: random.Random, tmp_path: Path) -> None:
    """Check program counters of every thread, and the names and lines of the program's own functions, with those that
    were inlined."""
    program = c_program("nested", rng.getrandbits(28), rng.randrange(60), rng.randrange(1, 6))
    with running(program, tmp_path) as target:
        pid = target.pid
        stacks = stacks_of(pid)
        mine = {tid: captured(stacks, tid)[0] for tid in tasks(pid)}
        theirs = gdb_stacks(pid, tmp_path)
    assert set(mine) == set(theirs)
    for tid, raw in mine.items():
        frames = list(reversed(stacks.name(raw)))
        assert not raw.cut and len(frames) == len(theirs[tid])
        whole = [frame.counter for frame in theirs[tid] if not frame.is_inlined]
        assert [place + bool(number) for number, (_, place, _) in enumerate(raw.places)] == whole
        for frame, other in zip(frames, theirs[tid]):
            if other.line:
                assert (frame.name, frame.line) == (other.name, other.line)
        assert {"main", "thread"} & {frame.name for frame in frames}


class GdbFrame(NamedTuple):
    """A frame as gdb shows it; ``line`` is 0 in libraries."""

    counter: int
    name: str
    line: int
    is_inlined: bool


def gdb_stacks(pid: int, folder: Path) -> dict[int, list[GdbFrame]]:
    """Return gdb's stack of each thread, innermost first."""
    script = folder / "look.gdb"
    script.write_text(LOOK)
    command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(pid)]
    command += ["-ex", "set backtrace past-main on", "-x", str(script)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("STACK"):
            tid, *rows = line.split()[1:]
            parts = [row.split(":") for row in rows]
            found[int(tid)] = [GdbFrame(int(one[0]), one[1], int(one[2]), one[3] == "1") for one in parts]
    assert found, done.stderr
    return found


def test_a_library_is_loaded_later(rng: random.Random, tmp_path: Path) -> None:
    """Check that a frame in an object that was loaded later has its name, and its callers too."""
    source, library = tmp_path / "late.c", tmp_path / "late.so"
    source.write_text(LIBRARY)
    build("nested")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    with running(c_program("nested", rng.getrandbits(28), 3, 1, library), tmp_path) as target:
        stacks = stacks_of(target.pid)
        before = [frame.name for frame in stacks.name(captured(stacks, target.pid)[0])]
        target.go_on()
        after = stacks.name(captured(stacks, target.pid)[0])
    assert "rest" in before and "wait_inside" not in before
    names = [frame.name for frame in after]
    assert names[names.index("main") :][:3] == ["main", "wait_inside", "inner"]
    assert next(frame.file for frame in after if frame.name == "inner") == str(library)


def test_nothing_raises(rng: random.Random, tmp_path: Path) -> None:
    """Check any registers and thread pointers, for a process that runs, one that was killed, and one that is gone."""
    target_program = release_program("3.11", "calls", rng.getrandbits(30), 8, 2)
    with running(target_program, tmp_path) as target:
        stacks = stacks_of(target.pid)
        with held(target.pid) as (right, pointer):
            for _ in range(300):
                wrong = [rng.choice((value, rng.getrandbits(64), rng.getrandbits(12))) for value in right]
                names = stacks.name(stacks.capture(wrong, rng.choice((pointer, pointer + 8, rng.getrandbits(64)))))
                assert names
            whole = stacks.capture(right, pointer)
        assert whole.cut == "" and whole.python is not None
        target.process.send_signal(signal.SIGKILL)
        target.process.wait()
        raw = stacks.capture(right, pointer)
        assert raw.cut and raw.python is None
        # A stack that was taken while the process lived is named afterwards.
        assert python_rows(stacks.name(whole))
