"""``heap``: show the use of the memory, its holders and advice."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gdbheap.answers.aborted import abort_of
from gdbheap.answers.holder_change import Since
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Pictured, seconds, switch, valued
from gdbheap.commands.surface.pictures import draw
from gdbheap.commands.surface.session import order
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, UsageError, one_line, or_none
from gdbheap.findings.finding import Finding
from gdbheap.findings.settlement import ordered, placed
from gdbheap.first_page import ledger
from gdbheap.first_page.main_holders import BUDGET, MainHolders
from gdbheap.first_page.next_lines import next_of_snapshot
from gdbheap.heap import Heap
from gdbheap.report.words.ledger import render
from gdbheap.report.words.verdict import plain_verdict

if TYPE_CHECKING:
    from gdbheap.snapshots.snapshot import SnapshotWithBlocks

__all__ = ["COMMAND"]

SORTS = {
    "resident": lambda line: line.resident,
    "virtual": lambda line: line.virtual,
    "swapped": lambda line: line.swapped,
    "name": lambda line: line.name,
}


@dataclass
class Options(Pictured):
    """The options of ``heap``: how many lines to show, how long to search for holders, and an earlier snapshot to
    compare with.

    ``budget``: seconds of CPU time for the search for holders.
    """

    detail: bool = switch("--detail", "show each arena, kind of file mapping and kind of free memory")
    quick: bool = switch("--quick", "skip the search for holders")
    budget: float = valued(
        "--budget", "SECONDS", "spend at most SECONDS of CPU time on holders [default: 3]", BUDGET, seconds
    )
    since: str | None = valued("--since", "FILE", "report what grew since the snapshot FILE", None, str)


def _answer(heap: Heap, options: Options) -> ledger.Ledger:
    whole, held = ledger.ledger_and_holders(heap, options.detail, budget=0 if options.quick else options.budget)
    if options.draws:
        _draw(heap, options)
    since, grown = _growth(heap, options, held)
    findings = ordered(placed([*whole.findings, *grown]))
    return dataclasses.replace(
        whole,
        abort=or_none(lambda: abort_of(heap)),
        verdict=plain_verdict(whole),
        ledger=ledger.arranged(whole.ledger, order(SORTS[options.sort])),
        findings=findings,
        since=since,
    )


def _of_snapshot(look: SnapshotWithBlocks, path: str, options: Options) -> ledger.Ledger:
    """Return the ledger of ``heap`` from a snapshot, as the options request it. Raises UsageError for options that need
    a process or a core.
    """
    if options.draws or options.since is not None:
        raise UsageError("gdbheap: a snapshot cannot be drawn as a tree. To compare snapshots, run 'gdbheap diff'")
    kept = look.snapshot.ledger
    lines = kept.ledger if options.detail else ledger.without_details(kept.ledger)
    findings = ordered(kept.findings)
    return dataclasses.replace(
        kept,
        verdict=plain_verdict(kept),
        ledger=ledger.arranged(lines, order(SORTS[options.sort])),
        findings=findings,
        holders=[] if options.quick else kept.holders,
        imported=None if options.quick else kept.imported,
        others=None if options.quick else kept.others,
        next=next_of_snapshot(look.snapshot.target, path),
    )


def _draw(heap: Heap, options: Options) -> None:
    """Write the tree of the ledger, with types of objects below its lines if types are known."""
    # Imported on use: imports take most of a command's start-up time.
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
    """Return the changes since the snapshot of --since (None without --since), and a list of findings about them.

    The list has at most one finding, and none if the snapshot is of another process."""
    path = options.since
    if path is None:
        return None, []
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.snapshots.difference import difference
    from gdbheap.snapshots.file import read
    from gdbheap.snapshots.growing import growing
    from gdbheap.snapshots.snapshot import take

    earlier, now = read(path), take(heap, held=None if options.quick else held)
    found = difference([earlier, now])
    if not found.same_process:
        heap.note("since-another", file=one_line(path))
    finding = growing(earlier.snapshot, now.snapshot, found, path)
    seconds = found.compared[-1].time - found.compared[0].time
    since = Since(seconds, found.rss, found.in_use, found.free, found.holders)
    return since, [finding] if finding is not None else []


def _render(shown: Shown[ledger.Ledger, Options]) -> str:
    options = shown.options
    return render(shown.answer, shown.style, options.detail or options.sort != next(iter(SORTS)))


COMMAND = Command(
    noun="",
    summary="Show where the memory went, who holds it and what to do",
    text="""The page shows a verdict, the largest holders, the findings with their fix, and the ledger. Every byte of
    the address space counts in one line of the ledger. Indented lines add up to the line above them.""",
    example="heap --sort=virtual",
    details="""The verdict says how much memory is resident and in use, and how much freed memory the allocators keep.

    Holders are variables, packages, globals, threads and runtimes that hold 5 % of RSS or more. At most five holders
    are shown. Memory that no allocator handed out is shown as a holder if it has 4 MiB or more. Examples are static
    variables, stacks, thread-local data, mapped files and shared memory. The code of programs and libraries is shown as
    a holder if it has half of RSS or more.

    gdbheap follows all references if this takes at most about 3 seconds of CPU time (7,500,000 blocks in use).
    `--budget` sets another limit, `--detail` removes the limit, and `--quick` skips the holders. The process runs on
    during the search. A Python program with more blocks is examined only in part: gdbheap follows the objects that
    modules and frames reach. A holder then has "at least" the bytes that reference counts prove. One line, "not
    examined", shows the bytes without a proven holder.

    Findings name memory that could be returned or avoided, largest first, with tested advice (docs/findings.md).
    `--detail` adds findings that take longer to look for in a large process. Suggested commands follow.

    If a resident page has several owners, the ledger splits it between them, byte by byte. The top-level lines add up
    to the kernel's figures. Only whole free pages can be returned to the kernel; the ledger counts these pages
    separately. Memory that gdbheap cannot explain has a line of its own. Lines with less than 1 % of RSS are summed up
    in one line, unless `--detail` or `--sort` is given. `--sort` orders the lines below each parent. `--json` prints
    all lines.

    `--format` and the options for its formats draw the resident memory as a tree with RSS as its root. The tree
    divides this memory by allocator, arena and state. Memory in use is also divided by type.

    If RSS changes by at least 1 % and 1 MiB while gdbheap looks for holders, a sentence says so. `--since` names the
    holders that have grown since the snapshot FILE. TARGET may also be a snapshot: the page then shows the moment when
    it was taken.

    The exit status is 5 under three conditions. gdbheap cannot walk the program's malloc. Apart from files, most memory
    belongs to this malloc. There is no finding.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="findings",
    listed="findings",
    sorts=SORTS,
    sorts_rows=False,
    writes=True,
    without_memory=ledger.without_memory,
    of_snapshot=_of_snapshot,
)
