"""``heap trim --yes``: called only if it cannot hang; it gives back the predicted bytes, by the kernel's figures
too."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.gdb_calls import ALLOCATES, FILTERED, refused, state
from support.gdb_side import Done, batch, compiled, documents, home, needs_gdb, own_lines, runs
from support.programs import Running, ask, c_program, gdbheap, python_program, running

from gdbheap.commands.gdb.command_line import split

pytestmark = needs_gdb
FORKED, AGAIN, FAST = 8, 16, 32


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a user who has installed gdbheap for gdb."""
    return home(tmp_path_factory.mktemp("home"))


def trim(target: Running, environment: dict[str, str], *options: str) -> Done:
    """Run ``heap trim --yes --json`` in gdb."""
    return batch(["-p", str(target.pid)], [" ".join(["heap trim --yes --json", *options])], environment)


def check(answer: dict[str, Any], before: int, after: int) -> None:
    """Check that the result is the predicted one, in total and in each arena, and by the kernel's figures."""
    for ours, theirs in ((answer["rss_before"], before), (answer["rss_after"], after)):
        assert theirs <= ours <= theirs + 2 * kernel.PAGE, "gdb's breakpoints are on pages of code, which it copies"
    assert answer["actual"] == answer["rss_before"] - answer["rss_after"]
    assert abs(answer["predicted"] - answer["actual"]) <= max(64 << 10, answer["actual"] // 50), answer
    for row in answer["rows"]:
        assert abs(row["predicted"] - row["actual"]) <= 2 * kernel.PAGE, row


def commands(rng: random.Random) -> dict[str, list[str]]:
    """Return programs with holes: C with one and with nine arenas, Python."""
    return {
        "main arena": c_program("trim", rng.getrandbits(30), 1, 30_000, 3000, 200_000, FAST),
        "nine arenas": c_program("trim", rng.getrandbits(30), 9, 4000, 400, 200_000, FAST + AGAIN),
        "forked": c_program("trim", rng.getrandbits(30), 3, 10_000, 1000, 200_000, FORKED),
        "python": python_program("stripped", "trimming", rng.getrandbits(32), 300),
    }


@pytest.mark.parametrize("name", ["main arena", "nine arenas", "forked", "python"])
def test_done_in_gdb(name: str, environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that predicted and actual bytes are printed, that the process runs on with an intact heap, and that it
    can call malloc_trim() itself."""
    with running(commands(rng)[name], tmp_path) as target:
        predicted = ask("trim", str(target.pid))
        kept, before = (state(target.pid)[0], state(target.pid)[2]), kernel.anonymous(target.pid)
        done = trim(target, environment)
        assert done.returncode == 0, done.stderr
        (answer,) = documents(done)
        check(answer, before, kernel.anonymous(target.pid))
        assert answer["predicted"] == predicted["predicted"] > 1 << 20 and answer["has_released"] is True
        assert runs(target.pid)
        assert (state(target.pid)[0], state(target.pid)[2]) == kept
        assert ask("check", str(target.pid))["ok"] is True
        target.go_on("0")
        assert runs(target.pid)


def test_done_from_a_shell(rng: random.Random, tmp_path: Path) -> None:
    """Check that the shell command trims with --pad, and that the table shows both figures."""
    with running(commands(rng)["nine arenas"], tmp_path) as target:
        before = kernel.anonymous(target.pid)
        answer = ask("trim", str(target.pid), "--yes", "--pad=256K")
        check(answer, before, kernel.anonymous(target.pid))
        assert answer["pad"] == 256 << 10
        told = gdbheap("trim", str(target.pid), "--yes")
        assert told.returncode == 0 and "was called" in told.stdout and "returned" in told.stdout
        assert runs(target.pid)


def test_stopped_by_a_signal(environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check a process that SIGSTOP stopped: the call ends, and the process is not left inside it."""
    with running(commands(rng)["main arena"], tmp_path) as target:
        before = kernel.anonymous(target.pid)
        os.kill(target.pid, signal.SIGSTOP)
        done = trim(target, environment)
        assert done.returncode == 0, done.stderr
        check(documents(done)[0], before, kernel.anonymous(target.pid))
        os.kill(target.pid, signal.SIGCONT)
        target.rest()
        target.go_on("0")


def test_comments_of_pasted_lines() -> None:
    """Check that gdb's commands ignore a comment, also one without words before it."""
    assert split("--yes --pad=1M  # without --yes: shows") == ["--yes", "--pad=1M"]
    assert split("# without --yes: shows") == [] and split("--type=a#b '# c'") == ["--type=a#b", "'# c'"]


def test_without_yes_nothing_is_called(environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that without --yes, gdb's command also only predicts."""
    with running(commands(rng)["main arena"], tmp_path) as target:
        before = kernel.anonymous(target.pid)
        done = batch(
            ["-p", str(target.pid)], ["heap trim --json", "heap trim --dry-run --json  # as pasted"], environment
        )
        first, second = documents(done)
        assert first == second and first["actual"] is None and first["predicted"] > 1 << 20
        assert kernel.anonymous(target.pid) == before


def test_thread_inside_malloc(environment: dict[str, str], tmp_path: Path) -> None:
    """Check the refusal that names the thread and the function that is not called."""
    with compiled(ALLOCATES, tmp_path) as path, subprocess.Popen([str(path)]) as process:
        try:
            lines = ["break malloc", "continue", "heap trim --yes --json"]
            refused(batch(["-p", str(process.pid)], lines, environment), "malloc_trim()", "inside malloc")
            assert runs(process.pid)
        finally:
            process.kill()


def test_arena_locked(environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that a locked mutex is refused with the arena's name, and that nothing is given back."""
    with running(commands(rng)["nine arenas"], tmp_path) as target:
        row = rng.choice(ask("arenas", str(target.pid))["rows"])
        locked, free = (f"set var *(int *) {row['address']} = {value}" for value in (1, 0))
        before = kernel.anonymous(target.pid)
        done = batch(["-p", str(target.pid)], [locked, "heap trim --yes --json", free], environment)
        refused(done, f"the mutex of arena {row['index']} at {row['address']:#x}")
        assert abs(kernel.anonymous(target.pid) - before) <= 4 * kernel.PAGE
        assert runs(target.pid)


def test_seccomp(environment: dict[str, str], tmp_path: Path) -> None:
    """Check that a process with a seccomp filter, which may kill it for a call, is called only on request."""
    with compiled(FILTERED, tmp_path) as path, running([str(path)], tmp_path) as target:
        if "Seccomp:\t2" not in Path(f"/proc/{target.pid}/status").read_text():
            pytest.skip("no seccomp filters here")
        refused(trim(target, environment), "heap trim", "seccomp")
        done = trim(target, environment, "--seccomp")
        assert done.returncode == 0, done.stderr
        assert documents(done)[0]["actual"] is not None


def test_a_core_cannot_be_trimmed(environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that --yes is refused for a core as a wrong usage, in gdb and in a shell; without it a core is answered."""
    with running(commands(rng)["main arena"], tmp_path) as target:
        core = target.gcore()
    done = batch(["-c", str(core)], ["heap trim --yes"], environment)
    shell = gdbheap("trim", str(core), "--yes")
    assert (done.returncode, shell.returncode) == (2, 2)
    assert len(own_lines(done)) == len(shell.stderr.splitlines()) == 1
    assert documents(batch(["-c", str(core)], ["heap trim --json"], environment))[0]["total"]["pages"] > 1 << 20


def test_no_gdb(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the shell's ``trim --yes`` needs no gdb."""
    with running(commands(rng)["main arena"], tmp_path) as target:
        monkeypatch.setenv("PATH", str(tmp_path))
        before = kernel.anonymous(target.pid)
        check(ask("trim", str(target.pid), "--yes"), before, kernel.anonymous(target.pid))
        assert runs(target.pid)
        target.go_on("0")
