"""Cores that systemd-coredump keeps, read through ``coredumpctl``, which finds and unpacks them.

``coredumpctl dump MATCH`` writes the last matching core to standard output (coredumpctl(1)), from its journal or a
file. The output becomes a file without a name (``unpacking``).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import IO

from gdbheap.environment import find_program
from gdbheap.errors import NoTarget, NotPermitted, UsageError, one_line
from gdbheap.targets.core import judge
from gdbheap.targets.cores.unpacking import PIECE, Progress, Unpacked, keep

TOOL = "coredumpctl"
SAID = 4 << 10


def title(match: str) -> str:
    """Return the name of a core from systemd in answers: the command ``coredumpctl dump MATCH``, which writes the
    core.
    """
    return f"{TOOL} dump {one_line(match, 200)}"


def dump(match: str, progress: Progress | None = None) -> Unpacked:
    """Return the last core that ``match`` selects, unpacked.

    Raises NotPermitted and UsageError. Raises NoTarget if there is no such core or no coredumpctl. Raises GdbheapError
    if there is no room for the core.
    """
    if not match or match.startswith("-") or "\0" in match:
        raise UsageError("--coredump: give a process id, or the name or path of a program")
    tool = find_program(TOOL)
    if tool is None:
        raise NoTarget(f"there is no {TOOL} here, which finds the cores that systemd keeps: give a core's path")
    command = [tool, "--quiet", "dump", match]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            return _kept(process, match, progress)
        except BaseException:
            process.kill()
            raise


def _kept(process: subprocess.Popen[bytes], match: str, progress: Progress | None) -> Unpacked:
    assert process.stdout is not None and process.stderr is not None
    first = process.stdout.read(PIECE)
    if not first:
        said = process.stderr.read(SAID).decode("utf-8", "replace")
        process.wait()
        raise _refusal(match, said)
    found = keep(_pieces(first, process.stdout, progress), title(match), TOOL, judge(title(match)))
    # The tool may write more than the core needs, so its output is closed.
    process.stdout.close()
    process.stderr.read(SAID)
    if process.wait() and found.cut is None:
        found.cut = f"{TOOL} ended with status {process.returncode}"
    return found


def _pieces(first: bytes, stream: IO[bytes], progress: Progress | None) -> Iterator[bytes]:
    done, piece = 0, first
    while piece:
        yield piece
        done += len(piece)
        if progress is not None:
            progress(done, 0)
        piece = stream.read(PIECE)


def _refusal(match: str, said: str) -> NoTarget | NotPermitted:
    """Return the error for a run of coredumpctl that wrote no core, with the last line of its messages."""
    lines = [line for line in said.splitlines() if line.strip()]
    cause = one_line(lines[-1], 300) if lines else "no message"
    kind = NotPermitted if "ermission denied" in said else NoTarget
    return kind(f"{TOOL} has no core of {one_line(match, 200)} ({cause}): {TOOL} list shows the stored cores")
