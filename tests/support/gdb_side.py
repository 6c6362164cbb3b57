"""gdb as a user starts it: a home with ``gdbheap install`` done, the literal command lines, and the output."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.programs import GDBHEAP, PATIENCE

GDB = shutil.which("gdb") or "gdb"
needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
Done = subprocess.CompletedProcess[str]


def home(directory: Path) -> dict[str, str]:
    """Return the environment of a user whose home is ``directory`` and who typed ``gdbheap install``."""
    directory.mkdir(exist_ok=True)
    environment = {**os.environ, "HOME": str(directory), "XDG_CONFIG_HOME": str(directory / ".config")}
    environment.pop("DEBUGINFOD_URLS", None)
    done = subprocess.run([str(GDBHEAP), "install"], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return environment


def gdb(arguments: Sequence[str], environment: dict[str, str], cwd: Path | str = "/") -> Done:
    """Run gdb to its end with these literal arguments."""
    return subprocess.run(
        [GDB, *arguments],
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def batch(target: Sequence[str], commands: Sequence[str], environment: dict[str, str], *early: str) -> Done:
    """Run ``gdb TARGET -batch EARLY -x gdbheap -ex COMMAND …``."""
    return gdb([*target, "-batch", *early, "-x", "gdbheap", *executed(commands)], environment)


def executed(commands: Sequence[str]) -> list[str]:
    """Return ``-ex COMMAND`` for each."""
    return [word for command in commands for word in ("-ex", command)]


def documents(done: Done) -> list[dict[str, Any]]:
    """Return the JSON documents on standard output, each on its line among gdb's own."""
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def own_lines(done: Done) -> list[str]:
    """Return the lines on standard error that gdbheap wrote."""
    return [line for line in done.stderr.splitlines() if line.startswith(("gdbheap", "heap"))]


def runs(pid: int) -> bool:
    """Return whether a process exists, has no tracer, and is neither stopped nor ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return fields["TracerPid"] == "0" and fields["State"][0] in "SR"


@contextlib.contextmanager
def compiled(source: str, directory: Path, *flags: str) -> Iterator[Path]:
    """Yield the program compiled from a C text."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    text = directory / "program.c"
    text.write_text(source)
    subprocess.run([compiler, "-O1", "-g", *flags, "-pthread", str(text), "-o", str(directory / "program")], check=True)
    yield directory / "program"
