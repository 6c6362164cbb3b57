"""Exports of several processes, and the queries over them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gdbheap.export.gathered import Gathered
from gdbheap.export.query import query
from gdbheap.export.source import Source
from support.programs import KINDS, ask, gdbheap, interpreter_of
from support.scripts import ROOT

QUERIES = dict(
    re.findall(r"^### ([^\n]*)\n```sql\n(.*?)```", (ROOT / "docs" / "fleet.md").read_text(), re.MULTILINE | re.DOTALL)
)
# The arguments set its data, and each line of input adds more.
WORKER = """
import sys
PART = 100_000
release, host, odd, loose = sys.argv[1:]
Everywhere = type("Everywhere", (), {"__slots__": ("a", "b")})
Here = type("Only_" + release, (), {"__slots__": ("a", "b")})
Grown = type("Grown_" + host, (), {"__slots__": ("a", "b")})
kept = [Everywhere() for _ in range(2000)] + [Grown() for _ in range(10)] + [b"x" * int(odd)]
# Below what stays in use, so that free() gives nothing of it back.
freed = [bytearray(PART) for _ in range(int(loose) // PART)]
kept.append(bytearray(PART))
del freed
print("ready", flush=True)
for line in sys.stdin:
    kept += [Here() for _ in range(100)] + [Grown() for _ in range(int(line))]
    print("ready", flush=True)
"""
ODD = 64 << 20
# A host, and the free bytes of each of its workers that malloc_trim() would return.
LOOSE_HOST, LOOSE = "web1", 8_000_000
DAYS = ("2026-05-03", "2026-05-04")
TABLES = "--tables=types,ledger,findings,arenas"


@dataclass
class Fleet:
    """What was exported: the folder, and the processes by host."""

    folder: Path
    workers: dict[str, list[subprocess.Popen[str]]] = field(default_factory=dict)


def release_of(host: str) -> str:
    """Return the release that the host runs."""
    return f"r{1 + int(host[3:]) % 2}"


def grows(host: str) -> int:
    """Return how many objects each worker of a host gains from one day to the next."""
    return 1000 * (1 + int(host[3:]))


@contextmanager
def fleet(folder: Path, hosts: int, workers: int) -> Iterator[Fleet]:
    """Export the workers of all hosts on two days; one worker has much more than its siblings."""
    found, interpreter = Fleet(folder / "heaps"), interpreter_of(KINDS[0])
    with ExitStack() as stack:
        for number in range(hosts):
            host = f"web{number}"
            loose = LOOSE if host == LOOSE_HOST else 0
            started = []
            for worker in range(workers):
                odd = ODD if (number, worker) == (0, 1) else 0
                command = [interpreter, "-c", WORKER, release_of(host), host, str(odd), str(loose)]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                stack.callback(process.wait)
                stack.callback(process.kill)
                started.append(process)
            found.workers[host] = started
        for place, day in enumerate(DAYS):
            for host, started in found.workers.items():
                for process in started:
                    assert process.stdin is not None and process.stdout is not None
                    if place:
                        print(grows(host), file=process.stdin, flush=True)
                    assert process.stdout.readline() == "ready\n"
                keys = f"--partition=host={host},release={release_of(host)},day={day},pid"
                pids = [str(process.pid) for process in started]
                done = gdbheap("export", *pids, "-o", str(found.folder), keys, TABLES, "--json")
                assert done.returncode == 0, done.stderr
                assert json.loads(done.stdout)["look_count"] == workers
        yield found


def asked(folder: Path, title: str) -> list[list[Any]]:
    """Return the rows of one of the ten questions, by DuckDB."""

    def nothing(_names: Any, _graph: bool | None) -> Gathered:
        raise AssertionError("a folder has its tables")

    return query(Source("", nothing, str(folder)), QUERIES[title]).rows


def check(found: Fleet, answers: dict[str, list[list[Any]]]) -> None:
    """Compare the answers with the arguments of the workers, and with the figures that each worker reports itself."""
    assert [title for title, rows in answers.items() if not rows] == []
    _id, processes_with, hosts_with, loose = answers["What do the findings add up to?"][0]
    planted = LOOSE * len(found.workers[LOOSE_HOST])
    assert processes_with >= len(found.workers[LOOSE_HOST]) and hosts_with >= 1
    # Each worker also has a few free bytes of its own.
    assert 0.98 * planted <= loose <= planted + processes_with * (1 << 20)
    grown = {
        (host, kind): size for host, kind, size in answers["Which types grew on which hosts since the day before?"]
    }
    # A pool has blocks of at most 48 bytes for an object with two slots.
    sizes = {host: grown[host, f"__main__.Grown_{host}"] for host in found.workers if grows(host) > 1000}
    assert sizes and all(
        size % (grows(host) * len(found.workers[host])) == 0
        and 32 <= size / grows(host) / len(found.workers[host]) <= 64
        for host, size in sizes.items()
    )
    differing = answers["Which workers differ from their siblings?"]
    assert [row[1:3] for row in differing] == [["web0", found.workers["web0"][1].pid]] * len(DAYS)
    come = {row[0]: row[1] for row in answers["Which types exist now and did not exist anywhere the day before?"]}
    releases = [release_of(host) for host in found.workers for _ in found.workers[host]]
    assert come == {f"__main__.Only_{release}": releases.count(release) for release in set(releases)}
    by_release = {row[0]: row[1] for row in answers["How much memory does a process need in each release?"]}
    assert by_release == {release: releases.count(release) for release in set(releases)}
    trims = {(row[0], row[1]): row[3] for row in answers["How much would malloc_trim() give back, on each host?"]}
    host = min(found.workers)
    now = sum(ask("", str(process.pid))["reclaimable"] for process in found.workers[host])
    assert trims[DAYS[-1], host] == now
    everywhere = {row[0]: row[1] for row in answers["Which types hold the most, everywhere?"]}
    assert everywhere["__main__.Everywhere"] == len(releases)
    processes = {(row[0], row[1]) for row in answers["Which processes have grown since the day before?"]}
    known = {(name, process.pid) for name, started in found.workers.items() for process in started}
    assert processes <= known
