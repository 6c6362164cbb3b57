"""``heap``: where did the memory go, who holds it, and what should I do?"""

from __future__ import annotations

import dataclasses
import shlex
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gdbheap.answers.aborted import Abort, abort_of
from gdbheap.answers.holder_change import Since
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Pictured, seconds, switch, valued
from gdbheap.commands.surface.pictures import draw
from gdbheap.commands.surface.session import order
from gdbheap.errors import GdbheapError, UsageError, one_line
from gdbheap.findings import Finding, ordered, placed
from gdbheap.first_page import ledger
from gdbheap.first_page.main_holders import BUDGET, MainHolders
from gdbheap.heap import Heap
from gdbheap.report.words.ledger import render
from gdbheap.report.words.verdict import plain_verdict

if TYPE_CHECKING:
    from gdbheap.snapshots.snapshot import Look

__all__ = ["COMMAND"]

SORTS = {
    "resident": lambda line: line.resident,
    "virtual": lambda line: line.virtual,
    "swapped": lambda line: line.swapped,
    "name": lambda line: line.name,
}


@dataclass
class Options(Pictured):
    """The options of heap."""

    detail: bool = switch(
        "--detail",
        "also a line for each arena's part of malloc's memory, kind of file mapping and kind of free memory; and "
        "findings that take longer in a large process",
    )
    quick: bool = switch("--quick", "the ledger and the findings alone: nobody looks for who holds what is in use")
    budget: float = valued(
        "--budget", "SECONDS",
        "spend about SECONDS of CPU time on holders at most, after the process runs on; the default is 3",
        BUDGET, seconds,
    )  # fmt: skip
    since: str | None = valued(
        "--since", "FILE", "an earlier snapshot: a finding says what has grown since then", None, str
    )  # fmt: skip


def _answer(heap: Heap, options: Options) -> ledger.Ledger:
    whole, held = ledger.ledger_and_holders(heap, options.detail, budget=0 if options.quick else options.budget)
    if options.draws:
        _draw(heap, options)
    since, grown = _growth(heap, options, held)
    findings = ordered(placed([*whole.findings, *grown]))
    return dataclasses.replace(
        whole,
        abort=_abort(heap),
        verdict=plain_verdict(whole),
        ledger=_sorted(whole.ledger, options.sort),
        findings=findings[: options.top],
        since=since,
    )


def _of_snapshot(look: Look, path: str, options: Options) -> ledger.Ledger:
    """Return the page that a snapshot keeps. Raises UsageError for what only a target has."""
    if options.draws or options.since is not None:
        raise UsageError("gdbheap: a snapshot has no picture, and 'gdbheap diff' compares snapshots")
    kept = look.snapshot.ledger
    lines = kept.ledger if options.detail else ledger.without_details(kept.ledger)
    findings = ordered(kept.findings)
    return dataclasses.replace(
        kept,
        verdict=plain_verdict(kept),
        ledger=_sorted(lines, options.sort),
        findings=findings[: options.top],
        holders=[] if options.quick else kept.holders,
        imported=None if options.quick else kept.imported,
        next=_next_of_snapshot(look.snapshot.target, path),
    )


def _next_of_snapshot(target: dict[str, Any], path: str) -> list[str]:
    file, pid = shlex.quote(path), target.get("pid")
    later = f"gdbheap diff {file} {pid}  # what grew since, if it still runs" if pid else ""
    return [line for line in (later, f"gdbheap report {file} -o report.html") if line]


def _abort(heap: Heap) -> Abort | None:
    """Return why glibc ended the process; None where it did not, or memory cannot be read."""
    with suppress(GdbheapError):
        return abort_of(heap)
    return None


def _draw(heap: Heap, options: Options) -> None:
    """Write the ledger as a tree, down to types where these are known."""
    # Imported where they are needed: a command's start is mostly imports.
    from gdbheap.answers.heap_map import heap_map
    from gdbheap.report.formats.trees import ledger_tree
    from gdbheap.snapshots.type_places import CELLS, places_on

    drawn = places = None
    try:
        drawn = heap_map(heap, 0, CELLS)
        places = places_on(heap, drawn)
    except GdbheapError as error:
        heap.note("no-types-drawn", error=str(error))
    whole = ledger.ledger(heap, detail=True, patient=False)
    draw(options, ledger_tree(whole, drawn, places), "Where RSS went")


def _growth(heap: Heap, options: Options, held: MainHolders) -> tuple[Since | None, list[Finding]]:
    """Return what has changed since the look in the file of --since, and a finding if it is one at the same process."""
    path = options.since
    if path is None:
        return None, []
    # Imported where they are needed: a command's start is mostly imports.
    from gdbheap.snapshots.difference import difference
    from gdbheap.snapshots.file import read
    from gdbheap.snapshots.growing import growing
    from gdbheap.snapshots.snapshot import take

    earlier, now = read(path), take(heap, held=None if options.quick else held)
    found = difference([earlier, now])
    if not found.same_process:
        heap.note("since-another", file=one_line(path))
    finding = growing(earlier.snapshot, now.snapshot, found, path)
    seconds = found.looks[-1].time - found.looks[0].time
    since = Since(seconds, found.rss, found.in_use, found.free, found.holders)
    return since, [finding] if finding is not None else []


def _sorted(lines: list[ledger.Line], key: str) -> list[ledger.Line]:
    """Siblings in the order of ``key``, each followed by its own children."""
    children: dict[str | None, list[ledger.Line]] = {}
    for line in sorted(lines, key=order(SORTS[key])):
        children.setdefault(line.parent, []).append(line)

    def below(parent: str | None) -> list[ledger.Line]:
        return [found for line in children.pop(parent, []) for found in [line, *below(line.id)]]

    return below(None)


def _render(shown: Shown[ledger.Ledger, Options]) -> str:
    options = shown.options
    return render(shown.answer, shown.style, options.detail or options.sort != next(iter(SORTS)))


COMMAND = Command(
    noun="",
    question="Where did the memory go, who holds it, and what should I do?",
    text="""First the verdict: the program, what is resident, how much of it is in use, and how much the program has
    freed and the allocators keep. Then who holds what is in use, as far as references tell: variables, packages,
    globals, threads and runtimes that have a twentieth of RSS or more, at most five, each with its bytes, their share
    of RSS and what it is; beside them what no allocator handed out, from 4 MiB on: static variables, stacks,
    thread-local data, mapped files, shared memory and other mappings. The code of programs and libraries has a row
    from half of RSS on. All references are followed where that takes about 3 seconds of CPU time at most (7,500,000
    blocks in use), or what --budget says, or with --detail; --quick does not look for holders. Of a Python program
    with more blocks, the objects that modules and frames lead to are followed for that time, and a holder has "at
    least" the bytes that reference counts prove it to keep; the rest is one line, "not examined". Then the findings:
    what could be given back or avoided, largest first, each with advice that was tried (docs/findings.md). Then what
    to type next.

    A snapshot has the page of the moment that it was taken.

    Last comes the ledger of the whole address space: every byte has one owner, children add up to their parent, and
    the roots add up to what the kernel says. A resident page that several owners touch is split between them, byte by
    byte, so that no line has more resident than virtual. Only whole pages can go back to the kernel: "reclaimable"
    says how much of what is free and resident is in pages that nobody holds. What cannot be explained has a line of
    its own. Lines below 1 % of RSS are left out or one line, unless --detail or --sort is given; --json has all.
    --sort orders lines that have the same parent. --format, --folded, --svg, --speedscope and --pprof draw what is
    resident, from RSS down: by allocator, arena and state, and what is in use by the types of objects.

    If RSS has changed by 1 % and 1 MiB or more until the holders are found, a sentence says so.

    With --since FILE, a sentence says which holders grew since that snapshot. If nothing looked into more than half of
    the memory that is not files', malloc's not either, and there is no finding, the exit status is 5.""",
    example="heap --sort=virtual",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="findings",
    sorts=SORTS,
    writes=True,
    without_memory=ledger.without_memory,
    of_snapshot=_of_snapshot,
)
