"""Builds of musl: the system's, and those of ``scripts/musls.sh``; programs that are built with one."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from support import programs
from support.programs import SOURCES

_FOLDER = Path(__file__).parents[2] / "build" / "musls"
BUILT = {path.parents[1].name: str(path) for path in sorted(_FOLDER.glob("*/bin/musl-gcc"))}
_programs = tempfile.TemporaryDirectory(prefix="gdbheap-musl-")
SYSTEM = "the system's"
# Before it musl had another malloc.
FIRST_NG = (1, 2, 1)


def with_mallocng() -> list[str]:
    """Return the names of the builds whose malloc is mallocng: there is one of the system's at least, or tests are
    skipped."""
    return [SYSTEM, *(name for name in BUILT if tuple(map(int, name.split("."))) >= FIRST_NG)]


def python() -> str:
    """Return a CPython that was built with musl; skip the test where there is none."""
    found = sorted(_FOLDER.glob("python/bin/python3.*[0-9]"))
    if programs.ROOT_FOLDER or not found:
        pytest.skip("no CPython built with musl (scripts/musls.sh python)")
    return str(found[0])


@functools.cache
def built(name: str, release: str, *flags: str) -> str:
    """Return tests/programs/NAME.c, built with that musl; skip the test where there is none."""
    if programs.ROOT_FOLDER:
        pytest.skip("what is built here is not in the root folder")
    compiler = BUILT.get(release) or shutil.which("musl-gcc")
    if compiler is None:
        pytest.skip("no musl-gcc (Debian: apt install musl-tools)")
    program = Path(_programs.name) / "-".join([name, release.replace(" ", "-"), *flags])
    own = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run([compiler, *own, *flags, str(SOURCES / f"{name}.c"), "-o", str(program)], check=True)
    return str(program)
