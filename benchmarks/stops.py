"""Measure how long a command stops a process, against the time to read its private memory once.

Three processes: blocks of glibc's malloc in C, documents of lxml, and a redis-server. Programs that are not installed
are left out. bench.py uses this module; run by itself, it prints the table.

Usage: stops.py [--chunks=2000000] [--rounds=5]
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from measure import HERE, Series, compiled, median, seconds, subject

from gdbheap import _native
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.heap import Heap
from gdbheap.targets.process import stopped
from gdbheap.targets.target import Target

PRESENT = 1
NOUNS = ("", "pyobjects", "pins", "chunks", "check")
PACKAGES = HERE.parent / "build" / "packages" / "bin"
HEAD = [
    "The time for which a command stops a process, compared with the time to read its private memory once (goal: 1.3, "
    "and 20 ms):",
    "",
    "| process | private memory | command | stopped, times reading it once | smallest to largest | stopped |",
    "| --- | ---: | --- | ---: | --- | ---: |",
]
FILL = "for i=1,200000 do redis.call('set','k'..i,string.rep('x',i*7%1500)) end"


def private_memory(target: Target) -> list[tuple[int, int]]:
    """Return the ranges of private memory that are resident."""
    mappings = [mapping for mapping in target.mappings if mapping.private and mapping.readable]
    if target.pages is None:
        return [(mapping.start, mapping.end) for mapping in mappings]
    runs = [run for mapping in mappings for run in target.pages.runs(mapping.start, mapping.end)]
    return [(run.start, run.end) for run in runs if run.state == PRESENT]


def _answered(pid: int, noun: str) -> float:
    """Answer as the shell command does; return how long the process was stopped."""
    command = COMMANDS[noun]
    with stopped(pid, None, copies=True) as process:
        command.answer(Heap(process), parse(command, [])[0])
    return process.stopped_seconds or 0.0


def limit_of(pid: int) -> float:
    """Return the time to read the private memory of a process once."""
    with stopped(pid) as target:
        return seconds(partial(_native.read_once, target.space, private_memory(target)))


def _nouns(pid: int) -> list[str]:
    """Return the commands that answer for this process."""
    with stopped(pid, None, copies=True) as process:
        is_python = bool(Heap(process).versions["python"])
    return [noun for noun in NOUNS if is_python or noun != "pyobjects"]


def rows(title: str, pid: int, rounds: int) -> list[str]:
    """Return a table's rows for a process: one for each command."""
    with stopped(pid) as target:
        size = _native.read_once(target.space, private_memory(target))
    found = []
    for noun in _nouns(pid):
        series = Series()
        for _ in range(rounds):
            series.limits.append(limit_of(pid))
            series.times.append(_answered(pid, noun))
        found.append(_row((title, f"{size / (1 << 20):,.0f} MiB"), noun, series))
        title = ""
    return found


def _row(about: tuple[str, str], noun: str, series: Series) -> str:
    title, size = about
    milliseconds = f"{1000 * median(series.times):.0f} ms"
    name = f"`heap {noun}`".replace(" `", "`")
    return f"| {title} | {size if title else ''} | {name} | {series.ratio:.2f} | {series.spread} | {milliseconds} |"


@contextmanager
def _glibc(chunks: int) -> Iterator[int]:
    with subject([compiled("target_glibc.c"), str(chunks)]) as target:
        yield target.pid


@contextmanager
def _lxml() -> Iterator[int | None]:
    pythons = [str(PACKAGES / "python"), sys.executable]
    python = next((one for one in pythons if _imports(one, "lxml")), None)
    if python is None:
        yield None
        return
    with subject([python, str(HERE / "target_lxml.py")]) as target:
        yield target.pid


def _imports(python: str, module: str) -> bool:
    command = [python, "-c", f"import {module}"]
    return shutil.which(python) is not None and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


@contextmanager
def _redis() -> Iterator[int | None]:
    server = shutil.which("redis-server") or next(map(str, PACKAGES.parent.rglob("redis-server")), None)
    if server is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        command = [server, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _fill(path)
            yield process.pid
        finally:
            process.kill()
            process.wait()


def _fill(path: str) -> None:
    """Fill a redis-server with keys."""
    with socket.socket(socket.AF_UNIX) as connection:
        while connection.connect_ex(path):
            time.sleep(0.05)
        words = ("EVAL", FILL, "0")
        said = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        connection.sendall(said.encode())
        connection.recv(1 << 10)


def stops(chunks: int, rounds: int, say: Callable[[str], None]) -> str:
    """Return the table, as text."""
    found: list[str] = []
    started = (("glibc's malloc", partial(_glibc, chunks)), ("lxml", _lxml), ("redis-server", _redis))
    for title, start in started:
        with start() as pid:
            if pid is None:
                say(f"{title} is not here")
                continue
            say(f"stops of a process with {title}")
            found += rows(title, pid, rounds)
    return "\n".join([*HEAD, *found])


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="how long commands stop a process")
    parser.add_argument("--chunks", type=int, default=2_000_000, help="chunks of the C process")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured; medians are shown")
    options = parser.parse_args(words)
    print(stops(options.chunks, options.rounds, lambda text: print(text, file=sys.stderr, flush=True)))


if __name__ == "__main__":
    main()
