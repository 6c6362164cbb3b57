"""Pointers that a process gave to epoll and to timers, however often."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.programs import PATIENCE

from gdbheap.errors import Unsupported
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.kernel_pointers import kernel_pointers
from gdbheap.host.procfs import ProcessFolder
from gdbheap.targets import cloning

WATCHED, COPIES = 300, 300
# The events' data are the numbers of the descriptors.
PROGRAM = """
import os, resource, select, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
watched, copies = map(int, sys.argv[1:])
first, second = select.epoll(), select.epoll()
reader, writer = os.pipe()
numbers = [os.dup(reader) for _ in range(watched)]
for number in numbers:
    first.register(number, select.EPOLLIN)
second.register(writer, select.EPOLLOUT)
kept = [os.dup(first.fileno()) for _ in range(copies)]
print(*numbers, writer, flush=True)
sys.stdin.read()
"""


def test_an_epoll_with_many_descriptors_is_read_once() -> None:
    """Check an epoll whose descriptors each have a table of all that it watches: it is read once."""
    command = [sys.executable, "-c", PROGRAM, str(WATCHED), str(COPIES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        numbers = [int(word) for word in process.stdout.readline().split()]
        found = kernel_pointers(str(process.pid))
        process.communicate(timeout=PATIENCE)
    assert sorted(one & 0xFFFFFFFF for one in found.epoll) == sorted(numbers) and found.is_whole


def test_paths_of_open_files_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a process with more open files than the limit is not copied."""
    folder = ProcessFolder(os.getpid())
    assert cloning._opened(folder)
    for name in ("LINK_BYTES", "MAX_DESCRIPTORS"):
        with monkeypatch.context() as changed:
            changed.setattr(cloning, name, 2)
            with pytest.raises(Unsupported, match="files open"):
                cloning.refuse(folder)


def test_deep_paths_are_compared_with_mount_points() -> None:
    """Check the comparison also with the root folder, and with a mount point that only begins alike."""
    systems = FileSystems()
    systems._read()
    systems._served = {"/home/u/served", "/a/" + "b/" * 2000 + "c"}
    systems._lengths = {len(point) for point in systems._served}
    for path in ("/home/u/served", "/home/u/served/x", "/a/" + "b/" * 2000 + "c/d"):
        assert not systems.is_reached(path)
    for path in ("/home/u/served-not", "/home/u", "/a/" + "b/" * 2000 + "cd", "/"):
        assert systems.is_reached(path)
    systems._served, systems._lengths = {""}, {0}
    assert not systems.is_reached("/anything")
