"""Parse a shell's command line, and open the target that it names as a heap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from gdbheap.commands.shell.cores import Stored, Subject, core_of
from gdbheap.commands.surface.declaration import SHELL, AnyCommand
from gdbheap.commands.surface.needs import PROCESS
from gdbheap.commands.surface.options import Common, Option, options_of, switch, valued
from gdbheap.commands.surface.parser import help_call
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.targets.typed_target import parse_target

if TYPE_CHECKING:
    from gdbheap.heap import Heap
    from gdbheap.host.procfs import ProcessFolder

__all__ = ["Extra", "CommandLine", "Opener", "extra_options", "opened"]


@dataclass
class Extra:
    """The options that commands about processes and cores have only in a shell."""

    exe: str | None = valued("--exe", "FILE", "use FILE as the program that wrote the core", None, str)
    sysroot: str | None = valued(
        "--sysroot", "FOLDER", "look for a core's files in FOLDER instead of /", None, str,
        details="FOLDER contains the files of the machine or container from which the core comes.",
    )  # fmt: skip
    coredump: str | None = valued(
        "--coredump", "PID|EXE", "use the latest core that coredumpctl has", None, str,
        details="The option replaces TARGET. EXE is the name or path of a program.",
    )  # fmt: skip
    clone: bool = switch(
        "--clone",
        "read a copy (fork), so that the process stops for only milliseconds",
        "The kernel then copies each page to which the process writes. gdbheap refuses if too little memory is free "
        "for a copy.",
    )
    verbose: bool = switch(
        "--verbose", "print how long the process was stopped", "On a terminal, gdbheap always prints this."
    )


def extra_options(command: AnyCommand) -> tuple[Option, ...]:
    """Return the options that a command has only in a shell. Commands that call a function in the process lack the
    options about copies and cores."""
    found = options_of(Extra) if command.needs.targets else ()
    return tuple(option for option in found if command.needs is not PROCESS or option.name == "--verbose")


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line.

    ``words``: the words that are neither options nor their values.
    ``started``: the words after ``--``: a command that gdbheap starts.
    ``called``: the command's name as typed here, such as "gdbheap holes".
    ``open``: a function that opens a process or a core as a heap.
    ``held``: the process of a session. Its folder stays open, so that a reused id cannot name another process.
    """

    command: AnyCommand
    options: Common
    extra: Extra
    words: list[str]
    started: list[str]
    called: str
    open: Opener
    held: ProcessFolder | None = None

    def subject(self, word: str) -> ProcessFolder | str:
        """Return the subject that a word names: a process, whose folder is kept open from now on, or the path of a
        core.

        Raises GdbheapError."""
        target = parse_target(word)
        if isinstance(target, str):
            return target
        if self.held is not None and self.held.pid == target:
            return self.held
        # Imported here, because imports take most of a command's start-up time.
        from gdbheap.refusals.refusal import open_folder

        return open_folder(target)

    def error(self, reason: str) -> UsageError:
        """Return the error for a line that cannot be answered."""
        return UsageError(f"{self.called}: {reason}")

    @property
    def names_target(self) -> bool:
        """Whether the line names its target. A line in a session does not."""
        return self.called.startswith(SHELL)

    @property
    def usual(self) -> str:
        """The words of the command line that come before the command's argument."""
        return f"{self.called} {self.words[0]}" if self.names_target else self.called

    @property
    def help(self) -> str:
        """The text to type for help about the command."""
        return help_call(self.called)


Opener = Callable[[CommandLine, Subject], "AbstractContextManager[Heap]"]


@contextmanager
def opened(line: CommandLine, target: Subject) -> Iterator[Heap]:
    """Yield the heap of a core or of a process. The process is stopped only while its memory is copied.

    If a function is called in the process, it stays stopped until the end of the block. Afterwards, print for how long
    the process was stopped, if standard error is a terminal or with --verbose."""
    # Imported here, so that commands without a single target start faster.
    from gdbheap.heap import Heap
    from gdbheap.targets.cloning import cloned
    from gdbheap.targets.process import stopped

    if isinstance(target, (str, Stored)):
        yield Heap(core_of(target, line.extra.exe, line.extra.sysroot))
        return
    standing = cloned if line.extra.clone else stopped
    with standing(target, line.options.max_stop or None, line.command.call_for(line.options) is None) as process:
        yield Heap(process)
    seconds = process.stopped_seconds
    if seconds is not None and sys.stderr is not None and (line.extra.verbose or sys.stderr.isatty()):
        print(f"gdbheap: process {target} was stopped for {1000 * seconds:.0f} ms", file=sys.stderr)
