"""Only gdbheap.files looks up files: in a thread that gdbheap abandons if there is no response.

So a file that another user has planted in a folder blocks no command.
"""

from __future__ import annotations

import ast
import gzip
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attackers import STRANGER, needs_root
from support.core_files import make_core, prstatus
from support.sources import ORDER, modules

from gdbheap.commands.shell import acting
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap
from gdbheap.loader import FOLDER
from gdbheap.snapshots.snapshot import time_of
from gdbheap.targets.core import Core

# Functions that take a name; an open file is examined by its number.
FUNCTIONS = {
    *("open", "bz2.open", "gzip.open", "io.open", "lzma.open", "shutil.copy", "shutil.copyfile", "tarfile.open"),
    *(
        f"os.{name}"
        for name in ("access", "listdir", "lstat", "open", "readlink", "scandir", "stat", "statvfs", "walk")
    ),
    *(f"os.path.{name}" for name in ("exists", "getmtime", "getsize", "isdir", "isfile", "islink", "ismount")),
    *(f"os.path.{name}" for name in ("lexists", "realpath", "samefile")),
}
METHODS = {
    *("exists", "glob", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "read_bytes", "read_text", "readlink"),
    *("resolve", "rglob", "samefile", "stat", "write_bytes", "write_text"),
}
# The kernel's own files, and texts that are no names.
OWN = ("'/proc/", "f'/proc/", "f'{PROC}/", "PROC)", "PID_NAMESPACE)", "BOOT_ID,", "PARANOID)", "os.devnull,", "2,")
NUMBERS = ("descriptor)", "number)", "os.dup(", "open_to_append(")
SEEKER = "files"
# Modules that look up files directly: how often, and which.
REVIEWED = {
    "answers/doctor.py": (2, "marks in our own root folder, /proc"),
    "api/comparing.py": (1, "the target that a program names: gdbheap.open"),
    "api/inside.py": (2, "interpreters that the program itself names, or was started by"),
    "commands/gdb/attachment.py": (2, "our own root folder, /proc"),
    "commands/gdb/inferior.py": (1, "a private folder of ours"),
    "commands/shell/completing.py": (2, "/proc"),
    "commands/shell/mcp/server.py": (1, "a page of our own package"),
    "commands/shell/installation.py": (13, "our own package; the home of root, else in a child that is left alone"),
    "environment.py": (2, "programs along our own PATH"),
    "export/exported.py": (1, "a folder that is open"),
    "export/table_export.py": (1, "a new folder of ours"),
    "export/stored.py": (1, "a private folder of ours"),
    "export/table_files.py": (2, "a new folder of ours"),
    "host/cgroup.py": (6, "control groups, without .."),
    "host/descriptors.py": (2, "/proc"),
    "host/headroom.py": (1, "/proc, control groups"),
    "host/kernel_pointers.py": (1, "/proc"),
    "host/sockets.py": (1, "/proc"),
    "host/tmpfs.py": (2, "/proc; a folder of a tmpfs that is held"),
    "layout/shipped_tables.py": (1, "our own package"),
    "loader/__init__.py": (1, "our own package"),
    "loader/start.py": (6, "our own package; a name in the current folder, and no link is followed"),
    "refusals/refusal.py": (2, "marks in our own root folder, /proc"),
    "report/formats/film.py": (1, "a new folder of ours"),
    "report/formats/plot.py": (1, "the current folder itself"),
    "report/page/skeleton.py": (3, "our own package"),
    "sampling/recording.py": (1, "/proc"),
    "targets/chosen_processes.py": (5, "control groups"),
    "targets/cores/unpacking.py": (1, "the folder for temporary files"),
    "targets/own_copy.py": (1, "/proc"),
    "targets/process.py": (1, "files of the kernel's that tell which machine this is"),
    "tracing/recorder_files.py": (3, "our own package; a private folder of ours, and no link is followed"),
    "tracing/replay.py": (2, "a library that was loaded and has run"),
    "tracing/replay_settings.py": (1, "libraries in the system's folders"),
    "tracing/replayer.py": (2, "our own package"),
    "tracing/traced_command.py": (4, "a private folder of ours, by its descriptor"),
    "watching/actions.py": (1, "a private folder of ours, by its descriptor"),
    "watching/core_contents.py": (1, "a private folder of ours, by its descriptor"),
    "watching/memory_readings.py": (4, "control groups, /proc"),
    "watching/wake_descriptors.py": (3, "control groups, /proc"),
}


def look_ups(path: Path) -> Iterator[str]:
    """Yield the calls of a module that look up a file by its name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or any(word.arg == "dir_fd" for word in node.keywords):
            continue
        name, text = ast.unparse(node.func), ast.unparse(node)
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
        follows = not any(word.arg == "follow_symlinks" for word in node.keywords)
        given = text[len(name) + 1 :]
        if name in FUNCTIONS and not given.startswith((*OWN, *NUMBERS)):
            yield text
        elif is_method and follows and name not in FUNCTIONS and not name.startswith(("python2.", "Path(f'{PROC}/")):
            yield text


def test_files_are_looked_up_in_one_place() -> None:
    """Check that every other module that looks up a file is in the list, with the reason why it cannot be blocked."""
    package, found = FOLDER.parent, {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        calls = list(look_ups(path))
        if not name.startswith(f"{SEEKER}/") and len(calls) != REVIEWED.get(name, (0, ""))[0]:
            found[name] = calls
    assert found == {}
    assert set(REVIEWED) <= {path.relative_to(package).as_posix() for path in package.rglob("*.py")}


# The parts that learn paths from a target and use FileSystems (gdbheap.host), which leaves out files on servers that
# may not respond. The others look up files by gdbheap.files, with the origin of their paths.
NAMING = ORDER[ORDER.index("host") : ORDER.index("tracing") + 1]
DOORS = {"find_file", "hold_file", "is_file", "is_folder", "open_regular", "regular_descriptor"}
USERS = {
    "host.file_systems": "the door itself",
    "sampling.series": "the user's series",
    "targets.core": "the user's core and folder",
    "targets.cores.debuginfod": "the client's cache of our user",
    "targets.functions": "files of symbols below /usr/lib/debug",
    "tracing.log": "the user's logs",
    "tracing.replay_settings": "libraries that the user names, or that are known",
    "tracing.traced_command": "the user's log",
}


def test_paths_of_targets_have_one_door() -> None:
    """Check that every module that looks up paths in another way is in the list, with the origin of its paths."""
    found = set()
    for name, path in modules().items():
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        if name.partition(".")[0] in NAMING and DOORS.intersection(map(ast.unparse, calls)):
            found.add(name)
    assert found == set(USERS)


@needs_root
def test_a_child_that_its_user_stops_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that root does not wait for a child with a user's rights, which this user may stop."""
    monkeypatch.setattr(acting, "SECONDS", 0.2)
    fork, children = os.fork, list[int]()

    def noted() -> int:
        children.append(fork())
        return children[-1]

    monkeypatch.setattr(os, "fork", noted)
    with pytest.raises(GdbheapError, match="was ended"):
        acting.as_user(STRANGER, lambda: os.kill(os.getpid(), signal.SIGSTOP) or "")
    with pytest.raises(ChildProcessError):
        os.waitpid(children[0], os.WNOHANG)


def test_a_child_that_cannot_be_killed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a child that waits in the kernel without end, and that another child's output is read completely."""
    monkeypatch.setattr(acting, "PARTING_SECONDS", 0.1)
    assert acting.apart("a look", lambda: "x" * 100_000) == "x" * 100_000
    monkeypatch.setattr(acting, "SECONDS", 0.1)
    pids: list[int] = []
    with monkeypatch.context() as deaf:
        deaf.setattr(os, "kill", lambda pid, number: pids.append(pid))
        with pytest.raises(GdbheapError, match="a look took longer"):
            acting.apart("a look", lambda: str(time.sleep(1000)))
    os.kill(pids[0], signal.SIGKILL)
    os.waitpid(pids[0], 0)


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_core_is_as_old_as_the_file_that_was_opened(is_packed: bool, tmp_path: Path) -> None:
    """Check that the age is that of the opened file, even if another file has its name by now."""
    path = make_core(tmp_path / "core", prstatus(7), [(0x10000, 4096, bytes(4096), 6)])
    if is_packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(path, (1.0, 1_234_567_890.0))
    heap = Heap(Core(str(path)))
    path.unlink()
    path.symlink_to(tmp_path)
    assert time_of(heap) == 1_234_567_890.0
