"""Decide which of gdbheap's own environment variables are trusted. No other module decides this.

When root works for another user (sudo), the variables may be that user's (``sudo -E``, also through a second sudo).
Then a variable is trusted only if it restricts gdbheap, or describes the terminal, the language or the container.
Variables that make gdbheap load, write, fetch or run something are not trusted.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

__all__ = ["clean", "find_program", "given", "home", "is_borrowed", "trusted"]

SAFE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HONOURED = frozenset(
    "COLORTERM COLUMNS GDBHEAP_DEBUG GDBHEAP_LONG_STATE GDBHEAP_NO_TEXT KUBERNETES_SERVICE_HOST LANG LANGUAGE LINES"
    " LOGNAME NO_COLOR SUDO_COMMAND SUDO_GID SUDO_UID SUDO_USER TERM USER container".split()
)
# The prefix of trusted variables that name a language, such as LC_ALL.
LOCALE = "LC_"
# elf.h: the kernel sets this for a program that got rights from its file (set-uid, capabilities).
AT_SECURE, WORD = 23, 8
_given: dict[str, str] | None = None


def is_borrowed() -> bool:
    """Return whether gdbheap may have more rights than the user whose variables these are (sudo, set-uid programs)."""
    # This is so even if SUDO_UID names root: "sudo -E" in a root shell that "sudo -E" opened passes on the first user's
    # variables.
    if "SUDO_UID" in os.environ:
        return True
    return os.getuid() != os.geteuid() or os.getgid() != os.getegid() or _got_rights()


def _got_rights() -> bool:
    try:
        with open("/proc/self/auxv", "rb") as stream:
            data = stream.read()
    except OSError:
        return False
    words = [int.from_bytes(data[at : at + WORD], "little") for at in range(0, len(data), WORD)]
    return any(key == AT_SECURE and value for key, value in zip(words[::2], words[1::2]))


def trusted(name: str) -> str:
    """Return the value of a variable; "" if it is not set or not trusted."""
    return os.environ.get(name, "") if _counts(name) or not is_borrowed() else ""


def _counts(name: str) -> bool:
    return name in HONOURED or name.startswith(LOCALE)


def given() -> Mapping[str, str]:
    """Return all variables as they were before ``clean()`` was called, for work with that user's rights."""
    return os.environ if _given is None else _given


def clean() -> None:
    """Remove untrusted variables from this process, and so from all programs that it starts.

    Only gdbheap's own command may call this, not the library in another program.
    """
    global _given
    if not is_borrowed():
        return
    _given = dict(os.environ)
    for name in _given:
        if not _counts(name):
            del os.environ[name]
    os.environ.update(PATH=SAFE_PATH, HOME=home())


def home() -> str:
    """Return the home folder: the variable HOME if it is trusted, else the folder in the user database. Return "" if
    there is none.
    """
    try:
        return trusted("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def find_program(name: str) -> str | None:
    """Return the path of a program that gdbheap starts for its own work; None if it is not found.

    Relative folders in PATH, such as the current folder, are not searched.
    """
    path = SAFE_PATH if is_borrowed() else os.environ.get("PATH", SAFE_PATH)
    for folder in filter(os.path.isabs, path.split(os.pathsep)):
        found = os.path.join(folder, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return None
