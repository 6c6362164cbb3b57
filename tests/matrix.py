"""Make the table of docs/support.md: test_oracle_arenas.py's comparisons, on the glibc of each root folder and in each
mode.

scripts/matrix.sh makes the folders and runs this. The program runs inside a folder. gdbheap reads it, and its cores,
from outside in a shell and in this system's gdb, and from inside in the folder's own gdb.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import SEED
from support.arena_cases import SEVERAL_HEAPS, Case, Table, check_counts, check_figures, check_states
from support.gdb_side import documents, gdb, home
from support.programs import GCORE, KERNEL_CORE, PATIENCE, PROCESS, Running, ask, running
from tabulate import tabulate

LITERAL = ["-batch", "-x", "gdbheap", "-ex", "heap arenas --json"]
OUTSIDE, INSIDE = "gdb outside", "its own gdb"
FORMS = (PROCESS, OUTSIDE, INSIDE, GCORE, KERNEL_CORE)
LARGE_TCACHE = "glibc.malloc.tcache_max=1048576:glibc.malloc.tcache_count=50:glibc.malloc.mmap_threshold=65536"
PLACE = "srv/runs"
# matrix_interpreters.py writes the part of the page after this heading.
INTERPRETERS = "## What was compared with the interpreters of these suites\n"
# matrix_aarch64.py writes the part after this heading, which is the last one.
AARCH64 = "## What was compared on aarch64\n"


@dataclass(frozen=True)
class Mode:
    """A case, with the first glibc whose malloc knows the case's tunables, and the reason."""

    case: Case
    since: tuple[int, int] = (0, 0)
    reason: str = ""


MODES = {
    "1 thread": Mode(Case(1, 200_000, 20_000)),
    "8 threads": Mode(Case(8)),
    "2 arenas of several heaps, 8 threads": Mode(Case(8, 20_000, 2500, 400_000, tunables=SEVERAL_HEAPS)),
    "foreign sbrk, 3 threads": Mode(Case(3, mode=1)),
    "blocked break, 3 threads": Mode(Case(3, mode=2)),
    "mmap_threshold=20000": Mode(Case(2, tunables="glibc.malloc.mmap_threshold=20000")),
    "the same, alignments up to 1 MiB": Mode(Case(2, mode=4, tunables="glibc.malloc.mmap_threshold=20000")),
    "tcache_count=0": Mode(Case(4, tunables="glibc.malloc.tcache_count=0")),
    "tcache_count=60": Mode(Case(2, tunables="glibc.malloc.tcache_count=60")),
    "tcache_max=1M, count 50, mmap_threshold=64K": Mode(Case(3, tunables=LARGE_TCACHE), (2, 42), "needs 2.42"),
    "perturb=165": Mode(Case(2, tunables="glibc.malloc.perturb=165")),
    "hugetlb=1": Mode(Case(2, 30_000, tunables="glibc.malloc.hugetlb=1"), (2, 35), "needs 2.35"),
}


@dataclass(frozen=True)
class Suite:
    """A root folder, with the versions of the software in it."""

    name: str
    root: Path
    glibc: str
    gdb: str
    python: str

    @property
    def version(self) -> tuple[int, int]:
        """Return glibc's version as numbers."""
        major, minor = self.glibc.split(".")[:2]
        return int(major), int(minor)

    @property
    def title(self) -> str:
        """Return the folder's title in the table."""
        return f"{self.glibc} ({self.name})"


@dataclass
class Results:
    """The cells of the table, one for each (suite, mode, form): "exact", "failed" or "skipped: REASON"."""

    cells: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def note(self, suite: Suite, mode: str, form: str, compare: Callable[[], None]) -> None:
        """Run one comparison and record its cell. Differences are printed on standard error."""
        self.cells[suite.name, mode, form] = cell = outcome(compare)
        print(f"{suite.title:22} {mode:45} {form:12} {cell}", file=sys.stderr, flush=True)

    def skip(self, suite: Suite, mode: str, reason: str) -> None:
        """Mark a whole line as skipped."""
        for form in FORMS:
            self.cells[suite.name, mode, form] = f"skipped: {reason}"


def outcome(compare: Callable[[], None]) -> str:
    """Return the cell for a comparison, which raises an error if the figures differ."""
    try:
        compare()
    except pytest.skip.Exception as skipped:
        return f"skipped: {skipped.msg}"
    except Exception:
        print("\n".join(line[:600] for line in traceback.format_exc().splitlines()[-12:]), file=sys.stderr)
        return "failed"
    return "exact"


def inside(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a root folder, as the folder's root user and without this process's environment."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    words = ["chroot", str(root), *command]
    return subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )


def suite_of(name: str, root: Path) -> Suite:
    """Return the suite of a root folder."""
    packages = [inside(root, "dpkg-query", "-W", "-f=${Version}", package).stdout for package in ("libc6", "gdb")]
    python = inside(root, "gdb", "-batch", "-ex", "python import sys; print('%d.%d' % sys.version_info[:2])")
    glibc, debugger = (version.rsplit("-", 1)[0] for version in packages)
    return Suite(name, root, glibc, debugger, python.stdout.strip())


@dataclass(frozen=True)
class Started:
    """A run of recorder.c in a folder: the program, its case, its own table, and its folder's suite."""

    suite: Suite
    case: Case
    target: Running
    table: Table
    cached: int

    def figures(self, answer: dict[str, Any]) -> None:
        """Compare an answer of ``heap arenas``, which must not use a file of another glibc."""
        check_figures(answer, self.target)
        check_counts(answer, self.case, self.table, self.tcaches, self.cached)
        assert answer["target"]["glibc"] in (self.suite.glibc, None), answer["target"]["glibc"]

    @property
    def tcaches(self) -> int:
        """Return how many threads have a cache. Since 2.43, a tcache_count of 0 means that there is none."""
        return 0 if "tcache_count=0" in self.case.tunables and self.suite.version >= (2, 43) else self.case.threads

    def shell(self, form: str) -> None:
        """Compare the shell command's answers about the process or a core: figures, damage, every pointer."""
        name = self.gcore() if form == GCORE else self.target.as_form(form)
        self.figures(ask("arenas", name))
        checked = ask("check", name)
        assert checked["ok"] is True and not [text for text in checked["warnings"] if "mmapped" in text], checked
        check_states(name, self.table, self.case.threads)

    def gcore(self) -> str:
        """Return a core written by the folder's own gdb. An older gdb cannot read stacks with guard regions (2.42)."""
        path = self.target.directory / "written-by-gdb"
        command = f"gcore /{path.relative_to(self.suite.root)}"
        done = inside(self.suite.root, "gdb", "-nx", "-batch", "-p", str(self.target.pid), "-ex", command)
        assert path.exists(), done.stdout + done.stderr
        self.target.rest()
        return str(path)

    def gdb_outside(self, directory: Path) -> None:
        """Compare the answers of this system's gdb."""
        self.printed(gdb(["-p", str(self.target.pid), *LITERAL], home(directory)))

    def gdb_inside(self) -> None:
        """Compare the answers of the folder's own gdb."""
        self.printed(inside(self.suite.root, "gdb", "-p", str(self.target.pid), *LITERAL))

    def printed(self, done: subprocess.CompletedProcess[str]) -> None:
        """Compare the document, which is among gdb's own lines of output."""
        assert done.returncode == 0, done.stderr[-2000:]
        self.figures(*documents(done))
        self.target.rest()


def cached_among(pid: int, table: Table) -> int:
    """Return how many freed pointers still follow the header of an mmapped chunk, because they are in a thread's
    cache."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        ends = {pointer: mapped_end(memory.fileno(), pointer) for pointer in table.freed}
    # A header that memalign left behind has the chunk's own header, and its pointer, further inside.
    mapped = {pointer: end for pointer, end in ends.items() if end}
    known = sorted([*table.live, *mapped])
    return sum(bisect(known, end) == bisect(known, pointer) for pointer, end in mapped.items())


def mapped_end(memory: int, pointer: int) -> int:
    """Return the end of the mapping if the 16 bytes before a pointer are an mmapped chunk's header (2.43), otherwise
    0."""
    try:
        words = os.pread(memory, 16, pointer - 16)
    except OSError:
        return 0
    if len(words) < 16:
        return 0
    shift, size = struct.unpack("<QQ", words)
    whole = size & 7 == 2 and ((shift & ~1) + (size & ~7) + 16) % 4096 == 0
    return pointer + (size & ~7) if whole else 0


@contextlib.contextmanager
def started(suite: Suite, case: Case, rng: random.Random) -> Iterator[Started]:
    """Run recorder.c in a folder, and yield it once it rests."""
    place = suite.root / PLACE
    place.mkdir(exist_ok=True)
    arguments = (case.threads, rng.getrandbits(30), case.operations, case.slots, case.largest, case.mode)
    command = ["/srv/programs/recorder", *map(str, arguments), f"/{PLACE}/table"]
    try:
        with running(command, place, {"GLIBC_TUNABLES": case.tunables}, suite.root) as target:
            table = Table(place / "table")
            cached = cached_among(target.pid, table) if "tcache_max" in case.tunables else 0
            yield Started(suite, case, target, table, cached)
    finally:
        shutil.rmtree(place)


def compare(suite: Suite, name: str, results: Results) -> None:
    """Fill a line of the table. The kernel's core comes last, because it ends the program."""
    mode = MODES[name]
    if suite.version < mode.since:
        results.skip(suite, name, mode.reason)
        return
    rng = random.Random(f"{SEED} {suite.name} {name}")
    with started(suite, mode.case, rng) as run, tempfile.TemporaryDirectory() as directory:
        results.note(suite, name, PROCESS, lambda: run.shell(PROCESS))
        results.note(suite, name, OUTSIDE, lambda: run.gdb_outside(Path(directory)))
        results.note(suite, name, INSIDE, run.gdb_inside)
        results.note(suite, name, GCORE, lambda: run.shell(GCORE))
        results.note(suite, name, KERNEL_CORE, lambda: run.shell(KERNEL_CORE))


def page(suites: list[Suite], results: Results) -> str:
    """Return the text of docs/support.md."""
    rows = [
        [suite.title, name, *(results.cells[suite.name, name, form] for form in FORMS)]
        for suite in suites
        for name in MODES
    ]
    grid = tabulate(rows, ["glibc", "mode", *FORMS], tablefmt="github", disable_numparse=True)
    tools = tabulate(
        [[suite.name, suite.glibc, suite.gdb, suite.python] for suite in suites],
        ["Debian suite", "glibc", "its gdb", "that gdb's Python"],
        tablefmt="github",
        disable_numparse=True,
    )
    return TEXT.format(tools=tools, grid=grid)


TEXT = """# What was compared with glibc itself

`make matrix`, as root and with debootstrap, makes a root folder of each Debian suite below, and runs a program in each
folder. The threads of the program allocate and free at random, and keep a table of their own pointers. `make matrix`
then writes this page. `make matrix SUITES="trixie"` only prints the lines of the named suites. `FOLDER=/var/tmp/matrix`
keeps the folders for the next time. All suites run the same program, which is built in the oldest suite. All suites use
the same wheel of gdbheap, with one abi3 module that is linked with the oldest suite's libc. pip and `gdbheap install`
install the wheel in each folder. No debug symbols are installed anywhere.

{tools}

A cell is `exact` only if gdbheap's answer meets all of these conditions, without tolerance:

- system bytes and in-use bytes of every arena and in total equal those that `malloc_stats()` printed in the process;
- the bytes in fast bins of every arena, the number of mmapped chunks and their bytes equal those that `malloc_info()`
  printed;
- the number of used chunks equals the number of pointers in the program's table plus the chunks that glibc uses itself
  (thread caches, dtvs);
- gdbheap reports no damage;
- the version of glibc is right, or gdbheap gives none; it is never the version of the libc outside of the folder.

In the columns `process`, `gcore` and `kernel core`, the shell command runs outside of the folder. The command reads the
live process, a core by the folder's own gdb, and a core by the kernel. (Since glibc 2.42 threads' stacks have guard
regions, which gdb 13's `gcore` cannot read. `gcore` writes zeros for these stacks, and gdbheap then warns that the
threads' caches are missing.) In these three columns, `exact` also means:

- `heap check` finds nothing;
- all mmapped chunks are found;
- every live pointer of the table starts a used chunk of its size;
- no freed pointer lies in a used chunk.

In the columns `gdb outside` and `its own gdb`, the command is `gdb -p PID -batch -x gdbheap -ex 'heap arenas --json'`.
The command is typed outside of the root folder (`gdb outside`) or inside of it (`its own gdb`).

{grid}

Four kinds of targets were not run: aarch64 (see [targets.md](targets.md#aarch64)), versions of glibc between those in
the table, processes that were stopped in the middle of malloc, and glibc 2.30 and older. For glibc 2.30 and older,
gdbheap has layouts from debug information and sources. Tests read heaps with these layouts (`tests/images`).
`make test` tries `glibc.malloc.hugetlb=2` if the machine has huge pages (`/proc/sys/vm/nr_hugepages`).
"""


def main() -> int:
    """Fill the table. Return 1 if a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the root folders are")
    parser.add_argument("--output", type=Path, required=True, help="the page")
    parser.add_argument("--mode", action="append", choices=MODES, help="only this mode, and no page")
    parser.add_argument("suites", nargs="+")
    options = parser.parse_args()
    print(f"random seed: {SEED} (repeat with GDBHEAP_SEED={SEED})", file=sys.stderr)
    suites = [suite_of(name, options.folder / name) for name in options.suites]
    results = Results()
    for suite in suites:
        for name in options.mode or MODES:
            compare(suite, name, results)
    if not options.mode:
        rest = options.output.read_text(encoding="utf-8") if options.output.is_file() else ""
        text = "\n".join([page(suites, results), *[INTERPRETERS + part for part in rest.split(INTERPRETERS)[1:]]])
        options.output.write_text(text, encoding="utf-8")
    return int("failed" in results.cells.values())


if __name__ == "__main__":
    sys.exit(main())
