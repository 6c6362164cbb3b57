"""A compiled program with symbols of each kind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = """
#include <stdio.h>
#include <unistd.h>
long in_data[3] = {1, 2, 3};
static long local_data = 4;
long in_bss[100000];
static __thread long thread_local = 5;
long function(void) { return thread_local + local_data; }
int main(void) {
    in_bss[99999] = function();
    fprintf(stderr, "%p %p %p %p", (void *) in_data, (void *) in_bss, (void *) function, (void *) &local_data);
    fflush(stderr);
    pause();
    return 0;
}
"""


def compile_program(folder: Path, *flags: str) -> Path:
    """Build SOURCE in ``folder``."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "program.c").write_text(SOURCE)
    command = [compiler, "-g", "-O0", *flags, str(folder / "program.c"), "-o", str(folder / "program")]
    subprocess.run(command, check=True)
    return folder / "program"
