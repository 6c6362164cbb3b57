"""C++ objects in a stripped program, by the names of their classes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.library import heap_of
from support.programs import PROCESS, SOURCES, running

from gdbheap.answers.accounting.describing import describe_blocks

FORMS = (PROCESS, "gcore")


@pytest.mark.parametrize("form", FORMS)
def test_each_object_by_its_class(form: str, tmp_path: Path) -> None:
    """Check the objects against the program's own output."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    executable = tmp_path / "classes"
    subprocess.run([compiler, "-O1", "-s", str(SOURCES / "classes.cc"), "-o", str(executable)], check=True)
    with running([str(executable)], tmp_path) as target:
        truth = {int(at, 16): name for name, at in map(str.split, target.stderr.splitlines())}
        with heap_of(target.as_form(form)) as heap:
            found = describe_blocks(heap, [(at, 80) for at in truth])
    assert len(truth) == 40
    told = {at: str(what) for at, what in found.items()}
    assert told == {at: f"C++ object of class {name}" for at, name in truth.items()}
