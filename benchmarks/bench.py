"""gdbheap against its limit: the time to read the resident bytes of the heap once, natively and on all cores.

Builds a Python process of about 2 GB and a C process with millions of chunks, measures on the process and on a core of
it, prints one table and writes it into docs/performance.md, between the two marks there.

Usage: bench.py [--blocks=18000000] [--chunks=20000000] [--rounds=5] [--mimalloc=LIB] [--jemalloc=LIB] [--tcmalloc=LIB]
                [--no-core] [--no-growth] [--largest] [--keep-page]
"""

from __future__ import annotations

import argparse
import ctypes.util
import math
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from first_page import first_pages
from measure import BUILD, HERE, Run, Series, Subject, alternate, compiled, median, preferred_python, run, subject
from stops import stops

from gdbheap import _native
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.allocators.mallocng.allocator import MallocngAllocator
from gdbheap.allocators.mimalloc.library import MimallocLibraries
from gdbheap.allocators.oldmalloc.allocator import OldmallocAllocator
from gdbheap.allocators.tcmalloc.allocator import TcmallocLibraries
from gdbheap.answers import arenas, check, holes, pyobjects, sizes
from gdbheap.first_page import ledger
from gdbheap.heap import Heap
from gdbheap.snapshots import file
from gdbheap.snapshots.difference import difference
from gdbheap.snapshots.snapshot import take
from gdbheap.targets.core import Core
from gdbheap.targets.mappings import Mapping
from gdbheap.targets.process import stopped
from gdbheap.targets.target import Target

PAGE = HERE.parent / "docs" / "performance.md"
BEGIN, END = "<!-- make bench writes from here -->", "<!-- to here -->"
BIN = Path(sys.executable).parent
PRESENT = 1
PYTHON_PROCESS, C_PROCESS, WITH_MIMALLOC = "a Python process", "a C process", "the C process with mimalloc"
WITH_JEMALLOC, WITH_TCMALLOC = "the C process with jemalloc", "the C process with tcmalloc"
OF_MUSL, OF_OLD_MUSL = "the C process built with musl", "the C process built with musl 1.1.24"
OLD_MUSL = HERE.parent / "build" / "musls" / "1.1.24" / "bin" / "musl-gcc"
MIB = 1 << 20

Answer = Callable[[Heap], object]
ON_PYTHON: dict[str, Answer] = {
    "heap pyobjects": pyobjects.pyobjects,
    "heap": ledger.ledger,
    "heap arenas": arenas.arenas,
    "heap holes --min=1M": partial(holes.holes, minimum=MIB, top=None),
}
WALKED, WALK = "heap pyobjects", "heap pyobjects: its walk over every block"
OBJECTS, OWNERS = "of that, every block read and classified", "of that, finding the owners of buffers"
CHUNK_WALK = "the walk over every chunk"
ON_C: dict[str, Answer] = {
    CHUNK_WALK: lambda heap: heap.allocator(GlibcAllocator).chunks,
    **{name: answer for name, answer in ON_PYTHON.items() if name != WALKED},
    "heap sizes": sizes.sizes,
    "heap check": check.check,
}
ON_MIMALLOC: dict[str, Answer] = {
    "the walk over every block": lambda heap: heap.allocator(MimallocLibraries).store,
    **{name: answer for name, answer in ON_C.items() if name not in (CHUNK_WALK, "heap arenas")},
}
ON_JEMALLOC: dict[str, Answer] = {
    **ON_MIMALLOC,
    "the walk over every block": lambda heap: heap.allocator(JemallocLibraries).store,
}
ON_TCMALLOC: dict[str, Answer] = {
    **ON_MIMALLOC,
    "the walk over every block": lambda heap: heap.allocator(TcmallocLibraries).store,
}
ON_MUSL: dict[str, Answer] = {
    "the walk over every slot": lambda heap: heap.allocator(MallocngAllocator).store,
    **{name: answer for name, answer in ON_C.items() if name != CHUNK_WALK},
}
# On this allocator every answer takes as long as the walk, and the walk takes several times as long as elsewhere.
ON_OLD_MUSL: dict[str, Answer] = {CHUNK_WALK: lambda heap: heap.allocator(OldmallocAllocator).store}


SNAPSHOT = BUILD / "bench.heap"


def keep(heap: Heap, blocks: bool) -> None:
    """Take a snapshot and write it."""
    file.write(str(SNAPSHOT), take(heap, with_owners=False, with_blocks=blocks))


def compare(_heap: Heap) -> None:
    """Compare the last snapshot with itself, both read from the file."""
    difference([file.read(str(SNAPSHOT)), file.read(str(SNAPSHOT))])


DIFF = "heap diff of two such snapshots"
SNAPSHOTS: dict[str, Answer] = {
    "heap snapshot": partial(keep, blocks=False),
    "heap snapshot --blocks": partial(keep, blocks=True),
    DIFF: compare,
}


@dataclass
class Measured:
    """The measurements on one target: the bytes read for the limit, and the series of each answer."""

    size: int
    series: dict[str, Series]

    @property
    def limit(self) -> float:
        """Return the median of the limit, in seconds."""
        return median([limit for series in self.series.values() for limit in series.limits])


def heap_ranges(target: Target) -> list[tuple[int, int]]:
    """Return the resident ranges of private anonymous writable memory, which contain every heap."""
    mappings = [mapping for mapping in target.mappings if _may_hold_a_heap(mapping)]
    if target.pages is None:
        return [(mapping.start, mapping.end) for mapping in mappings]
    runs = [run for mapping in mappings for run in target.pages.runs(mapping.start, mapping.end)]
    return [(run.start, run.end) for run in runs if run.state == PRESENT]


def _may_hold_a_heap(mapping: Mapping) -> bool:
    return mapping.private and mapping.writable and mapping.anonymous and not mapping.name.startswith("[stack")


def measure(target: Target, answers: dict[str, Answer], rounds: int) -> Measured:
    """Measure each answer against the limit, from an empty cache to the complete answer."""
    ranges = heap_ranges(target)
    limit = partial(_native.read_once, target.space, ranges)
    things: dict[str, Callable[[], object]] = {}
    owners: list[float] = []
    if WALKED in answers:
        heap = Heap(target)
        census = heap.python.objects.census

        def walk() -> None:
            taken = census()
            owners.append(taken.settling + taken.following)

        things[WALK] = walk
    things.update((name, partial(_answered, target, answer)) for name, answer in answers.items())
    size = limit()
    measured = Measured(size, alternate(limit, things, rounds))
    if owners:
        whole = measured.series.pop(WALK)
        objects = [time - part for time, part in zip(whole.times, owners)]
        parts = {WALK: whole, OBJECTS: Series(objects, whole.limits), OWNERS: Series(owners, whole.limits)}
        measured.series = {**parts, **measured.series}
    return measured


def _answered(target: Target, answer: Answer) -> object:
    return answer(Heap(target))


def on_references(pid: int, what: str, goal: str, known: Callable[[Heap], object]) -> str:
    """Return a line about the graph of references: its size, and the times for the graph, for chains and for
    dominators.

    ``known``: computes in advance what is not part of the measured time.
    """
    with stopped(pid) as target:
        heap = Heap(target)
        known(heap)
        begin = time.perf_counter()
        graph = heap.references.graph
        drawn = time.perf_counter()
        graph.chain(0)
        reached = time.perf_counter()
        graph.retained([0])
        done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (
        f"{what}: {graph.nodes:,} blocks, {graph.edge_count:,} edges. Building the graph took {drawn - begin:.1f} s."
        f" Reaching the blocks from the roots took {reached - drawn:.1f} s. Dominators and retained sizes took"
        f" {done - reached:.1f} s. The total is {done - begin:.1f} s, with at most {peak / MIB:,.0f} MiB"
        f" (goal: {goal})."
    )


def on_snapshots(blocks: int, measured: Measured) -> str:
    """Return a line about the snapshot with all blocks, and remove its file."""
    size = SNAPSHOT.stat().st_size
    SNAPSHOT.unlink()
    seconds = median(measured.series[DIFF].times)
    return (
        f"A snapshot of all {blocks:,} blocks: {size / MIB:.1f} MiB, {size / blocks:.2f} bytes a block (goal: 1)."
        f" To read and compare two snapshots took {seconds:.1f} s (goal: 2)."
    )


def growth(python: str, most: int) -> str:
    """Return a line about how the time for all references grows with the number of blocks, up to ``most``."""
    points = []
    for blocks in (most // 16, most // 4, most):
        with subject([python, str(HERE / "target_python.py"), str(blocks)]) as target, stopped(target.pid) as process:
            heap = Heap(process)
            _ = heap.python.objects
            begin = time.perf_counter()
            graph = heap.references.graph
            graph.retained([0])
            points.append((math.log(graph.nodes), math.log(time.perf_counter() - begin)))
    exponent = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
    least, largest = math.exp(points[0][0]), math.exp(points[-1][0])
    return (
        f"From {least:,.0f} to {largest:,.0f} blocks, the time is proportional to their number to the power"
        f" {exponent:.2f}."
    )


def on_process(pid: int, answers: dict[str, Answer], rounds: int) -> Measured:
    """Measure on a live process, which is stopped during each measurement."""
    with stopped(pid) as target:
        return measure(target, answers, rounds)


def on_core(pid: int, rounds: int) -> Measured:
    """Measure on a core that gdb writes of the process, and remove it."""
    path = BUILD / "core"
    command = ["gdb", "-nx", "-p", str(pid), "-batch", "-ex", f"gcore {path}"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return measure(Core(str(path)), ON_PYTHON, rounds)
    finally:
        path.unlink()


def commands(target: Subject, rounds: int) -> dict[str, list[Run]]:
    """Run the whole command in a shell and in gdb, as a user does; each also reports the length of the stop."""
    gdbheap = str(BIN / "gdbheap")
    loader = subprocess.run([gdbheap, "--gdb-script"], check=True, capture_output=True, text=True).stdout.strip()
    pid = str(target.pid)
    shell = [gdbheap, "pyobjects", pid, "--json"]
    in_gdb = ["gdb", "-nx", "-p", pid, "-batch", "-x", loader, "-ex", "heap pyobjects --json"]
    nothing = ["gdb", "-nx", "-p", pid, "-batch"]
    written = str(BUILD / "bench-tables")
    rows = {"gdbheap pyobjects PID": shell, "gdb -p PID -x gdbheap -ex 'heap pyobjects'": in_gdb, "gdb -p PID": nothing}
    of_blocks = [["--tables=blocks", f"--format={form}"] for form in ("parquet", "csv", "sqlite")]
    for options in (*of_blocks, ["--edges", "--max-stop=60"]):
        rows[f"gdbheap export PID -o DIR {' '.join(options)}"] = [gdbheap, "export", pid, "-o", written, *options]
    try:
        return {name: [run(command, target) for _ in range(rounds)] for name, command in rows.items()}
    finally:
        shutil.rmtree(written, ignore_errors=True)


def answer_rows(where: str, measured: Measured) -> list[str]:
    """Return table rows: each answer's time as a multiple of the limit."""
    head = f"| {where} | read the {measured.size / (1 << 30):.2f} GiB of its heap once | 1.00 | |"
    rows = [f"| | `{name}` | {series.ratio:.2f} | {series.spread} |" for name, series in measured.series.items()]
    return [head, *rows]


def command_rows(runs: dict[str, list[Run]], limit: float) -> list[str]:
    """Return table rows: whole commands, the length of their stop, and their memory."""
    rows = []
    for name, done in runs.items():
        held = median([one.held for one in done])
        whole = median([one.seconds for one in done])
        peak = max(one.peak for one in done)
        times = f"{whole / limit:.2f} | {held / limit:.2f} | {held * 1000:.0f} ms"
        rows.append(f"| `{name}` | {times} | {peak / MIB:.0f} MiB |")
    return rows


def facts(blocks: int, chunks: int, live: Measured, glibc: Measured, load: float) -> list[str]:
    """Return the lines above the table: the conditions of the measurement."""
    walk, whole, chunk_walk = live.series[WALK], live.series[WALKED], glibc.series[CHUNK_WALK]
    objects, owners = live.series[OBJECTS], live.series[OWNERS]
    chunk_speed = median([chunks / time for time in chunk_walk.times]) / 1e6
    speed = median([blocks / time for time in walk.times]) / 1e6
    rate = live.size / live.limit / 1e9
    cores = len(os.sched_getaffinity(0))
    return [
        f"Measured on {cores} cores, Linux {platform.release().split('-')[0]}, {platform.machine()}, where the limit is"
        f" {rate:.1f} GB/s ({live.limit * 1000:.0f} ms). Load when it began: {load:.1f}.",
        f"The Python process: {blocks:,} pymalloc blocks in use. The walk of `heap pyobjects` took {walk.ratio:.2f}"
        f" times the limit: {objects.ratio:.2f} times to read and classify every block (goal: 1.5), and"
        f" {owners.ratio:.2f} times to find the owners of the buffers. That is {speed:.0f} million blocks a second. The"
        f" whole answer, from a target about which nothing is known, took {whole.ratio:.2f} times the limit.",
        f"The C process: {chunks:,} chunks of 16 to 400 bytes, half of them freed at random. The walk took"
        f" {chunk_walk.ratio:.2f} times the limit (goal: at most 2). It read {chunk_speed:.0f} million chunks a"
        " second.",
    ]


def table(blocks: int, chunks: int, found: dict[str, Measured], runs: dict[str, list[Run]], load: float) -> str:
    """Return the whole text: facts, answers against the limit, commands as a user runs them."""
    live, glibc = found[PYTHON_PROCESS], found[C_PROCESS]
    answers = [row for where, measured in found.items() for row in answer_rows(where, measured)]
    head = ["| on | what | times the limit | smallest to largest |", "| --- | --- | ---: | --- |"]
    whole = ["| command | whole, times the limit | process paused, times the limit | process paused | peak memory |"]
    whole += ["| --- | ---: | ---: | ---: | ---: |", *command_rows(runs, live.limit)]
    return "\n".join(["\n\n".join(facts(blocks, chunks, live, glibc, load)), "", *head, *answers, "", *whole])


def write_page(text: str) -> None:
    """Replace the text between the marks of docs/performance.md."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{PAGE} has lost its marks {BEGIN} and {END}")
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def parse() -> argparse.Namespace:
    """Return the parsed arguments."""
    parser = argparse.ArgumentParser(description="gdbheap against the time to read the heap once")
    parser.add_argument("--blocks", type=int, default=18_000_000, help="pymalloc blocks of the Python process")
    parser.add_argument("--chunks", type=int, default=20_000_000, help="chunks of the C process, half of them freed")
    parser.add_argument("--mimalloc", metavar="LIB", help="the library of mimalloc; the system's if there is one")
    parser.add_argument("--jemalloc", metavar="LIB", help="the library of jemalloc; the system's if there is one")
    parser.add_argument("--tcmalloc", metavar="LIB", help="the library of tcmalloc; the system's if there is one")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured; medians are shown")
    parser.add_argument("--largest", action="store_true", help="first pages of 80 million blocks too (7 GiB of memory)")
    parser.add_argument("--no-core", action="store_true", help="do not write and measure a core (2 GB on disk)")
    parser.add_argument("--no-growth", action="store_true", help="do not measure smaller processes beside it")
    parser.add_argument("--keep-page", action="store_true", help="do not write the table into docs/performance.md")
    return parser.parse_args()


def say(text: str) -> None:
    """Print progress on standard error."""
    print(f"gdbheap bench: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Build, measure, print, write."""
    options = parse()
    BUILD.mkdir(parents=True, exist_ok=True)
    found: dict[str, Measured] = {}
    load = os.getloadavg()[0]
    python = preferred_python()
    say(f"filling a Python process with {options.blocks:,} blocks ({python})")
    with subject([python, str(HERE / "target_python.py"), str(options.blocks)]) as target:
        say(f"process {target.pid}, seed {target.said['seed']}: whole commands")
        runs = commands(target, options.rounds)
        say("answers against the limit, live")
        found[PYTHON_PROCESS] = on_process(target.pid, {**ON_PYTHON, **SNAPSHOTS}, options.rounds)
        if not options.no_core:
            say("answers against the limit, core")
            found["its core (gcore)"] = on_core(target.pid, options.rounds)
        blocks = target.said["blocks"]
        say("references")
        references = on_references(target.pid, "References", "6 s, 2 GiB", lambda heap: heap.python.objects)
        about = [references, on_snapshots(blocks, found[PYTHON_PROCESS])]
    if not options.no_growth:
        about.append(growth(python, options.blocks))
    say(f"filling a C process with {options.chunks:,} chunks, half of them freed")
    with subject([compiled("target_glibc.c"), str(options.chunks)]) as target:
        found[C_PROCESS] = on_process(target.pid, ON_C, options.rounds)
        say("references of the C process")
        about.append(on_references(target.pid, "References of the C process", "8 s, 2 GiB", lambda heap: heap.malloc))
    with_libraries = (
        (WITH_MIMALLOC, ON_MIMALLOC, options.mimalloc or ctypes.util.find_library("mimalloc")),
        (WITH_JEMALLOC, ON_JEMALLOC, options.jemalloc or ctypes.util.find_library("jemalloc")),
        (WITH_TCMALLOC, ON_TCMALLOC, options.tcmalloc or ctypes.util.find_library("tcmalloc_minimal")),
    )
    for name, answers, library in with_libraries:
        if library is not None:
            say(f"filling {name} ({library})")
            with subject(["env", f"LD_PRELOAD={library}", compiled("target_glibc.c"), str(options.chunks)]) as target:
                found[name] = on_process(target.pid, answers, options.rounds)
    for name, answers, compiler in ((OF_MUSL, ON_MUSL, "musl-gcc"), (OF_OLD_MUSL, ON_OLD_MUSL, str(OLD_MUSL))):
        if shutil.which(compiler) is not None:
            say(f"filling {name}")
            with subject([compiled("target_glibc.c", compiler), str(options.chunks)]) as target:
                found[name] = on_process(target.pid, answers, options.rounds)
    about.append(stops(options.chunks, options.rounds, say))
    jemalloc = options.jemalloc or ctypes.util.find_library("jemalloc")
    about.append(first_pages(options.rounds, options.largest, jemalloc, say))
    text = "\n\n".join([table(blocks, options.chunks, found, runs, load), *about])
    print(text)
    if not options.keep_page:
        write_page(text)


if __name__ == "__main__":
    main()
