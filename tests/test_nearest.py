"""Unknown words, for which the nearest known one is suggested, and command lines as people type them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.gdb_side import batch, home, needs_gdb
from support.programs import PATIENCE, c_program, gdbheap, running


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["hols", "1"], "'holes'"),
        (["owner", "1"], "'owners'"),
        (["owners", "1", "--tpo=3"], "'--top'"),
        (["owners", "1", "--jsn"], "'--json'"),
    ],
)
def test_nearest(line: list[str], meant: str) -> None:
    """Check that one line asks for the nearest word, with status 2."""
    done = gdbheap(*line)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1
    assert f"; did you mean {meant}?" in done.stderr


def test_nothing_is_near() -> None:
    """Check that no word is suggested, and that the line says where all are listed."""
    done = gdbheap("xyzzy", "1")
    assert done.returncode == 2 and "did you mean" not in done.stderr and "'gdbheap --help' lists all" in done.stderr
    assert "see 'gdbheap owners --help'" in gdbheap("owners", "1", "--xyzzy").stderr


def test_lines_as_people_type_them(tmp_path: Path) -> None:
    """Check the target before the noun, help as a word, -V, and the module."""
    with running(c_program("steps", 3, 0), tmp_path) as target:
        pid = str(target.pid)
        assert gdbheap(pid, "arenas").stdout == gdbheap("arenas", pid).stdout != ""
        assert gdbheap(pid, "chunks", "--top=2", "--json").returncode == 0
    assert gdbheap("help").stdout == gdbheap("--help").stdout != ""
    assert gdbheap("help", "owners").stdout == gdbheap("owners", "--help").stdout != ""
    assert gdbheap("-V").stdout == gdbheap("--version").stdout != ""
    module = [sys.executable, "-m", "gdbheap", "--version"]
    done = subprocess.run(module, cwd="/", capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == gdbheap("--version").stdout


def test_a_file_with_the_name_of_a_noun(tmp_path: Path) -> None:
    """Check that a file named like a noun is taken as a second target."""
    (tmp_path / "owners").write_bytes(b"no core")
    done = gdbheap(str(os.getpid()), "owners", cwd=tmp_path)
    assert done.returncode != 0 and "owners" in done.stderr


@needs_gdb
def test_gdb(tmp_path: Path) -> None:
    """Check that gdb asks for the nearest noun and option, too."""
    with running(c_program("steps", 3, 0), tmp_path) as target:
        done = batch(["-p", str(target.pid)], ["heap hols", "heap arenas --tpo=3"], home(tmp_path))
    said = done.stdout + done.stderr
    assert "did you mean 'holes'?" in said and "did you mean '--top'?" in said
