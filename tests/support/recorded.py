"""Programs that run with the recorder, and their logs; replays that wait."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from gdbheap.tracing.recorder_files import ENVIRONMENT, recorder_library
from support.programs import GDBHEAP, PATIENCE, Running, plain_environment, running

WAITS = re.compile(r"after call ([\d,]+) of ([\d,]+), process (\d+) waits")


def recorder_environment(folder: Path, preload: str = "") -> dict[str, str]:
    """Return the variables with which a program records its calls in the folder; `preload`: more libraries, after
    the recorder."""
    return {"LD_PRELOAD": ":".join(filter(None, (recorder_library(), preload))), ENVIRONMENT: str(folder)}


@contextlib.contextmanager
def recorded(command: list[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[Running]:
    """Yield a waiting program. `log` has its calls once `finished` was called."""
    parts = Path(f"{log}.parts")
    parts.mkdir(0o700)
    with running(command, log.parent, {**recorder_environment(parts), **(environment or {})}) as target:
        yield target


def finished(target: Running, log: Path) -> Path:
    """Kill the program, and return its log."""
    target.process.kill()
    target.process.wait(PATIENCE)
    command = [str(GDBHEAP), "trace", "--finish", "-o", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert not done.stderr, done.stderr
    return log


@contextlib.contextmanager
def waiting(log: Path, call: str, *options: str) -> Iterator[tuple[int, int]]:
    """Yield the process of a replay that waits after this call, and how many calls it has made."""
    command = [str(GDBHEAP), "replay", str(log), f"--stop-at={call}", *options]
    replay = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=plain_environment(),
    )  # fmt: skip
    try:
        assert replay.stderr is not None
        line = replay.stderr.readline()
        found = WAITS.search(line)
        assert found is not None, line
        yield int(found[3]), int(found[1].replace(",", ""))
        replay.send_signal(signal.SIGINT)
        shown, rest = replay.communicate(timeout=PATIENCE)
        assert (replay.returncode, rest) == (0, ""), shown
    finally:
        replay.kill()
        replay.communicate()
