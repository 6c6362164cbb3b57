"""Read the table that held_now.c writes."""

from __future__ import annotations

import contextlib
import random
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from support import programs
from support.suites import flags_for


def program(threads: int, operations: int, rng: random.Random, folder: Path, library: str = "") -> list[str]:
    """Return the command that runs held_now.c, which writes its table to ``folder``/table. ``library``: the preloaded
    library.
    """
    built = programs.build("held_now", *flags_for(library))
    return [str(built), *map(str, (threads, rng.getrandbits(30), operations, folder / "table"))]


def held(folder: Path) -> tuple[int, list[tuple[int, int, int]]]:
    """Return mi_heap_visit_blocks()'s count (0 if it is not called), and (pointer, usable, requested) of the blocks in
    use.
    """
    raw = (folder / "table").read_bytes()
    return int(struct.unpack_from("<Q", raw)[0]), [row for row in struct.iter_unpack("<QQQ", raw[16:]) if row[0]]


def is_filled(folder: Path) -> bool:
    """Return whether some hundred blocks are in use."""
    table = folder / "table"
    return table.exists() and table.stat().st_size > 16 and len(held(folder)[1]) > 500


@contextlib.contextmanager
def busy(
    command: list[str],
    folder: Path,
    environment: dict[str, str],
    is_ready: Callable[[Path], bool] = is_filled,
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a program that never rests, once ``is_ready`` is true of its folder. It is ended in any case."""
    environment = {**programs.plain_environment(), **environment}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, preexec_fn=programs.allow_cores
    )
    deadline = time.monotonic() + programs.PATIENCE
    try:
        while not is_ready(folder):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait(programs.PATIENCE)
