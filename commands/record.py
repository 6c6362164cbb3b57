"""``gdbheap record``: the memory of running processes over time, in a file."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import PROGRAMS
from gdbheap.commands.surface.options import Several, Writing, check_csv_safe, csv_safe, some_time, switch, valued
from gdbheap.commands.surface.progress import tell_folder
from gdbheap.errors import UsageError
from gdbheap.report.words.recording import render
from gdbheap.sampling.recording import Plan, Recorded, record
from gdbheap.sampling.series import CSV, STANDARD_OUTPUT, form_of
from gdbheap.targets.chosen_processes import Programs

__all__ = ["COMMAND"]

LEAST_SECONDS = 0.001


@dataclass
class Options(Several, Writing):
    """The options of gdbheap record."""

    file: str = valued(
        "-o", "FILE", "where to write it: .csv, .jsonl, or - for CSV on standard output", "", str, needed=True
    )
    csv_safe: bool = csv_safe()
    every: float = valued("--every", "TIME", "between two samples of a process (the default is 1s)", 1.0, some_time)
    duration: float | None = valued(
        "--duration", "TIME", "for how long (the default is until nobody is left, or Ctrl-C)", None, some_time
    )
    stop: bool = switch(
        "--stop",
        "stop each process for each sample, for about a millisecond: then malloc's bytes in use are exact",
    )
    snapshot_every: float | None = valued(
        "--snapshot-every", "TIME", "also write a snapshot of each process beside FILE, for heap diff", None,
        some_time,
    )  # fmt: skip


def _answer(programs: Programs, options: Options) -> Recorded:
    if not programs.are_named:
        raise UsageError("gdbheap record: which processes? PID…, --name, --cgroup, or -- COMMAND")
    if not options.file:
        raise UsageError("gdbheap record: where to? -o FILE.csv, -o FILE.jsonl, or -o - for standard output")
    if options.file == STANDARD_OUTPUT and options.json:
        raise UsageError("gdbheap record: --json and -o - both want standard output")
    is_csv = form_of(options.file) == CSV
    check_csv_safe("gdbheap record", options.csv_safe, "-o FILE.csv and -o -", is_csv)
    if options.every < LEAST_SECONDS:
        raise UsageError("gdbheap record: --every is at least 1ms")
    if options.snapshot_every is not None and options.file == STANDARD_OUTPUT:
        tell_folder()
    times = (options.every, options.duration, options.stop, options.max_stop or None, options.snapshot_every)
    return record(programs, Plan(options.file, *times, csv_safe=options.csv_safe, mode=options.mode))


def _render(shown: Shown[Recorded, Options]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="record",
    question="How does memory develop over time? Written to a file, while processes run",
    text="""Writes a row for each process and each moment: what is resident (RSS, PSS, anonymous, files, shared),
    swap, page faults and the break's size; what malloc has from the kernel in each arena and in mappings of single
    blocks, what of it is in use, and the most that malloc_trim(0) would give back; Python's arenas, pools and blocks
    by size. Events have rows of their own: a process starts, runs another program, ends; a snapshot was written.

    Processes run on: all comes from short reads. What changed while it was read is left out and marked doubtful;
    what is dear (PSS, in use, blocks by size) is read so seldom that each takes 1 % of a processor at most, and is
    left out between. With --stop the bytes in use are exact in each row.

    It ends when nobody is left, after --duration, or with Ctrl-C; the file is whole at any time. A command that
    follows -- is started, and its exit status is passed on. gdbheap plot draws the file, and docs/recording.md
    describes it.""",
    example="gdbheap record --every=1s -o memory.csv",
    needs=PROGRAMS,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
