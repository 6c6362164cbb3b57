"""Measure how often a watch catches a process before its control group kills it: ``caught.py [ROUNDS [SEED]]``.

Each round prints a line. It makes a group with a random limit, and starts a program in it that grows at a random rate,
up to the limit in about a second. It watches the program with --at-oom, and lets the kernel kill it. The program was
caught if there is a whole snapshot of it from shortly before its end. The kernel's own counter and the exit status of
the process prove that it was killed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support.control_groups import limited_group
from support.programs import GDBHEAP, PATIENCE, SOURCES, interpreters

from gdbheap.snapshots.file import read

KILLED = -9
# The same as in tests/programs/swelling.py.
STEP = 256 << 10


@dataclass(frozen=True)
class Round:
    """One round of the measurement.

    ``limit``: in bytes; ``rate``: in bytes a second; ``seen``: bytes of the program's steps in the snapshot, None
    without a snapshot; ``kind``: of the cause; ``status``: of the process; ``kills``: by the kernel's count; ``said``:
    the whole output of the watch.
    """

    limit: int
    rate: float
    seen: int | None
    kind: str
    status: int
    kills: int
    said: str

    @property
    def caught(self) -> bool:
        """Return whether there is a snapshot of the process near its limit, and the limit killed the process."""
        near = self.seen is not None and 0.6 * self.limit < self.seen <= self.limit
        return near and self.status == KILLED and self.kills > 0


def one_round(rng: random.Random, folder: Path, *options: str) -> Round:
    """Make one round and return its results."""
    limit = rng.randrange(96, 512) << 20
    rate = limit / rng.uniform(0.5, 1.5)
    with limited_group(limit, rng) as group:
        command = [interpreters()[0].executable, "-I", str(SOURCES / "swelling.py"), str(rate), str(4 * limit)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            group.take_in(process.pid)
            events, status = watched(process, folder, options)
            acted = [event for event in events if event["event"] == "acted"]
            files = [event["files"]["snapshot"] for event in acted if "snapshot" in event["files"]]
            kind = acted[0]["cause"]["kind"] if acted else "none"
            seen = contents(files[0]) if files else None
            return Round(limit, rate, seen, kind, status, group.kills, json.dumps(events))


def watched(process: subprocess.Popen[str], folder: Path, options: tuple[str, ...]) -> tuple[list[dict], int]:
    """Return the events of a watch while the process grows to its end, and the exit status of the process."""
    assert process.stdin is not None
    line = [str(GDBHEAP), "watch", str(process.pid), "--at-oom", "--json", f"--output={folder}", *options]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        events = [json.loads(watch.stdout.readline())]
        process.stdin.write("\n")
        process.stdin.flush()
        status = process.wait(PATIENCE)
        events += map(json.loads, watch.communicate(timeout=PATIENCE)[0].splitlines())
        return events, status


def contents(path: str) -> int:
    """Return the bytes of the program's steps in a snapshot, computed from the number of their objects."""
    found = read(path).snapshot
    types = found.objects.rows if found.objects else []
    return STEP * next((row.count for row in types if row.type == "__main__.Ballast"), 0)


def main() -> None:
    """Print a line for each round, and the number of caught processes."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    rng, caught = random.Random(seed), 0
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, rounds + 1):
            found = one_round(rng, Path(folder))
            caught += found.caught
            seen = "no snapshot" if found.seen is None else f"{100 * found.seen / found.limit:.0f} % ({found.kind})"
            print(f"{number}: {found.limit >> 20} MiB in {found.limit / found.rate:.2f} s: {seen}, kills {found.kills}")
            if not found.caught:
                print(found.said)
    print(f"caught {caught} of {rounds}")
    raise SystemExit(caught < rounds)


if __name__ == "__main__":
    main()
