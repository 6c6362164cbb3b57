"""``gdbheap doctor``: what can be read here, what is in the way, and the one command that helps."""

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
        raise UsageError("gdbheap doctor: one process at a time, or none")
    return doctor(programs.named()[0] if programs.pids else None)


def _render(shown: Shown[Doctor, Common]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="doctor",
    question="What can be read here, what is in the way, and what helps?",
    text="""Of a process each file that gdbheap reads, and whether the kernel gives it: what everybody may read
    (status), what needs the same user (maps, smaps_rollup, pagemap) and memory (mem), and whether its control group
    counts. What is in the way is said in one line (another user, Yama, a tracer, capabilities, a user namespace, a
    security module, seccomp, hidepid), and then the one command that helps where gdbheap runs: sudo, docker, podman,
    kubectl debug or systemd-run. Without a process it is about gdbheap itself. Nothing is stopped, and nothing is
    changed. The exit status is the one that looking into the process would have.""",
    example="gdbheap doctor",
    needs=MAYBE_PROCESS,
    options=Common,
    answer=_answer,
    render=_render,
)
