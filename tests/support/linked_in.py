"""Programs into which an allocator is linked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support import programs

SOURCES = sorted(
    (Path(__file__).parents[2] / "build" / "mimallocs").glob("*/libmimalloc-sys/c_src/mimalloc*/**/static.c")
)
# A static library, its dependencies, and the package that has it.
LIBRARIES = {
    "jemalloc": ("libjemalloc.a", ["-lm", "-lstdc++"], "libjemalloc-dev"),
    "tcmalloc": ("libtcmalloc_minimal.a", ["-lstdc++", "-lm"], "libgoogle-perftools-dev"),
}


def objects(name: str) -> list[str]:
    """Return the objects to link with; skip the test if they are not here."""
    if programs.ROOT_FOLDER or not shutil.which("gcc"):
        pytest.skip("programs built here are not in the root folder" if programs.ROOT_FOLDER else "no gcc")
    if name in LIBRARIES:
        file, beside, package = LIBRARIES[name]
        done = subprocess.run(["gcc", f"-print-file-name={file}"], capture_output=True, text=True, check=True)
        if not Path(done.stdout.strip()).is_absolute():
            pytest.skip(f"no {file} (Debian: apt install {package})")
        return [done.stdout.strip(), *beside]
    if not SOURCES:
        pytest.skip("no sources of mimalloc (scripts/mimallocs.sh)")
    newest = SOURCES[-1]
    return ["-w", "-DNDEBUG", "-DMI_MALLOC_OVERRIDE", f"-I{newest.parents[1] / 'include'}", str(newest)]
