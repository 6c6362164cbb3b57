"""The text of ``gdbheap doctor``: what keeps gdbheap from reading processes here, and the command that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.doctor import AccessCheck, Doctor

__all__ = ["render"]

NAMES = {
    "process": "the process",
    "status": "sizes (status)",
    "maps": "mappings (maps)",
    "smaps_rollup": "exact sizes and PSS (smaps_rollup)",
    "pagemap": "resident pages (pagemap)",
    "mem": "memory (mem, ptrace)",
    "cgroup": "the container's memory (cgroup)",
    "ptrace": "other users' processes (CAP_SYS_PTRACE)",
    "yama": "running processes (ptrace_scope)",
    "attach": "attaching to a process (ptrace)",
    "seccomp": "gdbheap's seccomp filter",
    "user-namespace": "gdbheap's user namespace",
    "gdb": "gdb",
}
WORDS = {"ok": "ok", "refused": "blocked", "absent": "not found"}


def render(answer: Doctor, style: Style) -> str:
    """Return the text of the answer: whether anything keeps gdbheap from working, then what can be read."""
    rows = [_row(check) for check in answer.rows]
    columns = (Column("what", True), Column("state", True), Column("detail", True))
    return join("\n".join(_verdict(answer, style)), table(columns, rows, style))


def _row(check: AccessCheck) -> list[str]:
    return [NAMES.get(check.id, check.id), WORDS[check.state], check.detail]


def _verdict(answer: Doctor, style: Style) -> list[str]:
    whose = f"process {answer.process}" if answer.process is not None else "every process"
    if answer.obstacle is None:
        return [f"gdbheap can read {whose}."]
    lines = [style.filled(f"Blocked: {answer.obstacle}.")]
    return [*lines, f"$ {answer.advice}"] if answer.advice is not None else lines
