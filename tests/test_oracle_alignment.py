"""``heap pools`` for size classes 8 and 16 bytes apart, in pools of both sizes, against a program's own counts.

CPython up to 3.5, and early micro releases of 2.7, 3.6 and 3.7, have 64 size classes.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.pool_figures import answered
from support.programs import FORMS, ask, build, running


def table(path: Path) -> dict[str, Any]:
    """Return the output of pymalloc.c: classes {size: (pools, used, free)}, arenas, free_pools."""
    rows = [line.split() for line in path.read_text().splitlines()]
    classes = {int(row[0]): tuple(map(int, row[1:])) for row in rows if len(row) == 4}
    return {"classes": classes, **{row[0]: int(row[1]) for row in rows if len(row) == 2}}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("alignment", "pool"), [(8, 4096), (16, 4096), (16, 16384)])
def test_size_classes(alignment: int, pool: int, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every class's pools, used and free blocks, and arenas of 64 pools."""
    path = tmp_path / "table"
    # A program with an interpreter is recognised by its name.
    program = shutil.copy(build("pymalloc"), tmp_path / "python")
    arguments = (alignment, pool, rng.getrandbits(31), rng.randrange(3000, 60_000), path)
    with running([str(program), *map(str, arguments)], tmp_path) as target:
        answer = ask("pools", target.as_form(form))
    assert answer["damage"] == []
    assert answered(answer) == {"arena_size": 64 * pool, "pool_size": pool, **table(path)}
    assert len(answer["rows"]) > 256 // alignment
