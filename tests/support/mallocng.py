"""Programs that use musl's malloc since 1.2.1."""

from __future__ import annotations

import random
from pathlib import Path

from support.musls import built, with_mallocng

STATIC = ("-static", "-s")
# A build, and the way a program is linked with it.
BUILDS = [(name, flags) for name in with_mallocng() for flags in ((), STATIC)]


def program(
    release: str, flags: tuple[str, ...], threads: int, operations: int, rng: random.Random, folder: Path
) -> list[str]:
    """Return the command that runs held_now.c; its table is ``folder``/table."""
    arguments = threads, rng.getrandbits(30), operations, folder / "table"
    return [built("held_now", release, *flags), *map(str, arguments)]
