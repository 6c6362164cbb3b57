"""Attaching to a process after its symbols were read, so that the stop is shorter."""

from __future__ import annotations

import contextlib
import errno
import os

import gdb

from gdbheap.commands.gdb.inferior import program, word_of
from gdbheap.host import procfs
from gdbheap.host.file_systems import FileSystems
from gdbheap.refusals import refusal
from gdbheap.targets.mappings import parse_maps

__all__ = ["attach"]


def attach(pid: int) -> None:
    """Attach to a process with the symbols of its program, libpython and libc read before it is stopped.

    Raises GdbheapError that explains a refusal."""
    folder = refusal.open_folder(pid)
    refusal.check(folder)
    spare: list[int | None] = []
    if _is_at_home(folder):
        _read_program(folder)
        spare = [_spare_inferior(path) for path in _libraries(folder)]
    try:
        gdb.execute(f"attach {pid}")
    except gdb.error as error:
        explained = refusal.explain(folder, PermissionError(errno.EPERM, str(error)))
        raise explained from None
    finally:
        for number in filter(None, spare):
            with contextlib.suppress(gdb.error):
                gdb.execute(f"remove-inferiors {number}", to_string=True)
    if not folder.is_there():
        # gdb takes a number: it was another process's by then.
        gdb.execute("detach", to_string=True)
        raise refusal.another(folder)


def _is_at_home(folder: procfs.ProcessFolder) -> bool:
    """Return whether the process's files are those of gdb: their paths, by which gdb trusts scripts that lie beside
    them, are no container's."""
    with contextlib.suppress(OSError):
        root = FileSystems(folder).find(folder.path("root") + "/")
        own = os.stat("/")
        if root is None or (root.device, root.inode) != (own.st_dev, own.st_ino):
            return False
        spaces = [os.stat(path) for path in (folder.path("ns/mnt"), f"{procfs.PROC}/self/ns/mnt")]
        return os.path.samestat(*spaces)
    return False


def _read_program(folder: procfs.ProcessFolder) -> None:
    """Have gdb read the program, unless it has one already."""
    path = folder.link("exe")
    if program() is None:
        with contextlib.suppress(gdb.error):
            gdb.execute(f"file {word_of(path)}", to_string=True)


def _libraries(folder: procfs.ProcessFolder) -> list[str]:
    """libpython and libc as the process has them mapped; none when it may not be looked at."""
    with contextlib.suppress(OSError):
        mappings = parse_maps(folder.read("maps", procfs.TABLE_LIMIT))
        paths = {
            mapping.path
            for mapping in mappings
            if os.path.basename(mapping.path).startswith(("libpython", "libc.so", "libc-"))
        }
        return sorted(paths)
    return []


def _spare_inferior(path: str) -> int | None:
    """An inferior that holds the symbols of a file: gdb shares them with every other that maps the same file."""
    before = {inferior.num for inferior in gdb.inferiors()}
    with contextlib.suppress(gdb.error):
        gdb.execute(f"add-inferior -no-connection -exec {word_of(path)}", to_string=True)
    return next((inferior.num for inferior in gdb.inferiors() if inferior.num not in before), None)
