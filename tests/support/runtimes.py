"""Programs of other runtimes, and what gdbheap says of them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from support import kernel
from support.programs import c_program


def needed(name: str) -> str:
    """Return a program of that name; skip the test if there is none."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/go/bin")
    if found is None:
        pytest.skip(f"no {name} on the path")
    return found


@contextmanager
def held(
    command: list[str], is_ready: Callable[[int], bool], environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[int]:
    """Yield the process id of a command once it is ready and its memory does not grow; it is ended by closing its
    input, or killed."""
    with tempfile.TemporaryDirectory() as folder:
        # Not by `env`, whose exec has no readable memory for a moment.
        around = {**os.environ, **environment}
        process = subprocess.Popen(command, cwd=folder, env=around, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            before = -1
            deadline = time.monotonic() + 120
            while True:
                assert process.poll() is None and time.monotonic() < deadline
                now = kernel.rollup(process.pid)[0]
                if now == before and is_ready(process.pid):
                    break
                before = now
                time.sleep(0.5)
            yield process.pid
        finally:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


def renamed(name: str, rng: random.Random, folder: Path) -> list[str]:
    """Return a command that maps 48 MiB itself, of a program with that name."""
    program, *arguments = c_program("faults", rng.getrandbits(30), "mapped", folder / "none")
    shutil.copy(program, folder / name)
    return [str(folder / name), *arguments]
