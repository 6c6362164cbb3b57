"""Running recordings of ``gdbheap record``."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gdbheap.sampling.sample import Sample, Series
from gdbheap.sampling.series import read
from support.programs import (
    GDBHEAP,
    PATIENCE,
)

ENOUGH = 3


class Recorder:
    """A running recording; ``path`` is its file."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self.process, self.path = process, path

    def series(self) -> Series:
        """Return the present contents of the file."""
        return read(str(self.path))

    def samples(self, first: int = 0) -> list[Sample]:
        """Return the samples from that one on."""
        return self.series().samples[first:] if self.path.exists() and self.path.stat().st_size else []

    def wait(self, is_enough: Callable[[list[Sample]], object], first: int = 0) -> list[Sample]:
        """Return the samples from ``first`` on as soon as they are enough."""
        deadline = time.monotonic() + PATIENCE
        while not is_enough(found := self.samples(first)):
            assert self.process.poll() is None, "the recorder has ended"
            assert time.monotonic() < deadline, "the samples that are waited for do not come"
            time.sleep(0.02)
        return found

    def during_rest(self, is_enough: Callable[[list[Sample]], object] = bool) -> list[Sample]:
        """Return samples that began after this call, while the program waits, until they are enough."""
        known = len(self.samples())
        # The first one of these may have begun before.
        return self.wait(lambda found: len(found) > ENOUGH and is_enough(found[1:]), known)[1:]


@contextmanager
def recording(directory: Path, *words: str, name: str = "series.jsonl") -> Iterator[Recorder]:
    """Yield a recorder of ``gdbheap record WORDS``; it is killed in the end if it still runs."""
    path = directory / name
    command = [str(GDBHEAP), "record", "-o", str(path), "--every=20ms", *words]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield Recorder(process, path)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def finish(recorder: Recorder, number: int = signal.SIGINT) -> tuple[int, str]:
    """End a recording with a signal; return its status and its standard error."""
    recorder.process.send_signal(number)
    _out, errors = recorder.process.communicate(timeout=PATIENCE)
    return recorder.process.returncode, errors.decode()
