"""The kinds of subjects that a command may need: one target, two targets, processes, files, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from gdbheap.dataclass import dataclass

if TYPE_CHECKING:
    from gdbheap.export.source import Source
    from gdbheap.heap import Heap
    from gdbheap.snapshots.snapshot import SnapshotWithBlocks
    from gdbheap.targets.chosen_processes import Programs
    from gdbheap.targets.following import Live, LocalProcess

__all__ = [
    "CALLED",
    "FILES",
    "FOLLOWED",
    "LOG",
    "LOOKS",
    "MAYBE_PROCESS",
    "NOTHING",
    "PROCESS",
    "PROCESSES",
    "PROGRAMS",
    "REPORTED",
    "SESSION",
    "SOURCE",
    "SOURCES",
    "STARTED",
    "TARGET",
    "TWO_TARGETS",
    "Conversation",
    "Needs",
]

Subject = TypeVar("Subject")


class Conversation(Protocol):
    """A session: commands about one target that are read and answered one after another."""

    def run(self) -> int:
        """Answer commands until there are no more. Return the exit status."""


@dataclass(frozen=True, eq=False)
class Needs(Generic[Subject]):
    """The kind of subject that a command needs as the first argument of its ``answer``.

    gdb and the shell each offer the commands for which they can provide this subject.
    ``what``: the words for the subject in docs/commands.md.
    ``words``, ``example``: the text after the command's name in a shell's usage and example.
    ``targets``: how many of these words are processes or cores.
    ``in_gdb``: the text after the command's name in gdb, which already has a target.
    ``starts``: the line may end with ``-- COMMAND``, which gdbheap starts.
    ``shell_only``: the command exists only in the shell.
    """

    what: str
    words: str
    example: str
    targets: int
    in_gdb: str = ""
    starts: bool = False
    shell_only: bool = False


TARGET: Needs[Heap] = Needs("a process or a core", "TARGET", "1234", 1)
PROCESS: Needs[Heap] = Needs("a live process", "TARGET", "1234", 1)
TWO_TARGETS: Needs[tuple[Heap, Heap]] = Needs(
    "two processes or cores", "TARGET TARGET", "1234 5678", 2, shell_only=True
)
LOOKS: Needs[tuple[SnapshotWithBlocks, ...]] = Needs(
    "snapshots, processes or cores", "BEFORE AFTER…", "first.heap", 0, "BEFORE [AFTER…]"
)
# The options of a command with this need are a ``Several``.
PROCESSES: Needs[Programs] = Needs("processes", "[TARGET…]", "1234", 0, shell_only=True)
MAYBE_PROCESS: Needs[Programs] = Needs("a live process, or none", "[TARGET]", "1234", 0, shell_only=True)
PROGRAMS: Needs[Programs] = Needs(
    "processes, or a command that is started", "TARGET…|-- COMMAND", "1234", 0, starts=True, shell_only=True
)
FOLLOWED: Needs[Live] = Needs(
    "a live process, or a command that is started", "TARGET|-- COMMAND", "1234", 0, starts=True
)
# The function comes after the target: malloc, calloc, realloc or free.
CALLED: Needs[LocalProcess] = Needs("a live process", "TARGET", "1234", 0)
# The subject is the words of the command that is started.
STARTED: Needs[tuple[str, ...]] = Needs(
    "a command that is started", "-- COMMAND", "-- COMMAND", 0, starts=True, shell_only=True
)
# The subject is the path of the log.
LOG: Needs[str] = Needs("a trace", "FILE", "calls.log", 0, shell_only=True)
FILES: Needs[tuple[str, ...]] = Needs("files", "FILE…", "FILE", 0, shell_only=True)
# The subject is one target, snapshots, the path of a trace, the paths of recordings, or processes. The options are a
# ``Several``.
REPORTED: Needs[Heap | tuple[SnapshotWithBlocks, ...] | str | list[str] | Programs] = Needs(
    "a process or a core, snapshots, a trace, recordings, or several processes",
    "TARGET…",
    "1234",
    1,
    shell_only=True,
)
# The subject keeps its target from one command to the next.
SESSION: Needs[Conversation] = Needs("a process or a core", "TARGET", "1234", 1, shell_only=True)
SOURCE: Needs[Source] = Needs(
    "a process, a core, a snapshot or a folder of gdbheap export", "TARGET", "1234", 1, shell_only=True
)
# The options of a command with this need are a ``Several``.
SOURCES: Needs[Sequence[Source]] = Needs("processes, cores or snapshots", "[TARGET…]", "1234", 1, shell_only=True)
NOTHING: Needs[None] = Needs("no target", "", "", 0, shell_only=True)
