"""The processes that a command line selects: trees of real ones, whose children the kernel lists, and control
groups."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.busy import wait_for
from support.programs import PATIENCE

from gdbheap.errors import NoTarget, UsageError
from gdbheap.targets.chosen_processes import MEMBERS, Programs, members
from gdbheap.targets.running_processes import running
from gdbheap.targets.started_command import StartedProcess, signal_name

# A chain of processes, each the parent of the next; the last one reports that all exist.
CHAIN = """
import os, signal, sys
for left in range(int(sys.argv[1]), -1, -1):
    if os.fork():
        break
    if left == 0:
        print("ready", flush=True)
signal.pause()
"""


@contextmanager
def chain(length: int) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the first of ``length`` + 2 waiting processes, each the child of the one before."""
    process = subprocess.Popen([sys.executable, "-c", CHAIN, str(length)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    found = family(process.pid)
    try:
        yield process
    finally:
        process.stdout.close()
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        process.wait(PATIENCE)


def family(pid: int) -> list[int]:
    """Return a process and its descendants, as the kernel lists children."""
    text = Path(f"/proc/{pid}/task/{pid}/children")
    if not text.exists():
        pytest.skip("this kernel lists no children (CONFIG_PROC_CHILDREN)")
    return [pid, *(found for child in map(int, text.read_text().split()) for found in family(child))]


def test_descendants_stay_known(rng: random.Random) -> None:
    """Check that children of children are found, and that those below an ended one, now init's, are still selected."""
    length = rng.randrange(2, 5)
    with chain(length) as first:
        everybody = family(first.pid)
        assert len(everybody) == length + 2
        programs, alone = Programs([first.pid], children=True), Programs([first.pid])
        assert programs.now() == sorted(everybody) and alone.now() == [first.pid] and not alone.may_grow
        middle = everybody[rng.randrange(1, length + 1)]
        os.kill(middle, signal.SIGKILL)
        while (found := running(middle)) is not None:
            assert found.pid == middle
        assert programs.now() == sorted(set(everybody) - {middle})
        # A search that begins only now cannot know that they belonged together.
        assert Programs([first.pid], children=True).now() == sorted(everybody[: everybody.index(middle)])


def test_names(tmp_path: Path, rng: random.Random) -> None:
    """Check the kernel's name, of 15 bytes, and the longer one of the file; gdbheap itself is never selected."""
    name = f"sleeper{rng.randrange(1 << 30)}-with-a-long-name"
    program = shutil.copy(shutil.which("sleep") or pytest.skip("no sleep"), tmp_path / name)
    with subprocess.Popen([program, "1000"]) as process:
        try:
            for pattern in (name, f"^{name[:15]}$", "long-name$"):
                assert process.pid in Programs(name=re.compile(pattern)).now()
            assert Programs(name=re.compile(name)).now() == [process.pid]
            assert os.getpid() not in Programs(name=re.compile("")).now()
        finally:
            process.kill()


def test_control_group(rng: random.Random) -> None:
    """Check the members of a group and of one below it, by the path of its folder and by the kernel's name."""
    roots = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup/unified")]
    root = next((root for root in roots if (root / MEMBERS).exists() and os.access(root, os.W_OK)), None)
    if root is None or os.geteuid():
        pytest.skip("no hierarchy of control groups that can be written to")
    name = f"gdbheap-test-{rng.randrange(1 << 30)}"
    inner = root / name / "inner"
    try:
        inner.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    with subprocess.Popen(["sleep", "1000"]) as outer_one, subprocess.Popen(["sleep", "1000"]) as inner_one:
        try:
            (root / name / MEMBERS).write_text(str(outer_one.pid))
            (inner / MEMBERS).write_text(str(inner_one.pid))
            both = sorted([outer_one.pid, inner_one.pid])
            assert Programs(cgroup=str(root / name)).now() == Programs(cgroup=f"/{name}").now() == both
            assert Programs(cgroup=f"{name}/inner/").now() == [inner_one.pid]
        finally:
            outer_one.kill()
            inner_one.kill()
            outer_one.wait(PATIENCE)
            inner_one.wait(PATIENCE)
            inner.rmdir()
            (root / name).rmdir()
    with pytest.raises(NoTarget, match=name):
        Programs(cgroup=name)


def test_started_command() -> None:
    """Check a started command: its process is selected, its status is as in a shell, and one that was not waited for
    no longer counts."""
    programs = Programs(command=["sh", "-c", "read line; exit 7"])
    assert programs.are_named and programs.now() == []
    read, write = os.pipe()
    kept = os.dup(0)
    os.dup2(read, 0)
    try:
        started = programs.start()
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(read)
    assert programs.now() == [started.pid] and started.status() is None and started.wait(0.01) is None
    os.close(write)
    # Its memory is gone a moment before it is a zombie.
    wait_for(lambda: programs.now() == [], "it has not ended")
    assert started.wait() == started.status() == 7
    assert (
        signal_name(StartedProcess(["sh", "-c", "kill -TERM $$"]).wait() or 0) == "SIGTERM" and signal_name(7) is None
    )
    for command in (["/nowhere/at-all"], ["a\0b"], ["/"]):
        with pytest.raises(UsageError, match="cannot be started"):
            StartedProcess(command)


def test_groups_are_nested_deeper_than_calls(tmp_path: Path, rng: random.Random) -> None:
    """Check groups that a user nests very deep: each has its processes."""
    places, wanted = [tmp_path], []
    try:
        for _ in range(sys.getrecursionlimit() + rng.randrange(100, 300)):
            places.append(places[-1] / "a")
            places[-1].mkdir()
            numbers = [rng.randrange(1, 1 << 22) for _ in range(rng.choice([0, 0, 0, 2]))]
            (places[-1] / MEMBERS).write_text("".join(f"{number}\n" for number in numbers))
            wanted += numbers
        assert sorted(members(tmp_path)) == sorted(wanted)
    finally:
        # Python's own function that removes folders is recursive, too.
        for place in reversed(places[1:]):
            (place / MEMBERS).unlink(missing_ok=True)
            place.rmdir()
