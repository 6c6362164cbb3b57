"""``heap stats``: called only if it cannot hang, captured wherever stderr leads, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gdb_calls import ALLOCATES, FILTERED, refused, state
from support.gdb_side import Done, batch, compiled, documents, home, needs_gdb, own_lines, runs
from support.programs import Running, ask, c_program, gdbheap, running

pytestmark = needs_gdb

# Argument 1 selects what the program does with standard error before it waits.
PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void nothing(int number)
{
    (void)number;
}
int main(int argc, char **argv)
{
    static char buffer[4096];
    void *kept[100];
    for (int i = 0; i < 100; i++)
        kept[i] = malloc(1000 + i * 7000);
    for (int i = 0; i < 100; i += 3)
        free(kept[i]);
    if (argc > 1 && !strcmp(argv[1], "closed"))
        close(2);
    if (argc > 1 && !strcmp(argv[1], "all closed"))
        close(0), close(1), close(2);
    if (argc > 1 && !strcmp(argv[1], "buffered"))
        setvbuf(stderr, buffer, _IOFBF, sizeof buffer), fputs("words that wait\n", stderr);
    if (argc > 1 && !strcmp(argv[1], "other stream"))
        stderr = fopen("other", "w");
    if (argc > 1 && !strcmp(argv[1], "locked"))
        flockfile(stderr);
    if (argc > 1 && !strcmp(argv[1], "no stream"))
        fclose(stderr);
    signal(SIGUSR1, nothing);
    for (;;) {
        pause();
        fflush(stderr);
    }
}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a user who has installed gdbheap for gdb."""
    return home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module", params=["pie", "no-pie"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield PROGRAM; without PIE, the variable ``stderr`` is the program's own copy."""
    with compiled(PROGRAM, tmp_path_factory.mktemp("program"), f"-{request.param}") as path:
        yield path


def stats(target: Running, environment: dict[str, str], *before: str) -> Done:
    """Run ``heap stats --json`` in gdb after other commands."""
    return batch(["-p", str(target.pid)], [*before, "heap stats --json"], environment)


def flush(target: Running) -> None:
    """Have the target write the contents of its buffer."""
    os.kill(target.pid, signal.SIGUSR1)
    deadline = time.monotonic() + 30
    while not target.stderr:
        assert time.monotonic() < deadline, "the buffer was not written"
        time.sleep(0.01)
    target.rest()


@pytest.mark.parametrize("how", ["log", "closed", "all closed", "buffered", "other stream"])
def test_captured_wherever_stderr_leads(how: str, program: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that the text is captured, agrees with gdbheap's figures and reaches no log, and that the process is
    unchanged."""
    with running([str(program), how], tmp_path) as started:
        before, said = state(started.pid), started.stderr
        done = stats(started, environment)
        assert done.returncode == 0, done.stderr
        answer = documents(done)[0]
        assert answer["agrees"] is True and "Total (incl. mmap):" in answer["text"]
        assert len(answer["rows"]) >= 4
        assert state(started.pid) == before
        assert started.stderr == said, "what waits in a buffer stays there"
        assert runs(started.pid)
        if how == "buffered":
            flush(started)
            assert started.stderr == "words that wait\n", "neither lost nor written twice, and nothing of ours"


def test_twice_and_from_a_shell(program: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that a call changes no figure, and that the shell's answer equals gdb's."""
    with running([str(program)], tmp_path) as started:
        first = documents(stats(started, environment))
        assert documents(stats(started, environment)) == first
        assert ask("stats", str(started.pid)) == first[0]
        told = gdbheap("stats", str(started.pid))
        assert told.returncode == 0 and "figures agree" in told.stdout
        assert runs(started.pid)


def test_stopped_by_a_signal(program: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Check a process that SIGSTOP stopped: the call ends, and the process is not left inside it."""
    with running([str(program)], tmp_path) as started:
        before = state(started.pid)
        os.kill(started.pid, signal.SIGSTOP)
        done = stats(started, environment)
        assert done.returncode == 0, done.stderr
        assert documents(done)[0]["agrees"] is True
        os.kill(started.pid, signal.SIGCONT)
        started.rest()
        assert state(started.pid) == before


@pytest.mark.parametrize("function", ["malloc", "_int_free"])
def test_thread_inside_malloc(function: str, environment: dict[str, str], tmp_path: Path) -> None:
    """Check the refusal that names the thread, whether it is at malloc's first instruction or deep inside; the
    process runs on."""
    with compiled(ALLOCATES, tmp_path) as path, subprocess.Popen([str(path)]) as process:
        try:
            # Without the symbol there is no breakpoint, and "continue" would never return.
            look = batch(["-p", str(process.pid)], [f"info address {function}"], environment)
            if f'No symbol "{function}"' in look.stdout + look.stderr:
                pytest.skip(f"this libc has no symbol {function}")
            commands = [f"break {function}", "continue", "heap stats --json"]
            done = batch(["-p", str(process.pid)], commands, environment)
            tids = os.listdir(f"/proc/{process.pid}/task")
            refused(done, "inside malloc")
            assert any(f"thread {tid} " in own_lines(done)[0] for tid in tids)
            assert runs(process.pid)
        finally:
            process.kill()


STATIC = (
    "_int_malloc", "_int_free", "_int_realloc", "_int_memalign", "sysmalloc", "systrim", "unlink_chunk", "munmap_chunk",
    "malloc_consolidate", "arena_get2", "ptmalloc_init", "new_heap", "tcache_init", "malloc_printerr", "int_mallinfo",
)  # fmt: skip
OUTSIDE = ("pause", "read", "poll", "nanosleep", "memcpy", "printf", "pthread_cond_wait", "sem_wait", "abort", "sbrk")
LOOK = """python
import gdb
import gdbheap.commands.gdb.registration as register
from gdbheap.allocators.glibc.mutation import malloc_range
from gdbheap.commands.inferior_calls.inferior_call import find_libc
start, end = malloc_range(find_libc(register._heap(register._place()).target).loaded)
for name in {names!r}:
    try:
        address = int(gdb.parse_and_eval("(long) &" + name))
    except gdb.error:
        continue
    print("SYMBOL", name, start <= address < end)
end
"""


def test_range_of_malloc(program: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Check, by libc's debug symbols if there are any, that the range has all of malloc and no function in which
    threads wait."""
    script = tmp_path / "look.gdb"
    script.write_text(LOOK.format(names=STATIC + OUTSIDE))
    with running([str(program)], tmp_path) as started:
        done = batch(["-p", str(started.pid)], [f"source {script}"], environment)
    found = dict(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("SYMBOL"))
    inside = {name: inside for name, inside in found.items() if name in STATIC}
    outside = {name: inside for name, inside in found.items() if name in OUTSIDE}
    assert set(outside.values()) == {"False"}, outside
    if not inside:
        pytest.skip("no debug symbols of libc here")
    assert set(inside.values()) == {"True"}, inside


def test_arena_locked(program: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that a locked mutex is refused with the arena's name."""
    with running([str(program)], tmp_path) as started:
        address = ask("arenas", str(started.pid))["rows"][0]["address"]
        locked, free = (f"set var *(int *) {address} = {value}" for value in (1, 0))
        done = batch(["-p", str(started.pid)], [locked, "heap stats --json", free], environment)
        refused(done, "mutex", f"{address:#x}")
        assert runs(started.pid)


@pytest.mark.parametrize(("how", "words"), [("locked", "lock of stderr"), ("no stream", "fclose")])
def test_stream_unusable(how: str, words: str, program: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that a locked or closed stream stderr is refused."""
    with running([str(program), how], tmp_path) as started:
        refused(stats(started, environment), words)
        assert runs(started.pid)


def test_buffer_that_may_block(program: Path, environment: dict[str, str]) -> None:
    """Check that nothing is written if bytes wait for a full pipe: writing would block for ever."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, bytes(4096)):
            pass
    os.set_blocking(writing, True)
    with subprocess.Popen([str(program), "buffered"], stderr=writing) as process:
        try:
            while not Path(f"/proc/{process.pid}/syscall").read_text().startswith("34 "):
                time.sleep(0.01)
            answer = ask("stats", str(process.pid))
            assert answer["agrees"] is True and "words that wait" not in answer["text"]
            done = batch(["-p", str(process.pid)], ["heap stats --json"], environment)
            assert done.returncode == 0 and documents(done) == [answer]
            assert runs(process.pid)
        finally:
            process.kill()
            os.close(reading)
            os.close(writing)


def test_a_core_cannot_be_asked(program: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that a core is refused as a wrong usage, in gdb and in a shell."""
    with running([str(program)], tmp_path) as started:
        core = started.gcore()
    done = batch(["-c", str(core)], ["heap stats"], environment)
    shell = gdbheap("stats", str(core))
    assert (done.returncode, shell.returncode) == (2, 2)
    assert len(own_lines(done)) == len(shell.stderr.splitlines()) == 1


def test_no_gdb(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the shell's ``stats`` needs no gdb."""
    with running([str(program)], tmp_path) as started:
        before = state(started.pid)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert ask("stats", str(started.pid))["agrees"] is True
        assert state(started.pid) == before
        assert runs(started.pid)


def test_seccomp(environment: dict[str, str], tmp_path: Path) -> None:
    """Check that a process with a seccomp filter, which may kill it for a call, is called only on request."""
    with compiled(FILTERED, tmp_path) as path, running([str(path)], tmp_path) as started:
        if "Seccomp:\t2" not in Path(f"/proc/{started.pid}/status").read_text():
            pytest.skip("no seccomp filters here")
        refused(stats(started, environment), "seccomp")
        done = batch(["-p", str(started.pid)], ["heap stats --json --seccomp"], environment)
        assert done.returncode == 0, done.stderr
        assert documents(done)[0]["agrees"] is True


def test_many_threads(environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check each figure of each of eight arenas."""
    command = c_program("recorder", 8, rng.randrange(1 << 30), 3000, 500, 200_000, 0, tmp_path / "table")
    with running(command, tmp_path) as started:
        done = stats(started, environment)
        assert done.returncode == 0, done.stderr
        answer = documents(done)[0]
        assert answer["agrees"] is True and len(answer["rows"]) == 2 * (8 + 1)
        assert runs(started.pid)
