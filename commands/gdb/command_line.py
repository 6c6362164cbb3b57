"""Parse and complete lines that are typed in gdb, and parse gdb's own command line. This module does not import gdb."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from gdbheap.commands.surface.completion import option_words
from gdbheap.commands.surface.declaration import AnyCommand
from gdbheap.dataclass import dataclass

__all__ = ["Invocation", "completions", "invocation", "own_invocation", "split"]

VALUED = frozenset(
    "args b baud c cd command core d D data-directory directory e early-init-command early-init-eval-command eiex eix "
    "eval-command ex exec i iex init-command init-eval-command interp interpreter ix l p pid s se symbols t tty ui "
    "x".split()
)

# Begins the comment of a line that the first page prints. gdb passes a comment on to the command.
COMMENT = "  # "


def split(line: str) -> list[str]:
    """Split a line into words. A comment at its end, which lines to paste may have, is left out. Quotes stay in the
    words, because they are a part of gdb's expressions.
    """
    # gdb removes the blanks before the first word.
    line = f"  {line}".partition(COMMENT)[0]
    try:
        return shlex.split(line, posix=False)
    except ValueError:
        return line.split()


def completions(command: AnyCommand, text: str, word: str) -> list[str]:
    """Return the possible completions of ``text``: options, and the values of options that accept only a few values.

    gdb replaces only ``word``: the part of the last word after its last separator, as gdb defines separators.
    """
    last = text[max(text.rfind(" "), text.rfind("\t")) + 1 :]
    kept = len(last) - len(word)
    return [found[kept:] for found in option_words(command) if found.startswith(last) and last.startswith("-")]


@dataclass(frozen=True)
class Invocation:
    """gdb's own command line: whether gdb runs as a batch, and the process or the core that the line names."""

    batch: bool = False
    pid: int | None = None
    core: str | None = None
    asked: bool = False
    """Whether gdb's command line names a script called gdbheap."""


def invocation(arguments: Sequence[str]) -> Invocation:
    """Parse gdb's own command line. An option may have one hyphen or two. Its value follows "=" or is the next word."""
    batch = asked = False
    pids, cores, others = [], [], []
    words = iter(arguments[1:])
    for word in words:
        name, given, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            others.append(word)
            continue
        if name == "args":
            break
        if name in VALUED and not given:
            value = next(words, "")
        batch |= name in ("batch", "batch-silent")
        asked |= bool(re.search(r"(^|[/\s])gdbheap$", value))
        pids += [value] if name in ("p", "pid") else []
        cores += [value] if name in ("c", "core") else []
    given_second = others[1] if len(others) > 1 else ""
    (pids if given_second.isdecimal() else cores).append(given_second)
    return Invocation(
        batch, next((int(pid) for pid in pids if pid.isdecimal()), None), next(filter(None, cores), None), asked
    )


def own_invocation() -> Invocation:
    """Return the command line of the gdb in which this Python is embedded."""
    try:
        with open("/proc/self/cmdline", "rb") as stream:
            return invocation([os.fsdecode(word) for word in stream.read().split(b"\0")[:-1]])
    except OSError:
        return Invocation()
