"""Attach gdb to a process after reading the process's symbols, so that the process is stopped for a shorter time."""

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
from gdbheap.targets.stopping import when_untraced

__all__ = ["attach"]


def attach(pid: int) -> None:
    """Attach to a process. The symbols of its program, libpython and libc are read before it is stopped. Raises
    GdbheapError, which explains why gdb could not attach."""
    folder = refusal.open_folder(pid)
    when_untraced(folder, lambda: refusal.check(folder))
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
        # gdb has attached to the process id, which belongs to another process by now.
        gdb.execute("detach", to_string=True)
        raise refusal.another(folder)


def _is_at_home(folder: procfs.ProcessFolder) -> bool:
    """Return whether a process sees the same files as gdb.

    In a container, a path may name a different file than it does for gdb. This matters because gdb runs the scripts
    next to a file if it trusts the file's path.
    """
    with contextlib.suppress(OSError):
        root = FileSystems(folder).find(folder.path("root") + "/")
        own = os.stat("/")
        if root is None or (root.device, root.inode) != (own.st_dev, own.st_ino):
            return False
        spaces = [os.stat(path) for path in (folder.path("ns/mnt"), f"{procfs.PROC}/self/ns/mnt")]
        return os.path.samestat(*spaces)
    return False


def _read_program(folder: procfs.ProcessFolder) -> None:
    """Make gdb read the process's program, unless gdb already has a program."""
    path = folder.link("exe")
    if program() is None:
        with contextlib.suppress(gdb.error):
            gdb.execute(f"file {word_of(path)}", to_string=True)


def _libraries(folder: procfs.ProcessFolder) -> list[str]:
    """Return the paths of libpython and libc in a process's mappings; empty if the mappings may not be read."""
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
    """Add an inferior that reads the symbols of a file. Return its number; None if gdb did not add it.

    gdb then uses the same symbols for other inferiors that map the file.
    """
    before = {inferior.num for inferior in gdb.inferiors()}
    with contextlib.suppress(gdb.error):
        gdb.execute(f"add-inferior -no-connection -exec {word_of(path)}", to_string=True)
    return next((inferior.num for inferior in gdb.inferiors() if inferior.num not in before), None)
