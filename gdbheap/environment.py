"""The one place that decides what of our environment counts.

Root that works for another user (sudo) may have been handed that user's variables (``sudo -E``), also by a second sudo.
Of those only the ones count that restrict, or say what the terminal, the language and the container are; whatever has
us load, write, fetch or run something does not."""

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
# What begins one that counts; LC_ALL and its kind name a language.
LOCALE = "LC_"
# elf.h: the kernel says so of a program that got rights from its file (set-uid, capabilities).
AT_SECURE, WORD = 23, 8
_given: dict[str, str] | None = None


def is_borrowed() -> bool:
    """Return whether our rights may not be those of the user whose variables these are (sudo, set-uid programs)."""
    # Whomever it names: "sudo -E" in a root shell that "sudo -E" opened hands on the first user's variables.
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
    """Return the value of a variable; "" where it is not set, or does not count."""
    return os.environ.get(name, "") if _counts(name) or not is_borrowed() else ""


def _counts(name: str) -> bool:
    return name in HONOURED or name.startswith(LOCALE)


def given() -> Mapping[str, str]:
    """Return all variables as they were before ``clean``, for what is done with their own user's rights."""
    return os.environ if _given is None else _given


def clean() -> None:
    """Leave in our own process, and so in all that it starts, what counts. Only a program of our own may do so."""
    global _given
    if not is_borrowed():
        return
    _given = dict(os.environ)
    for name in _given:
        if not _counts(name):
            del os.environ[name]
    os.environ.update(PATH=SAFE_PATH, HOME=home())


def home() -> str:
    """Return the home folder that counts; "" without any."""
    try:
        return trusted("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def find_program(name: str) -> str | None:
    """Return the path of a program that we start for our own work; never one below the current folder."""
    path = SAFE_PATH if is_borrowed() else os.environ.get("PATH", SAFE_PATH)
    for folder in filter(os.path.isabs, path.split(os.pathsep)):
        found = os.path.join(folder, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return None
