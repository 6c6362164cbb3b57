"""Programs that use musl's malloc before 1.2.1."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.musls import BUILT, built

RELEASE = "1.1.24"


def program(flags: tuple[str, ...], threads: int, operations: int, rng: random.Random, folder: Path) -> list[str]:
    """Return the command that runs held_now.c; its table is ``folder``/table."""
    if RELEASE not in BUILT:
        pytest.skip(f"no musl {RELEASE} (scripts/musls.sh)")
    arguments = threads, rng.getrandbits(30), operations, folder / "table"
    return [built("held_now", RELEASE, *flags), *map(str, arguments)]
