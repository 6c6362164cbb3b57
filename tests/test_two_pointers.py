"""A variable of C or C++ with two pointers into its memory has a row, although no single block retains this memory."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from support.programs import GCORE, PROCESS, SOURCES, ask, gdbheap, running

from gdbheap.graph.roots import GLOBAL, THREAD


def built(folder: Path, *flags: str) -> Path:
    """Return the program with such variables, compiled; skip the test without a compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    executable = folder / "two_pointers"
    command = [compiler, "-std=c++14", "-O1", *flags, str(SOURCES / "two_pointers.cc"), "-o", str(executable)]
    subprocess.run(command, check=True)
    return executable


def test_rows_of_variables(rng: random.Random, tmp_path: Path) -> None:
    """Check the rows of retained and owners, and the answers about a name, against malloc's own count of each
    variable."""
    command = [str(built(tmp_path)), str(rng.randrange(4000, 9000))]
    with running(command, tmp_path) as target:
        told = {name: int(size) for name, size in map(str.split, target.stderr.splitlines())}
        assert len(told) == 4, told
        subject = target.as_form(rng.choice((PROCESS, GCORE)))
        rows, owned = ask("retained", subject)["rows"], ask("owners", subject)["rows"]
        for name, size in told.items():
            # malloc's count of a block has its header, as gdbheap's has; stdio's buffer is in the first one.
            expected = pytest.approx(size, rel=0.01)
            kind = THREAD if name == "trace" else GLOBAL
            (row,) = [row for row in rows if name in (row["chain"] or "") and row["type"] == kind]
            assert (row["retained"], row["address"], row["at_most"]) == (expected, None, None), row
            (share,) = [row for row in owned if name in row["path"]]
            assert share["bytes"] == expected
            freed = ask("retained", subject, share["path"])
            assert sum(each["retained"] for each in freed["rows"]) == expected and name in freed["named_variable"], (
                freed
            )
        most = max(told, key=lambda name: told[name])
        assert most in rows[0]["chain"]
        held = ask("why", subject, "jobs")
        assert "jobs" in held["named_variable"] and held["variable_bytes"] == pytest.approx(told["jobs"], rel=0.01)
        text = gdbheap("retained", str(target.pid), "prices").stdout
    assert text.startswith("If nothing were left in 'prices' in two_pointers")


def test_without_symbols(rng: random.Random, tmp_path: Path) -> None:
    """Check that in a stripped program, too, each large holder of owners has a row in retained."""
    command = [str(built(tmp_path, "-s")), str(rng.randrange(4000, 9000))]
    with running(command, tmp_path) as target:
        rows, owned = ask("retained", str(target.pid))["rows"], ask("owners", str(target.pid))["rows"]
        large = [row for row in owned if row["bytes"] >= 256 << 10]
        for place in (row["path"].partition(":")[0] for row in large if row["path"].startswith(".bss")):
            # The name of one variable may begin with that of another one.
            found = {ask("why", str(target.pid), name)["address"] for name in (place, place.partition(" in ")[0])}
            assert len(found) == 1, place
    assert len(large) >= 4
    for share in large:
        most = max(
            row["at_most"] or row["retained"] for row in rows if share["path"].partition(":")[0] in (row["chain"] or "")
        )
        assert most == pytest.approx(share["bytes"], rel=0.05), share
