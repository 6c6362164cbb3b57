"""The usual name of a program: the name of the script that an interpreter runs, or else the first word of the command
line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from gdbheap.host.file_systems import FileSystems

__all__ = ["command_words", "program_name"]

INTERPRETERS = re.compile(r"(python|pypy|ruby|perl|php|node|nodejs|bash|sh|java)[0-9.]*(-dbg|m|d)?\Z")
# Options of interpreters that take the next word as a value, and options that replace the script.
PYTHON = ("python", "pypy")
OF_PYTHON = ("-X", "-W", "--check-hash-based-pycs")
OF_OTHERS = ("-r", "--require", "-I", "-cp", "-classpath", "--class-path", "--import")
MODULE, CODE, JAR = "-m", ("-c", "-e"), "-jar"
# Scripts without a name: the shell's <(…), and standard input.
DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
LONGEST = 60


def program_name(arguments: Sequence[str], exe: str | None) -> str:
    """Return the program's name, at most LONGEST characters.

    ``arguments``: the command line; ``exe``: the program's file. A program may overwrite its command line with a title,
    such as "nginx: worker process". The name is then taken from the title.
    """
    first = arguments[0] if arguments else ""
    if not first.strip():
        return os.path.basename(exe or "")[:LONGEST]
    if ": " in first or len(arguments) == 1 and " " in first:
        return _titled(first.strip(), exe)[:LONGEST]
    name = os.path.basename(first).lstrip("-") or first
    with_value = OF_PYTHON if name.startswith(PYTHON) else OF_OTHERS
    script = _script(arguments[1:], with_value) if INTERPRETERS.match(name) else ""
    return (f"{name} {script}" if script.startswith("-") else script or name)[:LONGEST]


def command_words(arguments: Sequence[str], exe: str | None, executed: str = "") -> list[str]:
    """Return the words that start the program again.

    The first word is the program's file ``exe``, or a link to it through which the program was started. ``executed``:
    such a link, as in a virtual environment. The list is empty if the program overwrote its command line, or if this
    cannot be read.
    """
    first = arguments[0] if arguments else ""
    is_title = ": " in first or len(arguments) == 1 and " " in first and first != exe
    if not first or exe is None or is_title or "\ufffd" in "".join(arguments):
        return []
    systems = FileSystems()
    found = {path: systems.find(path) for path in (executed, first) if path.startswith("/")}
    links = [path for path, held in found.items() if held is not None and held.path == exe]
    return [links[0] if links else exe, *arguments[1:]]


def _titled(title: str, exe: str | None) -> str:
    """Return the program's name in a title.

    Some titles begin with a path, as that of redis-server does. If this is the path of the program's file or of a link
    to it, the result is its file name. The path may be relative. Any other title is returned whole.
    """
    path, _, words = title.partition(" ")
    is_path = path.startswith("/") and bool(words) and not (exe or "").startswith(f"{path} ")
    if is_path or words and exe and _is_link(os.path.basename(path), exe):
        return os.path.basename(path)
    return os.path.basename(title) if title == exe else title


def _is_link(name: str, exe: str) -> bool:
    """Return whether ``name`` is the name of a program's file, or of a link to it in the same folder. Return False for
    an interpreter, because the words after its name say what it runs.
    """
    if not name or name.endswith(":") or INTERPRETERS.match(name):
        return False
    if name == os.path.basename(exe):
        return True
    held = FileSystems().find(os.path.join(os.path.dirname(exe), name))
    return held is not None and held.path == exe


def _script(words: Sequence[str], with_value: Sequence[str]) -> str:
    """Return the name of the script or module that an interpreter runs; "" if it runs neither.

    ``words``: the arguments after the interpreter. ``with_value``: options that take a value.
    """
    left = list(words)
    while left:
        word = left.pop(0)
        if word in (MODULE, JAR):
            return f"{word} {os.path.basename(left[0])}" if left else ""
        if word in CODE:
            return ""
        if word in with_value:
            left[:1] = []
        elif not word.startswith("-"):
            return "" if word.startswith(DESCRIPTORS) else os.path.basename(word)
    return ""
