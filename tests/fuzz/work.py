"""Gives mutants to worker processes and keeps what they find: crashes, hangs and tracebacks, each with its seed."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
# Processor time: a busy machine is no hang.
SECONDS = 60.0
# Elapsed time, for a mutant that waits for itself.
PATIENCE = 900.0
SAID = 6000


@dataclass
class Finding:
    """A fault that one mutant revealed; ``seed`` and ``core`` repeat it."""

    core: str
    seed: str
    mutations: list[str]
    noun: str
    what: str


@dataclass
class Tally:
    """The results of the mutants so far; ``slowest``: (seconds, noun, core, seed)."""

    mutants: int = 0
    answered: int = 0
    slowest: tuple[float, str, str, str] = (0.0, "", "", "")
    findings: list[Finding] = field(default_factory=list)


class Worker:
    """A process that runs mutants, started anew after it ended."""

    def __init__(self, seconds: float = SECONDS) -> None:
        """Start the worker."""
        self.seconds = seconds
        self.folder = Path(tempfile.mkdtemp(prefix="gdbheap-fuzz-"))
        self.process: subprocess.Popen[str] | None = None
        self._start()

    def _start(self) -> None:
        self.errors = (self.folder / "stderr").open("w")
        command = [sys.executable, str(WORKER), str(self.folder), str(self.seconds)]
        environment = {**os.environ, "GDBHEAP_DEBUG": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen(command, text=True, env=environment, **pipes)  # type: ignore[call-overload]

    def run(self, core: Path, seed: str, tally: Tally, only: str | None = None) -> list[Finding]:
        """Return the findings of one mutant, and add them to ``tally``."""
        told = self._ask({"core": str(core), "seed": seed, "only": only})
        tally.mutants += 1
        if told is None:
            found = [Finding(core.name, seed, [], *self._ended())]
        else:
            found = [Finding(core.name, seed, told["mutations"], noun, what) for noun, what in told["faults"]]
            tally.answered += told["answered"]
            tally.slowest = max(tally.slowest, (*told["slowest"], core.name, seed))
        tally.findings += found
        return found

    def _ask(self, task: dict[str, Any]) -> dict[str, Any] | None:
        process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        # Not select.select(): it takes no descriptor above 1023.
        waiting = select.poll()
        waiting.register(process.stdout, select.POLLIN)
        if not waiting.poll(1000 * PATIENCE):
            return None
        line = process.stdout.readline()
        return json.loads(line) if line else None

    def _ended(self) -> tuple[str, str]:
        """Return how it ended and its output; start another."""
        assert self.process is not None
        time.sleep(0.2)
        status = self.process.poll()
        self.close()
        said = (self.folder / "stderr").read_text(errors="replace")[-SAID:]
        self._start()
        how = "hang" if status in (None, -signal.SIGPROF) else f"crash, status {status}"
        return how, said

    def keep(self, path: Path) -> None:
        """Copy the last mutant."""
        if (self.folder / "core").exists():
            shutil.copyfile(self.folder / "core", path)

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.errors.close()

    def remove(self) -> None:
        """End the worker, and remove its files."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
