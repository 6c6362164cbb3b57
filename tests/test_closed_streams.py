"""Commands with closed standard streams: the answer is the same, and no file gets the number of a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import GDBHEAP, PATIENCE, c_program, plain_environment, running

TELL = """
import os, sys
streams = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
print("out", flush=True)
print("err", file=sys.stderr, flush=True)
open(sys.argv[1], "w").write(" ".join(streams))
"""


def redirected(redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose streams a shell has closed."""
    script = f'exec "$@" {redirection}'
    command = ["sh", "-c", script, "sh", str(GDBHEAP), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=plain_environment())


@pytest.mark.parametrize("redirection", ["2>&-", "<&- 2>&-"])
def test_an_answer_without_standard_error(redirection: str, tmp_path: Path) -> None:
    with running(c_program("idle"), tmp_path) as target:
        done = redirected(redirection, "arenas", str(target.pid), "--json", "--verbose")
        assert done.returncode == 0 and json.loads(done.stdout)["command"] == "heap arenas", done.stdout
        told, program = tmp_path / "told", tmp_path / "tell.py"
        program.write_text(TELL)
        act = f"--run={sys.executable} -S {program} {told}"
        done = redirected(redirection, "watch", str(target.pid), "--rss=1K", "--count=1", "--no-snapshot", act)
        assert done.returncode == 0, done.stdout
    assert told.read_text().split() == ["/dev/null"] * 3


def test_no_answer_without_standard_output(tmp_path: Path) -> None:
    with running(c_program("idle"), tmp_path) as target:
        done = redirected(">&-", "arenas", str(target.pid))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and "standard output is closed" in done.stderr
