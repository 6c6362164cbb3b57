"""jemalloc, tcmalloc and mimalloc linked into a stripped program, dynamic or static: without any names, every block
is as in the program's own table."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import programs
from support.library import heap_of
from support.programs import KERNEL_CORE, running
from support.tables import held
from test_jemalloc_library import OF_A_THREAD, check_held
from test_mimalloc_library import check_blocks
from test_tcmalloc_library import BESIDE
from test_tcmalloc_library import check_held as check_spans

from gdbheap.heap import Heap

SOURCES = sorted(
    (Path(__file__).parents[1] / "build" / "mimallocs").glob("*/libmimalloc-sys/c_src/mimalloc*/**/static.c")
)
THREADS = 2
FORMS = {"dynamic": (), "static": ("-static",)}
Check = Callable[[Heap, list[tuple[int, int, int]]], int]
CHECKS: dict[str, Check] = {"jemalloc": check_held, "tcmalloc": check_spans, "mimalloc": check_blocks}
# A static library, its dependencies, and the package that has it.
LIBRARIES = {
    "jemalloc": ("libjemalloc.a", ["-lm", "-lstdc++"], "libjemalloc-dev"),
    "tcmalloc": ("libtcmalloc_minimal.a", ["-lstdc++", "-lm"], "libgoogle-perftools-dev"),
}


def objects(name: str) -> list[str]:
    """Return the objects to link with; skip the test if they are not here."""
    if programs.ROOT_FOLDER or not shutil.which("gcc"):
        pytest.skip("programs built here are not in the root folder" if programs.ROOT_FOLDER else "no gcc")
    if name in LIBRARIES:
        file, beside, package = LIBRARIES[name]
        done = subprocess.run(["gcc", f"-print-file-name={file}"], capture_output=True, text=True, check=True)
        if not Path(done.stdout.strip()).is_absolute():
            pytest.skip(f"no {file} (Debian: apt install {package})")
        return [done.stdout.strip(), *beside]
    if not SOURCES:
        pytest.skip("no sources of mimalloc (scripts/mimallocs.sh)")
    newest = SOURCES[-1]
    return ["-w", "-DNDEBUG", "-DMI_MALLOC_OVERRIDE", f"-I{newest.parents[1] / 'include'}", str(newest)]


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
