"""The commands inside gdb: the same answers as in a shell, errors in one line, exit statuses, and the cache."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gdb_side import batch, compiled, documents, executed, gdb, home, needs_gdb, own_lines, runs
from support.nouns import GRAPHS, PLAIN
from support.programs import (
    FORMS,
    GCORE,
    KERNEL_CORE,
    PATIENCE,
    PROCESS,
    Running,
    ask,
    c_program,
    python_program,
    running,
    steady,
    whole_lists,
)

pytestmark = needs_gdb
ASKED = (
    *PLAIN, *GRAPHS, "arenas --detail", "holes --min=64K", "pyobjects --top=50",
    "holes --min=1K --sort=arena", "holes --fit=8880819", "sizes --sort=used --top=3",
    "chunks --state=used,tcache --min=600 --top=200", "chunks --type=byte* --sort=address", "chunks --state=free",
    "pools --detail", "pyobjects --list --type=*o* --sort=type --top=50", "pyobjects --type=[a-f]*",
)  # fmt: skip


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a user who has installed gdbheap for gdb."""
    return home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python process with holes, while it waits."""
    seed = random.randrange(1 << 30)
    print(f"seed of the fragmented process: {seed}")
    with running(python_program("stripped", "fragmented", seed, 60), tmp_path_factory.mktemp("target")) as started:
        yield started


def attached(target: Running) -> list[str]:
    """Return gdb's arguments for a live process."""
    return ["-p", str(target.pid)]


@pytest.mark.cases(1)
@pytest.mark.in_turn("form", 1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["stripped", "unstripped"])
def test_same_answers_as_in_a_shell(
    form: str, kind: str, environment: dict[str, str], rng: random.Random, tmp_path: Path
) -> None:
    """Check that every command gives the same document from gdb and from the shell, on the same process or core."""
    with running(python_program(kind, "fragmented", rng.randrange(1 << 30), 30), tmp_path) as started:
        if form == PROCESS:
            # gdb's breakpoints in the loader make pages of the process private for good: do that before the comparison.
            gdb([*attached(started), "-batch"], environment)
        where = started.as_form(form)
        words = attached(started) if form == PROCESS else ["-c", where]
        commands = [" ".join(["heap", line, *whole_lists(*line.split()), "--json"]) for line in ASKED]
        done = batch(words, commands, environment)
        assert done.returncode == 0, done.stderr
        for line, ours in zip(ASKED, documents(done)):
            noun, *options = line.split() or [""]
            theirs = ask(noun, where, *options)
            assert comparable(ours) == comparable(typed_in_gdb(theirs, where)), line
        assert len(documents(done)) == len(ASKED)


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without warnings, which a session collects, and without values that other processes
    change."""
    return {key: value for key, value in steady(document).items() if key != "warnings"}


def typed_in_gdb(document: Any, where: str) -> Any:
    """Return a document of a shell with the command lines in gdb's form."""
    if isinstance(document, dict):
        return {key: typed_in_gdb(value, where) for key, value in document.items()}
    if isinstance(document, list):
        return [typed_in_gdb(value, where) for value in document]
    told = rf"gdbheap( diff \S+| (?!trace|replay)[a-z]+|) {re.escape(where)}(?= |$)"
    return re.sub(told, r"heap\1", document) if isinstance(document, str) else document


def test_lines_to_paste(rng: random.Random, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that the gdb that printed the first page accepts the command lines on it."""
    command = python_program("stripped", "fragmented", rng.randrange(1 << 30), 30)
    with running(command, tmp_path) as started:
        page = batch(attached(started), ["heap"], environment).stdout
        lines = re.findall(r"^ +\(gdb\) (heap .*?)(?:  #.*)?$", page, re.MULTILINE)
        assert lines and "gdbheap" not in page, page
        snapshot = str(tmp_path / "before.heap")
        asked = [line.replace("before.heap", snapshot) for line in lines if "catch" not in line]
        done = batch(attached(started), asked, environment)
    assert done.returncode == 0 and "fault" not in done.stderr, (asked, done.stderr)


def test_address_is_any_expression(target: Running, environment: dict[str, str]) -> None:
    """Check that an expression that gdb can compute is accepted as an address, with the same block as its number."""
    # A hole at the end of a heap has no block after it.
    holes = ask("holes", str(target.pid), "--min=64K")["rows"]
    held = next(hole["after"]["address"] for hole in holes if hole["after"])
    commands = [f"heap at {held} --json", f"heap at (char *){held:#x} - 16 + 0x10 --json", f"heap at --json {held:#x}"]
    done = batch(attached(target), commands, environment)
    first, *others = documents(done)
    assert first["block"]["address"] == held and first["block"]["state"] == "used"
    assert others == [first, first]
    assert comparable(first) == comparable(ask("at", str(target.pid), str(held)))


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("heap holes --bogus", 2, "--bogus"),
        ("heap holes --min=few", 2, "few"),
        ("heap holes --min", 2, "--min"),
        ("heap holes more", 2, "more"),
        ("heap pools --sort=colour", 2, "colour"),
        ("heap --top=-1", 2, "-1"),
        ("heap nonsense", 2, "nonsense"),
        ("heap at", 2, "address"),
        ("heap at no_such_thing", 2, "no_such_thing"),
        ("heap at 16", 2, "0x10"),
        ("heap at 1 +", 2, "1 +"),
        ("heap attach", 2, "PID"),
        ("heap attach 1 2", 2, "PID"),
        ("heap chunks --state=busy", 2, "busy"),
        ("heap chunks --arena=99", 2, "99"),
        ("heap holes --fit=16000000T", 2, "malloc refuses"),
    ],
)
def test_wrong_usage(command: str, status: int, words: str, target: Running, environment: dict[str, str]) -> None:
    """Check one line that names the fault, without Python's words, and the status; the process runs on."""
    done = batch(attached(target), [command], environment)
    assert done.returncode == status
    lines = own_lines(done)
    assert len(lines) == 1 and words in lines[0]
    assert "Traceback" not in done.stderr and "Python Exception" not in done.stderr
    assert runs(target.pid)


def test_worst_status_counts(target: Running, environment: dict[str, str]) -> None:
    """Check that a later success does not hide an error."""
    done = batch(attached(target), ["heap holes --bogus", "heap arenas --json"], environment)
    assert done.returncode == 2 and len(documents(done)) == 1


def test_no_python(environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check a program without Python: its malloc is answered, and the Python commands say in one line that it has
    none."""
    program = c_program("holes", rng.randrange(1 << 30), 10, 100_000, 0, 0, tmp_path / "table")
    with running(program, tmp_path) as started:
        done = batch(attached(started), ["heap arenas --json", "heap pools", "heap pyobjects"], environment)
        assert done.returncode == 5
        assert [document["target"]["python"] for document in documents(done)] == [None]
        assert len(own_lines(done)) == 2 and all("Python" in line for line in own_lines(done))


@pytest.mark.parametrize("commands", [[], ["heap holes --json"], ["heap"]])
def test_no_such_process(commands: list[str], environment: dict[str, str]) -> None:
    """Check the status for a process that does not exist, for which gdb itself would exit with 0."""
    pid = int(Path("/proc/sys/kernel/pid_max").read_text()) - 1
    done = batch(["-p", str(pid)], commands, environment)
    assert done.returncode == 4 and {one["error"]["status"] for one in documents(done)} <= {4}
    assert len(own_lines(done)) == 1 and str(pid) in own_lines(done)[0]


def test_refused_attach(target: Running, environment: dict[str, str]) -> None:
    """Check a process with another tracer: the line names the tracer, the status is 3; gdb's own would be 0."""
    command = ["gdb", "-nx", "-q", *attached(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdin.write(b"python import sys; sys.stdout.write('READY\\n'); sys.stdout.flush()\n")
        other.stdin.flush()
        while b"READY" not in other.stdout.readline():
            pass
        done = batch(attached(target), ["heap holes --json"], environment)
        other.stdin.close()
        other.stdout.read()
    assert done.returncode == 3 and [one["error"]["status"] for one in documents(done)] == [3]
    assert len(own_lines(done)) == 1 and str(other.pid) in own_lines(done)[0]


@pytest.mark.parametrize("content", [b"", b"no core at all\n"])
def test_not_a_core(content: bytes, environment: dict[str, str], tmp_path: Path) -> None:
    """Check the error of gdb's commands for a file that is no core."""
    path = tmp_path / "file"
    path.write_bytes(content)
    for words in (["-c", str(path)], ["/bin/true", str(path)]):
        done = batch(words, ["heap"], environment)
        assert done.returncode == 4 and len(own_lines(done)) == 1, words


@pytest.mark.parametrize("form", [GCORE, KERNEL_CORE])
def test_truncated_core(form: str, environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that a truncated core is answered as far as possible, with the right status, also if gdb itself refuses
    it."""
    with running(python_program("stripped", "fragmented", rng.randrange(1 << 30), 30), tmp_path) as started:
        core = Path(started.as_form(form))
    with core.open("r+b") as file:
        file.truncate(core.stat().st_size * 9 // 10)
    done = batch(["-c", str(core)], ["heap --json"], environment)
    assert done.returncode == 1, done.stderr
    assert documents(done)[0]["damage"] and own_lines(done) == []
    shell = typed_in_gdb(ask("", str(core), status=1), str(core))
    assert comparable(documents(done)[0]) == comparable(shell)


def test_full_disk_and_closed_pipe(target: Running, environment: dict[str, str]) -> None:
    """Check that a lost report gives status 1 and a closed pipe no error; gdb itself reports neither."""
    command = ["gdb", *attached(target), "-batch", "-x", "gdbheap", "-ex", "heap info"]

    def run(output: int) -> subprocess.CompletedProcess[str]:
        errors = subprocess.PIPE
        return subprocess.run(command, env=environment, stdout=output, stderr=errors, text=True, timeout=PATIENCE)

    with open("/dev/full", "wb") as full:
        done = run(full.fileno())
    assert done.returncode == 1 and len(complaints(done)) == 1
    reading, writing = os.pipe()
    os.close(reading)
    done = run(writing)
    os.close(writing)
    assert done.returncode == 0 and complaints(done) == []


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the error lines without the one about a long stop, which a busy machine causes."""
    return [line for line in own_lines(done) if " s of this answer, and stays stopped" not in line]


CLASH = """python
class Theirs(gdb.Command):
    def __init__(self):
        super().__init__("heap", gdb.COMMAND_DATA)
    def invoke(self, line, from_tty):
        print("THEIRS")
Theirs()
end
"""


def test_name_clash(target: Running, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that the command is ``gdbheap`` if another extension has ``heap``, and that one line states the name,
    also if the script is loaded twice."""
    script = tmp_path / "theirs.gdb"
    script.write_text(CLASH)
    commands = ["heap", "gdbheap arenas --json", "help gdbheap holes", "source gdbheap"]
    done = batch(attached(target), commands, environment, "-x", str(script))
    assert done.returncode == 0, done.stderr
    assert "THEIRS" in done.stdout and "gdbheap holes --min=1M" in done.stdout
    assert [document["command"] for document in documents(done)] == ["heap arenas"]
    assert len(own_lines(done)) == 1 and "'heap'" in own_lines(done)[0]


def test_names_in_a_name_clash(environment: dict[str, str], tmp_path: Path) -> None:
    """Check that only gdbheap's commands are renamed: a name in the target that looks like one does not change."""
    (script := tmp_path / "theirs.gdb").write_text(CLASH)
    program = tmp_path / "the heap why"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as process:
        try:
            line = "python import gdbheap.commands.gdb.registration as r; print(r._lines_as_typed({!r}, r._prefix))"
            asked = ["gdbheap", "gdbheap why nothing", line.format("the heap why\n  (gdb) heap why 1 (heap why)")]
            done = batch(["-p", str(process.pid)], asked, environment, "-x", str(script))
        finally:
            process.kill()
    assert f'"the heap why" (pid {process.pid}): ' in done.stdout, done.stdout + done.stderr
    assert "the heap why\n  (gdb) gdbheap why 1 (heap why)\n" in done.stdout, done.stdout
    said = "\n".join(own_lines(done))
    assert "'gdbheap owners'" in said and "'heap " not in said, said


def test_help_and_completion(target: Running, environment: dict[str, str]) -> None:
    """Check that ``help heap NOUN``, ``heap NOUN --help`` and the shell's help have one source, and that nouns and
    options are completed."""
    completed = ["complete heap ho", "complete heap holes --m", "complete heap pools --sort=u"]
    commands = ["help heap holes", "heap holes --help", "heap attach --help", *completed]
    done = gdb([*attached(target), "-batch", "-x", "gdbheap", *executed(commands)], environment)
    summary = "List free memory not returned to the kernel, and blocks around it."
    assert done.stdout.count(summary) == 2 and done.stdout.count("  --min=SIZE  ") == 2
    lines = done.stdout.splitlines()
    assert {"heap holes", "heap holes --min=", "heap pools --sort=used", "Usage: heap attach PID"} <= set(lines)


SPINS = """
#include <stdlib.h>
int main(void)
{
    volatile unsigned long turns = 0;
    void *volatile block = malloc(100000);
    free(block);
    for (;;)
        turns++;
}
"""
KEPT = (
    "python import json, gdbheap.commands.gdb.registration as r; print('KEPT', json.dumps("
    "[[id(heap), heap.target.space.bytes_read] for _, heap in r.CACHE._kept.values()]))"
)
CHANGES = {
    "call": "print ((long (*)(void)) getpid)()",
    "write": "set var *(char *) $sp = *(char *) $sp",
    "register": "set $rax = $rax",
    "step": "stepi",
    "detach": "detach",
}


def test_kept_for_one_stop(environment: dict[str, str], tmp_path: Path) -> None:
    """Check that a second command reads nothing of the target, and that a call, a write, a step or a detach drops
    the cache."""
    commands = ["heap arenas --json", KEPT, "heap arenas --json", KEPT]
    for change in CHANGES.values():
        commands += [change, KEPT, "heap arenas --json", KEPT]
    with compiled(SPINS, tmp_path) as program, subprocess.Popen([str(program)]) as process:
        try:
            done = batch(["-p", str(process.pid)], commands, environment)
            assert process.poll() is None
        finally:
            process.kill()
    first, second, *rest = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("KEPT ")]
    assert len(first) == 1 and second == first
    for change, dropped, again in zip(CHANGES, rest[::2], rest[1::2]):
        assert dropped == [], change
        assert len(again) == (0 if change == "detach" else 1), change
    assert done.returncode == 4  # no target after the detach


CTRL_C = """python
import contextlib, os, signal
import gdbheap.commands.gdb.registration as register

@contextlib.contextmanager
def pressed(heap):
    calls.append(1)
    heap.progress = lambda *_: os.kill(os.getpid(), signal.SIGINT)
    yield
    heap.progress = None

calls, shown = [], register.shown_for
register.shown_for = pressed
end
"""
LATER = "python register.shown_for = shown; print('PRESSED', len(calls))"


def test_ctrl_c(environment: dict[str, str], tmp_path: Path) -> None:
    """Check Ctrl-C in a walk: one line, status 1; the next command is answered, gdb ends normally, the process runs
    on."""
    script = tmp_path / "ctrl-c.gdb"
    script.write_text(CTRL_C)
    with running(python_program("stripped", "pools", 1, 300_000), tmp_path) as started:
        load = ["-x", "gdbheap", "-x", str(script)]
        commands = ["heap pyobjects", LATER, "heap pools --top=all --json"]
        done = gdb([*attached(started), "-batch", *load, *executed(commands)], environment)
        assert "PRESSED 1" in done.stdout
        assert len(own_lines(done)) == 1 and "interrupted" in own_lines(done)[0], done.stderr
        assert done.returncode == 1
        assert documents(done)[0]["rows"] == ask("pools", str(started.pid))["rows"]
        assert runs(started.pid)


def test_attach_with_symbols_first(target: Running, environment: dict[str, str]) -> None:
    """Check that ``heap attach PID`` leaves one attached inferior with the process's libraries known."""
    look = "python print('INFERIORS', [inferior.pid for inferior in gdb.inferiors()])"
    done = batch([], [f"heap attach {target.pid}", look, "heap arenas --json"], environment)
    assert done.returncode == 0, done.stderr
    assert f"INFERIORS [{target.pid}]" in done.stdout
    assert [document["command"] for document in documents(done)] == ["heap arenas"]
    assert runs(target.pid)


def test_attach_refused(environment: dict[str, str]) -> None:
    """Check that ``heap attach`` explains a refusal and has its status."""
    pid = int(Path("/proc/sys/kernel/pid_max").read_text()) - 1
    done = batch([], [f"heap attach {pid}"], environment)
    assert done.returncode == 4 and len(own_lines(done)) == 1


def test_selection_stays(environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that the selected thread and frame stay selected after each command."""
    program = c_program("recorder", 4, rng.randrange(1 << 30), 2000, 500, 100_000, 0, tmp_path / "table")
    where = "python print('AT', gdb.selected_thread().num, gdb.selected_frame().level())"
    with running(program, tmp_path) as started:
        commands = ["thread 3", "up", where, "heap arenas --json", where, "heap stats --json", where]
        done = batch(attached(started), commands, environment)
        assert done.returncode == 0, done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("AT ")]
    assert found == ["AT 3 1"] * 3
    assert documents(done)[1]["agrees"] is True
