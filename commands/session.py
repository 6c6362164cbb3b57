"""``gdbheap shell``: commands about one target, which is read once."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import SESSION, Conversation
from gdbheap.commands.surface.options import Common

__all__ = ["COMMAND"]


@dataclass(frozen=True)
class Ended:
    """A session that has ended."""

    exit_status: int


def _answer(conversation: Conversation, _options: Common) -> Ended:
    return Ended(conversation.run())


def _render(_shown: Shown[Ended, Common]) -> str:
    """Nothing: its commands have printed their own."""
    return ""


COMMAND = Command(
    noun="shell",
    question="Several questions about one target, which is read once: a session as in gdb, without gdb",
    text="""Reads commands and answers each. They are those of gdb, without a target, and the word heap may be left
    out: heap holes --min=1M, or holes --min=1M. Beside these there are help, help NOUN, refresh and quit (or Ctrl-D).
    On a terminal Tab completes nouns, options and files, and the lines that were typed are kept for the next session
    ($XDG_STATE_HOME/gdbheap/history, at most 1,000, readable by you alone; none with --no-text). From a pipe or a file
    it reads the same lines, without a prompt; empty ones and those that begin with # are skipped.

    What was read is kept for the next command. A live process does not stand still for the session: it is stopped
    once, its private memory is copied, and all answers are about that moment until refresh takes a new copy. With
    --clone they come from a frozen copy that the kernel makes, which takes no memory of ours and a shorter stop, but
    the process pays for what it writes meanwhile, and the copy ends with it. Where neither is possible, each command
    stops the process anew, and a line says so. Commands that follow a process (growth, catch) or call into it (stats,
    trim --yes) are about the process itself; after a call it is read anew.

    --json, --bytes, --no-text and --max-stop are those of each of its commands. Ctrl-C ends a command and not the
    session.

    On a terminal the exit status is 0. From a pipe or a file it is the highest of those of the commands; an unknown
    command is one line on standard error, and counts as 2.""",
    example="gdbheap shell",
    needs=SESSION,
    options=Common,
    answer=_answer,
    render=_render,
    listed="",
)
