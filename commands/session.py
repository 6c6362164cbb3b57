"""``gdbheap shell``: answer several commands about one target, which is read once."""

from __future__ import annotations

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import SESSION, Conversation
from gdbheap.commands.surface.options import Common
from gdbheap.dataclass import dataclass

__all__ = ["COMMAND"]


@dataclass(frozen=True)
class Ended:
    """The answer of a session that has ended: the highest exit status of its commands."""

    exit_status: int


def _answer(conversation: Conversation, _options: Common) -> Ended:
    return Ended(conversation.run())


def _render(_shown: Shown[Ended, Common]) -> str:
    """Return "", because the commands of the session have printed their own output."""
    return ""


COMMAND = Command(
    noun="shell",
    summary="Answer several commands about one target, and read it only once",
    text="""Commands are typed as in gdb, without a target: 'heap holes --min=1M'; you may leave out the word 'heap'.
    The session also has the commands help, refresh and quit. All answers show one moment, until you type refresh.""",
    example="gdbheap shell",
    details="""On a terminal, the tab key completes commands, options and file names. Typed lines are kept for the next
    session, in the file $XDG_STATE_HOME/gdbheap/history. The file has at most 1,000 lines, and only you can read it. If
    `--no-text` is given, no lines are kept. Lines may also come from a pipe or a file; the session then has no prompt.
    Empty lines and lines that begin with # are skipped.

    gdbheap keeps the memory that it has read for the next command. A live process is stopped once, while its private
    memory is copied, and then runs on. `refresh` takes a new copy. `--clone` uses a frozen copy that the kernel makes.
    The frozen copy takes no memory in gdbheap, and needs only a short stop. While the frozen copy exists, the kernel
    copies each page to which the process writes. The frozen copy ends with the process. If neither copy is possible,
    each command stops the process again, and a line says so. Commands that follow a process (growth, catch) or call
    into it (stats, trim --yes) are about the process itself. After a call, gdbheap reads the process again.

    `--bytes`, `--no-text` and `--max-stop` apply to each command. Ctrl-C ends the current command, but not the session.

    A program can use the session with `--json`. Each line that gdbheap reads, even an empty line, yields exactly one
    line of output: {"line": 3, "status": 0, "answer": {...}} or {"line": 4, "status": 2, "error": {...}}. The status is
    that of the same command in a shell. The answer is null for a line that requests nothing, such as refresh. A line
    with --text is answered by {"command": ..., "schema": 2, "text": "..."}: the text that people read. The text does
    not appear on standard error, and there is no prompt.

    The exit status of a session on a terminal is 0. If the lines come from a pipe or a file, it is the highest status
    of the commands. An unknown command prints one line on standard error, and counts as 2.""",
    needs=SESSION,
    options=Common,
    answer=_answer,
    render=_render,
    listed="",
)
