"""``gdbheap report``: write all answers as one HTML page."""

from __future__ import annotations

import os
import time
from dataclasses import field
from typing import TYPE_CHECKING, Union

from gdbheap.api.writing import look_report, target_report
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import REPORTED
from gdbheap.commands.surface.options import Several, Writing, check_contents, process_of_log, switch, valued
from gdbheap.dataclass import dataclass
from gdbheap.errors import NO_MATCH, NoTarget, Unsupported, UsageError, one_line, own_line
from gdbheap.files import check_writable, write_bytes
from gdbheap.heap import Heap
from gdbheap.report.text.style import Style

if TYPE_CHECKING:
    from gdbheap.snapshots.snapshot import SnapshotWithBlocks
    from gdbheap.targets.chosen_processes import Programs

__all__ = ["COMMAND", "WrittenPage"]

TARGET, SNAPSHOT, DIFFERENCE, CALLS, PROCESSES = "target", "snapshot", "difference", "calls", "processes"
SERIES = "series"
Reported = Union[Heap, "tuple[SnapshotWithBlocks, ...]", "Programs", str, "list[str]"]


@dataclass
class Options(Several, Writing):
    """The options of ``gdbheap report``: the HTML file, and what the page contains.

    ``owners``: find holders even in a heap with very many blocks. ``process``: the process of a trace to show.
    """

    file: str = valued("-o", "FILE", "write the report to FILE.html", "", os.path.expanduser, needed=True)
    with_contents: bool = switch("--with-contents", "show the contents of dict keys in paths")
    owners: bool = switch("--owners", "find holders even if there are more than 2,000,000 blocks")
    process: int | None = process_of_log()

    def check(self) -> None:
        """Raise UsageError if FILE has a wrong ending or cannot be written, or if options exclude each other."""
        if not self.file.lower().endswith((".html", ".htm")):
            raise UsageError("gdbheap report: say where to write: -o FILE.html")
        check_contents("gdbheap report", self.with_contents, self.no_text)
        check_writable(self.file)


@dataclass(frozen=True)
class WrittenPage:
    """The answer of ``gdbheap report``: the page that was written, and one line for each part of the page that has no
    content.
    """

    file: str
    size: int
    about: str
    missing: list[str] = field(default_factory=list)
    is_blind: bool = False


@dataclass(frozen=True)
class _WrittenPage:
    about: str
    data: bytes
    missing: list[str]
    is_blind: bool = False


def _answer(subject: Reported, options: Options) -> WrittenPage:
    made = _made(subject, options)
    write_bytes(options.file, made.data, options.mode)
    return WrittenPage(options.file, len(made.data), made.about, made.missing, made.is_blind)


def _made(subject: Reported, options: Options) -> _WrittenPage:
    """Return the page, the name of its subject, and a line for each answer that it lacks.

    Modules are imported on use, because imports take most of a command's start-up time."""
    if isinstance(subject, Heap):
        return _of_target(subject, options)
    if isinstance(subject, tuple):
        return _of_looks(subject)
    if isinstance(subject, str):
        return _of_calls(subject, options)
    if isinstance(subject, list):
        return _of_series(subject)
    return _of_processes(subject, options)


def _of_target(heap: Heap, options: Options) -> _WrittenPage:
    made = target_report(heap, options.owners or None, options.with_contents)
    return _WrittenPage(TARGET, made.data, made.missing, made.is_blind)


def _of_looks(looks: tuple[SnapshotWithBlocks, ...]) -> _WrittenPage:
    if len(looks) == 1:
        made = look_report(looks[0])
        return _WrittenPage(SNAPSHOT, made.data, made.missing)
    from gdbheap.report.page.diff import difference_page
    from gdbheap.snapshots.difference import difference
    from gdbheap.snapshots.overview import overview_of_snapshot

    last = overview_of_snapshot(looks[-1].snapshot)
    style = Style(rss=last.ledger.rss.bytes, private=last.target.get("kind") == "core")
    return _WrittenPage(DIFFERENCE, difference_page(difference(looks), last, style), [])


def _of_calls(path: str, options: Options) -> _WrittenPage:
    from gdbheap.commands.surface.progress import shown
    from gdbheap.report.page.calls import calls_page
    from gdbheap.tracing.call_stacks import call_stacks
    from gdbheap.tracing.call_stats import call_stats

    with shown("reading the calls") as progress:
        found = call_stats(path, options.process, progress)
    try:
        stacks, why = call_stacks(path, options.process, "peak", None), ""
    except UsageError as error:
        stacks, why = None, str(error)
    return _WrittenPage(CALLS, calls_page(found, stacks, why), [f"stacks: {why}"] if why else [])


def _of_series(paths: list[str]) -> _WrittenPage:
    from gdbheap.report.formats.plot import picture
    from gdbheap.report.formats.plot_page import page
    from gdbheap.report.words.plot import notes_of
    from gdbheap.sampling.curves import Plotted, curves_of, extents_of, largest
    from gdbheap.sampling.series import read

    series = {path: read(path) for path in paths}
    processes = [process for path, found in series.items() for process in curves_of(found, path) if process.curves]
    if not processes:
        raise UsageError(f"gdbheap report: {one_line(paths[0])} has no samples")
    drawn, missing = largest(processes), []
    extents = [row for process in processes for row in extents_of(process)]
    cut = [path for path, found in series.items() if found.cut]
    try:
        drawing = picture(drawn, "svg")
    except Unsupported as error:
        drawing, missing = None, [f"picture: {error}"]
    notes = notes_of(Plotted("", 0, extents, len(processes) - len(drawn), cut))
    return _WrittenPage(SERIES, page(drawing, extents, [*notes, *missing]), missing)


def _of_processes(programs: Programs, options: Options) -> _WrittenPage:
    from gdbheap.processes.family import family
    from gdbheap.report.page.processes import processes_page
    from gdbheap.report.words.verdict import plain_verdict

    pids = sorted({*programs.pids, *programs.now()})
    if not pids:
        raise NoTarget(NO_MATCH)
    found = family(pids, options.max_stop or None, False, verdict_of=plain_verdict)
    notes = [f"process {member.pid}: {member.note}" for member in found.rows if member.note]
    return _WrittenPage(PROCESSES, processes_page(found, time.time()), notes)


def _render(shown: Shown[WrittenPage, Options]) -> str:
    answer = shown.answer
    told = f"The page is in {one_line(answer.file)} ({shown.style.bytes(answer.size)})."
    return "\n".join([told, *(f"Missing from the page: {own_line(line)}" for line in answer.missing)])


COMMAND = Command(
    noun="report",
    summary="Write a report as one HTML page to share",
    text="""The page needs no network and no server, and its tables and pictures need no script. TARGET may be
    processes, cores, snapshots, a trace or recordings. The page does not show the contents of strings, bytes and keys
    unless --with-contents is given.""",
    example="gdbheap report -o report.html",
    details="""The verdict comes first, then the findings with command lines to paste. The page then shows holders, the
    ledger, a map of the heap, holes and their pins. Types, owners with paths, threads, tasks, arenas and facts follow.
    All sections show the process at one moment; a live process runs on once its memory is copied. Each section that
    could not be written has one line with the reason.

    For a snapshot, the page shows what was saved in it. For several snapshots or cores, it shows what changed from the
    first to the last, and which figures only rose. For a trace, it shows the totals, and the stacks that had memory in
    use at the peak. For several processes, it shows the memory of each, the shared memory, and what wrote to their
    pages. `--children`, `--name` and `--cgroup` choose several processes. For recordings, the page shows their curves,
    as `gdbheap plot` does.

    The page has at most 1 MiB, however large the target is; long lists are cut. The page forbids the browser to load
    anything. `--with-contents` shows the keys of dicts in paths, and no other contents. An older file is replaced only
    when the new file is complete. The exit status is 5 in the same case as for `heap`. docs/report.md says more.""",
    needs=REPORTED,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
