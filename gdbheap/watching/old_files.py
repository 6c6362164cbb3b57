"""Remove the files of old actions of a watch, so that a watch that runs for months does not fill the disk."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from gdbheap.errors import UsageError
from gdbheap.files.folders import HeldFolder, hold
from gdbheap.host.aside import do_aside

__all__ = ["ENDINGS", "remove_oldest_actions"]

# The endings of the files of an action, by their kind.
ENDINGS = {"heap": ".json", "snapshot": ".heap", "core": ".core"}
# A file's name is NAME-PID-TIME, a number if the name was taken, and a random part in a folder of several users.
NAME = re.compile(r"[\w-]+", re.ASCII)
AFTER_NAME = re.compile(
    rf"-\d{{1,10}}-(?P<time>\d{{8}}T\d{{6}}Z)(?P<taken>-\d{{1,9}}|)(?:-[0-9a-f]{{16}})?"
    rf"(?:{'|'.join(map(re.escape, ENDINGS.values()))})\Z",
    re.ASCII,
)


def remove_oldest_actions(path: str, keep: int, present: str) -> None:
    """Remove files of actions from the folder ``path``, except those of the ``keep`` newest actions.

    The files of the action ``present`` (NAME-PID-TIME) always stay. Other users' files, and files with other names,
    stay and are not counted. Nothing is reported if a file cannot be removed.
    """

    def remove() -> None:
        with suppress(OSError, ValueError, UsageError), hold(path, path) as folder:
            files = _files_of_actions(folder)
            newest_first = sorted(files, key=lambda action: (files[action][0], action), reverse=True)
            for action in newest_first[keep:]:
                for name in files[action][1] if action != present else ():
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder.number)

    # The folder is listed in a separate thread: another user who may read the folder can lock it and so keep us
    # waiting.
    do_aside(remove, lambda: 0)


def _files_of_actions(folder: HeldFolder) -> dict[str, tuple[str, list[str]]]:
    """Return the time of each action, and the names of its files, by the action's name. Raises OSError."""
    files: dict[str, tuple[str, list[str]]] = {}
    for name in folder.names():
        found = AFTER_NAME.search(name)
        if found is None or NAME.fullmatch(name[: found.start()]) is None or not folder.has_own_file(name):
            continue
        files.setdefault(name[: found.end("taken")], (found["time"], []))[1].append(name)
    return files
