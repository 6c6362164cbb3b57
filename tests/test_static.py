"""Programs with glibc linked into them: main_arena is in the program itself, and all questions are answered as for
others."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import kernel, programs
from support.arena_cases import Case, Table, check_figures, check_states
from support.ledger_lines import check_families, line_of, roots, virtual_size
from support.programs import FORMS, KERNEL_CORE, Running, ask, running

pytestmark = pytest.mark.cases(6)

KINDS = {"static": ["-static"], "static-pie": ["-static-pie", "-fPIE"]}
CASE = Case(4, 30_000)
MODES = {"plain": 0, "foreign sbrk": 1, "blocked break": 2}


@pytest.fixture(scope="module", params=[f"{kind}{strip}" for kind in KINDS for strip in ("", ", stripped")])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return recorder.c with glibc in it."""
    compiler = shutil.which("gcc")
    if compiler is None or not Path(library(compiler)).is_absolute():
        pytest.skip("no gcc with a static glibc")
    kind, _, strip = request.param.partition(", ")
    executable: Path = tmp_path_factory.mktemp("static") / "recorder"
    command = [compiler, "-O1", "-pthread", *KINDS[kind], programs.SOURCES / "recorder.c", "-o", executable]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    if strip:
        subprocess.run(["strip", str(executable)], check=True)
    return executable


def library(compiler: str) -> str:
    """Return the path of the static C library; its name alone if there is none."""
    return subprocess.run([compiler, "-print-file-name=libc.a"], capture_output=True, text=True).stdout.strip()


def started(program: Path, rng: random.Random, directory: Path, threads: int, mode: int) -> Any:
    """Start recorder.c; its table is ``directory``/table."""
    arguments = (threads, rng.getrandbits(30), CASE.operations, CASE.slots, CASE.largest, mode, directory / "table")
    return running([str(program), *map(str, arguments)], directory)


@pytest.fixture
def recorder(program: Path, rng: random.Random, tmp_path: Path) -> Iterator[Running]:
    """Yield the program while it waits."""
    with started(program, rng, tmp_path, CASE.threads, 0) as target:
        yield target


@pytest.mark.parametrize("form", FORMS)
def test_arenas_and_states(form: str, recorder: Running, tmp_path: Path) -> None:
    """Check every figure against malloc_stats() and malloc_info(), and every pointer's state against the table."""
    if form != KERNEL_CORE:  # that ends the program; below, the core is requested only once
        check_figures(ask("arenas", recorder.as_form(form)), recorder)
    check_states(recorder.as_form(form), Table(tmp_path / "table"), CASE.threads)


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str, program: Path, rng: random.Random, tmp_path: Path) -> None:
    """Check each pointer's state against the table if others move the break, and if the arena grows without it."""
    with started(program, rng, tmp_path, 1, MODES[mode]) as target:
        check_figures(ask("arenas", str(target.pid)), target)
        check_states(str(target.pid), Table(tmp_path / "table"), 1)


def test_books(recorder: Running) -> None:
    """Check that the ledger adds up to the kernel's figures, that the heap is intact, and that the arena is in the
    program's own data."""
    answer, arenas = ask("", str(recorder.pid)), ask("arenas", str(recorder.pid))
    check_families(answer["ledger"])
    assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "swapped")) == kernel.rollup(recorder.pid)
    assert roots(answer["ledger"], "virtual") == virtual_size(recorder)
    assert (line_of(answer, "unexplained")["resident"] or 0) * 100 < answer["rss"]["bytes"]
    assert line_of(answer, "glibc.top")["virtual"] == sum(row["top"] for row in arenas["rows"])
    check = ask("check", str(recorder.pid))
    assert check["ok"] and check["warnings"] == [] and check["chunks"] > 0
    (main,) = [row["address"] for row in arenas["rows"] if row["index"] == 0]
    owner = ask("at", str(recorder.pid), hex(main))["mapping"]["whose"]
    assert owner == str(Path(f"/proc/{recorder.pid}/exe").readlink())


def test_holes(recorder: Running, tmp_path: Path) -> None:
    """Check that no hole covers a byte of a live pointer's block."""
    holes = ask("holes", str(recorder.pid), "--min=1")["rows"]
    assert holes
    ranges = [(hole["address"] - 16, hole["address"] - 16 + hole["size"]) for hole in holes]
    live = Table(tmp_path / "table").live
    # malloc_usable_size() includes 8 bytes of the next chunk's header, the place of its prev_size.
    marks = [(start, 1) for start, _ in ranges] + [(end, -1) for _, end in ranges]
    marks += [(pointer, 1) for pointer in live] + [(pointer + usable - 8, -1) for pointer, usable in live.items()]
    depth = 0
    for _, step in sorted(marks):
        depth += step
        assert depth <= 1
