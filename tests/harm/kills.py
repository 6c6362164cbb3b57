"""Whole commands that are killed at random instants, or lack some resource, and the state of the target afterwards."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import programs
from support.following import becomes_whole, code
from support.nouns import GRAPHS, PLAIN
from tabulate import tabulate

from harm.targets import Target
from harm.verdict import PATIENCE, Watch, line_of

# These call functions of the process.
CALLS = (("stats",), ("trim", "--yes"))
# These follow the process, most of them by a change of its code.
FOLLOWED = (
    ("growth",), ("growth", "--no-stacks"), ("growth", "--count=20"), ("growth", "--perf"),
    ("growth", "--perf", "--no-stacks"), ("catch", "malloc", "--count=0", "--min=100"),
    ("catch", "free", "--count=5"), ("catch", "realloc"), ("catch", "calloc", "--count=0"),
    ("catch", "malloc", "--grows"),
)  # fmt: skip
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
LIMITS = ("memory", "descriptors", "output", "disk")
HANGS = 300
FAULTS = ("Traceback", "a fault of gdbheap", "panicked")


@dataclass(frozen=True)
class Ending:
    """The end of one command; ``way`` is the signal or the limit, ``unclear`` its output if that is no clear line."""

    way: str
    traced: bool
    unclear: str


class Killer:
    """Runs commands on targets and ends them. ``words`` are more options for each command."""

    def __init__(
        self, watches: list[Watch], folder: Path, words: list[str], calls: bool = False, follows: bool = False
    ) -> None:
        """``folder`` is the working folder of commands; it must be empty after each.

        ``calls``: also the commands that call; ``follows``: only those that follow a process, whose code must be
        restored after each.
        """
        self.watches, self.folder, self.words = watches, folder, words
        self.nouns: list[tuple[str, ...]] = [(noun,) if noun else () for noun in (*PLAIN, *GRAPHS)]
        self.nouns += CALLS * 2 if calls else ()
        self.nouns = list(FOLLOWED) if follows else self.nouns
        self.code = {watch.target.pid: code(watch.target.pid) for watch in watches if follows}
        self.lengths: dict[tuple[int, tuple[str, ...]], float] = defaultdict(lambda: 1.0)
        self.endings: list[tuple[Watch, Ending]] = []

    def one(self, rng: random.Random) -> tuple[str, Counter[str]]:
        """Run one command that does not end by itself. Return the action that ended it, and the harm."""
        watch, words = rng.choice(self.watches), rng.choice(self.nouns)
        limit = rng.choice(LIMITS) if rng.random() < 0.15 else ""
        command = [str(programs.GDBHEAP), *words[:1], str(watch.target.pid), *words[1:], *self.words]
        if self.code:
            # Not every signal ends them: SIGPIPE is for writers to a pipe.
            command.append(f"--duration={rng.random() + 0.1:.2f}")
        with tempfile.TemporaryDirectory() as outside:
            if limit:
                ending = self._limited(command, limit, rng, Path(outside), watch.target)
            else:
                ending = self._killed(command, (watch.target.pid, words), rng, watch.target)
        self.endings.append((watch, ending))
        told = f"{watch.target.name}: {' '.join(words) or 'heap'}, {ending.way}{', tracing' if ending.traced else ''}"
        harm = watch.judge()
        if not harm["dead"] and watch.target.pid in self.code:
            harm["code that differs"] += not becomes_whole(watch.target.pid, self.code[watch.target.pid], PATIENCE)
            watch.harms["code that differs"] += harm["code that differs"]
        return told, harm

    def _start(self, command: list[str], **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        streams = {"stdout": subprocess.DEVNULL, **options}
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment,
            **streams,
        )

    def _killed(
        self, command: list[str], key: tuple[int, tuple[str, ...]], rng: random.Random, target: Target
    ) -> Ending:
        """Kill half of the commands at any instant, and half a moment after they have stopped a thread."""
        number, started = rng.choice(SIGNALS), time.monotonic()
        process = self._start(command)
        if rng.random() < 0.5:
            time.sleep(rng.random() * 1.1 * self.lengths[key])
        else:
            while process.poll() is None and not target.is_traced:
                time.sleep(0.0002)
            time.sleep(rng.choice((0, 0.0003, 0.003, 0.03, 0.3)) * rng.random())
        if process.poll() is None:
            traced = target.is_traced
            process.send_signal(number)
            way = number.name
        else:
            self.lengths[key], traced, way = time.monotonic() - started, False, "ended before"
        return Ending(way, traced, self._said(process))

    def _limited(self, command: list[str], limit: str, rng: random.Random, outside: Path, target: Target) -> Ending:
        """Run the command to its end with too little of some resource, or perhaps just enough."""
        options: dict[str, Any] = {}
        if limit == "memory":
            options["preexec_fn"] = _limiter(resource.RLIMIT_AS, rng.randrange(10, 400) << 20)
        elif limit == "descriptors":
            options["preexec_fn"] = _limiter(resource.RLIMIT_NOFILE, rng.randrange(3, 50))
        elif limit == "output":
            options["stdout"] = open("/dev/full", "wb")
        else:
            command = [str(programs.GDBHEAP), "map", str(target.pid), f"--svg={outside / 'heap.svg'}", *self.words]
            options["preexec_fn"] = _limiter(resource.RLIMIT_FSIZE, rng.randrange(1, 20) << 10)
        process = self._start(command, **options)
        said = self._said(process)
        if limit == "output":
            options["stdout"].close()
        return Ending(limit, False, said)

    def _said(self, process: subprocess.Popen[str]) -> str:
        try:
            _, errors = process.communicate(timeout=HANGS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "it did not end"
        return errors[-2000:] if any(word in errors for word in FAULTS) and not _in_start(errors) else ""

    def table(self) -> str:
        """Return a row for each target: commands, how many of them were killed while they traced it, harm."""
        rows = []
        for watch in self.watches:
            own = [ending for of, ending in self.endings if of is watch]
            killed = sum(ending.way.startswith("SIG") for ending in own)
            limited = sum(ending.way in LIMITS for ending in own)
            traced, unclear = sum(ending.traced for ending in own), sum(bool(ending.unclear) for ending in own)
            rows.append((watch.target.name, len(own), killed, traced, limited, unclear, line_of(watch.harms)))
        heads = ("target", "commands", "killed", "of these tracing", "limited", "unclear endings", "harm")
        return str(tabulate(rows, heads))


def _in_start(errors: str) -> bool:
    """Return whether Python itself was still starting: it was interrupted by Ctrl-C, or had no descriptor left, before
    gdbheap ran.
    """
    interrupted = errors.rstrip().endswith("KeyboardInterrupt") and ", in main" not in errors
    return interrupted or "Fatal Python error: init_" in errors


def _limiter(kind: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (value, value))
