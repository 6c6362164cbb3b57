"""``gdbheap doctor`` and ``gdbheap watch`` under a seccomp filter that refuses ptrace: both name the filter at once."""

from __future__ import annotations

import ctypes
import platform
import struct
import subprocess
from pathlib import Path

import pytest
from support.programs import ask, gdbheap, tracer
from support.watches import swelling, traced

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SYS_PTRACE = {"x86_64": 101, "aarch64": 117}
ALLOW, REFUSE_EPERM = 0x7FFF0000, 0x00050001


class Program(ctypes.Structure):
    """struct sock_fprog of <linux/filter.h>."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse_ptrace() -> None:
    """Give this process a filter, as container runtimes do, that lets ptrace(2) fail with EPERM."""
    number = SYS_PTRACE[platform.machine()]
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, REFUSE_EPERM), (0x06, 0, 0, ALLOW)]
    text = b"".join(struct.pack("<HBBI", *line) for line in lines)
    program = Program(len(lines), ctypes.cast(ctypes.create_string_buffer(text, len(text)), ctypes.c_char_p))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")


@pytest.mark.skipif(platform.machine() not in SYS_PTRACE, reason="the system call number of ptrace is unknown here")
def test_a_filter_is_noticed(tmp_path: Path) -> None:
    """Check that the status is that of a command that reads the process, and that without a filter both commands
    report nothing blocked."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        pid = str(process.pid)
        done = gdbheap("doctor", pid, preexec_fn=refuse_ptrace)
        assert done.returncode == gdbheap(pid, preexec_fn=refuse_ptrace).returncode == 3, done
        assert "Blocked" in done.stdout and "seccomp" in done.stdout
        done = gdbheap("doctor", preexec_fn=refuse_ptrace)
        assert "can attach to no process" in done.stdout and "seccomp" in done.stdout
        done = gdbheap("watch", pid, "--rss=1T", f"--output={tmp_path}", preexec_fn=refuse_ptrace)
        assert done.returncode == 3 and "seccomp" in done.stderr
        words = ("watch", "--name=^sleep$", "--rss=1T", "--duration=1ms", f"--output={tmp_path}")
        done = gdbheap(*words, preexec_fn=refuse_ptrace)
        assert done.returncode == 1 and "can attach to no process" in done.stderr
        done = gdbheap("doctor", pid)
        assert done.returncode == 0 and f"gdbheap can read process {pid}" in done.stdout
        assert tracer(process.pid) == 0 and Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "S"
        process.kill()


def test_a_tracer_is_noticed() -> None:
    """Check that attaching is not said to work if another program traces the process."""
    with swelling(1, 1) as process, traced(process.pid) as holder:
        rows = {row["id"]: row for row in ask("doctor", str(process.pid), status=3)["rows"]}
        assert rows["attach"]["state"] != "ok" and f"process {holder.pid} traces it" in rows["attach"]["detail"]
        process.kill()
