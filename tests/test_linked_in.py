"""jemalloc, tcmalloc and mimalloc linked into a stripped program, dynamic or static: without any names, every block
is as in the program's own table."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import programs
from support.jemallocs import OF_A_THREAD, check_held
from support.library import heap_of
from support.linked_in import objects
from support.mimallocs import check_blocks
from support.programs import KERNEL_CORE, running
from support.tables import held
from support.tcmallocs import BESIDE
from support.tcmallocs import check_held as check_spans

from gdbheap.heap import Heap

THREADS = 2
FORMS = {"dynamic": (), "static": ("-static",)}
Check = Callable[[Heap, list[tuple[int, int, int]]], int]
CHECKS: dict[str, Check] = {"jemalloc": check_held, "tcmalloc": check_spans, "mimalloc": check_blocks}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHECKS)
def test_stripped(name: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check live and in a core that each held block is in use and has the right size, and that few others are."""
    program, linked = tmp_path / "linked", objects(name)
    own = ["gcc", "-O2", "-s", "-pthread", *FORMS[form], str(programs.SOURCES / "held_now.c")]
    subprocess.run([*own, *linked, "-o", str(program)], check=True, capture_output=True)
    check = CHECKS[name]
    # With one thread the program calls dlsym(), for which a static C library makes its own blocks.
    command = [str(program), str(THREADS), str(rng.getrandbits(30)), "20000", str(tmp_path / "table")]
    with running(command, tmp_path) as target:
        _visited, rows = held(tmp_path)
        assert len(rows) > 500
        with heap_of(str(target.pid)) as heap:
            used = check(heap, rows)
            assert not heap.warnings, heap.warnings
        core = target.as_form(KERNEL_CORE)
    with heap_of(core) as heap:
        assert check(heap, rows) == used
    beside = BESIDE if name == "tcmalloc" else 0
    assert len(rows) <= used <= len(rows) + beside + OF_A_THREAD * THREADS
