"""What a command is asked about: a target, two of them, files, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from gdbheap.heap import Heap
    from gdbheap.history.snapshot import Look

__all__ = ["FILES", "LOOKS", "NOTHING", "PROCESS", "TARGET", "TWO_TARGETS", "Needs"]

Subject = TypeVar("Subject")


@dataclass(frozen=True, eq=False)
class Needs(Generic[Subject]):
    """What a command's ``answer`` gets as its first argument. A surface offers the commands whose needs it can meet.

    ``words`` and ``example`` follow the noun in a shell's usage line and example, ``targets`` is how many of the
    words are processes or cores; ``in_gdb`` follows it in gdb, which has a target already."""

    what: str
    words: str
    example: str
    targets: int
    in_gdb: str = ""


TARGET: Needs[Heap] = Needs("a process or a core", "TARGET", "1234", 1)
PROCESS: Needs[Heap] = Needs("a live process", "TARGET", "1234", 1)
TWO_TARGETS: Needs[tuple[Heap, Heap]] = Needs("two processes or cores", "TARGET TARGET", "1234 5678", 2)
LOOKS: Needs[tuple[Look, ...]] = Needs(
    "snapshots, processes or cores", "BEFORE AFTER…", "first.heap", 0, "BEFORE [AFTER…]"
)
FILES: Needs[tuple[str, ...]] = Needs("files", "FILE…", "FILE", 0)
NOTHING: Needs[None] = Needs("no target", "", "", 0)
