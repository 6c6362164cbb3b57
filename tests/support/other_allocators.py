"""Programs that run with other allocators."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from support import programs

FUNCTIONS = {"tcmalloc": "tc_malloc"}
by_name = pytest.mark.parametrize("name", FUNCTIONS)


def library(name: str) -> str:
    """Return a library that is recognised as an allocator of that name but is not walked."""
    if programs.ROOT_FOLDER:
        pytest.skip("files made here are not in the root folder")
    assert name in FUNCTIONS
    return str(programs.plain_malloc())


def compiled(*arguments: object, compiler: str = "gcc") -> str:
    """Run a compiler; return its output. Skip the test if there is no such compiler."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    done = subprocess.run([compiler, *map(str, arguments)], capture_output=True, text=True, timeout=programs.PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
