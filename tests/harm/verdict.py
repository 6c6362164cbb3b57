"""The state of a target: compared before and after each command, from outside and by its own table."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harm.table import Line
from harm.targets import Target

PATIENCE = 30.0
NEVER = 1 << 30


@dataclass
class Watch:
    """One target and its state before the first command."""

    target: Target
    folder: Path
    before: dict[str, Line] = field(default_factory=dict)
    harms: Counter[str] = field(default_factory=Counter)
    descriptors: int = NEVER
    copies: int = NEVER
    patience: float = PATIENCE

    def __post_init__(self) -> None:
        """Observe it for a second: the least number of its open files and processes."""
        end = time.monotonic() + 1
        while time.monotonic() < end:
            self.descriptors = min(self.descriptors, self.target.descriptors())
            self.copies = max(1, min(self.copies, self._copies()))
            time.sleep(0.01)
        self.before = self.target.lines()
        for name, line in self.before.items():
            assert not line.wrong, f"{self.target.name}: {name} is wrong before anything was done"

    def _copies(self) -> int:
        """Return how many processes have the target's command line, including its children."""
        own, count = Path(f"/proc/{self.target.pid}/cmdline").read_bytes(), 0
        for process in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                count += process.isdecimal() and Path(f"/proc/{process}/cmdline").read_bytes() == own
        return count

    def judge(self) -> Counter[str]:
        """Return the harm since the last call; slow effects (the kernel releases a dead tracer's target) are waited
        for."""
        found: Counter[str] = Counter()
        if not self.target.is_alive:
            return Counter({"dead": 1})
        found["traced or stopped"] += not self._becomes(lambda: self.target.is_free)
        found["stuck"] += not self._becomes(self._moved)
        found["copies left"] += not self._becomes(lambda: self._copies() <= self.copies)
        found["descriptors left"] += not self._becomes(lambda: self.target.descriptors() <= self.descriptors)
        found["files left"] += not self._becomes(lambda: not list(self.folder.iterdir()))
        found += self._by_table()
        self.harms += found
        return found

    def _becomes(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + self.patience
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def _moved(self) -> bool:
        """Return whether every kind of work was done at least once since the last call."""
        now = self.target.lines()
        return all(now[name].rounds > line.rounds for name, line in self.before.items())

    def _by_table(self) -> Counter[str]:
        now, found = self.target.lines(), Counter[str]()
        for name, line in self.before.items():
            wrong = now[name].wrong - line.wrong
            found["signals lost" if name in ("sigqueue", "kill") else f"wrong: {_what(name, now[name])}"] += wrong
            found[f"EINTR: {name}"] += now[name].interrupted - line.interrupted
        self.before = now
        return found


def _what(name: str, line: Line) -> str:
    """Return the details of a call with a time limit that went wrong."""
    return f"{name} (errno {line.error} after {line.lasted / 1e6:.1f} ms)" if line.lasted else name


def line_of(harms: Counter[str]) -> str:
    """Return the harm on one line, "none" if there is none."""
    found = [f"{count} x {what}" for what, count in sorted(harms.items()) if count > 0]
    return ", ".join(found) or "none"
