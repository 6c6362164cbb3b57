"""Refusals: each cause has its own line with its next step, and the cause that the kernel checks first is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheap.errors import NoTarget, NotPermitted, UsageError, one_line
from gdbheap.host.procfs import parse_auxv, parse_flags, parse_status
from gdbheap.machines.machine import X86_64
from gdbheap.refusals import causes, refusal
from gdbheap.refusals.causes import CAP_SYS_PTRACE, AccessFacts, permission
from gdbheap.targets.typed_target import parse_target

ALL = (1 << 41) - 1
SAME = AccessFacts(7, "victim", frozenset({1000}), frozenset({1000}), own_uid=1000, own_gid=1000, bounding=ALL)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(SAME, own_pid=7), "gdbheap itself"),
        (replace(SAME, tracer=99, tracer_name="gdb"), "already traced by gdb (process 99)"),
        (replace(SAME, tracer=99), "already traced by process 99"),
        (replace(SAME, own_uid=1), "belongs to uid 1000 and gdbheap runs as uid 1: run gdbheap as that user, or run"),
        (replace(SAME, own_uid=1, container="container"), "run gdbheap as root (sudo)"),
        (replace(SAME, own_uid=1, container="container", bounding=0), "docker run --cap-add=SYS_PTRACE"),
        (replace(SAME, gids=frozenset({5})), "with group ids that differ from gdbheap's"),
        (replace(SAME, own_uid=0), "runs as root without CAP_SYS_PTRACE"),
        (replace(SAME, own_uid=0, container="container"), "docker run --cap-add=SYS_PTRACE"),
        (replace(SAME, own_uid=0, container="kubernetes"), "kubectl debug"),
        (replace(SAME, own_uid=0, container="kubernetes"), 'securityContext.capabilities.add: ["SYS_PTRACE"]'),
        (replace(SAME, dumpable=False), "not dumpable"),
        (replace(SAME, ptrace_scope=1), "ptrace_scope is 1 (only a parent may trace)"),
        (replace(SAME, ptrace_scope=1), "sysctl kernel.yama.ptrace_scope=0"),
        (replace(SAME, ptrace_scope=2), "ptrace_scope is 2 (only CAP_SYS_PTRACE may trace)"),
        (replace(SAME, ptrace_scope=3, capabilities=ALL), "until the next boot"),
        (replace(SAME, permitted=1 << 21), "capabilities that gdbheap does not have (mask 0x200000)"),
        (replace(SAME, user_namespace=True), "user namespace"),
        (replace(SAME, label="docker-default (enforce)"), "security module (docker-default (enforce))"),
        (replace(SAME, seccomp=True, container="container"), "a seccomp filter on gdbheap itself"),
        (SAME, "without a reason"),
        (replace(SAME, label="unconfined"), "without a reason"),
    ],
)
def test_each_cause(facts: AccessFacts, words: str) -> None:
    """Check that the line names the process and the remedy."""
    line = permission(facts)
    assert words in line and "process 7 (victim)" in line and line == one_line(line)
    assert ": " in line or "; " in line


def test_a_capability_outweighs() -> None:
    """Check that with CAP_SYS_PTRACE neither user, nor dumpable, nor ptrace_scope 1 and 2 is the cause."""
    capable = replace(SAME, own_uid=5, dumpable=False, ptrace_scope=2, permitted=ALL, capabilities=CAP_SYS_PTRACE)
    assert permission(capable) == causes.unknown(capable)


@given(
    st.builds(
        AccessFacts,
        pid=st.integers(1, 9),
        name=st.text(max_size=20).map(lambda text: one_line(text, 20)),
        uids=st.frozensets(st.integers(0, 3), max_size=3),
        gids=st.frozensets(st.integers(0, 3), max_size=3),
        permitted=st.integers(0, ALL),
        tracer=st.integers(0, 3),
        label=st.text(max_size=200),
        own_uid=st.integers(0, 3),
        capabilities=st.integers(0, ALL),
        ptrace_scope=st.integers(0, 4),
        container=st.sampled_from(["", "container", "kubernetes"]),
    )
)
def test_always_one_line(facts: AccessFacts) -> None:
    """Check one printable line of limited length for any facts."""
    line = str(NotPermitted(permission(facts)))
    assert line.isprintable() and 40 < len(line) < 500


def test_no_such_process() -> None:
    """Check an id that was just freed, one beyond the kernel's limit, zero, and a negative one."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    for pid in (child.pid, refusal.PID_LIMIT + 1, 1 << 70, 0, -5):
        with pytest.raises(NoTarget, match=f"there is no process {pid}"):
            refusal.open_folder(pid)


def test_a_zombie_and_its_parent() -> None:
    """Check that a zombie's line names the process that must collect it."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(NoTarget, match=rf"is a zombie.*\(process {os.getpid()}\)"):
            refusal.check(refusal.open_folder(child))
    finally:
        os.waitpid(child, 0)


def test_a_thread_is_no_process() -> None:
    """Check that the error for the id of a thread names its process."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with pytest.raises(NoTarget, match=f"is a thread of process {os.getpid()}"):
            refusal.check(refusal.open_folder(thread.native_id or 0))
    finally:
        done.set()
        thread.join()


def test_gdbheap_itself() -> None:
    """Check that gdbheap refuses to stop itself."""
    with pytest.raises(NotPermitted, match="gdbheap itself"):
        refusal.check(refusal.open_folder(os.getpid()))


def test_a_process_that_ends_meanwhile() -> None:
    """Check that the open folder belongs to the process, not to its id: afterwards it is gone, even if the id is
    reused."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder = refusal.open_folder(child.pid)
    assert folder.status()["Pid"] == str(child.pid)
    child.communicate()
    with pytest.raises(NoTarget):
        refusal.check(folder)
    with pytest.raises(OSError):
        folder.read("maps")
    assert folder.thread_name(child.pid) == ""
    assert isinstance(refusal.explain(child.pid, ProcessLookupError(3, "No such process")), NoTarget)


def test_other_errors_keep_their_words() -> None:
    """Check that an error that is no refusal is passed on unchanged."""
    error = refusal.explain(os.getppid(), OSError(5, "Input/output error"))
    assert error.status in (1, 3, 4) and "\n" not in str(error)


def test_a_process_in_another_pid_namespace(tmp_path: Path) -> None:
    """Check that the id that a process has inside a container is found, and that its id here is named."""
    script = "import os; print(os.getpid(), flush=True); input()"
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", script]
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("no unshare")
    assert child.stdout is not None
    try:
        if child.stdout.readline() != b"1\n":
            pytest.skip("no new PID namespace here")
        inner = refusal._inner_process(1)
        ids = parse_status(Path(f"/proc/{inner}/status").read_bytes())["NSpid"].split()
        assert ids == [str(inner), "1"]
    finally:
        child.communicate(b"\n")


def test_the_text_of_a_target() -> None:
    """Check that digits are a process, that a path, also ./123, is a core, and that an empty text is an error."""
    assert [parse_target(text) for text in ("1", "0012", "core.1", "./12", "é")] == [1, 12, "core.1", "./12", "é"]
    for text in ("", "a\0b"):
        with pytest.raises(UsageError):
            parse_target(text)
    for text in ("0", "-3"):
        with pytest.raises(NoTarget):
            parse_target(text)


@given(st.text(max_size=30))
def test_any_text_is_a_target_or_an_error(text: str) -> None:
    """Check that any text gives a target or an error."""
    try:
        found = parse_target(text)
    except (UsageError, NoTarget):
        return
    assert found == text or (isinstance(found, int) and re.fullmatch(r"\+?\d+", text, re.ASCII))


@given(st.binary(max_size=200))
def test_files_of_proc_with_any_bytes(data: bytes) -> None:
    """Check that reading any bytes as a status, a stat or an auxiliary vector never fails."""
    assert all(isinstance(value, str) for value in parse_status(data).values())
    assert parse_flags(data) >= 0
    assert len(parse_auxv(X86_64, data)) <= len(data) // 16


def test_a_name_cannot_add_a_field() -> None:
    """Check a process name, which the process chooses itself."""
    assert parse_status(b"Name:\ta\nTracerPid:\t0\nTracerPid:\t5\n")["TracerPid"] == "0"
    assert parse_flags(b"1 (a) Z 0 (b) 0) S 1 2 3 4 5 2097152 0") == 2097152
