"""Builds of musl (the system's, and those of ``scripts/musls.sh``), and programs that use them."""

from __future__ import annotations

import functools
import os
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
_ALPINE = _FOLDER / "alpine"
SYSTEM = "the system's"
HERE, ALPINE = "here", "Alpine"
# Earlier releases of musl have another malloc.
FIRST_NG = (1, 2, 1)


def with_mallocng() -> list[str]:
    """Return the names of the builds whose malloc is mallocng; skip the test if there is none."""
    return [SYSTEM, *(name for name in BUILT if tuple(map(int, name.split("."))) >= FIRST_NG)]


def python(where: str) -> list[str]:
    """Return the command of a CPython that was built with musl: HERE, or in Alpine's root folder with Alpine's musl.
    Skip the test if there is none.
    """
    found = sorted(_FOLDER.glob("python/bin/python3.*[0-9]"))
    if programs.ROOT_FOLDER or not found:
        pytest.skip("no CPython built with musl (scripts/musls.sh python)")
    if where == HERE:
        return [str(found[0])]
    if not Path(f"{_ALPINE}{found[0]}").exists() or os.getuid():
        pytest.skip("no root folder of Alpine (scripts/musls.sh alpine ARCHIVE), or no right to chroot into it")
    return ["chroot", str(_ALPINE), str(found[0])]


@functools.cache
def built(name: str, release: str, *flags: str) -> str:
    """Return tests/programs/NAME.c, built with that release of musl; skip the test if there is none."""
    if programs.ROOT_FOLDER:
        pytest.skip("programs built here are not in the root folder")
    compiler = BUILT.get(release) or shutil.which("musl-gcc")
    if compiler is None:
        pytest.skip("no musl-gcc (Debian: apt install musl-tools)")
    program = Path(_programs.name) / "-".join([name, release.replace(" ", "-"), *flags])
    own = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run([compiler, *own, *flags, str(SOURCES / f"{name}.c"), "-o", str(program)], check=True)
    return str(program)
