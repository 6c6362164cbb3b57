"""Bad input to the shell command: one clear line on standard error, no other output, and the right exit status."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import programs
from support.nouns import GRAPHS, LIVE_ONLY, PLAIN
from support.programs import gdbheap, said
from support.users import NOBODY, own_process, run_as, unprivileged

from gdbheap.processes.accounts import ProgramSums, ProgramTable
from gdbheap.report.text.style import Style
from gdbheap.report.words.ps import render as render_programs

pytestmark = pytest.mark.cases(6)

WRONG_USAGE, NOT_PERMITTED, NO_TARGET, UNSUPPORTED = 2, 3, 4, 5
OF_CORES = (*PLAIN, *GRAPHS)
NOUNS = (*OF_CORES, *LIVE_ONLY)
PF_KTHREAD = 0x00200000
TRACE = "import sys; from gdbheap._native import Stop; s = Stop(int(sys.argv[1])); print('in', flush=True); input()"


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """Check the exit status, and that the output is one line with ``words`` that names a next step.

    If ``heap`` may not read memory, it also prints the facts that every user may read.
    """
    assert done.returncode == status, done
    assert programs.has_no_answer(done) or (status == NOT_PERMITTED and " resident." in done.stdout.splitlines()[0]), (
        done
    )
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].isprintable(), done.stderr
    assert re.match(r"gdbheap( [a-z-]+)?: .", lines[0]), done.stderr
    for word in words:
        assert word in lines[0]


def ask(noun: str, target: object, *options: str) -> subprocess.CompletedProcess[str]:
    """Run ``gdbheap [NOUN] TARGET``."""
    return said(*filter(None, [noun]), str(target), *options)


def ended_pid() -> int:
    """Return the id of a process that has just ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.mark.parametrize("noun", NOUNS)
def test_no_such_process(noun: str) -> None:
    """Check that every command reports a missing process, also for an id that no process can have."""
    for pid in (ended_pid(), Path("/proc/sys/kernel/pid_max").read_text().strip(), "0", "99999999999999999999"):
        refused(ask(noun, pid), NO_TARGET, str(pid))


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[programs.Running]:
    """Yield a Python process at rest."""
    command = [programs.interpreter_of("stripped"), "-I", "-c", "import signal; signal.pause()"]
    with programs.running(command, tmp_path) as running:
        yield running


@pytest.mark.parametrize("noun", NOUNS)
def test_already_traced(noun: str, victim: programs.Running, tmp_path: Path) -> None:
    """Check that the error names the tracer with its id."""
    tracer = subprocess.Popen(
        [sys.executable, "-c", TRACE, str(victim.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    )
    assert tracer.stdout is not None and tracer.stdout.readline() == b"in\n"
    name = Path(f"/proc/{tracer.pid}/comm").read_text().strip()
    try:
        refused(ask(noun, victim.pid), NOT_PERMITTED, f"already traced by {name} (process {tracer.pid})")
    finally:
        tracer.communicate(b"\n")


# It holds for much longer than a command takes to start, and for less time than another program is waited for.
TRACE_BRIEFLY = TRACE.replace("input()", "import time; time.sleep(1.2)")
IN_PYTHON = "import gdbheap, sys; print(gdbheap.open(int(sys.argv[1])))"


@pytest.mark.parametrize("command", ["", "watch --rss=1T --duration=1", "record --duration=1 -o -", "open"])
def test_traced_for_a_moment(command: str, victim: programs.Running, tmp_path: Path) -> None:
    """Check that a process that another program traces briefly, as another gdbheap does, is waited for."""
    words = [str(programs.GDBHEAP), *command.split()] if command != "open" else [sys.executable, "-c", IN_PYTHON]
    with subprocess.Popen(
        [sys.executable, "-c", TRACE_BRIEFLY, str(victim.pid)], stdout=subprocess.PIPE, cwd=tmp_path
    ) as tracer:
        assert tracer.stdout is not None and tracer.stdout.readline() == b"in\n"
        done = subprocess.run([*words, str(victim.pid)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("noun", NOUNS)
def test_zombie(noun: str) -> None:
    """Check that the error distinguishes a zombie from a living process, and names its parent."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        refused(ask(noun, child), NO_TARGET, "zombie", f"(process {os.getpid()})")
    finally:
        os.waitpid(child, 0)


def a_kernel_thread() -> int:
    """Return the id of a kernel thread; skip the test where none is visible (a container)."""
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if folder.name.isdigit():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[6]) & PF_KTHREAD:
                    return int(folder.name)
    pytest.skip("no kernel thread is visible here")


def test_kernel_thread() -> None:
    """Check that the error says that a kernel thread has no memory."""
    refused(ask("", a_kernel_thread()), NO_TARGET, "kernel thread")


def test_a_thread(tmp_path: Path) -> None:
    """Check that the id of a thread other than the first leads to its process."""
    script = "import signal, threading; threading.Thread(target=signal.pause, daemon=True).start(); signal.pause()"
    with programs.running([programs.interpreter_of("stripped"), "-I", "-c", script], tmp_path) as running:
        threads = {int(name) for name in os.listdir(f"/proc/{running.pid}/task")} - {running.pid}
        refused(ask("", threads.pop()), NO_TARGET, f"thread of process {running.pid}")


def test_itself() -> None:
    """Check the error for gdbheap's own id, in a shell that becomes gdbheap."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" $$', str(programs.GDBHEAP)], capture_output=True, text=True, timeout=programs.PATIENCE
    )
    refused(done, NOT_PERMITTED, "gdbheap itself")


def program_of_32_bits(path: Path) -> Path:
    """Write the smallest i386 program that sleeps: pause() in a loop, made from its bytes."""
    code = b"\xb8\x1d\x00\x00\x00\xcd\x80\xeb\xf7"  # mov $29,%eax; int $0x80; jmp back to the start
    base, start = 0x08048000, 52 + 32
    head = b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HHI", 2, 3, 1)
    head += struct.pack("<IIIIHHHHHH", base + start, 52, 0, 0, 52, 32, 1, 40, 0, 0)
    head += struct.pack("<IIIIIIII", 1, 0, base, base, start + len(code), start + len(code), 5, 4096)
    path.write_bytes(head + code)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("noun", NOUNS)
def test_a_process_of_32_bits(noun: str, tmp_path: Path) -> None:
    """Check the error for an i386 program that this kernel runs."""
    try:
        process = subprocess.Popen([str(program_of_32_bits(tmp_path / "small"))])
    except OSError as error:
        pytest.skip(f"this kernel runs no 32-bit programs: {error}")
    try:
        refused(ask(noun, process.pid), UNSUPPORTED, "386")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def core_header(path: Path, bits: int, order: str, machine: int, kind: int = 4) -> Path:
    """Write the header of an ELF file for another machine."""
    ident = b"\x7fELF" + bytes((1 if bits == 32 else 2, 1 if order == "<" else 2, 1)) + bytes(9)
    path.write_bytes(ident + struct.pack(order + "HHI", kind, machine, 1) + bytes(200))
    return path


MACHINES = [(64, "<", 243), (32, "<", 3), (32, "<", 40), (64, ">", 22), (32, "<", 62)]
MACHINE_NAMES = ["64-bit riscv", "32-bit 386", "32-bit arm", "64-bit s390", "32-bit x86_64"]


@pytest.mark.parametrize("noun", OF_CORES)
def test_a_core_of_another_architecture(noun: str, tmp_path: Path) -> None:
    """Check that the error names the architecture of the core."""
    for machine, name in zip(MACHINES, MACHINE_NAMES):
        refused(ask(noun, core_header(tmp_path / "core", *machine)), UNSUPPORTED, name)


def test_a_core_cannot_be_asked(victim: programs.Running) -> None:
    """Check that heap stats, which calls into a process, refuses a core as wrong usage."""
    refused(ask("stats", victim.kernel_core()), WRONG_USAGE, "process")


@pytest.mark.in_turn("noun", 3)
@pytest.mark.parametrize("noun", OF_CORES)
def test_not_a_core(noun: str, tmp_path: Path) -> None:
    """Check the errors for files that are no cores: text, a program, an empty file, a compressed core, a folder, a
    device, a FIFO, a socket, and a dangling link.
    """
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "empty").touch()
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\x08" + bytes(100))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{os.open(tmp_path, os.O_RDONLY)}/socket")
    refused(ask(noun, tmp_path / "text"), NO_TARGET, "not a core")
    refused(ask(noun, tmp_path / "empty"), NO_TARGET, "empty")
    refused(ask(noun, tmp_path / "packed"), NO_TARGET, "cannot be unpacked")
    refused(ask(noun, sys.executable), NO_TARGET, "not a core")
    refused(ask(noun, tmp_path), NO_TARGET, "directory")
    for name in ("fifo", "socket", "dangling"):
        refused(ask(noun, tmp_path / name), NO_TARGET, name)
    refused(ask(noun, "/dev/null"), NO_TARGET, "/dev/null")
    refused(ask(noun, tmp_path / "no\nsuch\x1b[31mfile"), NO_TARGET, "no such")


@pytest.mark.parametrize("form", ["process", "kernel core", "gcore"])
def test_bad_addresses(form: str, victim: programs.Running) -> None:
    """Check the errors for words that are not addresses, and for addresses that are not mapped."""
    target = victim.as_form(form)
    for text in ("zzz", "0x", "0xg", "-5", "1.5", "0x10000000000000000"):
        refused(ask("at", target, text), WRONG_USAGE)
    refused(ask("at", target), WRONG_USAGE, "address")
    refused(ask("at", target, "1", "2"), WRONG_USAGE)
    for address in ("0x10", "4096", "0x7ffffffff000", "0xffffffffffffffff"):
        refused(ask("at", target, address), WRONG_USAGE, hex(int(address, 0)))


def test_wrong_usage(victim: programs.Running) -> None:
    """Check the errors for an unknown option, an unknown noun, no target and an invalid number, before any process is
    stopped."""
    for noun in NOUNS:
        refused(ask(noun, victim.pid, "--no-such-option"), WRONG_USAGE, "--no-such-option")
    refused(gdbheap("nonsense", str(victim.pid)), WRONG_USAGE, "nonsense")
    refused(gdbheap(), WRONG_USAGE)
    refused(gdbheap("holes"), WRONG_USAGE)
    for option in ("--min=many", "--min=-1", "--top=x", "--min"):
        refused(ask("holes", victim.pid, option), WRONG_USAGE)
    refused(ask("holes", victim.pid, "--sort=nonsense"), WRONG_USAGE, "nonsense")


@pytest.fixture
def nobody() -> Iterator[list[str]]:
    """Yield the beginning of a command that runs gdbheap as an unprivileged user, from a copy that this user may
    read."""
    with unprivileged() as command:
        yield command


def test_not_permitted(nobody: list[str], victim: programs.Running, tmp_path: Path) -> None:
    """Check that every command refuses another user's process and another user's core, without stopping the process."""
    for noun in NOUNS:
        words = [*filter(None, [noun]), str(victim.pid)]
        refused(run_as(nobody, *words), NOT_PERMITTED, f"belongs to uid 0 and gdbheap runs as uid {NOBODY}", "sudo")
    (tmp_path / "core").write_bytes(b"secret")
    (tmp_path / "core").chmod(0o600)
    refused(run_as(nobody, str(tmp_path / "core")), NOT_PERMITTED, f"uid {NOBODY}")


def test_several_not_permitted(nobody: list[str], victim: programs.Running) -> None:
    """Check that only public facts of another user's processes are printed, and that the status gives the reason."""
    for words in ((), ("--quick",)):
        shown = run_as(nobody, str(victim.pid), "--children", *words)
        found = run_as(nobody, str(victim.pid), "--children", *words, "--json")
        assert (shown.returncode, found.returncode) == (NOT_PERMITTED, NOT_PERMITTED), shown
        (row,) = json.loads(found.stdout)["rows"]
        assert (row["rss"], row["pss"], row["uss"]) == (1024 * programs.status(victim.pid, "VmRSS"), None, None)
        assert " 0 B" not in shown.stdout and "cannot be read" in shown.stdout


def test_programs_not_permitted(nobody: list[str], victim: programs.Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the message advises a user other than root to become root, and does not give root this advice."""
    assert "as root (sudo)" in run_as(nobody, "ps").stdout
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    shown = render_programs(ProgramTable([], ProgramSums(0, 0, 0, 0), 3), 0, False, Style())
    assert "3 processes cannot be read" in shown and "sudo" not in shown and "CAP_SYS_PTRACE" in shown


def test_not_dumpable(nobody: list[str], tmp_path: Path) -> None:
    """Check the error for a process of the same user that is not dumpable (prctl(PR_SET_DUMPABLE, 0))."""
    script = "import ctypes, signal; ctypes.CDLL(None).prctl(4, 0); signal.pause()"
    with own_process(nobody, script) as pid:
        refused(run_as(nobody, str(pid)), NOT_PERMITTED, "not dumpable")


def test_ones_own_process_is_permitted(nobody: list[str]) -> None:
    """Check that a process's own user without capabilities gets the whole answer, with residency, unless Yama forbids
    it."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    with own_process(nobody, "import signal; signal.pause()") as pid:
        done = run_as(nobody, str(pid), "--json")
        if scope.exists() and scope.read_text() != "0\n":
            assert "ptrace_scope" in done.stdout + done.stderr
            return
        assert done.returncode == 0, done
        answer = json.loads(done.stdout)
        assert sum(line["resident"] for line in answer["ledger"] if line["parent"] is None) == answer["rss"]["bytes"]


@pytest.mark.cases(1)
@pytest.mark.parametrize("form", ["kernel core", "gcore"])
def test_a_truncated_core(form: str, victim: programs.Running) -> None:
    """Check that a truncated core is answered as far as possible: status 1, a damage entry and a warning, as table and
    JSON."""
    path = Path(victim.as_form(form))
    whole = path.stat().st_size
    # The kernel writes the stack last. gdb writes the notes last, and then section headers that are not needed.
    for size in (whole - (100 if form == "kernel core" else 8000), whole * 6 // 10):
        os.truncate(path, size)
        answered_partly(ask("", path, "--json"), size)
        done = ask("", path)
        assert done.returncode == 1 and "truncated" in done.stdout + done.stderr
        assert not re.search(r"Traceback|a fault of gdbheap", done.stderr)
        for noun in OF_CORES[1:]:
            done = ask(noun, path, "--json")
            if done.returncode == UNSUPPORTED:
                refused(done, UNSUPPORTED)  # the data that this command needs was cut off
            else:
                answered_partly(done, size)


def answered_partly(done: subprocess.CompletedProcess[str], size: int) -> None:
    """Check an answer from a core that was cut to ``size`` bytes."""
    assert done.returncode == 1, done
    answer = json.loads(done.stdout)
    assert any(f"{size} bytes" == row["found"] or row["what"].startswith("notes") for row in answer["damage"]), done
    assert any("truncated" in warning for warning in answer["warnings"])
