"""``gdbheap record``: record the memory of running processes in a file."""

from __future__ import annotations

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import PROGRAMS
from gdbheap.commands.surface.options import (
    Several,
    Writing,
    check_csv_safe,
    csv_safe,
    some_time,
    switch,
    valued,
    whole_number,
)
from gdbheap.commands.surface.progress import tell_folder
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.record import render
from gdbheap.sampling.recording import Recorded, RecordingPlan, record
from gdbheap.sampling.rotation import Rotation
from gdbheap.sampling.series import CSV, STANDARD_OUTPUT, form_of
from gdbheap.targets.chosen_processes import Programs

__all__ = ["COMMAND"]

LEAST_SECONDS = 0.001


@dataclass
class Options(Several, Writing):
    """The options of ``gdbheap record``: the file, when to begin a new file, how often to sample, and when to end.

    ``every``: seconds between two samples.
    ``duration``: seconds, None to record until the processes end.
    ``rotate``, ``rotate_every``: the bytes and the seconds after which a new file begins, None for no limit.
    ``keep``: how many older files to keep, None for all.
    ``snapshot_every``: seconds between two snapshots, None for no snapshots.
    """

    file: str = valued(
        "-o", "FILE", "write FILE.csv or FILE.jsonl, or write CSV to standard output (-)", "", str, needed=True
    )
    replace: bool = switch("--replace", "replace FILE [default: continue a recording]")
    rotate: int | None = valued("--rotate", "SIZE", "begin a new file at SIZE [default: never]", None, parse_size)
    rotate_every: float | None = valued(
        "--rotate-every", "TIME", "begin a new file after TIME [default: never]", None, some_time
    )
    keep: int | None = valued("--keep", "N", "keep N older files [default: all]", None, whole_number)
    csv_safe: bool = csv_safe()
    every: float = valued("--every", "TIME", "take a sample every TIME [default: 1s]", 1.0, some_time)
    duration: float | None = valued(
        "--duration", "TIME", "end after TIME [default: at Ctrl-C, or when no process is left]", None, some_time
    )
    stop: bool = switch("--stop", "stop each process for about 1 ms per sample, for exact figures")
    snapshot_every: float | None = valued(
        "--snapshot-every", "TIME", "write a snapshot next to FILE every TIME", None, some_time
    )


def _answer(programs: Programs, options: Options) -> Recorded:
    if not programs.are_named:
        raise UsageError("gdbheap record: which processes? Give PID…, --name, --cgroup or -- COMMAND")
    if not options.file:
        raise UsageError("gdbheap record: say where to write: -o FILE.csv, -o FILE.jsonl, or -o - for standard output")
    if options.file == STANDARD_OUTPUT and options.json:
        raise UsageError("gdbheap record: --json and -o - both write to standard output")
    is_csv = form_of(options.file) == CSV
    check_csv_safe("gdbheap record", options.csv_safe, "-o FILE.csv and -o -", is_csv)
    if options.every < LEAST_SECONDS:
        raise UsageError("gdbheap record: --every must be at least 1ms")
    if options.snapshot_every is not None and options.file == STANDARD_OUTPUT:
        tell_folder()
    rotation = Rotation(options.rotate, options.rotate_every, options.keep)
    if rotation != Rotation() and options.file == STANDARD_OUTPUT:
        raise UsageError("gdbheap record: --rotate, --rotate-every and --keep need a file (-o FILE)")
    if options.keep is not None and options.rotate is None and options.rotate_every is None:
        raise UsageError("gdbheap record: --keep needs --rotate=SIZE or --rotate-every=TIME")
    times = (options.every, options.duration, options.stop, options.max_stop or None, options.snapshot_every)
    plan = RecordingPlan(options.file, *times, options.csv_safe, options.mode, options.replace, rotation)
    return record(programs, plan)


def _render(shown: Shown[Recorded, Options]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="record",
    summary="Record the memory of running processes in a file",
    text="""The processes run on; all figures come from short reads. Expensive figures (PSS, in use, blocks by size) are
    sampled less often; each takes at most 1 % of a CPU. 'gdbheap plot' draws the file.""",
    example="gdbheap record --every=1s -o memory.csv",
    details="""Each row describes one process at one moment. The row shows RSS, PSS, anonymous, file and shared memory,
    swap, page faults and the size of brk()'s heap. The row also shows malloc's memory and the bytes in use, for each
    arena and for large blocks. `trim` is an upper bound of what malloc_trim(0) would return. Python's arenas, pools and
    blocks by size follow. Events have rows of their own: a process starts, runs another program or ends, or a snapshot
    was written.

    A figure that changed while gdbheap read it is left out, and the row is marked as doubtful. Rows between two samples
    of an expensive figure leave the figure out. `--stop` makes the bytes in use exact in each row.

    If FILE is a recording, it is continued. `--rotate` and `--rotate-every` begin a new file, and compress the older
    one (gzip); 'gdbheap plot' also reads compressed files. `--keep` removes the oldest files.

    Recording ends when no process is left, after `--duration`, or at Ctrl-C; the file is complete at any time. If a
    command follows `--`, gdbheap starts it, and passes on the command's exit status. docs/recording.md describes the
    file.""",
    needs=PROGRAMS,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
