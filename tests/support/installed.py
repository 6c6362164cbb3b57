"""Packages of other projects for the tests, in the environment that scripts/packages.sh makes."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parent.parent.parent / "build" / "packages" / "bin" / "python"
_ASK = "import importlib.util as u, sys; print(*(name for name in sys.argv[1:] if u.find_spec(name) is None))"


@functools.cache
def python_with(*modules: str) -> str:
    """Return a Python that can import these modules; skip the test if there is none."""
    if not PYTHON.exists():
        pytest.skip("no build/packages: scripts/packages.sh few makes it, with a package registry in reach")
    done = subprocess.run([str(PYTHON), "-c", _ASK, *modules], capture_output=True, text=True, check=True)
    if missing := done.stdout.split():
        pytest.skip(f"not in build/packages: {', '.join(missing)} (scripts/packages.sh many installs all)")
    return str(PYTHON)


def pythons_with_polars() -> list[str]:
    """Return the Pythons in POLARS_PYTHONS (paths separated by colons), or the one of build/packages. Skip the test if
    none can import polars.
    """
    named = [path for path in os.environ.get("POLARS_PYTHONS", "").split(":") if path]
    return named or [python_with("polars")]


@functools.cache
def python_with_torch() -> str:
    """Return a Python that can import torch: TORCH_PYTHON, one of build/packages, or the system's. Skip the test if
    there is none.

    scripts/packages.sh does not install torch, because it takes gigabytes.
    """
    for python in (os.environ.get("TORCH_PYTHON"), str(PYTHON), "/usr/bin/python3"):
        if python and os.path.exists(python):
            done = subprocess.run([python, "-c", _ASK, "torch"], capture_output=True, text=True)
            if done.returncode == 0 and not done.stdout.split():
                return python
    pytest.skip("no Python with torch: TORCH_PYTHON names one, and Debian has python3-torch")
