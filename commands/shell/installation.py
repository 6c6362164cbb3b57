"""``gdbheap install``: make ``-x gdbheap`` work everywhere, by one line in the gdbinit that gdb reads.

gdb looks a script up on its source path; the line puts the folder of the loader there. gdb 11 and later read the first
of ``$XDG_CONFIG_HOME/gdb/gdbinit`` (``~/.config`` when it is unset) and ``~/.gdbinit``; gdb 10 reads only the last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from gdbheap.errors import GdbheapError, UsageError
from gdbheap.loader import FOLDER

__all__ = ["gdbinit", "install", "remove"]

MARK = "# gdbheap: 'gdbheap install --remove' takes out this line and the next one"


def gdbinit(environment: Mapping[str, str]) -> Path:
    """The file that gdb reads, or that it would read if it existed. Raises UsageError when there is no home."""
    candidates = _candidates(environment)
    if not candidates:
        raise UsageError("neither HOME nor XDG_CONFIG_HOME is set: gdb would read no gdbinit")
    return next((path for path in candidates if path.is_file()), candidates[-1])


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    home, config = environment.get("HOME", ""), environment.get("XDG_CONFIG_HOME", "")
    found = []
    if config or home:
        found.append((Path(config) if config else Path(home) / ".config") / "gdb" / "gdbinit")
    if home:
        found.append(Path(home) / ".gdbinit")
    return found


def install(environment: Mapping[str, str] = os.environ) -> str:
    """Add the line, once; a line that an installation elsewhere left is replaced. Returns the sentence to print."""
    path = gdbinit(environment)
    old = _read(path)
    new = _without(old)
    if new and not new.endswith("\n"):
        new += "\n"
    new += f"{MARK}\n{_directory_line()}\n"
    if new == old:
        return f"{path} already has gdb look in {FOLDER}; 'gdb -p PID -x gdbheap' works in any folder."
    _write(path, new)
    return f"{path} now has gdb look in {FOLDER} for scripts; 'gdb -p PID -x gdbheap' works in any folder."


def remove(environment: Mapping[str, str] = os.environ) -> str:
    """Take the line out again, also from a file that gdb has stopped reading since. Returns the sentence to print."""
    changed = []
    for path in _candidates(environment):
        old = _read(path)
        new = _without(old)
        if new != old:
            _write(path, new)
            changed.append(str(path))
    if not changed:
        return f"{gdbinit(environment)} has no line of gdbheap; nothing was changed."
    return f"{' and '.join(changed)} no longer mentions gdbheap."


def _directory_line() -> str:
    folder = str(FOLDER)
    if ":" in folder or "\n" in folder:
        raise GdbheapError(f"gdb's source path cannot name {folder}: it has a colon or a line break in it")
    quoted = "".join("\\" + letter if letter in " \t\\\"'" else letter for letter in folder)
    return f"directory {quoted}"


def _without(text: str) -> str:
    """The file without our two lines; anything else stays byte for byte."""
    lines = text.splitlines(keepends=True)
    kept: list[str] = []
    ours = False
    for line in lines:
        if line.rstrip("\n") == MARK:
            ours = True
        elif ours and line.startswith("directory "):
            ours = False
        else:
            ours = False
            kept.append(line)
    return "".join(kept)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise GdbheapError(f"cannot read {path}: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    """Replace the file in one step; a link keeps leading where it led."""
    target = Path(os.path.realpath(path))
    fresh = target.with_name(f"{target.name}.gdbheap-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(text.encode("utf-8", "surrogateescape"))
        _keep_owner(target, fresh)
        fresh.replace(target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise GdbheapError(f"cannot write {path}: {error.strerror}") from error


def _keep_owner(old: Path, fresh: Path) -> None:
    """Mode and owner of the file that is replaced: sudo must not take a user's gdbinit away."""
    if not old.exists():
        return
    status = old.stat()
    fresh.chmod(status.st_mode & 0o7777)
    with contextlib.suppress(PermissionError):
        os.chown(fresh, status.st_uid, status.st_gid)
