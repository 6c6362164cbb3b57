"""Measure how much memory of real programs gets a name: other people's packages and tests, stopped at random moments.

``make named`` installs the packages of these programs (scripts/packages.sh many) and runs this. Each program is stopped
at several random moments, and all answers must give each block to the same owner (``support.attribution``). ``--write``
puts the table into docs/naming.md, otherwise it is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT, SEED
from support.attribution import differences
from support.installed import python_with
from support.library import heap_of
from support.programs import RELEASES, SOURCES, end_group, interpreters, plain_environment
from tabulate import tabulate

from gdbheap.answers.pools import pools
from gdbheap.answers.pyobjects import PyObjects, pyobjects
from gdbheap.heap import Heap

PAGE = ROOT / "docs" / "naming.md"
MARK = "<!-- the table: make named -->\n"
HEADERS = (
    "program", "stops", "used", "objects", "buffers by fields", "reached from objects", "interpreter",
    "libraries and threads", "no name", "blocks without a class",
)  # fmt: skip
NEWER = RELEASES[RELEASES.index("3.9") :]
JOBS = {
    "frames": ("numpy", "pandas"),
    "columns": ("pandas", "pyarrow"),
    "web": ("flask", "werkzeug"),
    "rows": ("sqlalchemy",),
    "documents": ("lxml", "PIL", "cryptography"),
    "models": ("sklearn",),
    "greenlets": ("gevent",),
    "site": ("django",),
}
SUITES = {
    "pandas": ("pandas.tests.groupby", "pandas.tests.indexing", "pandas.tests.reshape"),
    "pyarrow": ("pyarrow.tests.test_compute", "pyarrow.tests.test_array", "pyarrow.tests.test_table"),
    "numpy": ("numpy.lib.tests", "numpy.ma.tests"),
}
STANDARD = "test.test_json test.test_dict test.test_re test.test_collections test.test_decimal test.test_ordered_dict"
# If mypy ran as a module, it would end its process.
MYPY = "import sys, mypy.api\nwhile True: mypy.api.run(sys.argv[1:])"
# The seconds between which a program may be stopped.
EARLIEST, LATEST = 2.5, 9.0
# The number of blocks of each stop whose owner is asked in all answers.
COMPARED = 50
MOST_COMPARED = 4
GAP = 2.0


@dataclass(frozen=True)
class Shares:
    """The bytes of used blocks by the way in which they are known.

    ``blocks``: the used blocks of pymalloc; ``unclassified``: how many of them are not classified.
    """

    used: int
    objects: int
    fields: int
    reached: int
    interpreter: int
    roots: int
    unknown: int
    blocks: int
    unclassified: int

    @property
    def named(self) -> float:
        """The share of bytes that has a name."""
        return 1 - self.unknown / self.used

    @property
    def row(self) -> list[float]:
        """The shares in the order of the table's columns."""
        parts = (self.objects, self.fields, self.reached, self.interpreter, self.roots, self.unknown)
        return [part / self.used for part in parts] + [self.unclassified / max(1, self.blocks)]


def shares(heap: Heap) -> Shares:
    """Return the shares of one stop; the parts must add up to the used bytes."""
    answer = pyobjects(heap)
    found = Shares(
        used=answer.all_used.bytes,
        objects=answer.total.own,
        fields=answer.total.buffers - answer.total.reached,
        reached=answer.total.reached,
        interpreter=answer.interpreter.bytes + answer.free_lists.bytes,
        roots=sum(root.bytes for root in answer.roots),
        unknown=answer.unclassified.bytes + answer.other_chunks.bytes,
        blocks=sum(row.used_count for row in pools(heap).rows),
        unclassified=answer.unclassified.count,
    )
    parts = (found.objects, found.fields, found.reached, found.interpreter, found.roots, found.unknown)
    assert sum(parts) == found.used, f"the parts differ by {sum(parts) - found.used:,} bytes: {found}"
    assert unknown_bytes(answer) <= found.unknown
    return found


def unknown_bytes(answer: PyObjects) -> int:
    """Return the bytes of the unknown blocks that are listed."""
    return sum(block.size for block in answer.unidentified)


@dataclass(frozen=True)
class Workload:
    """A program: its name and its command. Making the command skips the program if a part of it is missing."""

    name: str
    command: Callable[[random.Random], list[str]]


def workloads() -> list[Workload]:
    """Return all programs. Whether this machine can run one shows only when its command is made."""
    found = [Workload(f"the work of {name} ({', '.join(JOBS[name])})", job(name)) for name in JOBS]
    found.append(Workload("all of that, in threads of one process", job(*JOBS)))
    found += [Workload(f"{name}'s own tests", suite(name)) for name in SUITES]
    found.append(Workload("mypy", mypy))
    return found + [Workload(f"CPython {release}'s own tests", standard(release)) for release in NEWER]


def job(*names: str) -> Callable[[random.Random], list[str]]:
    """Return a function that makes the command for jobs.py, which works without end."""

    def command(rng: random.Random) -> list[str]:
        python = python_with(*{module for name in names for module in JOBS[name]})
        return [python, str(SOURCES / "jobs.py"), ",".join(names), str(rng.getrandbits(32)), "1000000"]

    return command


def suite(name: str) -> Callable[[random.Random], list[str]]:
    """Return a function that makes the command for a package's own tests, of one module."""

    def command(rng: random.Random) -> list[str]:
        modules = ["-q", "-p", "no:cacheprovider", "--pyargs", rng.choice(SUITES[name])]
        return [python_with(name, "pytest", "hypothesis"), str(SOURCES / "forever.py"), "pytest", *modules]

    return command


def mypy(rng: random.Random) -> list[str]:
    """Return the command that checks a package of .venv."""
    package = rng.choice(["_pytest", "pip", "elftools"])
    return [sys.executable, "-c", MYPY, "--cache-dir=/dev/null", "--check-untyped-defs", "-p", package]


def standard(release: str) -> Callable[[random.Random], list[str]]:
    """Return a function that makes the command for the interpreter's own tests, if they are installed."""

    def command(rng: random.Random) -> list[str]:
        names = STANDARD.split()
        rng.shuffle(names)
        for python in (found.executable for found in interpreters(release)):
            if not subprocess.run([python, "-c", "import test.test_json"], capture_output=True).returncode:
                return [python, str(SOURCES / "forever.py"), "unittest", "-q", *names]
        pytest.skip(f"no CPython {release} with tests of its own on the path, in /usr/bin or below ~/.pyenv")

    return command


@contextlib.contextmanager
def working(command: list[str], directory: Path) -> Iterator[int]:
    """Yield the pid of a started command, which need not be at rest. It and its children are ended afterwards."""
    folder = tempfile.mkdtemp(dir=directory)
    with open(Path(folder) / "output", "wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=plain_environment(),
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process.pid
        assert process.poll() is None, (Path(folder) / "output").read_text(errors="replace")[-2000:]
    finally:
        end_group(process)


def measured(workload: Workload, stops: int, rng: random.Random, directory: Path, gap: float = GAP) -> list[Shares]:
    """Return the shares at ``stops`` random moments of one run, at most ``gap`` seconds apart.

    At no more than MOST_COMPARED moments, all answers must give each block to the same owner; this takes twenty times
    as long.
    """
    found = []
    with working(workload.command(rng), directory) as pid:
        time.sleep(rng.uniform(EARLIEST, LATEST))
        compared = set(rng.sample(range(stops), min(stops, MOST_COMPARED)))
        for number in range(stops):
            time.sleep(rng.uniform(0, gap))
            with heap_of(str(pid)) as heap:
                found.append(shares(heap))
                wrong = differences(heap, rng, COMPARED) if number in compared else []
                assert not wrong, f"{workload.name}: {len(wrong)} blocks have two owners: {wrong[:5]}"
    return found


def line(workload: Workload, found: list[Shares]) -> list[str]:
    """Return one line of the table: the shares of all stops together, and the unnamed shares of the worst stop."""
    used = sum(stop.used for stop in found)
    *parts, _unknown, _blocks = (
        sum(stop.row[place] * stop.used for stop in found) / used for place in range(len(found[0].row))
    )
    worst = [max(stop.row[place] for stop in found) for place in (-2, -1)]
    size = f"{used / len(found) / (1 << 20):,.1f} MiB"
    return [workload.name, str(len(found)), size, *(f"{100 * part:.2f} %" for part in [*parts, *worst])]


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--stops", type=int, default=5)
    options = parser.parse_args()
    rng, rows = random.Random(SEED), []
    for workload in workloads():
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows.append(line(workload, measured(workload, options.stops, rng, Path(folder))))
            except pytest.skip.Exception as reason:
                print(f"skipped: {workload.name}: {reason}", file=sys.stderr)
    align = ["left"] + ["right"] * (len(HEADERS) - 1)
    text = tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True, colalign=align)
    if not options.write:
        print(text)
        return
    PAGE.write_text(f"{PAGE.read_text().split(MARK)[0]}{MARK}{text}\n")


if __name__ == "__main__":
    main()
