"""Unknown values are not shown as zero, programs have one name everywhere, and entries left out of a list are
counted."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import c_program, gdbheap
from support.watches import watching

from gdbheap.report.text.style import style_for
from gdbheap.report.words.top import render
from gdbheap.sampling.current_totals import CurrentTable, StandingSum
from gdbheap.sampling.sample import ArenaSample, MallocSample, MmappedSample
from gdbheap.sampling.sampled_process import _used
from gdbheap.targets import chosen_processes
from gdbheap.targets.chosen_processes import Programs


def test_a_malloc_that_is_not_used() -> None:
    """Check that a program with jemalloc shows jemalloc's use as unknown, and not that of glibc's malloc, which it
    has too and which is empty."""
    idle = MallocSample([ArenaSample(1, 0, 0)], MmappedSample(0, 0, 0))
    assert _used(idle) is None
    for used in (MallocSample([ArenaSample(1, 1, 1)]), MallocSample([ArenaSample(1, 0, 0)], MmappedSample(1, 7, 7))):
        assert _used(used) is used


def test_one_name(tmp_path: Path, rng: random.Random) -> None:
    """Check that a script has its own name, not its interpreter's, in top, in a watch, and in the picture of a
    recording, also in a file that a rotation began."""
    script = tmp_path / f"worker{rng.randrange(1 << 30)}.py"
    script.write_text("import signal; print('ready', flush=True); signal.pause()")
    with subprocess.Popen([sys.executable, "-I", str(script)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        with watching(str(process.pid), "--rss=1T", f"--output={tmp_path}") as watch:
            names = {watch.event("began")["name"]}
        (row,) = json.loads(gdbheap("top", str(process.pid), "--count=1", "--json").stdout)["rows"]
        names.add(row["program"])
        series = str(tmp_path / "series.csv")
        assert gdbheap("record", str(process.pid), "--duration=3s", "--rotate=1", "-o", series).returncode == 0
        for file in (series, *map(str, tmp_path.glob("series.*.gz"))):
            drawn = json.loads(gdbheap("plot", file, "-o", str(tmp_path / "picture.svg"), "--json").stdout)
            names |= {row["program"] for row in drawn.get("rows", [])}
        process.kill()
    assert names == {script.name}


def test_how_many_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that of one user's processes the largest are taken, and that the others are counted."""
    most = rng.randrange(2, 5)
    monkeypatch.setattr(chosen_processes, "MAX_OWNED", most)
    program = shutil.copy(c_program("idle")[0], tmp_path / "idle")
    others = [subprocess.Popen([program], stdin=subprocess.PIPE) for _ in range(most)]
    programs = Programs(owner=os.geteuid())
    assert len(programs.now()) <= most and programs.smaller > 0
    for process in others:
        process.kill()
        process.communicate()
    text = render(CurrentTable(0.0, [], StandingSum(100, 1, 0, 0), smaller=212), 0, style_for(None, False, None))
    assert "100 largest of your 312 processes" in text
