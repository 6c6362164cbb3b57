"""Real programs under ``gdbheap trace``: the same result as alone, and lost blocks as LeakSanitizer reports them."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import traced
from support.programs import SOURCES, gdbheap

SUMMARY = re.compile(r"SUMMARY: LeakSanitizer: (\d+) byte\(s\) leaked in (\d+) allocation\(s\)")


def _check(run: traced.Run, folder: Path, *options: str) -> traced.Compared:
    found = traced.compare(run, folder / "run", *options)
    assert found.same and not found.lost, (found.alone, found.traced)
    return found


def test_git_clone(rng: random.Random, tmp_path: Path) -> None:
    """Check several processes and threads; the cloned repository is complete."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    assert _check(traced.git(8, rng.randrange(1 << 30)), tmp_path).processes >= 4


def test_sqlite(rng: random.Random, tmp_path: Path) -> None:
    """Check that sqlite's output is the same to the byte."""
    if shutil.which("sqlite3") is None:
        pytest.skip("no sqlite3")
    assert _check(traced.sqlite(10_000, rng.randrange(1 << 30)), tmp_path).calls > 10_000


def test_threads_of_cpp(rng: random.Random, tmp_path: Path) -> None:
    """Check every form of new and delete, in threads that come and go."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    assert _check(traced.cpp(rng.randrange(1 << 30)), tmp_path).calls > 1_000_000


@pytest.mark.parametrize("options", [[], ["--pymalloc"]], ids=["malloc", "pymalloc"])
def test_python_s_own_tests(options: list[str], tmp_path: Path) -> None:
    """Check that as many tests pass as alone, and that none fails."""
    python = traced.with_tests()
    if python is None:
        pytest.skip("no CPython with its own tests below ~/.pyenv")
    found = _check(traced.python_tests(python, "test_json test_re test_thread"), tmp_path, *options)
    assert bool(found.of_python) is bool(options)


def test_what_leak_sanitizer_finds(rng: random.Random, tmp_path: Path) -> None:
    """Check a program whose lost blocks are all that it has at its end: the log has as many blocks and bytes left."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    plain, checked = str(tmp_path / "plain"), str(tmp_path / "checked")
    source = str(SOURCES / "lost.c")
    subprocess.run(["gcc", "-O1", source, "-o", plain], check=True)
    if subprocess.run(["gcc", "-O1", "-fsanitize=leak", source, "-o", checked], capture_output=True).returncode:
        pytest.skip("no LeakSanitizer")
    for _ in range(3):
        seed = str(rng.randrange(1 << 60))
        said = subprocess.run([checked, seed], capture_output=True, text=True).stderr
        found = SUMMARY.search(said)
        if found is None:
            pytest.skip(f"LeakSanitizer cannot search for leaks here: {said[-200:]}")
        log = tmp_path / f"calls{seed}.log"
        assert gdbheap("trace", "-o", str(log), "--", plain, seed).returncode == 0
        left = json.loads(gdbheap("replay", str(log), "--json").stdout)
        assert (left["live_bytes"], left["live_blocks"]) == (int(found[1]), int(found[2]))
        assert left["live_blocks"] > 100
