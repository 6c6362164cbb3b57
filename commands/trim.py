"""``heap trim``: what would malloc_trim(0) give back? And, when asked, do it and compare."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import trim
from gdbheap.answers.check import find_damage
from gdbheap.commands.inferior_calls.inferior_call import TRIM, Calls
from gdbheap.commands.surface.declaration import Call, Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch, under_seccomp, valued
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.trim import render

__all__ = ["COMMAND"]

NOT_LIVE = "malloc_trim() can be called in a live process only: without --yes the same is predicted for a core"


def _pad(text: str) -> int:
    size = parse_size(text)
    if size > trim.MAX_PAD:
        raise ValueError(f"{text!r} is more than malloc_trim() takes")
    return size


@dataclass
class Options(Common):
    """The options of heap trim."""

    yes: bool = switch("--yes", "call malloc_trim() in the process (live only), and compare")
    dry_run: bool = switch("--dry-run", "only say what it would give back, which is the default")
    pad: int = valued(
        "--pad", "SIZE", "malloc_trim's argument: what it leaves at the top of the main arena (0)", 0, _pad
    )
    seccomp: bool = under_seccomp()

    def check(self) -> None:
        """Raise UsageError for options that exclude each other."""
        super().check()
        if self.yes and self.dry_run:
            raise UsageError("heap trim: --yes and --dry-run exclude each other")
        if self.seccomp and not self.yes:
            raise UsageError("heap trim: --seccomp is for the call that --yes makes")


def _wants_call(options: Options) -> bool:
    return options.yes


def _answer(heap: Heap, options: Options) -> trim.Trim:
    if _wants_call(options):
        raise UsageError(f"heap trim: {NOT_LIVE}")
    return trim.trim(heap, options.pad)


def _call(heap: Heap, calls: Calls, options: Options) -> trim.Trim:
    asked = trim.trim(heap, options.pad)
    _refuse_damaged(heap)
    released = calls.call_to_end(heap, TRIM, options.seccomp, options.pad) & 0xFFFFFFFF != 0
    return trim.compared(asked, heap, calls.again(), released)


def _refuse_damaged(heap: Heap) -> None:
    """Raise when malloc_trim() might meet damage: it follows the bins without a check, and releases what it finds."""
    find_damage(heap)
    if heap.damage:
        first = heap.damage[0]
        raise TRIM.error(
            f"the heap is damaged ({first.what} at {first.address:#x}), and malloc_trim() may end a process, or "
            "release what is in use, when it meets that ('heap check' lists the damage)"
        )


def _render(shown: Shown[trim.Trim, Options]) -> str:
    return render(shown.answer, shown.whole, shown.style)


COMMAND = Command(
    noun="trim",
    question="What would malloc_trim(0) give back, page for page? --yes does it (live only) and compares",
    text="""Computes by glibc's own rule what malloc_trim() would release, without touching the process: of each arena
    the whole pages inside free chunks, after the chunks in fast bins are merged with their neighbours, and of the main
    arena's top what is beyond --pad. Only resident pages count: those that have already gone bring nothing. What
    stays: the tops of other arenas, the contents of threads' caches, the first 48 bytes of each chunk with the page
    that they are in, and memory that is locked (mlock). Pages shared with another process after fork() leave this
    process's RSS, but the machine gets them back only when that process gives them back too.

    With --yes it is done: after the proof that the call cannot hang (as for heap stats) malloc_trim() is called in the
    process, and the decrease of RssAnon is shown beside the prediction, per arena too. If the proof fails, the command
    is refused in one line: try again. malloc gets the pages from the kernel again when the program needs them.

    All threads stand still from the proof to the end of the call, for --max-stop at most. A call that takes longer is
    left to the thread that makes it, which finishes it while the others run on.""",
    example="heap trim --yes",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    call=Call(TRIM, _call, NOT_LIVE, _wants_call),
    rows="arenas",
    listed="arenas",
    sorts={
        "predicted": lambda row: row.predicted,
        "whole": lambda row: row.whole,
        "actual": lambda row: row.actual,
        "arena": lambda row: -row.index,
    },
)
