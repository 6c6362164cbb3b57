"""``gdbheap doctor``: check permissions, and show the command that helps."""

from __future__ import annotations

from gdbheap.answers.doctor import Doctor, doctor
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import MAYBE_PROCESS
from gdbheap.commands.surface.options import Common
from gdbheap.errors import UsageError
from gdbheap.report.words.doctor import render
from gdbheap.targets.chosen_processes import Programs

__all__ = ["COMMAND"]


def _answer(programs: Programs, options: Common) -> Doctor:
    if len(programs.pids) > 1:
        raise UsageError("gdbheap doctor: give one process, or none")
    return doctor(programs.named()[0] if programs.pids else None)


def _render(shown: Shown[Doctor, Common]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="doctor",
    summary="Check permissions, and show the command that helps",
    text="""doctor stops no process and changes nothing. Without a process, doctor checks gdbheap itself.""",
    example="gdbheap doctor",
    details="""gdbheap reads several files below /proc/PID. Each file has a line with the kernel's answer. Every user
    may read the file status. The user who owns the process may read maps, smaps_rollup and pagemap. The file mem gives
    access to the process's memory. doctor also attaches to the process, or to a child of its own. Attaching takes an
    instant and stops nothing; a seccomp filter may refuse it. A line says whether a control group counts the process's
    memory. One line names the obstacle: another user, Yama, a tracer, capabilities, a user namespace, a security
    module, seccomp or hidepid. The next line is the command that helps: sudo, docker, podman, kubectl debug or
    systemd-run. The exit status is the same as for a command that reads the process.""",
    needs=MAYBE_PROCESS,
    options=Common,
    answer=_answer,
    render=_render,
    listed="",
)
