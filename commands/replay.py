"""``gdbheap replay``: replay a trace under another allocator."""

from __future__ import annotations

import os
import select
import sys
from dataclasses import replace

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.interruption import until_told
from gdbheap.commands.surface.needs import FILES
from gdbheap.commands.surface.options import Writing, process_of_log, switch, valued, whole_number
from gdbheap.commands.surface.progress import shown, tell
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.replay import render
from gdbheap.tracing.replay import Filmed, Job, Replayed, planned, run
from gdbheap.tracing.replay_settings import Setting, recorded_setting, tunables_of

__all__ = ["COMMAND"]

END = "end"
LAST = 1 << 62
LOOK_SECONDS = 0.2
FRAMES, MAX_FRAMES = 100, 10_000


def _call(text: str) -> int:
    """Parse the number of a call, or "end". Raises ValueError."""
    if text == END:
        return LAST
    number = whole_number(text)
    if not 0 < number < LAST:
        raise ValueError(f"{text!r} is not a call: calls are numbered from 1")
    return number


def _tunables(text: str) -> dict[str, str]:
    return tunables_of(text)


@dataclass
class Options(Writing):
    """The options of ``gdbheap replay``: the process, the allocator and its tunables, what to repeat, and what to draw.

    ``arena_max``, ``mmap_threshold``, ``trim_threshold``, ``tunables``: None keeps the value of the recorded program.
    ``stop_at``: the number of the call after which the replay waits, None for no such call.
    """

    process: int | None = process_of_log()
    allocator: str | None = valued(
        "--allocator",
        "LIB",
        "use jemalloc, tcmalloc, mimalloc, a library's path, or glibc [default: recorded]",
        None,
        str,
    )
    arena_max: int | None = valued("--arena-max", "N", "let glibc make at most N arenas", None, whole_number)
    mmap_threshold: int | None = valued(
        "--mmap-threshold", "SIZE", "let glibc map each block of SIZE or more separately", None, parse_size
    )
    trim_threshold: int | None = valued(
        "--trim-threshold", "SIZE", "let glibc keep at most SIZE free at the heap's end", None, parse_size
    )
    tunables: dict[str, str] | None = valued(
        "--tunables", "NAME=VALUE[:…]", "set any glibc tunables, such as tcache_count=0", None, _tunables
    )
    fill: bool = switch("--fill", "touch each page of a requested block, except calloc's")
    mappings: bool = switch("--mappings", "repeat the program's own mmap, munmap and mremap")
    stop_at: int | None = valued(
        "--stop-at", "CALL", "wait after CALL, so that you can examine the replaying process", None, _call
    )
    frames: str | None = valued("--frames", "FOLDER", "write a film of the heap's map into FOLDER", None, str)
    every: int | None = valued(
        "--every", "N", "draw a map every N calls [default: 100 maps in all]", None, whole_number
    )
    what_if: bool = switch("--what-if", "try all installed allocators and the tunables that could save memory")


def _answer(files: tuple[str, ...], options: Options) -> Replayed:
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.tracing.what_if import what_if

    if len(files) > 1:
        raise UsageError("gdbheap replay: give only one file")
    if options.what_if and (options.stop_at is not None or options.allocator is not None or _tuned(options)):
        raise UsageError("gdbheap replay: --what-if cannot be combined with --stop-at, an allocator or tunables")
    if options.frames is not None and (options.what_if or options.stop_at is not None):
        raise UsageError("gdbheap replay: --frames cannot be combined with --what-if or --stop-at")
    if options.every is not None and options.frames is None:
        raise UsageError("gdbheap replay: --every needs --frames=FOLDER")
    path = os.path.expanduser(files[0])
    fill = options.fill or options.what_if
    with planned(path, options.process, fill, options.mappings, shown("planning the replay")) as job:
        base = recorded_setting(job.process.who, options.allocator)
        if options.what_if:
            return what_if(job, base, tell)
        setting = _setting(base, options)
        return _once(job, setting, options) if options.frames is None else _filmed(job, setting, options)


def _filmed(job: Job, setting: Setting, options: Options) -> Replayed:
    """Replay the calls once, and stop for each picture of the film."""
    from gdbheap.answers.heap_map import heap_map
    from gdbheap.heap import Heap
    from gdbheap.report.formats.film import CELLS, Film
    from gdbheap.targets.process import stopped

    calls = job.content.calls
    every = max(1, calls // FRAMES) if options.every is None else options.every
    stops = range(every, calls, max(every, 1))
    if not 0 < every or len(stops) >= MAX_FRAMES:
        raise UsageError(
            f"gdbheap replay: --every must be at least {calls // MAX_FRAMES + 1:,}: a film has at most"
            f" {MAX_FRAMES:,} maps"
        )
    # For an allocator other than glibc, its mappings may be all that gdbheap knows.
    film = Film(os.path.expanduser(options.frames or ""), options.mappings or setting.library is not None, options.mode)
    film.prepare()

    def look(pid: int, call: int) -> bool:
        tell(f"picture {len(film.frames) + 1} of {len(stops) + 1}, after call {call:,}")
        with stopped(pid) as process:
            film.add(call, lambda cell: heap_map(Heap(process), cell, CELLS))
        return True

    found, last = run(job, setting, stops=stops, at_stop=look)
    if film.frames:
        film.write(f"{os.path.basename(job.process.who.exe)}, {setting.allocator} {setting.tuned}".rstrip(), calls)
    filmed = Filmed(film.folder, len(film.frames), every, film.cell)
    return replace(job.answer([found], last is None or last.fixed), film=filmed)


def _once(job: Job, setting: Setting, options: Options) -> Replayed:
    stop = options.stop_at
    if stop is None:
        found, last = run(job, setting, with_gaps=True)
        return job.answer([found], last is None or last.fixed)
    if LAST > stop > job.content.calls:
        raise UsageError(f"gdbheap replay: the trace has only {job.content.calls:,} calls")

    def wait(pid: int, calls: int) -> bool:
        return _wait(pid, calls, job.content.calls) if calls == stop or stop == LAST else True

    found, last = run(job, setting, stops=[stop], at_stop=wait)
    ended = last is not None and not last.is_end
    return job.answer([found], last is None or last.fixed, stopped=last.calls if ended and last else None)


def _tuned(options: Options) -> dict[str, str]:
    """Return the glibc tunables that the options set. Raises UsageError."""
    own = {
        "arena_max": options.arena_max,
        "mmap_threshold": options.mmap_threshold,
        "trim_threshold": options.trim_threshold,
    }
    text = ":".join(f"{name}={value}" for name, value in own.items() if value is not None)
    try:
        return {**_tunables(text), **(options.tunables or {})}
    except ValueError as error:
        raise UsageError(f"gdbheap replay: {error}") from None


def _setting(base: Setting, options: Options) -> Setting:
    """Return the setting under which the program ran, changed by the tunables that the options set. Raises
    UsageError."""
    tuned, library = _tuned(options), base.library
    if library is not None and tuned:
        raise UsageError("gdbheap replay: tunables work only with glibc, but this replay uses another allocator")
    return Setting(library, {} if library is not None else {**base.tunables, **tuned})


def _wait(pid: int, calls: int, of: int) -> bool:
    """Wait for Enter or Ctrl-C. Return True for Enter, which continues the replay, False for Ctrl-C, which ends it.
    ``calls``: the number of calls replayed so far; ``of``: the number of all calls.
    """
    look = f"gdbheap {pid}, gdb -p {pid}"
    text = f"gdbheap: after call {calls:,} of {of:,}, process {pid} waits. To examine it: {look}."
    with until_told() as told:
        print(f"{text} Enter continues the replay, Ctrl-C ends it", file=sys.stderr, flush=True)
        while not told():
            if _is_typed():
                return True
    return False


def _is_typed() -> bool:
    """Wait at most LOOK_SECONDS. Return whether a line was typed on the terminal; False if there is no terminal."""
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    ready, _, _ = select.select([sys.stdin] if is_terminal else [], [], [], LOOK_SECONDS)
    return bool(ready) and sys.stdin.readline() != ""


def _render(shown: Shown[Replayed, Options]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="replay",
    summary="Replay a trace under another allocator",
    text="""replay makes all calls of one process again, without the program, in the same order and in the same threads.
    Under the same glibc, every block has its old address. RSS is comparable only with --fill.""",
    example="gdbheap replay --what-if",
    details="""`--stop-at` lets you examine the program's heap after any call, because each block has its old address.
    You can try the same calls under another allocator, or with any glibc tunable. docs/replay.md says what a replay
    repeats and what it does not.

    The column RSS counts the private pages that the calls add. The kernel records the peak of RSS to within a few
    hundred KiB. A program writes to the memory that it requests. RSS is therefore similar to the program's RSS only
    with `--fill`, which `--what-if` implies. The columns "system" and "in use" count memory as malloc_stats() does.
    Only holes of 1 MiB or more are counted. For allocators other than glibc, these columns and the holes are unknown
    (?). Some allocators return memory after a delay. The results of these allocators differ between runs, and a replay
    is faster than the program was. `--what-if` runs these allocators three times, and shows the range of their peaks.
    The line below the table shows the best setting, ready to be typed before a command. The line appears only if the
    saving is larger than the difference between two runs with the same setting.

    `--frames` writes a map of the heap after every N calls, and index.html, which plays the maps as a film.
    `--mappings` repeats the program's private mappings; with `--fill`, the replay also touches their pages. `--stop-at`
    takes a call's number, or end.""",
    needs=FILES,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
