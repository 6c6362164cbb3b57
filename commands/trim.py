"""``heap trim``: compute what malloc_trim(0) would free; with --yes call it and compare."""

from __future__ import annotations

from gdbheap.answers import trim
from gdbheap.answers.check import find_damage
from gdbheap.commands.inferior_calls.inferior_call import TRIM, Calls
from gdbheap.commands.surface.declaration import Call, Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch, under_seccomp, valued
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.trim import render

__all__ = ["COMMAND"]

NOT_LIVE = "malloc_trim() can be called only in a live process: leave out --yes to predict it for a core"


def _pad(text: str) -> int:
    size = parse_size(text)
    if size > trim.MAX_PAD:
        raise ValueError(f"{text!r} is more than malloc_trim() accepts")
    return size


@dataclass
class Options(Common):
    """The options of ``heap trim``: whether to call malloc_trim(), and how much free memory to leave.

    ``pad``: the bytes that stay free at the top of the main arena.
    """

    yes: bool = switch("--yes", "call malloc_trim() in the process and compare the result (live only)")
    dry_run: bool = switch("--dry-run", "predict the result without making the call [default]")
    pad: int = valued("--pad", "SIZE", "leave SIZE free at the top of the main arena [default: 0]", 0, _pad)
    seccomp: bool = under_seccomp()

    def check(self) -> None:
        super().check()
        if self.yes and self.dry_run:
            raise UsageError("heap trim: --yes and --dry-run exclude each other")
        if self.seccomp and not self.yes:
            raise UsageError("heap trim: --seccomp needs --yes")


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
    """Raise an error if the heap is damaged. malloc_trim() follows the bins without checks, and releases the memory
    that it finds there."""
    find_damage(heap)
    if heap.damage:
        first = heap.damage[0]
        raise TRIM.error(
            f"the heap is damaged ({first.what} at {first.address:#x}), so malloc_trim() might end the "
            "process or release memory in use ('heap check' lists the damage)"
        )


def _render(shown: Shown[trim.Trim, Options]) -> str:
    return render(shown.answer, shown.whole, shown.style)


COMMAND = Command(
    noun="trim",
    summary="Compute what malloc_trim(0) would free; --yes calls it",
    text="""The prediction follows glibc's own rule, and touches nothing. Only resident pages count. malloc_trim()
    returns neither thread caches, nor locked memory, nor the tops of arenas other than the main arena.""",
    example="heap trim --yes",
    details="""malloc_trim() first merges the chunks in fast bins. malloc_trim() then releases the whole pages inside
    free chunks of each arena. The top of the main arena is released, too, except for the last `--pad` bytes. Tops of
    threads' arenas, thread caches and locked memory (mlock) are not released. malloc_trim() keeps the page with the
    first 48 bytes of each chunk. A released page that is shared after fork() no longer counts in this process's RSS.
    The machine gets the page back only when the other process returns it, too.

    `--yes` calls malloc_trim() after a proof that the call cannot hang, as for `heap stats`. The answer shows the
    decrease of RssAnon next to the prediction, in total and for each arena. If the proof fails, one line says why; then
    try again. malloc gets the pages from the kernel again when the program needs them.

    All threads are stopped from the proof to the end of the call, for at most `--max-stop`. If the call takes longer,
    gdbheap lets all threads run on, and the calling thread finishes the call.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    call=Call(TRIM, _call, NOT_LIVE, _wants_call),
    rows="rows",
    listed="arenas",
    sorts={
        "predicted": lambda row: row.predicted,
        "whole": lambda row: row.pages,
        "actual": lambda row: row.actual,
        "arena": lambda row: -row.index,
    },
)
