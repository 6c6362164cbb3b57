"""Cores of several shapes of one process, and their figures."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import programs
from support.programs import ask

C_KINDS: dict[str, tuple[str, ...]] = {
    "stripped C": ("-s",),
    "static": ("-static",),
    "fixed address": ("-no-pie",),
    "static, fixed address, stripped": ("-static", "-no-pie", "-s"),
}
PYTHONS = ("stripped", "unstripped")
HOLDING = """
import json, random, signal, sys
rng = random.Random(sys.argv[1])
kept = [rng.choice((str(i) * 9, [i] * (i % 50), {i: str(i)}, float(i), bytes(i % 3000))) for i in range(20_000)]
del kept[:: rng.randrange(3, 9)]
signal.pause()
"""


def figures(target: str, python: bool) -> dict[str, Any]:
    """Return the exact blocks of the allocators and the interpreter, without any residency."""
    arenas = ask("arenas", target)
    keys = ("address", "system", "in_use", "free", "fast", "tcache", "top", "used_count", "free_count")
    found: dict[str, Any] = {
        "arenas": [{key: row[key] for key in keys} for row in arenas["rows"]],
        "mmapped": arenas["mmapped_chunks"],
        "sizes": ask("sizes", target, "--top=all")["rows"],
    }
    if python:
        pools = ask("pools", target)
        found["pools"] = {key: pools[key] for key in ("arenas", "free_pools", "rows")}
        objects = ask("pyobjects", target, "--top=all")
        found["objects"] = sorted((row["type"], row["count"], row["own"], row["buffers"]) for row in objects["rows"])
    return found


def compiled(kind: str, folder: Path) -> Path:
    """Return recorder.c, linked in this way."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    program = folder / "recorder"
    command = [compiler, "-O1", "-pthread", *C_KINDS[kind], str(programs.SOURCES / "recorder.c"), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a {kind} program cannot be linked here")
    return program


def holding(kind: str, rng: random.Random, folder: Path) -> list[str]:
    """Return the command of a program of this kind, which holds some thousand blocks and rests."""
    if kind in PYTHONS:
        return [programs.interpreter_of(kind), "-I", "-c", HOLDING, str(rng.random())]
    numbers = (3, rng.getrandbits(30), 3000, 200, 20_000, 0)
    return [str(compiled(kind, folder)), *map(str, numbers), str(folder / "table")]
