"""``heap check`` of jemalloc and tcmalloc in a stripped program, where no function names show whether a thread is
inside them: a fault is reported although a thread runs, and the half-done work of a busy thread is not."""

from __future__ import annotations

import random
import struct
import subprocess
import time
from pathlib import Path

import pytest
from support import programs
from support.linked_in import LIBRARIES, objects
from support.programs import ask
from support.tables import busy


def linked(name: str, source: str, folder: Path) -> Path:
    """Return a stripped program with the allocator linked in."""
    program, others = folder / "linked", objects(name)
    own = ["gcc", "-O2", "-s", "-pthread", str(programs.SOURCES / f"{source}.c")]
    subprocess.run([*own, *others, "-o", str(program)], check=True, capture_output=True)
    return program


@pytest.mark.parametrize("name", LIBRARIES)
def test_running(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a block that was freed twice, in a program whose only thread runs its own code."""
    file = tmp_path / "block"
    command = [str(linked(name, "freed_twice", tmp_path)), str(rng.getrandbits(30)), "twice", str(file), "spins"]
    with busy(command, tmp_path, {}, lambda folder: file.exists() and file.stat().st_size == 8) as process:
        (block,) = struct.unpack("<Q", file.read_bytes())
        answer = ask("check", str(process.pid), status=1)
    assert not answer["ok"] and block in [row["address"] for row in answer["damage"]], answer["damage"]
    assert not any("caught inside" in row["what"] for row in answer["damage"])


@pytest.mark.parametrize("name", LIBRARIES)
def test_at_work(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that busy threads, stopped at any moment, cause no report of damage."""
    program = linked(name, "held_now", tmp_path)
    command = [str(program), "4", str(rng.getrandbits(30)), "0", str(tmp_path / "table")]
    with busy(command, tmp_path, {}) as process:
        for _ in range(8):
            time.sleep(rng.uniform(0.01, 0.05))
            answer = ask("check", str(process.pid))
            assert answer["ok"] and all("caught inside" in row["what"] for row in answer["damage"]), answer["damage"]
