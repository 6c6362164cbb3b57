"""``gdbheap install``: add one line to gdbinit, so that gdb knows the commands from its start.

The line runs gdbheap/loader/start.py by its full path. gdb 11 and later read the first of these files that exists:
``$XDG_CONFIG_HOME/gdb/gdbinit`` (in ``~/.config`` if the variable is not set), then ``~/.gdbinit``. gdb 10 reads only
``~/.gdbinit``."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path

from gdbheap.commands.shell.acting import apart, as_user
from gdbheap.errors import GdbheapError, NotPermitted, UsageError, one_line
from gdbheap.files import write_bytes
from gdbheap.files.trust import OWN, SHARED, is_trusted, kind_of_folder
from gdbheap.loader import FOLDER, START

__all__ = ["gdbinit", "install", "remove"]

MARK = "# gdbheap: 'gdbheap install --remove' takes out this line and the next one"
# The beginnings of the line after MARK. Installations from before start.py existed have "directory".
OURS = ("python ", "directory ")
# The line must also work after gdbheap was removed, and in a gdb that embeds a Python too old for gdbheap.
LINE = (
    "python (lambda file, os, sys: sys.version_info < (3, 9) or "
    '(eval(compile(open(file, "rb").read(), file, "exec"), {}) if os.access(file, os.R_OK) else gdb.write('
    '"gdbheap: there is no " + file + ": gdbheap install --remove takes out the line of gdbinit that names it\\n", '
    'gdb.STDERR)))({path}, __import__("os"), __import__("sys"))'
)
# The real path, so that only the folders above the real file must be checked.
FILE = START.resolve()
ROOT = 0
LEAVE = " (the process is stopped until you leave gdb)"
NEW_MODE, LARGEST = 0o644, 1 << 20


def gdbinit(environment: Mapping[str, str]) -> Path:
    """Return the path of the gdbinit that gdb reads or, if none exists, would read. Raises UsageError if no home is
    set."""
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


def install(environment: Mapping[str, str]) -> str:
    """Add the line to gdbinit, replacing the line of another installation.

    Return the sentence to print. Raises GdbheapError.
    """
    return _with_rights_of_the_home(environment, lambda: _install(environment))


def remove(environment: Mapping[str, str]) -> str:
    """Remove the line from gdbinit, also from a gdbinit that gdb no longer reads. Return the sentence to print. Raises
    GdbheapError."""
    return _with_rights_of_the_home(environment, lambda: _remove(environment))


def _install(environment: Mapping[str, str]) -> str:
    path = gdbinit(environment)
    _check_home(environment, path)
    _check_installation()
    old = _read(path)
    new = _without(old)
    if new and not new.endswith("\n"):
        new += "\n"
    new += f"{MARK}\n{LINE.replace('{path}', ascii(str(FILE)))}\n"
    if new == old:
        return f"{path} already makes gdb load {FOLDER.parent}. Type: gdb -p PID -ex heap{LEAVE}"
    _write(path, new)
    return f"{path} now makes gdb load {FOLDER.parent}. Type: gdb -p PID -ex heap{LEAVE}"


def _remove(environment: Mapping[str, str]) -> str:
    changed = []
    for path in _candidates(environment):
        old = _read(path)
        new = _without(old)
        if new != old:
            _write(path, new)
            changed.append(str(path))
    if not changed:
        return f"{gdbinit(environment)} does not load gdbheap; nothing was changed."
    return f"gdb no longer loads gdbheap: its line was removed from {' and '.join(changed)}."


def _check_home(environment: Mapping[str, str], path: Path) -> None:
    """Raise UsageError if the home folder of a gdbinit does not exist. Otherwise a folder with a mistyped name would be
    created."""
    for name in ("HOME", "XDG_CONFIG_HOME"):
        home = environment.get(name, "")
        if home and Path(home) in path.parents and not os.path.isdir(home):
            raise UsageError(f"gdbheap install: {name} is {one_line(home)}, and there is no such folder")


def _check_installation() -> None:
    """Raise NotPermitted if this user cannot read start.py, or if other users can change what gdb would run."""
    if not os.access(FILE, os.R_OK):
        raise NotPermitted(f"user {os.geteuid()} may not read {FILE}: install gdbheap where that user may read it")
    package = FILE.parent.parent
    # The outer folders come first: if others could nest folders too deeply for rglob, an outer folder is refused before
    # that.
    for path in chain((package.parent, package), package.rglob("*")):
        _check_place(path, (OWN,))
    # Nothing is imported from the folders above, so they may also be shared.
    for path in package.parent.parents:
        _check_place(path, (OWN, SHARED))


def _check_place(path: Path, allowed: tuple[str, ...]) -> None:
    """Raise NotPermitted unless the kind of a file or folder (see ``kind_of_folder``) is one of ``allowed``."""
    try:
        number = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise NotPermitted(f"{one_line(path)} cannot be checked: {error.strerror}") from error
    try:
        status = os.fstat(number)
        if kind_of_folder(number, status) in allowed:
            return
    finally:
        os.close(number)
    if not is_trusted(status.st_uid):
        what = "who could change what this user's gdb runs: install gdbheap as this user"
        raise NotPermitted(f"{one_line(path)} belongs to user {status.st_uid}, {what}")
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    advice = "install gdbheap in another folder" if is_sticky else f"chmod go-w {shlex.quote(str(path))}"
    what = f"others may change {one_line(path)} (mode {stat.S_IMODE(status.st_mode):04o})"
    raise NotPermitted(f"{what}, and so what this user's gdb runs: {advice}")


def _with_rights_of_the_home(environment: Mapping[str, str], act: Callable[[], str]) -> str:
    """Call ``act`` and return its result. If gdbheap runs as root and the home folder belongs to another user, ``act``
    runs with that user's rights. Raises GdbheapError."""
    if os.geteuid() != ROOT:
        return act()
    others = _owners(_candidates(environment)) - {ROOT}
    if not others:
        return act()
    if len(others) > 1:
        users = " and ".join(map(str, sorted(others)))
        raise NotPermitted(f"HOME and XDG_CONFIG_HOME lead through folders of users {users}: run this as one of them")
    return as_user(others.pop(), act)


def _owners(paths: list[Path]) -> set[int]:
    """Return the owners of these files and of all folders above them. This includes the owners along the paths as
    written and along the resolved paths. Raises GdbheapError if a file system does not answer."""
    what = "the check of the folders of HOME and XDG_CONFIG_HOME"
    found = apart(what, lambda: " ".join(str(owner) for path in paths for owner in _owners_of(path)))
    return set(map(int, found.split()))


def _owners_of(path: Path) -> set[int]:
    written = Path(os.path.abspath(path))
    leads = Path(os.path.realpath(path))
    found = set()
    for place in (written, *written.parents, leads, *leads.parents):
        try:
            found.add(place.lstat().st_uid)
        except OSError:
            continue
    return found


def _without(text: str) -> str:
    """Return the text of a gdbinit without gdbheap's two lines. All other bytes stay the same."""
    lines = text.splitlines(keepends=True)
    kept: list[str] = []
    ours = False
    for line in lines:
        if line.rstrip("\n") == MARK:
            ours = True
        elif ours and line.startswith(OURS):
            ours = False
        else:
            ours = False
            kept.append(line)
    return "".join(kept)


def _read(path: Path) -> str:
    """Return a file's text; "" if the file does not exist. Raises GdbheapError if the file cannot be read, is too
    large, or is not a regular file (reading a pipe could block)."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                raise GdbheapError(
                    f"{one_line(path)} is not a gdbinit: it must be a file of at most {LARGEST >> 20} MiB"
                )
            return stream.read().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise GdbheapError(f"cannot read {one_line(path)}: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    """Replace a file in one step, with the same mode. If it is a link, the link's target is replaced. Raises
    GdbheapError."""
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else NEW_MODE
        write_bytes(str(target), text.encode("utf-8", "surrogateescape"), mode)
    except UsageError as error:
        raise GdbheapError(error) from error
    except OSError as error:
        raise GdbheapError(f"cannot write {one_line(path)}: {error.strerror}") from error
